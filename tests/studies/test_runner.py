"""A whole study through the command line, on digits: trained, measured, kept, continued, and made again from files."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from holdfast.cli.main import main
from holdfast.records.records import load_records
from holdfast.studies.config import load_study
from holdfast.studies.results import all_results, result_path
from holdfast.studies.runner import missing_runs, run_path, take_training, with_starts

STUDY = """# Two tiny rows
recipe: digits/fan_nano
common:
  data: {train_subset: 40, val_subset: 10, workers: 0}
  model: {kwargs: {embed_dim: 16, depth: 1, num_heads: 2}}
  train: {epochs: 1, batch_size: 20}
rows:
  baseline: {}
  ADL: {objective: {name: robust, options: {adl: {weight: 1.0, variant: paper}}}}
seeds: [0]
test: digits:test
limit: 20
suites: [clean, pgd5]
analyses: [overfocus]
claims:
  - {says: ADL spreads attention, row: ADL, against: baseline, column: top_share, expects: lower}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    file = folder / "tiny.yaml"
    file.write_text(STUDY, encoding="utf-8")
    assert main(["study", str(file), "--out", str(folder / "out")]) == 0
    return file, folder / "out"


def test_every_run_has_one_result_and_the_page_has_the_table(finished):
    file, out = finished
    study = load_study(file)
    results = all_results(out, study)
    assert list(results) == ["baseline", "ADL"]
    assert missing_runs(study, out) == []
    assert set(results["ADL"][0].right) == {"clean", "pgd5"}
    assert len(results["ADL"][0].measures["top_share"]) == 20
    assert results["ADL"][0].header["processor_seconds"]["train"] > 0
    assert results["ADL"][0].traces["adl_active_rows"].tolist() == [[2, 0]]
    page = (out / "summary.md").read_text(encoding="utf-8")
    assert page.startswith("# Two tiny rows")
    assert "ADL spreads attention" in page


def test_the_result_says_what_the_records_say(finished):
    file, out = finished
    (result,) = all_results(out, load_study(file))["baseline"]
    (records,) = load_records(out / "runs" / "baseline" / "seed0")
    assert result.right["clean"].tolist() == records.cells["clean"].right.tolist()
    with (out / "table.csv").open(encoding="utf-8") as text:
        line = next(csv.DictReader(text))
    assert float(line["pgd5"]) == pytest.approx(100 * records.cells["pgd5"].accuracy, rel=1e-5)


def test_a_run_in_half_precision_is_measured_in_it_and_others_are_not(finished, tmp_path):
    file, out = finished
    arguments = ["study", str(file), "--out", str(tmp_path), "--rows", "baseline", "--train.precision=bf16"]
    assert main(arguments) == 0
    (result,) = all_results(tmp_path, load_study(file, overrides={"train": {"precision": "bf16"}}))["baseline"]
    assert result.header["evaluation"]["amp"] == "bfloat16"
    (single,) = all_results(out, load_study(file))["baseline"]
    assert single.header["evaluation"]["amp"] == "no"


def test_nothing_finished_is_done_again_and_the_page_needs_no_runs(finished, capsys):
    file, out = finished
    page, times = (out / "summary.md").read_bytes(), result_path(out, "ADL", 0).stat().st_mtime_ns
    (out / "summary.md").unlink()
    assert main(["study", str(file), "--out", str(out)]) == 0
    assert "2 of 2 runs are finished" in capsys.readouterr().err
    assert result_path(out, "ADL", 0).stat().st_mtime_ns == times
    (out / "runs").rename(out / "elsewhere")
    try:
        (out / "summary.md").unlink()
        assert main(["study", str(file), "--out", str(out), "--table-only"]) == 0
    finally:
        (out / "elsewhere").rename(out / "runs")
    assert (out / "summary.md").read_bytes() == page


def test_what_a_study_beside_it_has_trained_is_measured_without_training_it_again(finished, tmp_path):
    _, first = finished
    trained, taken = (folder / "runs" / "baseline" / "seed0" for folder in (first, first.parent / "other"))
    other = tmp_path / "other.yaml"
    other.write_text(STUDY.replace("[clean, pgd5]", "[clean, fgsm]"), encoding="utf-8")
    arguments = ["study", str(other), "--out", str(first.parent / "other"), "--rows", "baseline"]
    assert main(arguments) == 0
    for name in ("log.jsonl", "model.safetensors", "recipe.yaml"):
        assert (taken / name).read_bytes() == (trained / name).read_bytes()
    (result,) = all_results(first.parent / "other", load_study(other))["baseline"]
    assert set(result.right) == {"clean", "fgsm"}
    cost = json.loads((trained / "cost.json").read_text())["train"]
    assert result.header["processor_seconds"]["train"] == cost
    assert not (taken / "checkpoints").exists()


