"""A class folder's label: its rank by value, the model's index, or the name that the model stores; never by chance."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast import EvalProtocol
from holdfast.cli.main import main
from holdfast.data import open_data
from holdfast.errors import HoldfastError
from holdfast.lab.opened_model import open_model
from holdfast.models.factory import load_model
from tests.training.helpers import run

PIXELS = EvalProtocol(size=32, mean=(0, 0, 0), std=(1, 1, 1))
STEP = 20  # grey levels between two classes


class ReadsLevel(nn.Module):
    """Always right: class n has the grey level 20 n."""

    def __init__(self, classes):
        super().__init__()
        self.register_buffer("levels", STEP * torch.arange(classes).float())

    def forward(self, images):
        level = 255 * images[:, 0].mean(dim=(1, 2))
        return -(level[:, None] - self.levels).abs()


def grey_folder(root, names):
    """One folder per name; its images are as bright as its number says."""
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (32, 32), (STEP * int(name),) * 3).save(root / name / f"{number}.png")
    return f"folder:{root}"


def clean(model, data, **options):
    """The records of the clean images, and the share of right answers in percent."""
    records = holdfast.evaluate(model, data, workers=0, protocol=PIXELS, **options)
    found = records.cells["clean"]
    return records, 100 * float((found.predictions == found.targets).mean())


def test_integer_folders_are_ranked_by_value_and_a_model_that_is_always_right_has_100_percent(tmp_path):
    data = grey_folder(tmp_path / "toy", map(str, range(12)))
    assert open_data(data).classes == tuple(map(str, range(12)))
    records, accuracy = clean(ReadsLevel(12), data)
    assert accuracy == 100
    assert records.header["labels"] == "rank"


def test_padded_numbers_and_words_keep_their_order(tmp_path):
    assert open_data(grey_folder(tmp_path / "padded", ["00", "01", "10", "02"])).classes == ("00", "01", "02", "10")
    for name in ("b10", "b2"):
        (tmp_path / "words" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "words" / name / "0.png")
    assert open_data(f"folder:{tmp_path / 'words'}").classes == ("b10", "b2")


def test_where_the_model_has_more_classes_a_folders_name_is_its_index(tmp_path):
    records, accuracy = clean(ReadsLevel(12), grey_folder(tmp_path / "some", ["2", "10", "7"]))
    assert accuracy == 100
    assert records.header["labels"] == "index"
    assert records.header["classes"] == 3  # of the data
    assert sorted(set(records.cells["clean"].targets)) == [2, 7, 10]


def test_a_name_that_is_no_index_of_the_model_is_refused(tmp_path):
    with pytest.raises(HoldfastError, match="must have the 2 classes"):
        clean(ReadsLevel(12), grey_folder(tmp_path / "some", ["2", "12"]))


def test_the_command_says_by_which_rule_labels_were_given(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "level_model.py").write_text(
        "from tests.data.test_class_labels import ReadsLevel\ndef build(): return ReadsLevel(12)\n"
    )
    data = grey_folder(tmp_path / "some", ["2", "10"])
    command = [
        "evaluate",
        "--model=python:level_model:build",
        "--data",
        data,
        "--suite=clean",
        "--workers=0",
        "--size=32",
    ]
    command += ["--mean", "0", "0", "0", "--std", "1", "1", "1"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert (
        f"labels of {data} from index: each class folder's name is the model's class index" in capsys.readouterr().out
    )


@pytest.fixture(scope="module")
def old_run(tmp_path_factory):
    """A run whose classes stand in the order of their names as text, as before."""
    root = tmp_path_factory.mktemp("old")
    data = grey_folder(root / "toy", map(str, range(12)))
    values = {"train": data, "val": data, "train_subset": None, "val_subset": None}
    run(root / "run", data=values, train={"epochs": 1, "batch_size": 8})
    config = json.loads((root / "run" / "config.json").read_text())
    assert config["label_names"] == list(map(str, range(12)))
    config["label_names"] = sorted(config["label_names"])
    (root / "run" / "config.json").write_text(json.dumps(config))
    return root / "run", data


def test_a_run_of_the_old_order_is_matched_by_the_names_it_stored(old_run):
    folder, data = old_run
    records, _ = clean(folder, data)
    assert records.header["labels"] == "name"
    assert records.header["class_names"] == sorted(map(str, range(12)))
    found = records.cells["clean"]
    named = {id.split("/")[0]: target for id, target in zip(found.ids, found.targets, strict=True)}
    assert named == {name: place for place, name in enumerate(sorted(map(str, range(12))))}
    lens = open_model(folder, data)
    np.testing.assert_array_equal(lens.source.targets, records.cells["clean"].targets)


def test_records_of_the_two_orders_are_kept_apart(old_run, tmp_path):
    folder, data = old_run
    first, _ = clean(folder, data, out=tmp_path)
    second, _ = clean(load_model(folder).model, data, out=tmp_path)  # a bare module stores no names
    assert first.header["model_fingerprint"] == second.header["model_fingerprint"]
    assert (first.header["labels"], second.header["labels"]) == ("name", "rank")
    assert first.folder != second.folder


def test_a_run_is_measured_on_some_of_its_classes_by_their_names(old_run, tmp_path):
    records, _ = clean(old_run[0], grey_folder(tmp_path / "some", ["2", "10"]))
    order = sorted(map(str, range(12)))
    assert sorted(set(records.cells["clean"].targets)) == sorted([order.index("2"), order.index("10")])
