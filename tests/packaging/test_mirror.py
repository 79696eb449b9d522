"""Tests mirror the source; modules without a test of their name are listed, and the list may only shrink."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHOUT = ROOT / "tests" / "modules_without_a_test.txt"


def modules():
    """Modules by the path of the test file that mirrors them."""
    source = ROOT / "src" / "holdfast"
    paths = [path.relative_to(source) for path in source.rglob("*.py") if not path.name.startswith("__")]
    return {path.parent / f"test_{path.stem.removeprefix('_')}.py": path.as_posix() for path in paths}


def test_a_module_has_a_test_of_its_name_or_is_listed():
    missing = {name for test, name in modules().items() if not (ROOT / "tests" / test).is_file()}
    new = sorted(missing - set(listed()))
    assert not new, f"write tests/<package>/test_<module>.py for {', '.join(new)}"


def test_the_list_names_no_module_that_has_a_test_or_is_gone():
    missing = {name for test, name in modules().items() if not (ROOT / "tests" / test).is_file()}
    done = sorted(set(listed()) - missing)
    assert not done, f"remove {', '.join(done)} from {WITHOUT.name}: the list may only shrink"
    assert listed() == sorted(set(listed()))


def listed():
    return WITHOUT.read_text(encoding="utf-8").split()
