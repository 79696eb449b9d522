"""Sources of label maps: people's folders, CamVid, Cityscapes, ACDC, and what they say when something is wrong."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.data.mask_folder import open_masks
from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError

SIZE = (6, 8)  # height, width


def save_image(path: Path, size=SIZE, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = size
    Image.fromarray(np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)).save(path, **options)
    return path


def save_labels(path: Path, numbers, *, palette=False) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    array = (
        np.broadcast_to(np.asarray(numbers, np.uint8), SIZE) if np.ndim(numbers) < 2 else np.asarray(numbers, np.uint8)
    )
    image = Image.fromarray(array.copy())
    if palette:
        image.putpalette([channel for n in range(256) for channel in (n, 255 - n, 7)])
    image.save(path)
    return array


def masks(folder: Path, *options: str):
    return open_masks(",".join([str(folder / "images"), str(folder / "labels"), *options]), split="val")


def test_index_and_palette_labels_are_read_as_numbers(folders):
    source = masks(folders)
    assert [source.id(index) for index in range(len(source))] == ["a.jpg", "deep/b.png"]
    assert source.classes == ("0", "1", "2", "3")
    np.testing.assert_array_equal(source.target(0), np.arange(48).reshape(SIZE) % 3)
    np.testing.assert_array_equal(source.target(1), np.arange(48).reshape(SIZE) % 4)
    assert source.image(1).size == (8, 6)


def test_a_label_image_of_another_size_gets_one_sentence(folders):
    save_labels(folders / "labels" / "a.png", np.zeros((6, 9)))
    with pytest.raises(HoldfastError, match=r"label map of 'a.jpg' must have its image's size 6×8, got 6×9"):
        masks(folders).target(0)


def test_labels_outside_the_classes_get_one_sentence(folders):
    (folders / "labels" / "classes.txt").write_text("road\nsky\n")
    with pytest.raises(HoldfastError, match=r"labels of 'deep/b.png' must be 0 to 1 or 255 for ignored, got 2, 3"):
        masks(folders).target(1)


def test_a_missing_partner_file_gets_one_sentence(folders):
    (folders / "labels" / "deep" / "b.png").unlink()
    with pytest.raises(HoldfastError, match=r"1 of 2 have none: .*b.png' lacks .*b.png"):
        masks(folders)


def test_an_empty_label_gets_one_sentence(folders):
    save_labels(folders / "labels" / "a.png", 255)
    with pytest.raises(HoldfastError, match="must label at least one pixel"):
        masks(folders).target(0)
    (folders / "labels" / "a.png").write_bytes(b"")
    (folders / "labels" / "classes.txt").write_text("a\nb\nc\nd\n")
    with pytest.raises(HoldfastError, match="cannot be read"):
        masks(folders).target(0)


def test_colours_are_no_labels(folders):
    save_image(folders / "labels" / "a.png")
    (folders / "labels" / "classes.txt").write_text("a\nb\nc\nd\n")
    with pytest.raises(HoldfastError, match="one class number per pixel"):
        masks(folders).target(0)


def test_a_photograph_that_a_viewer_would_turn_is_refused(folders):
    exif = Image.Exif()
    exif[274] = 6
    save_image(folders / "images" / "a.jpg", exif=exif)
    with pytest.raises(HoldfastError, match="EXIF orientation 6"):
        masks(folders).image(0)


def test_a_damaged_image_is_unreadable_by_its_id(folders):
    (folders / "images" / "a.jpg").write_bytes(b"no image")
    with pytest.raises(UnreadableImage, match=r"a\.jpg"):
        masks(folders).image(0)


# ---------------------------------------------------------------------- CamVid


# ---------------------------------------------------------------------- Cityscapes and ACDC
