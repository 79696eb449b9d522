"""``holdfast predict`` on segmenters and detectors: rows, overlays and a moving picture."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast.cli.main import main
from holdfast.data.scenes import open_scenes
from holdfast.errors import HoldfastError
from holdfast.plotting.class_colours import class_colour
from tests.tasks.detectors import plain_mask_rcnn


class Halves(nn.Module):
    """Class 1 on the left, class 0 on the right, with probability 0.9 each."""

    task = "segmentation"

    def forward(self, images):
        logits = torch.zeros(len(images), 3, *images.shape[-2:])
        middle = images.shape[-1] // 2
        sure = torch.log(torch.tensor(0.9 / 0.05))
        logits[:, 1, :, :middle] = sure
        logits[:, 0, :, middle:] = sure
        return logits


@pytest.fixture
def frames(tmp_path):
    source = open_scenes("test,40x60,3", split="test")
    (tmp_path / "frames" / "b").mkdir(parents=True)
    for number, name in enumerate(("b/2.jpg", "1.png", "0.png")):
        source.image(number).save(tmp_path / "frames" / name)
    return tmp_path / "frames"


def test_a_segmenters_rows_are_shares_of_the_image_and_how_sure_it_is(frames):
    first = holdfast.predict(Halves(), frames / "1.png", top=5)[0]
    assert [row["class"] for row in first.rows] == ["0", "1"]
    assert [row["share"] for row in first.rows] == pytest.approx([0.5, 0.5])
    assert [row["confidence"] for row in first.rows] == pytest.approx([0.9, 0.9], abs=1e-6)


def test_overlays_keep_names_and_folders_and_the_film_shows_every_frame_in_order(frames, tmp_path):
    found = holdfast.predict(Halves(), frames, overlays=tmp_path / "out", film=tmp_path / "film.webp", fps=5)
    written = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.png"))
    assert written == ["0.png", "1.png", "b/2.png"]
    overlay = np.array(Image.open(tmp_path / "out" / "1.png").convert("RGB"), float)
    grey = np.array(Image.open(frames / "1.png").convert("L"), float)[..., None]
    for half, label in ((slice(0, 30), 1), (slice(30, 60), 0)):
        mixed = 0.45 * grey[:, half] + 0.55 * np.array(class_colour(label))
        np.testing.assert_allclose(overlay[:, half], mixed, atol=0.51)
    film = Image.open(tmp_path / "film.webp")
    assert film.n_frames == len(found) == 3
    assert film.size == (2 * 60, 40)
    film.load()
    assert film.info["duration"] == 200
    shown = np.array(film.convert("RGB"), float)[:, :60]
    distances = [np.abs(shown - np.array(Image.open(each.image).convert("RGB"), float)).mean() for each in found]
    assert int(np.argmin(distances)) == 0


def test_a_torchvision_detector_is_drawn_without_saying_its_task(frames, tmp_path):
    found = holdfast.predict(plain_mask_rcnn(), frames / "0.png", top=2, overlays=tmp_path / "out")[0]
    assert len(found.rows) == 2
    assert set(found.rows[0]) == {"class", "score", "box"}
    assert found.rows[0]["score"] >= found.rows[1]["score"]
    assert Image.open(tmp_path / "out" / "0.png").size == (60, 40)


def test_what_cannot_be_drawn_is_one_sentence_and_nothing_is_written(frames, tmp_path, capsys):
    classifier = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    with pytest.raises(HoldfastError, match="need a segmenter or a detector, got a model of classification"):
        holdfast.predict(classifier, frames, overlays=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    Image.open(frames / "0.png").save(frames / "0.jpg")
    with pytest.raises(HoldfastError, match="differ in more than their extension"):
        holdfast.predict(Halves(), frames, overlays=tmp_path / "out")
    with pytest.raises(HoldfastError, match="would be overwritten"):
        holdfast.predict(Halves(), frames / "0.png", overlays=frames)
    for options, sentence in (
        (["--film", str(tmp_path / "x.gif")], "must be a file that ends with .webp"),
        (["--film", str(tmp_path / "none" / "x.webp")], "there is no folder"),
        (["--film", str(tmp_path / "x.webp"), "--fps", "0"], "fps must be above 0"),
    ):
        assert main(["predict", str(frames), "--model", "run:nowhere", *options]) == 2
        assert sentence in capsys.readouterr().err
