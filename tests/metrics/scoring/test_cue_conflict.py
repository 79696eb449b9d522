"""Shape bias against brute force: only images whose cues differ, only answers with one of them."""

import html
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast import EvalProtocol
from holdfast.metrics import compare
from holdfast.metrics.consistency import error_consistency
from holdfast.metrics.jackknife import image_groups
from holdfast.published import published
from tests.data.test_cue_conflict import CLASSES, stimuli

MEMBERS = published("imagenet_16")["classes"]
PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "cue-conflict"
PIXELS = EvalProtocol(size=224, mean=(0, 0, 0), std=(1, 1, 1))


class Noisy(nn.Module):
    """A thousand outputs that are a random function of an image's colour."""

    def __init__(self, seed=0):
        super().__init__()
        self.register_buffer("weight", 9 * torch.randn(3, 1000, generator=torch.Generator().manual_seed(seed)))

    def forward(self, images):
        return torch.sin(40 * images.mean(dim=(2, 3)) @ self.weight)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Four pictures of every class, each with the texture of eight classes, one of them its own."""
    pairs = [
        (f"{shape}{content}", f"{CLASSES[(place + step) % 16]}{1 + content % 3}")
        for place, shape in enumerate(CLASSES)
        for content in range(1, 5)
        for step in range(8)
    ]
    return f"cue-conflict:{stimuli(tmp_path_factory.mktemp('cues'), pairs, size=224)}"


def measured(data, seed=0, **protocol):
    return holdfast.evaluate(Noisy(seed), data, "cue-conflict", workers=0, protocol=PIXELS)


def brute(records):
    """Numbers of answers with the shape and with the texture, of images with two cues, by class of shape."""
    cell = records.cells["cue-conflict"]
    counts = {name: [0, 0, 0] for name in CLASSES}
    for id, prediction in zip(cell.ids, cell.predictions, strict=True):
        shape, texture = (part.rstrip("0123456789") for part in id.split("/")[1].removesuffix(".png").split("-"))
        if shape != texture:
            answer = CLASSES[prediction]
            counts[shape] = np.add(counts[shape], (answer == shape, answer == texture, 1)).tolist()
    return counts


def test_scores_are_counted_by_hand(data):
    records = measured(data)
    found, counts = records.summary(), brute(records)
    shape, texture, images = np.sum(list(counts.values()), axis=0)
    assert images == 16 * 4 * 7
    assert found["shape_bias"].value == pytest.approx(100 * shape / (shape + texture), abs=1e-9)
    assert found["cue_accuracy"].value == pytest.approx(100 * (shape + texture) / images, abs=1e-9)
    assert found["shape_answers"].value == pytest.approx(100 * shape / images, abs=1e-9)
    assert found["texture_answers"].value == pytest.approx(100 * texture / images, abs=1e-9)
    assert found["shape_bias"].low < found["shape_bias"].value < found["shape_bias"].high
    for name, (of_shape, of_texture, _) in counts.items():
        if of_shape + of_texture:
            wanted = 100 * of_shape / (of_shape + of_texture)
            assert found[f"shape_bias/{name}"].value == pytest.approx(wanted, abs=1e-9)


def test_the_decision_is_the_mean_of_probabilities_over_the_207_outputs(data):
    records = measured(data)
    cell = records.cells["cue-conflict"]
    from holdfast.data import open_official

    source = open_official(data).open("cue-conflict")
    places = {source.id(row): row for row in range(len(source))}
    images = np.stack([np.asarray(source.image(places[id])) for id in cell.ids[:40]])
    p = Noisy().double()(torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255).softmax(dim=1).numpy()
    wanted = np.stack([p[:, MEMBERS[name]].mean(axis=1) for name in CLASSES], axis=1).argmax(axis=1)
    assert np.mean(wanted == cell.predictions[:40]) > 0.97  # sin of large numbers differs in single precision
    assert records.header["class_map"]["name"] == "imagenet-16"


def test_intervals_leave_out_content_images_and_pairs_are_paired(data):
    one, other = measured(data), measured(data, seed=1)
    groups = image_groups(one.cells["cue-conflict"].ids)
    assert (groups.count, groups.what) == (64, "the images of one content image")
    found = compare(one, other).differences["shape_bias"]
    assert found.interval.value == pytest.approx(found.first - found.second, abs=1e-9)
    assert found.interval.low < found.interval.value < found.interval.high
    right = [records.cells["cue-conflict"].right for records in (one, other)]
    expected = right[0].mean() * right[1].mean() + (1 - right[0].mean()) * (1 - right[1].mean())
    wanted = (np.mean(right[0] == right[1]) - expected) / (1 - expected)
    assert error_consistency(one, other).value == pytest.approx(wanted, abs=1e-9)


def test_the_page_and_the_tables_show_the_bias_of_every_class(data):
    page = holdfast.report([measured(data), measured(data, seed=1)])
    assert "shape bias" in page
    assert "Error consistency" in page
    assert "shape bias by class of shape" in holdfast.report([measured(data)], format="md")
    accuracy = measured(data).summary()["cue_conflict"].value
    assert f"has accuracy {accuracy:.1f} on cue conflict." in holdfast.report([measured(data)])


class Corner(nn.Module):
    """Bears, if the upper left corner is white; else cats. It would crop photographs to their half."""

    pretrained_cfg: ClassVar = {
        "input_size": (3, 64, 64),
        "crop_pct": 0.5,
        "interpolation": "bilinear",
        "mean": (0, 0, 0),
        "std": (1, 1, 1),
    }

    def forward(self, images):
        white = images[:, :, :4, :4].mean(dim=(1, 2, 3)) > 0.9
        answers = torch.where(white, MEMBERS["bear"][0], MEMBERS["cat"][0])
        return 30 * nn.functional.one_hot(answers, 1000).float()


def test_stimuli_of_another_size_are_resized_whole_and_the_page_says_so(tmp_path):
    root = stimuli(tmp_path / "cues", [("bear1", "cat2"), ("cat1", "bear1")], size=224)
    image = Image.new("RGB", (224, 224))
    image.paste((255, 255, 255), (0, 0, 28, 28))
    image.save(root / "bear" / "bear1-cat2.png")
    records = holdfast.evaluate(Corner(), f"cue-conflict:{root}", "cue-conflict", workers=0)
    assert records.summary()["shape_bias"].value == 100
    assert "the whole image at the model's size" in html.unescape(holdfast.report([records]))


def test_more_shape_bias_is_neither_better_nor_worse(data):
    from holdfast.reporting.quantities import is_tested

    assert {score.better for score in measured(data).summary() if score.family == "shape"} == {""}
    latex = holdfast.report([measured(data), measured(data, seed=1)], format="latex")
    assert latex.count("textbf") <= 2  # of the accuracy of the shape alone, with ties
    found = compare(measured(data), measured(data, seed=1)).differences["shape_answers"]
    assert found.verdict in ("unclear", "higher", "lower")
    tested = [score.name for score in measured(data).summary() if is_tested(score, "classification")]
    assert tested == ["cue_conflict"]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published stimuli are not part of the project")
def test_the_published_stimuli_have_1200_conflicts_and_160_content_images():
    from holdfast.data import open_official
    from holdfast.published.cue_names import cues_of

    source = open_official(f"cue-conflict:{PUBLISHED}").open("cue-conflict")
    cues = [cues_of(source.id(row)) for row in range(len(source))]
    assert len(cues) == 1280
    assert sum(each.shape != each.texture for each in cues) == 1200
    assert image_groups([source.id(row) for row in range(1280)]).count == 160
