"""Occlusion covers so many patches, at random or where a corruption model says, and a fitted one says it best."""

import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from holdfast import HoldfastError
from holdfast.attacks import (
    PRESETS,
    AttentionOcclusion,
    LearnedOcclusion,
    Occlusion,
    PixelModel,
    fit_corruptor,
    from_pixels,
)
from holdfast.attention import watch
from holdfast.models.corruption_model import Corruptor
from tests.attacks.conftest import load
from tests.attacks.test_projected_gradient_descent import assert_same, state_of

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


class Quick(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(5))

    def forward(self, x):
        return self.layers(x)


def quick(size: int = 32) -> PixelModel:
    torch.manual_seed(0)
    model = PixelModel(Quick(), mean=MEAN, std=STD)
    model(torch.rand(2, 3, size, size))
    return model.eval()


def batch(count: int = 4, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(count, 3, size, size), torch.arange(count) % 5


def covered_patches(before: torch.Tensor, after: torch.Tensor, size: int) -> torch.Tensor:
    """The patches that differ, (B, N); every patch is covered wholly or not at all."""
    pixels = (before != after).all(dim=1)
    patches = pixels.unfold(1, size, size).unfold(2, size, size).flatten(3).flatten(1, 2)  # B N pixels
    assert torch.equal(patches.all(-1), patches.any(-1))
    return patches.all(-1)


@settings(deadline=None, max_examples=25)
@given(ratio=st.floats(0.01, 0.99), size=st.sampled_from([4, 8]), seed=st.integers(0, 1000))
def test_so_many_whole_patches_are_covered_as_a_corruption_model_would_cover(ratio, size, seed):
    images, labels = batch()
    result = Occlusion(ratio, patch_size=size, masks=1, fill="pixels")(quick(), images, labels, seed=seed)
    grid = 32 // size
    corruptor = Corruptor((grid, grid), patch_size=size)
    expected = int((corruptor.keep(images, ratio)[0] == 0).sum())
    assert covered_patches(images, result.images, size).sum(dim=1).tolist() == [expected] * 4


def test_attention_covers_the_patches_that_receive_the_most_of_it():
    torch.manual_seed(0)
    model = from_pixels(timm.create_model("vit_nano"))
    images, labels = torch.rand(3, 3, 32, 32), torch.arange(3)
    result = AttentionOcclusion(ratio=0.25, fill="pixels")(model, images, labels, seed=4)
    with torch.no_grad(), watch(model.model) as seen:
        model(images)
    received = sum(handle.maps().mean(dim=(1, 2)) for handle in seen.attention)[:, -64:]
    covered = covered_patches(images, result.images, 4)
    assert covered.sum(dim=1).tolist() == [16, 16, 16]
    assert all(received[i][covered[i]].min() >= received[i][~covered[i]].max() for i in range(3))
    assert torch.equal(result.success, result.predictions != labels)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"ratio": 1.1}, r"ratio must lie in \[0, 1\], got 1.1"), ({"fill": "black"}, "fill must be one of")],
)
def test_bad_settings_of_attention_occlusion_get_one_sentence(settings, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        AttentionOcclusion(**settings)


def test_a_model_without_attention_has_no_most_attended_patches():
    with pytest.raises(HoldfastError, match=r"blocks that attend to all patches of one grid .*, got Quick"):
        AttentionOcclusion()(quick(), *batch())


def test_the_published_ratio_covers_20_of_196_patches():
    images, labels = batch(2, 224)
    attack = PRESETS["occlusion-random"]
    assert (attack.ratio, attack.patch_size, attack.fill) == (0.1, 16, "normalised")
    result = attack(quick(224), images, labels)
    assert covered_patches(images, result.images, 16).sum(dim=1).tolist() == [20, 20]


FILLS = {  # lowest and highest value of every channel under a cover
    "normalised": [(mean, min(mean + std, 1.0)) for mean, std in zip(MEAN, STD, strict=True)],
    "pixels": [(0.0, 1.0)] * 3,
    "mean": [(mean, mean) for mean in MEAN],
}


@pytest.mark.parametrize("fill", FILLS)
def test_covers_have_the_values_of_their_fill(fill):
    images, labels = torch.ones(4, 3, 32, 32), torch.arange(4)
    result = Occlusion(0.5, patch_size=4, masks=1, fill=fill)(quick(), images, labels)
    where = covered_patches(images, result.images, 4).view(4, 8, 8).repeat_interleave(4, 1).repeat_interleave(4, 2)
    for channel, (low, high) in enumerate(FILLS[fill]):
        values = result.images[:, channel][where]
        assert values.min().item() == pytest.approx(low, abs=0.01)
        assert values.max().item() == pytest.approx(high, abs=0.01)


def test_noise_is_uniform_in_normalised_space():
    model, (images, labels) = quick(), batch(8)
    result = Occlusion(0.99, patch_size=4, masks=1)(model, images, labels)
    covered = model.normalise(result.images)[(images != result.images).all(dim=1, keepdim=True).expand_as(images)]
    assert covered.min() >= -1e-5
    assert covered.max() <= 1 + 1e-5
    assert covered.mean().item() == pytest.approx(0.5, abs=0.01)


def test_the_spread_over_masks_is_reported(reader, digits):
    data = digits[:60]
    result = Occlusion(0.25, patch_size=4, masks=4)(reader, data.images, data.labels)
    assert result.predictions.shape == (4, 60)
    each = [(row == data.labels).double().mean().item() for row in result.predictions]
    spread = result.spread(data.labels)
    assert spread["masks"] == 4
    assert (spread["min"], spread["max"]) == (min(each), max(each))
    assert spread["mean"] == pytest.approx(sum(each) / 4)
    assert spread["std"] == pytest.approx(torch.tensor(each).double().std().item())
    assert result.accuracy(data.labels) == pytest.approx(spread["mean"])
    assert result.right_per_image(data.labels).mean().item() == pytest.approx(spread["mean"])
    assert len({tuple(row.tolist()) for row in result.predictions}) > 1
    with torch.no_grad():
        assert torch.equal(result.predictions[-1], reader(result.images).argmax(dim=1))


def test_a_corruption_model_chooses_the_patches_it_would_choose_in_training():
    model, (images, labels) = quick(), batch()
    corruptor = Corruptor((8, 8), patch_size=4)
    result = Occlusion(0.2, masks=2)(model, images, labels, corruptor=corruptor)
    expected = corruptor.keep(model.normalise(images), 0.2).flatten(1) == 0
    assert torch.equal(covered_patches(images, result.images, 4), expected)
    assert (result.record["patches_by"], result.record["patch_size"]) == ("corruptor", 4)


def test_masks_and_noise_belong_to_images_not_to_batches():
    model, (images, labels) = quick(), batch(5)
    attack, ids = Occlusion(0.2, patch_size=8, masks=2), ["a", "b", "c", "d", "e"]
    whole = attack(model, images, labels, ids=ids, seed=4)
    for part in ([3], [4, 0, 2]):
        some = attack(model, images[part], labels[part], ids=[ids[i] for i in part], seed=4)
        assert torch.equal(some.images, whole.images[part])
    assert not torch.equal(attack(model, images, labels, ids=ids, seed=5).images, whole.images)


# ------------------------------------------------------------------------------------------------ occlusion-learned


def batches(count: int, start: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    data = load()[start : start + count]
    return list(zip(data.images.split(50), data.labels.split(50), strict=True))


def test_learned_occlusion_beats_random_occlusion_of_the_same_size(reader, digits):
    data = digits[:200]
    fitted = fit_corruptor(LearnedOcclusion(patch_size=4, epochs=4), reader, batches(700))
    random = Occlusion(patch_size=4, masks=3)(reader, data.images, data.labels).spread(data.labels)
    learned = Occlusion(masks=3)(reader, data.images, data.labels, corruptor=fitted.corruptor).spread(data.labels)
    assert fitted.objective[-1] > fitted.objective[0]
    assert learned["mean"] < random["mean"] - 0.05
    assert learned["max"] < random["min"]


def test_alignment_is_raised_too(reader):
    fitted = fit_corruptor(LearnedOcclusion(patch_size=4, objective="alignment", epochs=3), reader, batches(100))
    assert fitted.objective[-1] > fitted.objective[0]
    assert fitted.record["objective"] == "alignment"


@pytest.mark.parametrize("objective", ["cross-entropy", "alignment"])
def test_fitting_leaves_the_classifier_as_it_was_and_moves_only_the_corruptor(objective):
    model = from_pixels(timm.create_model("fan_nano", embed_dim=32, num_heads=2)).train()
    images, labels = batch(4)
    before, random = state_of(model), torch.get_rng_state()
    attack = LearnedOcclusion(patch_size=4, objective=objective, epochs=2)
    first = fit_corruptor(attack, model, [(images, labels)], seed=1)
    assert_same(before, state_of(model))
    assert torch.equal(torch.get_rng_state(), random)
    again = fit_corruptor(attack, model, [(images, labels)], seed=1)
    assert torch.equal(first.corruptor.fc.weight, again.corruptor.fc.weight)
    assert not torch.equal(
        first.corruptor.fc.weight, fit_corruptor(attack, model, [(images, labels)], seed=2).corruptor.fc.weight
    )
    assert not any(parameter.requires_grad for parameter in first.corruptor.parameters())


def test_any_classifier_will_do():
    model, (images, labels) = quick(), batch()
    fitted = fit_corruptor(LearnedOcclusion(patch_size=8, epochs=1), model, [(images, labels)])
    assert fitted.corruptor.grid == (4, 4)


IMAGES, LABELS = batch()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Occlusion(1.5), r"ratio must lie in \[0, 1\], got 1.5"),
        (lambda: Occlusion(masks=0), "masks must be at least 1, got 0"),
        (lambda: Occlusion(fill="black"), "fill must be one of normalised, pixels, mean, got 'black'"),
        (lambda: Occlusion(patch_size=5)(quick(), IMAGES, LABELS), "patch_size must divide the image, got 5 for 32×32"),
        (
            lambda: Occlusion()(quick().model, IMAGES, LABELS),
            "normalises its images, got Quick: wrap it with from_pixels",
        ),
        (lambda: Occlusion()(quick(), IMAGES, LABELS + 9), "labels must lie in 0…4"),
        (lambda: Occlusion()(quick(), IMAGES, LABELS).accuracy(LABELS[:1]), r"labels must have shape \(4,\)"),
        (lambda: LearnedOcclusion(objective="ce"), "objective must be one of cross-entropy, alignment, got 'ce'"),
        (lambda: LearnedOcclusion(epochs=0), "epochs must be positive, got 0"),
        (lambda: fit_corruptor(LearnedOcclusion(), quick(), []), "batches must yield at least one batch"),
        (
            lambda: fit_corruptor(LearnedOcclusion(objective="alignment"), quick(), [(IMAGES, LABELS)]),
            "Quick has no attention that Holdfast can read",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        call()
