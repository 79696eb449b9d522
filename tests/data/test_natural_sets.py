"""ImageNet-V2 with both kinds of folders and ObjectNet with its border, on trees made here."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast import EvalProtocol
from holdfast.data.imagenet_classes import wnids
from holdfast.data.natural_sets import open_imagenet_v2, open_objectnet
from holdfast.errors import HoldfastError
from holdfast.evaluation.data import open_evaluation_data, with_model_labels
from holdfast.published import published

SOME = (0, 1, 2, 10, 99, 113, 999)
OBJECTS = published("objectnet")["classes"]


class Reads(nn.Module):
    """Its best output is the number that the red and green of an image's centre tell: 4 times red, plus green / 64."""

    def forward(self, images):
        red, green = (255 * images[:, channel, 112, 112] for channel in (0, 1))
        number = 4 * red.round() + (green / 64).round()
        return -(torch.arange(1000).float() - number[:, None]).abs()


def picture(index, *, size=224):
    image = Image.new("RGB", (size, size), (index // 4, 64 * (index % 4), 0))
    return image


@pytest.fixture(scope="module", params=["numbers", "wnids"])
def v2(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("v2")
    for index in range(1000):
        (root / (str(index) if request.param == "numbers" else wnids()[index])).mkdir()
    for index in SOME:
        picture(index).save(root / (str(index) if request.param == "numbers" else wnids()[index]) / "a.png")
    return root


@pytest.mark.parametrize("name", ["imagenet-v2", "imagenet-v2-threshold", "imagenet-v2-top"])
def test_a_model_that_reads_the_class_is_always_right(v2, name):
    options = {"workers": 0, "protocol": EvalProtocol(size=224, mean=(0, 0, 0), std=(1, 1, 1))}
    records = holdfast.evaluate(Reads(), f"{name}:{v2}", name, **options)
    assert sorted(records.cells[name].targets) == list(SOME)
    assert records.summary()[name.replace("-", "_")].value == 100
    assert "class_map" not in records.header
    assert records.header["class_names"][:2] == ["tench", "goldfish"]  # also where the folders are numbers


def test_a_missing_folder_of_v2_is_refused_because_ranks_would_shift(tmp_path):
    for index in range(999):
        (tmp_path / str(index)).mkdir()
    with pytest.raises(HoldfastError, match="1000 folders, 0 to 999 or wnids, but 1 are missing"):
        open_imagenet_v2(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(HoldfastError, match="are missing"):
        open_imagenet_v2(tmp_path)


@pytest.fixture
def objectnet(tmp_path):
    """The 113 folders and one that ImageNet lacks; every image has a red border of two pixels."""
    for number, name in enumerate([*OBJECTS, "air_freshener"]):
        (tmp_path / "images" / name).mkdir(parents=True)
        index = OBJECTS[name][-1] if name in OBJECTS else number
        bordered = Image.new("RGB", (228, 228), (255, 0, 0))
        bordered.paste(picture(index), (2, 2))
        bordered.save(tmp_path / "images" / name / "a.png")
    return tmp_path


def test_objectnet_keeps_113_folders_and_cuts_the_border(objectnet):
    source = open_objectnet(objectnet)
    assert (len(source), source.classes) == (113, tuple(OBJECTS))
    image = np.asarray(source.image(0))
    assert image.shape == (224, 224, 3)
    assert (image == image[0, 0]).all()


def test_objectnet_is_right_with_any_output_of_a_folder_and_only_125_are_answers(objectnet):
    options = {"workers": 0, "protocol": EvalProtocol(size=224, mean=(0, 0, 0), std=(1, 1, 1))}
    records = holdfast.evaluate(Reads(), f"objectnet:{objectnet}", "objectnet", **options)
    assert records.summary()["objectnet"].value == 100
    found = records.header["class_map"]
    assert (found["name"], found["aggregation"], found["mapped"]) == ("objectnet", "max", 125)


def test_a_model_whose_class_names_are_translated_is_restricted_as_well(objectnet):
    data = open_evaluation_data(f"objectnet:{objectnet}")
    names = tuple(f"Klasse {number}" for number in range(1000))
    found = with_model_labels(data, names, {"": torch.zeros(1, 1000)})
    assert found.class_map is not None
    assert found.class_map.restricted


def test_objectnet_without_one_of_its_folders_is_refused(objectnet):
    (objectnet / "images" / "chair" / "a.png").unlink()
    (objectnet / "images" / "chair").rmdir()
    with pytest.raises(HoldfastError, match=r"113 folders that ImageNet has, but 1 are missing \(chair\)"):
        open_objectnet(objectnet)


def test_objectnet_is_no_training_data(objectnet):
    with pytest.raises(HoldfastError, match="is an official test set"):
        holdfast.data.open_data(f"objectnet:{objectnet}")
