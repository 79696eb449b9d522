"""Records: what was written is what is read, damage is noticed, an unreadable image counts in no cell."""

import shutil

import numpy as np
import pytest

from holdfast.cells import corruption_cell
from holdfast.errors import HoldfastError
from holdfast.records.header import write_header, write_images
from holdfast.records.records import CellRecord, Records, load_records, read_records
from holdfast.records.shard_files import Unit, unit_name, write_unit
from tests.records.making_records import spec_named

IDS = [f"class/{number}\nodd.png" for number in range(5)]  # a file name may hold a line break
TARGETS = np.array([0, 1, 2, 0, 1])


def unit(cell: str, shard: int, rows: list[int], *, views=("",), excluded=(), frames: int | None = None) -> Unit:
    shape = (len(rows),) if frames is None else (len(rows), frames)
    arrays = {}
    for number, view in enumerate(views):
        prefix = f"{view}|" if view else ""
        arrays |= {
            f"{prefix}predictions": np.full(shape, number, dtype=np.int32),
            f"{prefix}confidences": np.full(shape, 0.5, dtype=np.float32),
            f"{prefix}nll": np.full(shape, 0.7, dtype=np.float32),
            f"{prefix}top5": np.ones(shape, dtype=bool),
        }
    header = {
        "cell": cell,
        "definition": {"suite": cell.partition("/")[0], **spec_named(cell).plain()},
        "shard": shard,
        "fingerprint": "f" * 8,
    }
    return Unit(header | {"views": list(views)}, np.array(rows), np.array(excluded, dtype=np.int64), arrays)


def start(folder, views=("",)):
    folder.mkdir(parents=True)
    write_header(folder, {"fingerprint": "f" * 8, "shard_size": 3, "views": list(views), "data": "digits"})
    write_images(folder, IDS, TARGETS)
    return folder


def whole_cell(folder, cell, **options):
    write_unit(folder, unit(cell, 0, [0, 1, 2], **options))
    write_unit(folder, unit(cell, 1, [3, 4], **options))


def test_a_cell_is_put_together_from_its_shards(folder):
    whole_cell(folder, "fog/3")
    (records,) = load_records(folder.parents[1])
    cell = records.cells["fog/3"]
    assert cell.ids.tolist() == IDS
    assert cell.targets.tolist() == TARGETS.tolist()
    assert cell.right.tolist() == [1, 0, 0, 1, 0]
    assert cell.accuracy == 0.4
    assert cell.header == {"cell": "fog/3", "suite": "fog", "family": "corruption", "kind": "fog", "severity": 3}
    assert cell.spec == corruption_cell("fog", 3)
    assert records.header["data"] == "digits"
    assert records.views == ("",)


def test_a_cell_without_all_its_shards_is_incomplete(folder):
    whole_cell(folder, "clean")
    write_unit(folder, unit("fog/3", 1, [3, 4]))
    records = read_records(folder)
    assert list(records.cells) == ["clean"]
    assert records.incomplete == {"fog/3": (1, 2)}


def test_an_image_that_one_cell_could_not_read_counts_in_no_cell(folder):
    whole_cell(folder, "clean")
    write_unit(folder, unit("fog/3", 0, [0, 2], excluded=[1]))
    write_unit(folder, unit("fog/3", 1, [3, 4]))
    records = read_records(folder)
    for cell in records.cells.values():
        assert cell.ids.tolist() == [IDS[0], *IDS[2:]]
        assert cell.excluded == (IDS[1],)
    assert records.excluded == (IDS[1],)


def test_every_view_has_its_own_cells(tmp_path):
    folder = start(tmp_path / "records", views=("joint", "rob"))
    whole_cell(folder, "clean", views=("joint", "rob"))
    records = read_records(folder)
    assert records.views == ("joint", "rob")
    assert records.cells["clean"].predictions.tolist() == [0] * 5
    assert records.view("rob").cells["clean"].predictions.tolist() == [1] * 5
    with pytest.raises(HoldfastError, match="view must be one of 'joint', 'rob', got 'robust'; did you mean 'rob'"):
        records.view("robust")


