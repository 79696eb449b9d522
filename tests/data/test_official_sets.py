"""The official sets by spec string: what is found, what is missing, what is opened."""

import numpy as np
import pytest

from holdfast.cli.main import main
from holdfast.corruptions import EXTRA, STANDARD
from holdfast.corruptions.sequences import TEST_SEQUENCES
from holdfast.data import OFFICIAL, open_data, open_official
from holdfast.data.official_sets import check_imagenet_order
from holdfast.errors import HoldfastError
from holdfast.metrics import flip_probability
from holdfast.published import published
from tests.data.test_official_set_readers import (
    WNIDS,
    write_200,
    write_cifar_c,
    write_image,
    write_imagenet_c,
)
from tests.data.test_sequences import write_cifar_p, write_frames


def test_imagenet_c_says_which_cells_are_there_and_which_are_missing(tmp_path):
    root = write_imagenet_c(tmp_path, kinds=[*STANDARD, EXTRA[0]])
    complete = open_official(f"imagenet-c:{root}")
    assert (complete.suite, complete.preset, complete.missing, len(complete.cells)) == (
        "imagenet-c",
        "imagenet",
        (),
        80,
    )
    assert complete.names[:2] == ("gaussian_noise/1", "gaussian_noise/2")
    assert complete.names[-1] == f"{EXTRA[0]}/5"
    (root / "fog/3").rename(root / "elsewhere")
    partial = open_official(f"imagenet-c:{root}")
    assert partial.missing == ("fog/3",)
    assert "fog/3" not in partial.cells
    source = partial.open("fog/4")
    assert (len(source), source.targets.tolist()) == (6, [0, 1, 1, 2, 2, 2])
    with pytest.raises(HoldfastError, match=r"cell must exist in imagenet-c in .*, got 'fog/3'"):
        partial.open("fog/3")


def test_cifar_c_has_the_cells_of_its_files(tmp_path):
    data = open_official(f"cifar10-c:{write_cifar_c(tmp_path)}")
    assert (data.suite, data.preset) == ("cifar-c", "cifar")
    assert data.names == tuple(f"fog/{severity}" for severity in range(1, 6))
    assert len(data.missing) == 70
    source = data.open("fog/2")
    assert np.asarray(source.image(3))[0, 0, 0] == 23
    assert len(open_official(f"cifar100-c:{tmp_path}").open("fog/1").classes) == 100


def test_cifar_p_is_scored_by_hand(tmp_path):
    for kind in ("rotate", "gaussian_noise"):
        write_cifar_p(tmp_path, kind=kind)
    data = open_official(f"cifar10-p:{tmp_path}")
    assert (data.suite, data.names) == ("perturbations", ("sequence/gaussian_noise", "sequence/rotate"))
    assert data.missing == tuple(f"sequence/{k}" for k in TEST_SEQUENCES if k not in ("rotate", "gaussian_noise"))
    for kind, flips in [("rotate", 2), ("gaussian_noise", 10)]:  # noise frames are compared with frame 0
        source = data.open(f"sequence/{kind}")
        predictions = np.stack([source.frames(i)[:, 0, 0, 0] > 100 for i in range(len(source))]).astype(int)
        assert flip_probability(predictions, kind=kind) == pytest.approx(flips / 30 / 2)
    assert source.id(1) == "cifar10/test/000001"
    assert source.targets.tolist() == [-1, -1]


def test_imagenet_p_opens_a_kind_as_sequences(tmp_path):
    write_frames(tmp_path / "tilt/n01/dog", range(31))
    data = open_official(f"imagenet-p:{tmp_path}")
    assert data.names == ("sequence/tilt",)
    assert data.open("sequence/tilt").frames(0).shape == (31, 16, 16, 3)


@pytest.mark.parametrize("dataset", ["imagenet_a", "imagenet_r"])
def test_the_200_class_sets_say_what_they_are_restricted_to(tmp_path, dataset):
    name = dataset.replace("_", "-")
    data = open_official(f"{name}:{write_200(tmp_path, dataset)}")
    assert (data.suite, data.names, data.restricted_to) == (name, (name,), dataset)
    assert data.open(name).targets.tolist() == [0, 2, 2, 199]


def test_sketch_is_not_restricted(tmp_path):
    write_image(tmp_path / WNIDS[0] / "a.png", red=0)
    data = open_official(f"imagenet-sketch:{tmp_path}")
    assert (data.names, data.restricted_to, len(data.open("imagenet-sketch"))) == (("imagenet-sketch",), None, 1)


def thousand():
    """1000 sorted names with the 314 known wnids at their places."""
    known = {}
    for dataset in ("imagenet_a", "imagenet_r"):
        table = published(f"{dataset}_indices")
        known |= dict(zip(table["indices"], table["wnids"], strict=True))
    return [known.get(index, f"class {index}") for index in range(1000)]


def test_a_thousand_folders_must_be_imagenets_as_far_as_is_known():
    check_imagenet_order(tuple(thousand()), name="folder:val")
    shifted = ("n00000001", *thousand()[:-1])
    with pytest.raises(HoldfastError, match="folder:val must have ImageNet's 1000 class folders, but number"):
        check_imagenet_order(shifted, name="folder:val")
    check_imagenet_order(shifted[:999], name="another set of classes")


@pytest.mark.parametrize("name", OFFICIAL)
def test_a_folder_that_is_not_there_gets_one_sentence(tmp_path, name):
    with pytest.raises(HoldfastError, match="nowhere' does not exist"):
        open_official(f"{name}:{tmp_path}/nowhere")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("imagenet-d:x", "unknown official set 'imagenet-d:x'; did you mean"),
        ("zebra", "unknown official set 'zebra'; expected one of imagenet-c:DIR, "),
        ("imagenet-c", "data 'imagenet-c' must name a path, as in imagenet-c:DIR"),
        ("imagenet-c:{root}", "imagenet-c in .* must hold at least one of its cells, got none"),
        ("cifar10-c:{root}", "cifar10-c in .* must hold at least one"),
        ("cifar10-p:{root}", "cifar10-p in .* must hold at least one"),
    ],
)
def test_bad_specs_get_one_sentence(tmp_path, spec, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        open_official(spec.format(root=tmp_path))


def test_an_official_set_is_not_for_training(tmp_path):
    with pytest.raises(HoldfastError, match="is an official test set"):
        open_data(f"imagenet-c:{tmp_path}")


def test_every_official_set_is_listed(capsys):
    assert main(["list", "data"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{name}:DIR" in printed for name in OFFICIAL)
