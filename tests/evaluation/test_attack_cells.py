"""Cells of attacks: every view and mask is recorded, whatever the shards."""

import numpy as np
import pytest

from holdfast import ComputeConfig, evaluate
from holdfast.data.source import ArraySource
from holdfast.models.corruption_model import load_corruptor
from holdfast.models.fingerprint import weights_fingerprint
from tests.evaluation.test_suites import QUICK
from tests.evaluation.toys import Brightest, ByLevel, Views, plain


@pytest.mark.parametrize("suite", ["fgsm", "pgd5"])
def test_an_attack_of_one_level_beats_margins_up_to_two(suite):
    """ε = 1/255 takes one level from the brightest channel and gives one to the next."""
    source = plain([0, 1, 2, 0, 1, 2], margin=[1, 1, 1, 3, 3, 3])
    cell = evaluate(Brightest(), source, suite, **QUICK).cells[suite]
    assert cell.right.tolist() == [0, 0, 0, 1, 1, 1]
    assert cell.header["settings"]["eps"] == pytest.approx(1 / 255)


def test_stronger_attacks_beat_wider_margins():
    source = plain([0, 1, 2], margin=[7, 10, 20])
    records = evaluate(Brightest(), source, "pgd3-rvt-adv,pgd5-rspc", **QUICK)
    assert records.cells["pgd3-rvt-adv"].right.tolist() == [0, 1, 1]  # ε = 4/255
    assert records.cells["pgd5-rspc"].right.tolist() == [0, 0, 1]  # ε = 8/255


def test_random_occlusion_sees_every_image_under_every_mask():
    cell = evaluate(Brightest(), plain([0, 1], margin=[100, 0]), "occlusion-random", **QUICK).cells["occlusion-random"]
    assert cell.predictions.shape == (2, 10)
    assert cell.right[0] == 1
    assert cell.header["settings"]["patch_size"] == 4


def test_learned_occlusion_finds_the_patches_that_matter():
    """One patch of 64 tells the class: random masks of six seldom hide it, a learned one does."""
    source = plain([0, 1] * 8, margin=[0] * 16)
    source.images[np.arange(16), :4, :4, source.targets] = 255
    records = evaluate(Brightest(), source, "occlusion-random,occlusion-learned", **QUICK)
    random, learned = records.cells["occlusion-random"], records.cells["occlusion-learned"]
    assert learned.predictions.shape == (16, 10)
    assert learned.header["settings"]["patch_size"] == 4
    assert learned.accuracy < random.accuracy - 0.2


def test_learned_occlusion_does_not_depend_on_how_the_images_are_cut_into_shards(tmp_path):
    source = plain([0, 1] * 8, margin=[0] * 16)
    source.images[np.arange(16), :4, :4, source.targets] = 255
    cells = [
        evaluate(
            Brightest(),
            source,
            "occlusion-learned",
            out=tmp_path / str(size),
            compute=ComputeConfig(attack_batch_size=4, shard_size=size),
            **QUICK,
        ).cells
        for size in (4, 8, 16)
    ]
    for cell in (held["occlusion-learned"] for held in cells[1:]):
        np.testing.assert_array_equal(cell.predictions, cells[0]["occlusion-learned"].predictions)
    assert cells[0]["occlusion-learned"].header["fitted"] == "once, before the units"
    files = [next((tmp_path / str(size)).rglob("corruptor.*")) for size in (4, 8, 16)]
    assert len({weights_fingerprint(load_corruptor(file).state_dict()) for file in files}) == 1


def test_patch_fool_and_autoattack_run_as_suites():
    source = plain([0, 1], margin=[150, 1], level=20)
    records = evaluate(Brightest(), source, "patch-fool", **QUICK)
    assert records.cells["patch-fool"].right.tolist() == [1, 0]  # a quarter of the image outweighs a level
    source = plain([0, 1], margin=[0, 1], level=20)
    wrong = type(source)("wrong", source.images, np.array([3, 3]), tuple("abcd"), source.numbers)
    assert evaluate(ByLevel(4, 20), wrong, "autoattack-cifar", **QUICK).cells["autoattack-cifar"].accuracy == 0.0


def test_sparse_patch_fool_runs_as_a_suite():
    records = evaluate(Brightest(), plain([0, 1], margin=[150, 1], level=20, size=64), "patch-fool-sparse", **QUICK)
    assert records.cells["patch-fool-sparse"].right.tolist() == [1, 0]


@pytest.mark.full
@pytest.mark.parametrize("suite", ["autoattack-imagenet", "autoattack-cifar-l2"])
def test_the_other_autoattacks_run_as_suites(suite):
    # classes are 20 levels apart: the middle of one is ten levels from any border, the other image is one level from it
    images = np.stack([np.full((32, 32, 3), level, dtype=np.uint8) for level in (20, 31)])
    source = ArraySource("levels", images, np.array([1, 2]), tuple("abcd"), np.arange(2))
    assert evaluate(ByLevel(4, 20), source, suite, **QUICK).cells[suite].right.tolist() == [1, 0]


def test_all_views_of_a_model_are_recorded_also_under_attack():
    source = plain([0, 1, 2], margin=[3, 3, 1])
    records = evaluate(Views(), source, "clean,fgsm,occlusion-random", **QUICK)
    assert records.views == ("joint", "acc", "rob")
    assert records.cells["clean"].right.tolist() == [1, 1, 1]
    assert records.view("rob").cells["clean"].right.tolist() == [0, 1, 0]
    assert records.cells["fgsm"].right.tolist() == [1, 1, 0]
    assert records.view("rob").cells["fgsm"].right.tolist() == [0, 1, 0]
    assert records.view("rob").cells["occlusion-random"].predictions.tolist() == [[1] * 10] * 3
