"""Sources of label maps: people's folders, CamVid, Cityscapes, ACDC, and what they say when something is wrong."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.data.acdc import condition, open_acdc
from holdfast.data.camvid import held_out, open_camvid, recording_of
from holdfast.data.cityscapes import CLASSES, LABEL_IDS, city, cityscapes_c_cells, open_cityscapes, open_cityscapes_c
from holdfast.data.label_maps import IGNORED
from holdfast.data.mask_folder import open_masks
from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError

CAMVID = Path(__file__).parents[3] / "shared" / "data" / "camvid"
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


@pytest.fixture
def folders(tmp_path):
    """Two images with index and palette labels, one in a subfolder."""
    save_image(tmp_path / "images" / "a.jpg")
    save_image(tmp_path / "images" / "deep" / "b.png")
    save_labels(tmp_path / "labels" / "a.png", np.arange(48).reshape(SIZE) % 3)
    save_labels(tmp_path / "labels" / "deep" / "b.png", np.arange(48).reshape(SIZE) % 4, palette=True)
    return tmp_path


def masks(folder: Path, *options: str):
    return open_masks(",".join([str(folder / "images"), str(folder / "labels"), *options]), split="val")


def test_index_and_palette_labels_are_read_as_numbers(folders):
    source = masks(folders)
    assert [source.id(index) for index in range(len(source))] == ["a.jpg", "deep/b.png"]
    assert source.classes == ("0", "1", "2", "3")
    np.testing.assert_array_equal(source.target(0), np.arange(48).reshape(SIZE) % 3)
    np.testing.assert_array_equal(source.target(1), np.arange(48).reshape(SIZE) % 4)
    assert source.image(1).size == (8, 6)


def test_a_class_file_names_the_classes_and_one_number_can_be_ignored(folders):
    (folders / "labels" / "classes.txt").write_text("road\nsky\ntree\nvoid\n")
    source = masks(folders, "ignore=3")
    assert source.classes == ("road", "sky", "tree", "void")
    np.testing.assert_array_equal(source.target(1) == IGNORED, np.arange(48).reshape(SIZE) % 4 == 3)
    (folders / "other.txt").write_text("a\nb\nc\nd\n")
    assert masks(folders, f"classes={folders / 'other.txt'}").classes == ("a", "b", "c", "d")


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


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        ("only", "IMAGES,LABELS"),
        ("nowhere,neither", "'nowhere' is not a folder"),
        ("{0}/images,{0}/labels,clases=x", "did you mean 'classes'"),
        ("{0}/images,{0}/labels,ignore=many", "ignore must be a number"),
        ("{0}/images,{0}/labels,classes=nowhere.txt", "one name per line"),
    ],
)
def test_what_masks_cannot_be_gets_one_sentence(folders, rest, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        open_masks(rest.format(folders), split="val")


# ---------------------------------------------------------------------- CamVid


def write_camvid(root: Path, *, segnet: bool) -> Path:
    names = {"train": ["0006R0_f1", "0001TP_1"], "val": ["0016E5_9"], "test": ["0001TP_2", "Seq05VD_f1"]}
    for split, held in names.items():
        lines = [f"/SegNet/{split}/{n}.png /SegNet/{split}annot/{n}.png" if segnet else n for n in held]
        (root / f"{split}.txt").parent.mkdir(parents=True, exist_ok=True)
        (root / f"{split}.txt").write_text("\n".join(lines) + "\n")
        for name in held:
            save_image(root / split / f"{name}.png" if segnet else root / "images" / split / f"{name}.webp")
            save_labels(root / (f"{split}annot" if segnet else f"labels/{split}") / f"{name}.png", [0, 10, 11, 3] * 2)
    return root


@pytest.mark.parametrize("segnet", [False, True])
def test_camvid_splits_recordings_and_void(tmp_path, segnet):
    root = write_camvid(tmp_path, segnet=segnet)
    test = open_camvid(str(root), split="test")
    assert [test.id(index) for index in range(len(test))] == ["test/0001TP_2", "test/Seq05VD_f1"]
    assert len(test.classes) == 11
    np.testing.assert_array_equal(test.target(0)[0], [0, 10, 255, 3] * 2)
    dark = open_camvid(f"{root},all,0001TP", split="train")
    assert [dark.id(index) for index in range(len(dark))] == ["train/0001TP_1", "test/0001TP_2"]
    assert [recording_of(dark.id(index)) for index in range(2)] == ["0001TP", "0001TP"]
    assert len(open_camvid(f"{root},trainval", split="test")) == 3
    with pytest.raises(HoldfastError, match="got '0001PT'; did you mean '0001TP'"):
        open_camvid(f"{root},0001PT", split="train")


def test_every_sixth_stretch_of_ten_frames_of_a_recording_can_be_held_out():
    names = [("train", f"{drive}_{frame:04d}") for drive in ("0006R0", "0016E5") for frame in range(65)]
    held = held_out(names)
    assert [index for index, one in enumerate(held) if one] == [*range(50, 60), *range(115, 125)]


@pytest.mark.skipif(not CAMVID.is_dir(), reason="CamVid is not here")
def test_frames_are_kept_or_held_and_never_both():
    spec = f"{CAMVID},train,0006R0,0016E5"
    parts = [open_camvid(f"{spec},{part}", split="train") for part in ("kept", "held")]
    kept, held = ({part.id(index) for index in range(len(part))} for part in parts)
    assert (len(kept), len(held)) == (265, 40)
    assert not kept & held


@pytest.mark.skipif(not CAMVID.is_dir(), reason="CamVid is not here")
def test_the_real_camvid_has_its_701_frames_and_shares():
    assert [len(open_camvid(str(CAMVID), split=split)) for split in ("train", "val", "test")] == [367, 101, 233]
    source = open_camvid(str(CAMVID), split="test")
    assert source.image(0).size == (480, 360)
    counts = sum(np.bincount(source.target(index).ravel(), minlength=256) for index in range(0, 233, 10))
    shares = counts / counts.sum()
    assert shares[3] == pytest.approx(0.258, abs=0.05)  # road
    assert shares[255] == pytest.approx(0.038, abs=0.02)  # void
    assert shares[11:255].sum() == 0


# ---------------------------------------------------------------------- Cityscapes and ACDC


def test_the_class_table_is_torchvisions():
    from torchvision.datasets import Cityscapes

    scored = sorted((c for c in Cityscapes.classes if c.train_id not in (-1, 255)), key=lambda c: c.train_id)
    assert {c.name: c.id for c in scored} == LABEL_IDS
    assert tuple(c.name for c in scored) == CLASSES


def write_cityscapes(root: Path) -> Path:
    for split, place in (("train", "aachen"), ("val", "frankfurt"), ("test", "berlin")):
        stem = f"{place}_000000_000019"
        save_image(root / "leftImg8bit" / split / place / f"{stem}_leftImg8bit.png")
        save_labels(root / "gtFine" / split / place / f"{stem}_gtFine_labelIds.png", [7, 0, 33, 255, 11, 14, 26, 34])
    return root


def test_cityscapes_ids_are_mapped_and_the_rest_is_ignored(tmp_path):
    root = write_cityscapes(tmp_path)
    val = open_cityscapes(str(root), split="test")  # what is evaluated on: test has no labels
    assert val.id(0) == "val/frankfurt/frankfurt_000000_000019"
    assert city(val.id(0)) == "frankfurt"
    np.testing.assert_array_equal(val.target(0)[0], [0, 255, 18, 255, 2, 255, 13, 255])
    assert open_cityscapes(str(root), split="train").id(0).startswith("train/aachen/")
    test = open_cityscapes(f"{root},test", split="val")
    assert not test.has_labels
    assert test.image(0).size == (8, 6)
    with pytest.raises(HoldfastError, match="only be exported"):
        test.target(0)
    with pytest.raises(HoldfastError, match="did you mean 'val'"):
        open_cityscapes(f"{root},vall", split="val")
    with pytest.raises(HoldfastError, match="but has none"):
        open_cityscapes(str(tmp_path / "elsewhere"), split="val")


@pytest.mark.parametrize("form", ["{k}/{s}/frankfurt", "{k}/{s}/val/frankfurt", "leftImg8bit/{k}/{s}/val/frankfurt"])
def test_stored_cityscapes_c_is_found_in_all_its_forms(tmp_path, form):
    root = write_cityscapes(tmp_path / "cityscapes")
    stored = tmp_path / "stored"
    name = "frankfurt_000000_000019_leftImg8bit.png"
    for kind, severity in (("fog", 3), ("gaussian_noise", 1)):
        save_image(stored / form.format(k=kind, s=severity) / name)
    assert cityscapes_c_cells(stored) == ["gaussian_noise/1", "fog/3"]
    cell = open_cityscapes_c(stored, kind="fog", severity=3, labels=root)
    assert cell.id(0) == open_cityscapes(str(root), split="val").id(0)
    np.testing.assert_array_equal(cell.target(0), open_cityscapes(str(root), split="val").target(0))
    with pytest.raises(HoldfastError, match="must hold fog/2"):
        open_cityscapes_c(stored, kind="fog", severity=2, labels=root)
    with pytest.raises(HoldfastError, match="gtFine/val"):
        open_cityscapes_c(stored, kind="fog", severity=3)


@pytest.mark.parametrize("unpacked", [False, True])
def test_acdc_conditions_and_splits(tmp_path, unpacked):
    images, labels = ("rgb_anon_trainvaltest", "gt_trainval") if unpacked else (".", ".")
    for weather in ("fog", "night", "rain", "snow"):
        for part in ("val", "test"):
            stem = f"GOPR0475_frame_{weather}_000041"
            save_image(tmp_path / images / "rgb_anon" / weather / part / "GOPR0475" / f"{stem}_rgb_anon.png")
        path = (
            tmp_path / labels / "gt" / weather / "val" / "GOPR0475" / f"GOPR0475_frame_{weather}_000041_gt_labelIds.png"
        )
        save_labels(path, [7, 8, 0, 11] * 2)
    source = open_acdc(str(tmp_path), split="test")
    assert [condition(source.id(index)) for index in range(len(source))] == ["fog", "night", "rain", "snow"]
    np.testing.assert_array_equal(source.target(0)[0], [0, 1, 255, 2] * 2)
    assert len(open_acdc(f"{tmp_path},night,fog", split="test")) == 2
    assert not open_acdc(f"{tmp_path},test", split="test").has_labels
    with pytest.raises(HoldfastError, match="did you mean 'night'"):
        open_acdc(f"{tmp_path},nigth", split="val")
