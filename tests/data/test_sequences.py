"""Perturbation sequences from disk: ImageNet-P and CIFAR-P, Hendrycks & Dietterich 2019."""

import cv2
import numpy as np
import pytest

from holdfast.corruptions import frame_count
from holdfast.data import UnreadableImage
from holdfast.data.sequences import open_cifar_p, open_imagenet_p
from holdfast.errors import HoldfastError
from holdfast.metrics import flip_probability
from tests.data.test_official_set_readers import write_image


def write_frames(folder, reds, *, size=16):
    for number, red in enumerate(reds):
        write_image(folder / f"frame{number}.png", red=red, size=(size, size))


def test_a_folder_of_frames_is_read_in_the_order_of_its_numbers(tmp_path):
    write_frames(tmp_path / "rotate/n01/dog_7", range(31))
    write_frames(tmp_path / "rotate/n02/cat_1", range(31, 62))
    source = open_imagenet_p(tmp_path, kind="rotate")
    assert (source.classes, source.targets.tolist(), source.id(1)) == (("n01", "n02"), [0, 1], "n02/cat_1")
    assert source.frames(0).shape == (31, 16, 16, 3)
    assert source.frames(0)[:, 0, 0, 0].tolist() == list(range(31))


def test_a_hand_counted_flip_probability_of_stored_frames(tmp_path):
    reds = [0] * 10 + [200] * 10 + [0] * 11  # two changes in 30 steps; 10 of 30 frames differ from frame 0
    write_frames(tmp_path / "rotate/n01/a", reds)
    write_frames(tmp_path / "noisy_2/n01/a", reds)
    for kind, folder, expected in [("rotate", None, 2 / 30), ("gaussian_noise", "noisy_2", 10 / 30)]:
        frames = open_imagenet_p(tmp_path, kind=kind, folder=folder).frames(0)
        predictions = (frames[None, :, 0, 0, 0] > 100).astype(int)
        assert flip_probability(predictions, kind=kind) == pytest.approx(expected)


def write_film(path, *, frames, size=64):
    path.parent.mkdir(parents=True, exist_ok=True)
    film = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 30, (size, size))
    if not film.isOpened():
        pytest.skip("this OpenCV cannot write mp4")
    for number in range(frames):
        film.write(np.full((size, size, 3), (20, 40, 6 * number), np.uint8))  # blue, green, red
    film.release()


def test_a_film_is_read_as_rgb_frames(tmp_path):
    write_film(tmp_path / "translate/n01/dog_7.mp4", frames=frame_count("translate"))
    source = open_imagenet_p(tmp_path, kind="translate")
    assert (len(source), source.id(0)) == (1, "n01/dog_7")
    frames = source.frames(0)
    expected = [(6 * number, 40, 20) for number in range(41)]
    np.testing.assert_allclose(frames.mean(axis=(1, 2)), expected, atol=6)  # the codec is lossy


def test_a_sequence_cut_short_is_named(tmp_path):
    write_frames(tmp_path / "rotate/n01/short", range(20))
    (tmp_path / "rotate/n01/zero.mp4").write_bytes(b"")
    source = open_imagenet_p(tmp_path, kind="rotate")
    for index, (id, count) in enumerate([("n01/short", 20), ("n01/zero", 0)]):
        with pytest.raises(UnreadableImage, match=f"{id}' cannot be read .expected 31 frames, got {count}"):
            source.frames(index)


def test_a_frame_that_cannot_be_decoded_is_named(tmp_path):
    write_frames(tmp_path / "rotate/n01/a", range(31))
    (tmp_path / "rotate/n01/a/frame12.png").write_bytes(b"no picture")
    with pytest.raises(UnreadableImage, match=r"n01/a/frame12\.png"):
        open_imagenet_p(tmp_path, kind="rotate").frames(0)


def test_cifar_p_reads_labels_where_they_are(tmp_path):
    write_cifar_p(tmp_path, labels=np.array([3, 99]))
    assert open_cifar_p(tmp_path, kind="rotate", dataset="cifar100").targets.tolist() == [3, 99]
    with pytest.raises(HoldfastError, match="must hold 2 classes of cifar10"):
        open_cifar_p(tmp_path, kind="rotate")


def test_cifar_p_of_the_wrong_shape_is_refused(tmp_path):
    np.save(tmp_path / "translate.npy", np.zeros((2, 31, 4, 4, 3), np.uint8))
    with pytest.raises(HoldfastError, match=r"must be uint8 \(N, 16, H, W, 3\), got uint8 \(2, 31, 4, 4, 3\)"):
        open_cifar_p(tmp_path, kind="translate")
    with pytest.raises(HoldfastError, match="dataset must be cifar10 or cifar100, got 'svhn'"):
        open_cifar_p(tmp_path, kind="translate", dataset="svhn")


def write_cifar_p(root, *, kind="rotate", sequences=2, labels=None):
    """Sequence 0 never changes; sequence 1 turns bright at its 11th frame and dark again at its 21st."""
    frames = np.zeros((sequences, frame_count(kind, preset="cifar"), 32, 32, 3), np.uint8)
    frames[1, 10:20] = 200
    np.save(root / f"{kind}.npy", frames)
    if labels is not None:
        np.save(root / "labels.npy", labels)
