# Every target sets up what it needs on a fresh machine and is quick when repeated.
PYTHON ?= python3
VENV   := .venv
MINUTES ?= 60
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# what a fast check runs: numbers, records, rules and names; nothing that trains or opens a large model
FAST := tests/metrics tests/records tests/io tests/plotting tests/studies/test_config.py tests/data/test_official_sets.py \
	tests/docs/test_documentation.py tests/packaging/test_dependencies.py tests/packaging/test_mirror.py --ignore tests/io/test_training_log.py

.PHONY: demo check test test-all chaos lint bench docs clean

demo: $(READY)
	$(BIN)/holdfast demo

check: lint
	$(BIN)/pytest -n 2 --dist loadgroup -q -m "not full" $(FAST)

test: $(READY)
	$(BIN)/pytest -n 2 --dist loadgroup -m "not full"

test-all: $(READY)
	$(BIN)/pytest -n 2 --dist loadgroup --timeout 3600

chaos: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.chaos.campaign --minutes $(MINUTES)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md src docs perf examples studies

bench: $(READY)
	for script in $$(grep -l __main__ perf/*.py); do $(BIN)/python $$script || exit 1; done

docs: $(READY)
	$(BIN)/pip install --quiet --group docs
	$(BIN)/mkdocs build --strict

$(READY): pyproject.toml requirements-oracles.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --editable . --group dev
	$(BIN)/pip install --quiet --no-deps --requirement requirements-oracles.txt
	touch $(READY)

clean:
	rm -rf $(VENV) site dist build
