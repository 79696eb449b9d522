"""Images of shapes that nobody photographs: each is one unreadable image, refused before memory is taken."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from holdfast import evaluate
from holdfast.corruptions import corrupt, prepare
from holdfast.corruptions.corrupt_folder import FolderSettings, KindAtSeverity, corrupt_folder
from holdfast.corruptions.sequences import perturb
from holdfast.data.source import ArraySource
from holdfast.io.images import ImageSizeError
from tests.evaluation.toys import Brightest, colours

THIN = [(1, 30_000), (30_000, 1), (1, 3_000_000), (2, 100_000)]  # width, height


@pytest.fixture
def folder(tmp_path):
    """Nine images of colours, and four that are very thin."""
    source = colours(9)
    for number, image in enumerate(source.images):
        path = tmp_path / "images" / source.classes[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    for width, height in THIN:
        Image.new("RGB", (width, height)).save(tmp_path / "images" / "green" / f"{width}x{height}.png")
    return tmp_path / "images"


def peak():
    """The most memory that this process has ever had, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize(
    ("preset", "suites", "workers"), [("cifar", "clean", 0), ("imagenet", "clean,perturbations", 2)]
)
def test_thin_images_are_unreadable_and_the_others_are_measured(folder, preset, suites, workers, caplog):
    from holdfast import EvalProtocol

    before = peak()
    records = evaluate(
        Brightest(), f"folder:{folder}", suites, protocol=EvalProtocol(preset=preset), show=False, workers=workers
    )
    every = {f"green/{width}x{height}.png" for width, height in THIN}
    assert set(records.excluded) == (every if preset == "imagenet" else {"green/1x3000000.png"})
    assert len(records.cells["clean"]) == 13 - len(records.excluded)
    assert "green/1x3000000.png" in caplog.text
    assert peak() - before < 2**30


def test_the_size_after_resizing_is_checked_before():
    with pytest.raises(ImageSizeError, match="at most 67108864 pixels after resizing, got 256×7680000 from 1×30000"):
        prepare(Image.new("RGB", (1, 30_000)), "imagenet")
    assert prepare(Image.new("RGB", (20, 2_000)), "imagenet").shape == (224, 224, 3)


@pytest.mark.parametrize("kind", ["fog", "frost"])
@pytest.mark.parametrize("shape", [(20_000, 32, 3), (32, 20_000, 3)])
def test_what_a_corruption_works_in_is_checked_before(kind, shape):
    before = peak()
    with pytest.raises(ImageSizeError, match=f"{kind} .*20000"):
        corrupt(np.zeros(shape, np.uint8), kind, severity=3, rng=0)
    assert peak() - before < 2**28


@pytest.mark.parametrize("kind", ["fog", "elastic_transform", "frost", "snow", "zoom_blur"])
def test_long_images_are_corrupted_where_that_takes_little(kind):
    assert corrupt(np.zeros((64, 2_000, 3), np.uint8), kind, severity=3, rng=0).shape == (64, 2_000, 3)


def test_a_film_of_a_long_image_is_refused():
    with pytest.raises(ImageSizeError, match="31 frames"):
        perturb(np.zeros((256, 40_000 - 2**15 // 4, 3), np.uint8), "rotate", rng=0)


def test_corrupting_a_folder_names_the_image_and_does_the_others(folder, tmp_path):
    Image.new("RGB", (20_000, 32)).save(folder / "green" / "long.png")
    cells = [KindAtSeverity("elastic_transform", 1), KindAtSeverity("fog", 1)]
    outcomes = corrupt_folder(folder, tmp_path / "out", cells=cells, settings=FolderSettings())
    failed = {outcome.relative: outcome.error for outcome in outcomes if outcome.error}
    assert set(failed) == {"green/long.png", *(f"green/{width}x{height}.png" for width, height in THIN)}
    assert "fog" in failed["green/long.png"]
    assert sum(outcome.written for outcome in outcomes) == 2 * 9
    assert (tmp_path / "out" / "elastic_transform" / "1" / "green" / "long.png").exists()


class Hungry(ArraySource):
    """One image asks for more memory than there is."""

    def image(self, index):
        if index == 4:
            raise MemoryError
        return super().image(index)


def test_an_image_that_takes_all_memory_is_unreadable():
    source = colours(9)
    hungry = Hungry(source.name, source.images, source.targets, source.classes, source.numbers)
    for workers in (0, 2):
        records = evaluate(Brightest(), hungry, "clean,fgsm", show=False, workers=workers)
        assert records.excluded == (source.id(4),)


STUCK = """
import sys, time
from holdfast import evaluate
from tests.evaluation.test_extreme_images import Stuck
from tests.evaluation.toys import Brightest, colours
from holdfast.runtime.signals import handle_signals
source = colours(9)
with handle_signals():
    evaluate(Brightest(), Stuck(source.name, source.images, source.targets, source.classes, source.numbers), "clean",
             show=False, workers=2)
"""


class Stuck(ArraySource):
    """One image is never decoded."""

    def image(self, index):
        if index == 4:
            print("stuck", flush=True)
            time.sleep(1000)
        return super().image(index)


def test_a_worker_that_is_stuck_does_not_keep_the_command_from_leaving():
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) != 0
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None


def test_training_replaces_a_very_thin_image(folder):
    from holdfast.data import open_data
    from holdfast.training.loader import Key, TransformedImages

    images = TransformedImages(
        open_data(f"folder:{folder}"), lambda image, target: (image, target), seed=0, replace_unreadable=True
    )
    number = next(n for n in range(len(images)) if images.source.id(n) == "green/1x3000000.png")
    item = images[Key(number)]
    assert "green/1x3000000.png" in item.unreadable[0]
    assert max(item.image.size) < 30_001
