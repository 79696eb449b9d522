"""Records of format 1, written before cells were typed and tasks had names, are read as what they are."""

from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.metrics.comparison import compare
from holdfast.records.cells import CLEAN, CellSpec, attack_cell, corruption_cell, sequence_cell, set_cell, spec_of
from holdfast.records.records import load_records

FOLDER = Path(__file__).parent / "format1"
SEVERITIES = range(1, 6)


@pytest.fixture(scope="module")
def before():
    (records,) = load_records(FOLDER)
    return records


def test_they_are_of_classification_and_their_cells_have_types(before):
    assert before.task == "classification"
    assert [cell.spec for cell in before.cells.values()] == [
        CLEAN,
        *(corruption_cell("frost", severity) for severity in SEVERITIES),
        sequence_cell("rotate"),
        attack_cell("fgsm"),
        attack_cell("occlusion-learned"),
    ]


def test_their_scores_are_those_of_their_time(before):
    scores = before.summary(intervals=False)
    expected = {
        "clean": 100.0,
        "nll": 0.8564492886265119,
        "accuracy/frost": 53.333333333333336,
        "fp/rotate": 0.0,
        "attack/fgsm": 33.33333333333333,
        "attack/occlusion-learned": 53.333333333333336,
    }
    assert {name: scores[name].value for name in expected} == pytest.approx(expected, abs=1e-12)


def test_a_learned_occlusion_fitted_per_shard_is_never_compared_with_one_fitted_once(before):
    import holdfast
    from tests.evaluation.toys import Brightest, colours

    suites = "clean,fgsm,occlusion-learned"
    now = holdfast.evaluate(Brightest(), colours(6), suites, workers=0, show=False)
    assert {"clean", "attack/fgsm"} <= set(compare(now, before).differences)
    assert "attack/occlusion-learned" not in compare(now, before).differences


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"cell": "clean", "suite": "clean"}, CLEAN),
        ({"cell": "frost/2", "suite": "c", "kind": "frost(procedural)", "severity": 2}, corruption_cell("frost", 2)),
        ({"cell": "sequence/tilt", "suite": "perturbations", "kind": "tilt", "frames": 31}, sequence_cell("tilt")),
        ({"cell": "pgd5", "suite": "pgd5", "attack": "GradientAttack", "settings": {}}, attack_cell("pgd5")),
        ({"cell": "imagenet-a", "suite": "imagenet-a", "set": "imagenet-a", "content": "0"}, set_cell("imagenet-a")),
        ({"cell": "night", "family": "condition", "kind": "night"}, CellSpec("night", "condition", "night")),
    ],
)
def test_a_header_without_a_family_is_understood_by_what_else_it_holds(header, expected):
    assert spec_of(header) == expected


def test_a_header_that_says_nothing_is_refused():
    with pytest.raises(HoldfastError, match="cell 'fog' must name its family, one of"):
        spec_of({"cell": "fog"})
