"""AugMix: the published loss, operations that are Pillow's, and views that follow from the seed."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch.nn import functional as F

import holdfast
from holdfast.errors import HoldfastError
from holdfast.methods import AugMix, RobustObjective, jensen_shannon
from holdfast.methods import augmix_operations as operations
from tests.training.helpers import assert_same_run, log_of, run
from tests.training.test_loop import StopsAt

CLEAN = [[2, 0.5, -1], [0, 1, 3]]
FIRST = [[1, 1, -0.5], [0.5, -1, 2]]
SECOND = [[2.5, -1, 0], [-1, 2, 2.5]]


def logits():
    return [torch.tensor(view, dtype=torch.float64, requires_grad=True) for view in (CLEAN, FIRST, SECOND)]


def test_the_loss_and_its_gradient_are_the_published_ones():
    clean, first, second = logits()
    entropy, divergence = F.cross_entropy(clean, torch.tensor([0, 1])), jensen_shannon([clean, first, second])
    assert float(entropy.detach()) == pytest.approx(1.205578658, abs=1e-9)
    assert float(divergence.detach()) == pytest.approx(0.1013883353, abs=1e-10)
    total = entropy + 12 * divergence
    assert float(total.detach()) == pytest.approx(2.4222386816, abs=1e-10)
    total.backward()
    for view, gradient in {
        clean: [[0.0222172120, 0.0062770198, -0.0284942318], [-0.0339851863, -0.5463594877, 0.5803446740]],
        first: [[-0.5522890911, 0.5142566378, 0.0380324534], [0.2385252814, -0.1265779173, -0.1119473641]],
        second: [[0.1390769618, -0.1214711817, -0.0176057802], [-0.0582480510, 0.4617025583, -0.4034545073]],
    }.items():
        np.testing.assert_allclose(view.grad, gradient, atol=6e-11)


def test_equal_views_diverge_by_0_and_disjoint_ones_by_log_3():
    view = torch.tensor(CLEAN)
    assert float(jensen_shannon([view] * 3)) == pytest.approx(0, abs=1e-7)
    disjoint = [torch.eye(3, dtype=torch.float64)[[place]] * 60 for place in range(3)]
    assert float(jensen_shannon(disjoint)) == pytest.approx(1.0986122887, abs=1e-9)


@pytest.fixture
def picture():
    noise = np.random.default_rng(0).integers(20, 220, (3, 5, 4), dtype=np.uint8)
    return Image.fromarray(noise.transpose(1, 2, 0)).resize((40, 32), Image.Resampling.BICUBIC)


def as_tensor(picture):
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float().unsqueeze(0)


@pytest.mark.parametrize(
    ("operation", "level", "pillow"),
    [
        ("autocontrast", 1.0, ImageOps.autocontrast),
        ("equalize", 1.0, ImageOps.equalize),
        ("posterize", 2.9, lambda picture: ImageOps.posterize(picture, 3)),
        ("posterize", 0.5, lambda picture: ImageOps.posterize(picture, 4)),
        ("solarize", 3.0, lambda picture: ImageOps.solarize(picture, 180)),
    ],
)
def test_changes_of_values_are_those_of_pillow(operation, level, pillow, picture):
    changed = getattr(operations, operation)(as_tensor(picture), torch.tensor([level]))
    assert torch.equal(changed, as_tensor(pillow(picture)))


@pytest.mark.parametrize(
    ("operation", "signs"),
    [
        ("shear_x", lambda sign: (1, sign * 0.24, 0, 0, 1, 0)),
        ("shear_y", lambda sign: (1, 0, 0, sign * 0.24, 1, 0)),
        ("translate_x", lambda sign: (1, 0, sign * 10, 0, 1, 0)),
        ("translate_y", lambda sign: (1, 0, 0, 0, 1, sign * 8)),
        ("rotate", lambda sign: sign * 24),
    ],
)
def test_geometry_is_that_of_pillow(operation, signs, picture):
    changed = getattr(operations, operation)(as_tensor(picture), torch.tensor([8.0]))
    wanted = []
    for sign in (1, -1):
        data = signs(sign)
        turned = picture.rotate(data, resample=Image.Resampling.BILINEAR) if operation == "rotate" else None
        wanted.append(
            turned or picture.transform(picture.size, Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
        )
    apart = min(float((changed - as_tensor(other)).abs().float().quantile(0.98)) for other in wanted)
    assert apart <= 1


def test_views_are_mixtures_that_stay_in_range_and_follow_from_the_seed():
    images = torch.rand(4, 3, 16, 16)
    objective = RobustObjective([AugMix()], mean=(0, 0, 0), std=(1, 1, 1))
    seen = []
    for _ in range(2):
        torch.manual_seed(3)
        objective(lambda batch: seen.append(batch) or batch.mean(dim=(2, 3)), images, torch.zeros(4, dtype=torch.long))
    assert torch.equal(seen[0], seen[1])
    first, second, clean = seen[0].chunk(3)
    assert torch.equal(clean, images)
    assert not torch.allclose(first, second)
    assert -1e-5 <= float(first.min()) <= float(first.max()) <= 1 + 1e-5


def test_a_run_with_augmix_is_alive_and_resumes_to_the_same_bits(tmp_path):
    values = {"augment": {"mixup": 0.2}, "train": {"epochs": 1}}
    run(tmp_path / "whole", objective=RobustObjective([AugMix()]), **values)
    assert all(line["jensen_shannon"] > 0 for line in log_of(tmp_path / "whole", "step"))
    stopped = run(tmp_path / "parts", objective=StopsAt(2, RobustObjective([AugMix()])), **values)
    assert stopped.stopped_by
    run(tmp_path / "parts", resume=True, objective=RobustObjective([AugMix()]), **values)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_bad_settings_get_one_sentence():
    with pytest.raises(HoldfastError, match="severity of augmix must lie between"):
        AugMix(severity=11)
    with pytest.raises(HoldfastError, match="at least 1"):
        AugMix(width=0)
    assert holdfast.methods.TERMS["augmix"]
