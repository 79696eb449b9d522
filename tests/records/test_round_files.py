"""Round files: what was written is read, images count once, damage and other records are left out."""

import numpy as np
import pytest

from holdfast.records.round_files import ROUNDS, CellPart, Measured, has_rounds, join_parts


def part(cell, rows, *, excluded=(), definition=None, value=0.0):
    rows = np.array(rows, np.int64)
    boxes = tuple(np.full((int(row) % 3, 4), value, np.float32) for row in rows)
    arrays = {"confidences": (rows + value).astype(np.float32), "boxes": boxes}
    return CellPart(cell, definition or {"kind": cell}, rows, np.array(excluded, np.int64), arrays)


def measured(folder, fingerprint="f"):
    return Measured(folder, fingerprint, [""])


def test_what_one_process_writes_another_reads_once(tmp_path):
    writer, reader = measured(tmp_path), measured(tmp_path)
    writer.write([part("fog/3", [0, 4]), part("snow/1", [2], excluded=[7])])
    assert has_rounds(tmp_path)
    assert {found.cell for found in reader.read_new()} == {"fog/3", "snow/1"}
    assert reader.read_new() == []
    found = reader.of("fog/3")
    assert found.rows.tolist() == [0, 4]
    assert found.arrays["confidences"].tolist() == [0, 4]
    assert [len(boxes) for boxes in found.arrays["boxes"]] == [0, 1]
    assert reader.of("snow/1").all_rows.tolist() == [2, 7]
    assert reader.of("clean") is None


def test_an_image_that_was_measured_twice_counts_once():
    joined = join_parts([part("fog/3", [5, 8], excluded=[9]), part("fog/3", [2, 5], excluded=[9])])
    assert joined.rows.tolist() == [2, 5, 8]
    assert joined.arrays["confidences"].tolist() == [2, 5, 8]
    assert [len(boxes) for boxes in joined.arrays["boxes"]] == [2, 2, 2]
    assert joined.excluded.tolist() == [9]
    assert joined.only(np.array([8, 9])).all_rows.tolist() == [8, 9]


def test_joining_the_files_changes_nothing_that_is_read(tmp_path):
    writer = measured(tmp_path)
    for row in range(6):
        writer.write([part("fog/3", [row]), part("snow/1", [10 + row])])
    writer.compact()
    assert len(list((tmp_path / ROUNDS).iterdir())) == 1
    reader = measured(tmp_path)
    reader.read_new()
    assert reader.of("fog/3").rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert reader.of("snow/1").rows.tolist() == [10, 11, 12, 13, 14, 15]
    reader.remove()
    assert not (tmp_path / ROUNDS).exists()


@pytest.mark.parametrize("kind", ["byte", "records"])
def test_damaged_files_and_those_of_other_records_are_set_aside(tmp_path, caplog, kind):
    measured(tmp_path, "f" if kind == "byte" else "other").write([part("fog/3", [0])])
    (path,) = (tmp_path / ROUNDS).iterdir()
    if kind == "byte":
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    reader = measured(tmp_path)
    assert reader.read_new(repair=True) == []
    assert "measuring again" in caplog.text
    assert [held.name for held in (tmp_path / ROUNDS).iterdir()] == [f"{path.name}.damaged"]


def test_cells_of_another_definition_are_forgotten(tmp_path, caplog):
    writer = measured(tmp_path)
    writer.write([part("pgd", [0, 1], definition={"eps": 1}), part("clean", [0])])
    writer.keep_only({"pgd": {"eps": 2}, "clean": {"kind": "clean"}}, repair=True)
    assert "measuring pgd again" in caplog.text
    reader = measured(tmp_path)
    reader.read_new()
    assert reader.of("pgd") is None
    assert reader.of("clean").rows.tolist() == [0]