def test_sequences_keep_every_frame(folder):
    whole_cell(folder, "sequence/rotate", frames=4)
    cell = read_records(folder).cells["sequence/rotate"]
    assert cell.predictions.shape == (5, 4)
    assert cell.right.tolist() == [1, 0, 0, 1, 0]


def test_pandas_has_one_row_per_cell_view_image_and_frame(tmp_path):
    folder = start(tmp_path / "records", views=("joint", "rob"))
    whole_cell(folder, "clean", views=("joint", "rob"))
    whole_cell(folder, "sequence/rotate", views=("joint", "rob"), frames=4)
    table = read_records(folder).to_pandas()
    assert len(table) == 2 * 5 + 2 * 5 * 4
    clean = table[(table.cell == "clean") & (table["view"] == "rob")]
    assert clean.right.mean() == 0.4  # class 1
    assert clean.id.tolist() == IDS
    assert table[table.cell == "sequence/rotate"].frame.max() == 3


def test_a_unit_of_other_records_is_not_mixed_in(folder):
    whole_cell(folder, "clean")
    other = unit("clean", 1, [3, 4])
    write_unit(folder, Unit({**other.header, "fingerprint": "other"}, other.rows, other.excluded, other.arrays))
    assert read_records(folder).incomplete == {"clean": (1, 2)}


def test_a_copied_unit_counts_its_images_once(folder, caplog):
    """The file of shard 1 that holds shard 0: five images of which two are counted twice, were it believed."""
    whole_cell(folder, "fog/3")
    shutil.copyfile(folder / unit_name("fog/3", 0), folder / unit_name("fog/3", 1))
    (records,) = load_records(folder)
    assert records.incomplete == {"fog/3": (1, 2)}
    assert "fog.3.00001.safetensors does not contain the unit of its name" in caplog.text


def test_units_that_share_images_or_name_others_are_not_believed(folder, caplog):
    write_unit(folder, unit("fog/3", 0, [0, 1, 2]))
    write_unit(folder, unit("fog/3", 1, [2, 3]))
    write_unit(folder, unit("snow/3", 0, [0, 1, 2]))
    write_unit(folder, unit("snow/3", 1, [3, 99]))
    (records,) = load_records(folder)
    assert not records.cells
    assert set(records.incomplete) == {"fog/3", "snow/3"}
    assert "do not hold every image once" in caplog.text


def test_records_can_be_made_in_memory():
    cell = CellRecord(np.array(["a", "b"]), np.array([0, 1]), {"predictions": np.array([0, 0])})
    records = Records.of({"data": "x"}, {"clean": cell})
    assert records.cells["clean"].accuracy == 0.5
    two = Records.of({}, {"joint": {"clean": cell}, "rob": {"clean": cell}})
    assert two.views == ("joint", "rob")
    assert two.only(["fog/1"]).cells == {}
    with pytest.raises(HoldfastError, match="nll of a cell must have a row for each of its 2 images, got 3"):
        CellRecord(cell.ids, cell.targets, {"nll": np.zeros(3)})


def test_a_folder_that_is_not_there_is_named():
    with pytest.raises(HoldfastError, match="'nowhere' does not exist"):
        load_records("nowhere")


def test_other_targets_than_were_measured_are_refused(folder):
    """A header that is written after the images keeps a digest of them."""
    write_header(folder, {"fingerprint": "f" * 8, "shard_size": 3, "views": [""], "data": "digits"})
    whole_cell(folder, "fog/3")
    assert list(load_records(folder)[0].cells) == ["fog/3"]
    write_images(folder, IDS, TARGETS + 1)
    with pytest.raises(HoldfastError, match="not those that were measured"):
        load_records(folder)
