"""Rules of the architecture that no import contract can say."""

import re

from tests.packaging.test_mirror import ROOT

SOURCE = ROOT / "src" / "holdfast"
NAMES = r"(?:\"(?:classification|segmentation|detection)\"|CLASSIFICATION\b|SEGMENTATION\b|DETECTION\b)"
ASKS = re.compile(rf"\btask(?:_of\([^()]*\))?(?:\.name)? (?:==|!=|is|is not) {NAMES}|{NAMES} (?:==|!=) [\w.]*\btask\b")


def test_nothing_asks_for_the_name_of_a_task_but_for_what_it_can():
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if ASKS.search(line)
    ]
    assert not found, "give the parts of a task a member with a default instead, see holdfast.tasks.base"
    assert ASKS.search('if records.task == "detection":')
    assert ASKS.search("    if task_of(source).name != CLASSIFICATION:")


def test_a_toy_task_is_at_most_120_lines():
    counting = (ROOT / "tests" / "tasks" / "counting.py").read_text(encoding="utf-8")
    assert len(counting.splitlines()) <= 120


def test_packages_reach_upwards_by_a_name_in_few_places_only():
    """Late imports by name hide an edge from the contracts, so they are counted."""
    places = {
        str(path.relative_to(SOURCE)): found
        for path in SOURCE.rglob("*.py")
        if (found := len(re.findall(r"\bload\(\"holdfast", path.read_text(encoding="utf-8"))))
    }
    assert places == {"records/records.py": 2, "models/factory.py": 2}
