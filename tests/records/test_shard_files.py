"""Unit files: a changed byte is noticed, a damaged file is kept and never read."""

import shutil

import pytest

from holdfast.records.records import load_records, read_records
from holdfast.records.shard_files import DamagedUnit, read_unit, set_aside, unit_name, write_unit
from tests.records.test_records import unit, whole_cell


@pytest.mark.parametrize("position", [0.02, 0.3, 0.6, 0.97])
def test_a_changed_byte_is_noticed(folder, position):
    path = write_unit(folder, unit("clean", 0, [0, 1, 2]))
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(DamagedUnit, match=r"clean\.00000\.safetensors is damaged"):
        read_unit(path)


@pytest.mark.parametrize("length", [0, 7, 200, -1])
def test_a_shortened_file_is_noticed_and_its_cell_not_used(folder, length, caplog):
    whole_cell(folder, "clean")
    path = folder / unit_name("clean", 1)
    path.write_bytes(path.read_bytes()[:length])
    records = read_records(folder)
    assert records.incomplete == {"clean": (1, 2)}
    assert not records.cells
    assert "damaged" in caplog.text


def test_a_unit_under_another_cells_name_is_not_believed(folder, caplog):
    whole_cell(folder, "fog/3")
    for shard in (0, 1):
        shutil.copyfile(folder / unit_name("fog/3", shard), folder / unit_name("snow/3", shard))
    (records,) = load_records(folder)
    assert list(records.cells) == ["fog/3"]
    assert "snow.3.00000.safetensors does not contain the unit of its name" in caplog.text


def test_setting_aside_keeps_every_damaged_file(folder):
    for _ in range(2):
        set_aside(write_unit(folder, unit("clean", 0, [0, 1, 2])))
    assert sorted(path.name for path in folder.glob("clean*")) == [
        "clean.00000.safetensors.damaged",
        "clean.00000.safetensors.damaged1",
    ]
    assert not read_records(folder).cells


def test_no_temporary_file_is_left(folder):
    whole_cell(folder, "fog/3")
    assert sorted(path.name for path in folder.iterdir()) == [
        "evaluation.json",
        "fog.3.00000.safetensors",
        "fog.3.00001.safetensors",
        "images.safetensors",
    ]