def test_a_run_of_another_recipe_beside_it_is_not_taken(finished, tmp_path):
    file, first = finished
    recipe = load_study(file, overrides={"train": {"epochs": 2}}).recipe_of("baseline", 0)
    take_training(tmp_path / "new", recipe, beside=first.parent)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cifar10/mian"], "unknown study 'cifar10/mian'"),
        (["cifar10/main", "--seeds", "a"], "--seeds must be whole numbers"),
        (["cifar10/main", "--rows", "nothing"], "has no row 'nothing'"),
        (["cifar10/main", "--limit", "-1"], "limit of a study must be at least 1 test image, got -1"),
        (["cifar10/main", "--table-only", "--out", "nowhere"], "must hold results of this study, got none"),
        (["cifar10/main", "--processes", "0", "--out", "nowhere"], "processes must be at least 1"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["study", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_run_of_another_recipe_is_not_overwritten(finished, capsys):
    file, out = finished
    assert main(["study", str(file), "--out", str(out), "--train.epochs=2"]) == 2
    assert "is a run of another recipe: train.epochs (1, now 2)" in capsys.readouterr().err


TORA = """# Adapters on what another row trained
recipe: digits/vit_nano
common:
  data: {train_subset: 40, val_subset: 10, workers: 0}
  model: {kwargs: {embed_dim: 16, depth: 1, num_heads: 2, patch_size: 8}}
  train: {epochs: 1, batch_size: 20}
steps:
  robust: &tora
    model: {init: "run:{ViT}", adapt: {name: tora}}
    objective: {name: tora, options: {steps: 1}}
    train: {phases: {run: robust, weights: []}}
  phase 1:
    <<: *tora
    model: {init: "run:{ViT}", adapt: {name: tora, start: "{robust}"}}
    train: {phases: {run: accuracy, weights: []}}
rows:
  ViT: {}
  TORA:
    <<: *tora
    model: {init: "run:{ViT}", adapt: {name: tora, start: "{phase 1}"}}
    train: {phases: {run: joint, weights: [0.9]}}
seeds: [0, 1]
test: digits:test
limit: 20
suites: [clean]
"""


@pytest.fixture(scope="module")
def tora_study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tora")
    (folder / "tora.yaml").write_text(TORA, encoding="utf-8")
    return folder


def test_what_rows_start_from_comes_first_and_once(tora_study):
    study = load_study(tora_study / "tora.yaml")
    runs = with_starts(study, missing_runs(study, tora_study / "none"), tora_study / "none")
    assert runs[:4] == [("ViT", 0), ("robust", 0), ("phase 1", 0), ("TORA", 0)]
    assert [seed for _, seed in runs] == [0] * 4 + [1] * 4


def test_steps_are_trained_and_not_measured_with_several_processes_as_with_one(tora_study, capsys):
    file = str(tora_study / "tora.yaml")
    assert main(["study", file, "--out", str(tora_study / "one" / "out"), "--seeds", "0"]) == 0
    assert main(["study", file, "--out", str(tora_study / "two" / "out"), "--seeds", "0", "--processes", "2"]) == 0
    assert "2/2 TORA, seed 0" in capsys.readouterr().err
    study = load_study(file, seeds=[0])
    one, two = (all_results(tora_study / name / "out", study) for name in ("one", "two"))
    assert list(one) == ["ViT", "TORA"]
    assert one["TORA"][0].right["clean"].tolist() == two["TORA"][0].right["clean"].tolist()
    views = {"acc/clean", "rob/clean"}
    assert views <= one["TORA"][0].measures.keys()
    assert not views & one["ViT"][0].measures.keys()
    assert (run_path(tora_study / "one" / "out", "phase 1", 0) / "tora.json").exists()
    assert not (run_path(tora_study / "one" / "out", "phase 1", 0) / "records").exists()


def test_a_study_takes_the_runs_that_one_beside_it_has_done(finished, capsys):
    file, out = finished
    (file.parent / "beside.yaml").write_text(
        STUDY.replace("Two tiny rows", "Other rows").replace("  ADL: {", "  again: {").partition("claims")[0],
        encoding="utf-8",
    )
    beside = out.parent / "beside"
    assert main(["study", str(file.parent / "beside.yaml"), "--out", str(beside)]) == 0
    said = capsys.readouterr().err
    assert "2 runs were copied from neighbouring studies" in said
    assert not (beside / "runs").exists()
    results = all_results(beside, load_study(file.parent / "beside.yaml"))
    assert (
        results["again"][0].right["pgd5"].tolist()
        == all_results(out, load_study(file))["ADL"][0].right["pgd5"].tolist()
    )


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.full)])
def test_ctrl_c_leaves_one_sentence_and_a_study_that_goes_on(processes, tmp_path):
    file, out = tmp_path / "long.yaml", tmp_path / "out"
    file.write_text(STUDY.replace("epochs: 1", "epochs: 100000"), encoding="utf-8")
    # a shell that starts us in the background lets us ignore Ctrl-C; a terminal does not
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listening}; from holdfast.cli.main import entry_point; entry_point()"
    command = [sys.executable, "-c", code, "study", str(file)]
    started = subprocess.Popen(
        [*command, "--out", str(out), "--processes", str(processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    log = run_path(out, "ADL" if processes == 2 else "baseline", 0) / "log.jsonl"
    while not (log.exists() and '"epoch"' in log.read_text(encoding="utf-8")):
        assert started.poll() is None, started.communicate()[0]
        time.sleep(0.2)
    os.killpg(started.pid, signal.SIGINT)  # as a terminal does: the children hear it too
    said, _ = started.communicate(timeout=120)
    assert started.returncode == 130
    assert said.strip().splitlines() == ["stopped; run the same command again to resume"]
    assert (log.parent / "checkpoints" / "last").exists()
