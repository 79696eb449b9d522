"""Flat folders and models with other classes: the lab shows them without labels."""

import pytest
from torch import nn

from holdfast.data import open_data
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.lab import inspect_image, open_model
from holdfast.lab.server import page_values
from holdfast.lab.session import Session, ViewState
from holdfast.lab.shipped import SHIPPED
from holdfast.models import create_model


@pytest.fixture
def folders(tmp_path):
    """The same digits in a flat folder and in folders of two classes."""
    source = open_data("digits:test", split="test")
    for index in range(4):
        for folder in ("flat", f"classes/{'odd' if source.targets[index] % 2 else 'even'}"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            source.image(index).save(tmp_path / folder / f"{index}.png")
    return tmp_path


@pytest.mark.parametrize(("folder", "reason"), [("flat", "no folders of classes"), ("classes", "the 2 classes of")])
def test_images_without_usable_labels_are_shown_without_verdicts(folders, folder, reason):
    session = Session([open_model(f"run:{SHIPPED}", f"folder:{folders / folder}")])
    assert reason in session.first.without_labels
    values = page_values(session)
    assert values["classes"] == ()
    assert values["notes"][0].startswith("FAN-nano is shown without labels: ")
    assert reason in values["notes"][0]
    assert values["names"] == ["FAN-nano"]
    assert session.strip(label=None, severity=0, page=0)["html"].count("data-image") == 4
    shown = session.inspect(ViewState(1, "fog/5"))["panels"][0]
    assert "badge" not in shown["answers"]
    seen = inspect_image(session.first, 1, "pgd/8")  # attacks lead away from the model's own answer
    assert seen.picture.target is None
    assert session.sweep(ViewState(1), "fog")["html"]
    assert b"<html" in session.download(ViewState(1, "fog/3"), "card.html")


def test_images_are_chosen_by_domain_and_the_class_map_is_named(tmp_path):
    source = open_data("digits:test", split="test")
    for index in range(8):
        folder = tmp_path / "data" / ("art" if index < 3 else "photo") / ("odd" if index % 2 else "even")
        folder.mkdir(parents=True, exist_ok=True)
        source.image(index).save(folder / f"{index}.png")
    maps = {"even": [0, 2, 4, 6, 8], "odd": [1, 3, 5, 7, 9]}
    model, spec = create_model("vit_nano", num_classes=10), f"domains:{tmp_path / 'data'}"
    session = Session([open_model(model, spec, protocol=EvalProtocol(class_map=maps))])
    values = page_values(session)
    assert (values["domains"], values["classes"]) == (("art", "photo"), ("even", "odd"))
    assert "2 classes from 10 of the model's 10 outputs (given), the mean of their probabilities" in values["notes"][0]
    found = session.strip(label=None, domain=0, severity=0, page=0)["html"]
    assert (found.count("data-image"), found.count("art/"), found.count("photo/")) == (3, 6, 0)
    odd = session.strip(label=1, domain=1, severity=0, page=0)["html"]
    assert odd.count("data-image") == 3  # 3, 5 and 7
    with pytest.raises(HoldfastError, match="domain must be one of the 2 of these data, got 2"):
        session.strip(label=None, domain=2, severity=0, page=0)


def test_predictions_of_imagenets_classes_have_names(folders):
    opened = open_model(create_model("vit_nano", num_classes=1000), f"folder:{folders / 'flat'}")
    assert opened.classes[:2] == ("tench", "goldfish")


def test_both_models_of_a_flat_folder_have_their_own_classes(folders):
    spec = f"folder:{folders / 'flat'}"
    first = open_model(f"run:{SHIPPED}", spec)
    second = open_model(create_model("vit_nano", num_classes=7), first.data)
    assert (len(first.classes), len(second.classes)) == (10, 7)
    assert len(Session([first, second]).inspect(ViewState(0))["panels"]) == 2


class Segmenter(nn.Module):
    task, num_classes = "segmentation", 11

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 11, 1)

    def forward(self, images):
        return self.layer(images)


def test_a_segmenter_takes_a_flat_folder(folders):
    protocol = EvalProtocol(mean=(0.5,) * 3, std=(0.5,) * 3)
    session = Session([open_model(Segmenter(), f"folder:{folders / 'flat'}", protocol=protocol)])
    titles = [each["title"] for each in session.inspect(ViewState(0, "fog/3"))["panels"][0]["pictures"]]
    assert titles == ["labels, before", "labels, after"]


def test_a_class_map_that_does_not_fit_is_still_an_error(folders):
    with pytest.raises(HoldfastError):
        open_model(f"run:{SHIPPED}", f"folder:{folders / 'classes'}", protocol=EvalProtocol(class_map="nowhere.csv"))
