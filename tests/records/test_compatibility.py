"""What a cell's name stands for was corrected: earlier records are read, but neither continued nor compared."""

import logging

import numpy as np
import pytest

from holdfast import evaluate
from holdfast.cells import attack_cell, corruption_cell, sequence_cell
from holdfast.corruptions.sequences import TEST_SEQUENCES
from holdfast.errors import HoldfastError
from holdfast.metrics.comparison import compare, over_runs
from holdfast.records.compatibility import with_revision
from holdfast.records.records import load_records
from holdfast.records.shard_files import Unit, read_unit, write_unit
from holdfast.reporting.export.tables import table_rows
from tests.evaluation.toys import Brightest, colours
from tests.records.making_records import cell, corrupted, flat, records

QUICK = {"workers": 0, "show": False}


def made_before(folder):
    """Rewrite units as the version before wrote them: with definitions that name no revision, and other answers."""
    for path in folder.rglob("*.safetensors"):
        if path.name.startswith(("sequence.", "patch-fool.")):
            unit = read_unit(path)
            definition = {key: value for key, value in unit.header["definition"].items() if key != "revision"}
            definition.get("settings", {}).pop("units", None)
            arrays = {**unit.arrays, "predictions": np.zeros_like(unit.arrays["predictions"])}
            write_unit(folder, Unit({**unit.header, "definition": definition}, unit.rows, unit.excluded, arrays))


def test_records_made_before_are_read_but_not_continued(tmp_path, caplog):
    suites = "clean,perturbations,patch-fool"
    new = evaluate(Brightest(), colours(2), suites, out=tmp_path, **QUICK)
    made_before(new.folder)
    (old,) = load_records(tmp_path)
    assert list(old.cells) == list(new.cells)
    assert not old.incomplete
    assert "revision" not in old.cells["sequence/rotate"].header
    assert {"mfp", "attack/patch-fool", "clean"} <= set(old.summary(intervals=False).scores)

    with caplog.at_level(logging.WARNING):
        again = evaluate(Brightest(), colours(2), suites, out=tmp_path, **QUICK)
    assert "sequence.rotate.00000.safetensors was measured with other settings" in caplog.text
    assert "clean.00000" not in caplog.text
    assert again.folder == new.folder
    for name in ("sequence/rotate", "sequence/gaussian_noise", "patch-fool"):
        assert again.cells[name].header["revision"] == 2
        np.testing.assert_array_equal(again.cells[name].predictions, new.cells[name].predictions)


def films(*, model, fool=True, **definition):
    frames = np.arange(12).reshape(3, 4) % 3 > 0
    cells = {f"sequence/{kind}": cell(frames, **definition) for kind in TEST_SEQUENCES}
    return records(
        {"clean": cell([True, True, False]), "patch-fool": cell([fool] * 3, **definition), **cells}, model=model
    )


def test_records_made_before_are_not_compared_with_new_ones():
    old, new = films(model="old"), films(model="new", fool=False, revision=2)
    assert list(compare(old, new).differences) == list(compare(new, old).differences)
    assert not {"mfp", "fp/rotate", "attack/patch-fool"} & set(compare(old, new).differences)
    assert "clean" in compare(old, new).differences
    for pair in ((old, old), (new, new)):
        assert {"mfp", "fp/rotate", "attack/patch-fool", "clean"} <= set(compare(*pair).differences)
    alone = [r.only(["patch-fool"]) for r in (old, new)]
    with pytest.raises(HoldfastError, match="must have a common cell"):
        compare(*alone)


def test_neither_averaged_nor_divided_by_nor_shown_side_by_side(caplog):
    old, new = films(model="old"), films(model="new", revision=2)
    assert "mfp" not in over_runs([old, new])
    assert "mfp" in over_runs([old, old])
    assert "mfr" in new.summary(baseline=new, intervals=False)
    assert "mfr" not in new.summary(baseline=old, intervals=False)
    assert "mfr" not in old.summary(baseline=new, intervals=False)
    caplog.clear()
    rows = list(table_rows([old, new], intervals=False))
    assert [row.value("mfp") is None for row in rows] == [True, False]
    assert "old: omitted cells that were measured by another definition: patch-fool, sequence/" in caplog.text
    assert [row.value("mfp") is None for row in table_rows([old, old], intervals=False)] == [False, False]


def test_stored_films_have_no_revision():
    stored, made = films(model="stored", set="cifar10-p"), films(model="made", revision=2)
    assert [row.value("mfp") is None for row in table_rows([stored, made], intervals=False)] == [False, False]


def test_of_the_corruptions_motion_blur_and_snow_are_others():
    before = records(corrupted(flat(0.5), count=4))
    floored = {name: {"revision": 2} if name.startswith(("motion_blur", "snow")) else {} for name in before.cells}
    after = records({name: cell([True] * 4, **header) for name, header in floored.items()})
    differences = compare(after, before).differences
    assert "accuracy/fog" in differences
    assert not {"accuracy/snow", "accuracy/motion_blur", "mce"} & set(differences)


@pytest.mark.parametrize(
    ("suite", "cell", "preset", "revision"),
    [
        ("perturbations", sequence_cell("rotate"), "cifar", 2),
        ("patch-fool", attack_cell("patch-fool"), "imagenet", 2),
        ("patch-fool-sparse", attack_cell("patch-fool-sparse"), "any", 2),
        ("occlusion-learned", attack_cell("occlusion-learned"), "cifar", 2),
        ("corruptions", corruption_cell("snow", 1), "cifar", 2),
        ("corruptions", corruption_cell("snow", 1), "any", None),  # imagecorruptions' was right
        ("corruptions", corruption_cell("fog", 1), "cifar", None),
        ("pgd5", attack_cell("pgd5"), "cifar", None),
    ],
)
def test_what_was_never_corrected_is_defined_as_before(suite, cell, preset, revision):
    expected = {"suite": suite} if revision is None else {"suite": suite, "revision": revision}
    assert with_revision({"suite": suite}, cell, preset=preset) == expected
