"""The official layouts: what is read from them, with which label, and what is said when a part is missing."""

import numpy as np
import pytest
from PIL import Image

from holdfast.corruptions import SEVERITIES, STANDARD
from holdfast.data import UnreadableImage
from holdfast.data.official_set_readers import (
    missing_cells,
    open_cifar_c,
    open_imagenet_a,
    open_imagenet_c,
    open_imagenet_r,
    open_imagenet_sketch,
)
from holdfast.data.sequences import open_imagenet_p
from holdfast.errors import HoldfastError
from holdfast.metrics import accuracy, correct, restricted
from holdfast.published import published

WNIDS = ("n01440764", "n01443537", "n01484850")


def write_image(path, *, red, size=(224, 224)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (red, 0, 0)).save(path, "PNG")  # read by content, as the JPEGs are


def write_imagenet_c(root, *, kinds=("fog", "snow"), severities=SEVERITIES):
    """Three classes with 1, 2 and 3 images; the red of an image is 40 × its class."""
    for kind in kinds:
        for severity in severities:
            for label, wnid in enumerate(WNIDS):
                for number in range(label + 1):
                    write_image(root / kind / str(severity) / wnid / f"val_{number}.JPEG", red=40 * label)
    return root


def by_colour(source):
    """A model that answers with the red of the image's centre / 40, as one-hot logits of three classes."""
    reds = [np.asarray(source.image(index))[-1, -1, 0] for index in range(len(source))]
    return np.eye(3)[np.array(reds) // 40]


def test_imagenet_c_is_read_cell_by_cell_with_sorted_folders_as_labels(tmp_path):
    root = write_imagenet_c(tmp_path)
    source = open_imagenet_c(root, kind="fog", severity=3)
    assert source.classes == WNIDS
    assert source.targets.tolist() == [0, 1, 1, 2, 2, 2]
    assert accuracy(by_colour(source), source.targets) == 1.0


def test_a_constant_answer_on_imagenet_c_scores_the_share_of_its_class(tmp_path):
    source = open_imagenet_c(write_imagenet_c(tmp_path), kind="snow", severity=5)
    always_third = np.tile([0.0, 0.0, 1.0], (6, 1))
    assert correct(always_third, source.targets).sum() == 3


def test_an_image_has_one_id_in_all_cells(tmp_path):
    root = write_imagenet_c(tmp_path)
    ids = {
        tuple(source.id(index) for index in range(len(source)))
        for kind in ("fog", "snow")
        for source in [open_imagenet_c(root, kind=kind, severity=1)]
    }
    assert ids == {tuple(f"{wnid}/val_{n}.JPEG" for label, wnid in enumerate(WNIDS) for n in range(label + 1))}


def test_imagenet_c_is_cropped_in_the_centre_and_never_resized(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (300, 256, 3), dtype=np.uint8)
    (tmp_path / "fog/1/n0").mkdir(parents=True)
    Image.fromarray(pixels).save(tmp_path / "fog/1/n0/large.png")
    Image.fromarray(pixels[:224, :224]).save(tmp_path / "fog/1/n0/stored.png")
    source = open_imagenet_c(tmp_path, kind="fog", severity=1)
    np.testing.assert_array_equal(np.asarray(source.image(0)), pixels[38:262, 16:240])
    np.testing.assert_array_equal(np.asarray(source.image(1)), pixels[:224, :224])


def test_an_image_below_the_crop_is_named_not_padded(tmp_path):
    write_image(tmp_path / "fog/1/n0/small.png", red=0, size=(224, 200))
    with pytest.raises(
        UnreadableImage, match=r"'n0/small\.png' cannot be read \(expected at least 224×224, got 224×200"
    ):
        open_imagenet_c(tmp_path, kind="fog", severity=1).image(0)


def test_missing_kinds_and_severities_are_reported_by_name(tmp_path):
    root = write_imagenet_c(tmp_path, kinds=[kind for kind in STANDARD if kind != "frost"], severities=(1, 2, 4, 5))
    missing = [str(cell) for cell in missing_cells(root)]
    assert missing[:2] == ["gaussian_noise/3", "shot_noise/3"]
    assert [cell for cell in missing if cell.startswith("frost")] == [f"frost/{s}" for s in SEVERITIES]
    assert len(missing) == 14 + 5
    with pytest.raises(HoldfastError, match="but frost is missing"):
        open_imagenet_c(root, kind="frost", severity=1)
    with pytest.raises(HoldfastError, match="but severity 3 of fog is missing"):
        open_imagenet_c(root, kind="fog", severity=3)


def test_a_complete_tree_misses_nothing(tmp_path):
    assert missing_cells(write_imagenet_c(tmp_path), kinds=("fog", "snow")) == []


def test_a_truncated_file_is_named_when_it_is_read(tmp_path):
    path = tmp_path / "fog/1/n0/cut.JPEG"
    path.parent.mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    source = open_imagenet_c(tmp_path, kind="fog", severity=1)
    with pytest.raises(UnreadableImage, match=r"image 'n0/cut\.JPEG' cannot be read") as caught:
        source.image(0)
    assert caught.value.id == "n0/cut.JPEG"


def write_cifar_c(root, *, per_severity=10, kind="fog", labels=None):
    """Image i of severity s is filled with 10·s + its label."""
    labels = np.tile(np.arange(per_severity) % 10, 5) if labels is None else labels
    severities = np.repeat(np.arange(1, 6), per_severity)
    values = (10 * severities + labels[: len(severities)]).astype(np.uint8)
    root.mkdir(exist_ok=True)
    np.save(root / f"{kind}.npy", np.broadcast_to(values[:, None, None, None], (len(values), 32, 32, 3)))
    np.save(root / "labels.npy", labels)
    return root


@pytest.mark.parametrize("severity", SEVERITIES)
def test_cifar_c_severity_is_its_fifth_of_the_rows(tmp_path, severity):
    source = open_cifar_c(write_cifar_c(tmp_path), kind="fog", severity=severity)
    values = np.array([np.asarray(source.image(index))[0, 0, 0] for index in range(len(source))])
    assert len(source) == 10
    np.testing.assert_array_equal(values, 10 * severity + source.targets)
    assert source.id(3) == "cifar10/test/000003"


def test_the_official_size_gives_ten_thousand_rows_per_severity(tmp_path):
    np.save(tmp_path / "fog.npy", np.zeros((50_000, 1, 1, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.tile(np.arange(10_000) % 100, 5))
    source = open_cifar_c(tmp_path, kind="fog", severity=2, dataset="cifar100")
    assert (len(source), len(source.classes)) == (10_000, 100)


def test_a_constant_answer_on_cifar_c_scores_the_share_of_its_class(tmp_path):
    source = open_cifar_c(
        write_cifar_c(tmp_path, labels=np.tile([0, 0, 0, 1, 2], 5), per_severity=5), kind="fog", severity=4
    )
    assert accuracy(np.tile(np.eye(10)[0], (5, 1)), source.targets) == 0.6


CIFAR_FAULTS = {
    "no labels": (lambda root: (root / "labels.npy").unlink(), "labels.npy' cannot be read"),
    "no kind": (lambda root: (root / "fog.npy").unlink(), "fog.npy' cannot be read"),
    "truncated": (lambda root: (root / "fog.npy").write_bytes(b"\x93NUMPY"), "truncated, or not an .npy file"),
    "not five": (lambda root: np.save(root / "fog.npy", np.zeros((7, 2, 2, 3), np.uint8)), "five severities stacked"),
    "floats": (lambda root: np.save(root / "fog.npy", np.zeros((5, 2, 2, 3))), "must be uint8"),
    "short labels": (lambda root: np.save(root / "labels.npy", np.arange(3)), "must hold 50 integers"),
    "cifar100 labels": (lambda root: np.save(root / "labels.npy", np.arange(50)), "must be 0 to 9, got 0 to 49"),
}


@pytest.mark.parametrize("fault", CIFAR_FAULTS)
def test_a_damaged_cifar_c_gets_one_sentence(tmp_path, fault):
    damage, sentence = CIFAR_FAULTS[fault]
    damage(write_cifar_c(tmp_path))
    with pytest.raises(HoldfastError, match=sentence):
        open_cifar_c(tmp_path, kind="fog", severity=1)


def write_200(root, dataset):
    """All 200 class folders; the 1st holds one image, the 3rd two, the 200th one."""
    wnids = published(f"{dataset}_indices")["wnids"]
    for wnid in wnids:
        (root / wnid).mkdir(parents=True)
    for position, name in [(0, "a"), (2, "a"), (2, "b"), (199, "a")]:
        write_image(root / wnids[position] / f"{name}.jpg", red=0, size=(8, 8))
    (root / "README.txt").write_text("not a class")
    return root


@pytest.mark.parametrize(("dataset", "reader"), [("imagenet_a", open_imagenet_a), ("imagenet_r", open_imagenet_r)])
def test_the_200_class_sets_are_scored_on_their_own_logits(tmp_path, dataset, reader):
    source = reader(write_200(tmp_path, dataset))
    assert source.targets.tolist() == [0, 2, 2, 199]
    indices = published(f"{dataset}_indices")["indices"]
    outside = next(index for index in range(1000) if index not in indices)
    logits = np.zeros((4, 1000))
    logits[:, outside] = 9.0  # a class the set does not have must not count
    logits[[0, 1, 2, 3], [indices[0], indices[2], indices[1], indices[199]]] = 1.0
    assert accuracy(restricted(logits, dataset), source.targets) == 0.75


def test_a_200_class_set_with_other_folders_is_refused_because_labels_would_shift(tmp_path):
    root = write_200(tmp_path, "imagenet_a")
    (root / published("imagenet_a_indices")["wnids"][7]).rmdir()
    (root / "n99999999").mkdir()
    with pytest.raises(HoldfastError, match=r"must hold its 200 class folders: 1 missing .*, 1 extra \(n99999999"):
        open_imagenet_a(root)


def test_a_cell_of_imagenet_c_without_a_class_is_refused_when_the_classes_are_known(tmp_path):
    root = write_imagenet_c(tmp_path, kinds=["fog"], severities=[1, 2])
    for file in (root / "fog/2" / WNIDS[0]).iterdir():
        file.unlink()
    (root / "fog/2" / WNIDS[0]).rmdir()
    assert len(open_imagenet_c(root, kind="fog", severity=1, classes=WNIDS)) == 6
    with pytest.raises(HoldfastError, match=r"ImageNet-C fog/2 .* its 3 class folders: 1 missing \(n01440764"):
        open_imagenet_c(root, kind="fog", severity=2, classes=WNIDS)


def test_sketch_is_a_folder_of_wnids(tmp_path):
    for label, wnid in enumerate(WNIDS):
        write_image(tmp_path / wnid / "sketch_0.JPEG", red=40 * label, size=(30, 20))
    source = open_imagenet_sketch(tmp_path)
    assert source.targets.tolist() == [0, 1, 2]
    assert source.image(0).size == (30, 20)
    assert accuracy(by_colour(source), source.targets) == 1.0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda root: open_imagenet_c(root, kind="fogg", severity=1), "kind must be a corruption, got 'fogg'; did you"),
        (lambda root: open_imagenet_c(root, kind="fog", severity=6), "severity must be 1 to 5, got 6"),
        (lambda root: open_imagenet_c(root / "nowhere", kind="fog", severity=1), "but '.*nowhere' does not exist"),
        (lambda root: missing_cells(root / "nowhere"), "but '.*nowhere' does not exist"),
        (
            lambda root: open_cifar_c(root, kind="fog", severity=1, dataset="svhn"),
            "dataset must be cifar10 or cifar100",
        ),
        (lambda root: open_imagenet_p(root, kind="tilt"), "but tilt is missing"),
        (lambda root: open_imagenet_sketch(root / "nowhere"), "ImageNet-Sketch must be a folder"),
    ],
)
def test_bad_input_gets_one_sentence(tmp_path, call, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        call(tmp_path)
