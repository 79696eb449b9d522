"""What is declared is used, what is used is declared, and what is shipped has a place in the changelog."""

import ast
import csv
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

ROOT = Path(__file__).parents[2]
IMPORTED_AS = {
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "pyyaml": "yaml",
}
BY_NAME = {"pyautoattack", "tensorboard", "wandb"}  # imported by their name as text, or by accelerate
BROUGHT_BY = {"google": "onnx"}  # protobuf, of which onnx needs the right version


def imported() -> set[str]:
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"holdfast"}


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    names = {re.match(r"[\w-]+", requirement)[0].lower() for requirement in every}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def test_dependencies_that_are_declared_are_used_and_the_reverse():
    used = {BROUGHT_BY.get(name, name) for name in imported()}
    assert used - declared() == set()
    assert declared() - used == BY_NAME


def test_speed_measurements_are_run_and_their_helpers_are_not():
    makefile = (ROOT / "Makefile").read_text()
    assert "grep -l __main__ perf/*.py" in makefile
    scripts = {path.name for path in (ROOT / "perf").glob("*.py") if "__main__" in path.read_text()}
    assert not scripts & {"environment.py", "interleave.py", "memory.py"}
    assert {"attacks.py", "corruptions.py", "evaluation.py", "training.py"} <= scripts


def test_what_scripts_import_from_the_package_is_there():
    """Measurements take hours and run rarely, so a name that has moved would be noticed late."""
    for path in [*(ROOT / "perf").glob("*.py"), *(ROOT / "docs" / "tools").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "holdfast":
                names = vars(import_module(node.module))
                modules = {name.name for name in iter_modules(names.get("__path__", ()))}
                assert {alias.name for alias in node.names} - {*names, *modules} - exported(names) == set(), path


def exported(names):
    """Names that a package loads when they are asked for."""
    return {*names["__dir__"]()} if "__dir__" in names else set()


def test_the_changelog_has_this_version_and_studies_ship_beside_recipes():
    from holdfast import __version__
    from holdfast.studies.config import study_names

    assert re.search(rf"^## {re.escape(__version__)}", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    package = ROOT / "src" / "holdfast"
    assert {name for name in study_names() if not (package / "studies" / f"{name}.yaml").is_file()} == set()
    assert (package / "recipes" / "photos.yaml").is_file()


def test_the_oldest_libraries_that_were_tried_are_the_lower_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    bounds = dict(re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement).groups() for requirement in every)
    with (ROOT / "docs" / "measured" / "versions.csv").open(newline="") as file:
        tried = {row["libraries"]: row for row in csv.DictReader(file)}
    for name in ("torch", "torchvision", "timm", "numpy", "pillow", "transformers", "onnxruntime"):
        oldest, newest = tried["lowest"][name], tried["newest"][name]
        assert (oldest + ".0").startswith(bounds[name] + "."), name
        assert [int(part) for part in oldest.split(".")] <= [int(part) for part in newest.split(".")]
