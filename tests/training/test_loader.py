"""Which images come when, how they are varied, and that neither depends on workers, processes or what ran before."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data import open_data
from holdfast.errors import HoldfastError
from holdfast.training.augment.classification import (
    ImageFormat,
    batch_mixer,
    training_transform,
    validation_transform,
)
from holdfast.training.loader import BatchRangeSampler, EpochSampler, Key, TransformedImages, training_loader
from holdfast.training.recipe import AugmentRecipe
from holdfast.training.seeding import seeded
from holdfast.training.tasks.classification import ImageOnly

DIGITS = ImageFormat(size=32, mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bicubic", crop_pct=1.0)
EVERYTHING = AugmentRecipe(
    rand_augment="rand-m9-mstd0.5-inc1",
    erasing=0.5,
    interpolation="random",
    color_jitter=0.4,
    vflip=0.5,
    corruption={"p": 0.5, "kinds": ["gaussian_noise", "fog"]},
)


def images(recipe=EVERYTHING, seed=0):
    return TransformedImages(open_data("digits"), ImageOnly(training_transform(recipe, DIGITS)), seed=seed)


def test_an_image_is_varied_by_seed_epoch_and_repeat_and_by_nothing_else():
    same = [images()[Key(4, 1, 0)].image for _ in range(2)]
    assert torch.equal(*same)
    others = [images()[Key(4, 2, 0)], images()[Key(4, 1, 1)], images(seed=1)[Key(4, 1, 0)]]
    assert all(not torch.equal(same[0], other.image) for other in others)


def test_batches_do_not_depend_on_the_number_of_workers():
    order = EpochSampler(297, batch_size=8, seed=0)
    runs = []
    for workers in (0, 1, 2):
        loader = training_loader(images(), BatchRangeSampler(order, 35, 40), workers=workers, pin=False)
        runs.append([(batch.images, batch.targets) for batch in loader])
    for other in runs[1:]:
        for (a, labels_a), (b, labels_b) in zip(runs[0], other, strict=True):
            assert torch.equal(a, b)
            assert torch.equal(labels_a, labels_b)


@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(12, 60),
    batch=st.integers(1, 3),
    processes=st.integers(1, 3),
    repeats=st.integers(1, 3),
    seed=st.integers(0, 5),
)
def test_processes_share_what_one_process_with_the_larger_batch_sees(length, batch, processes, repeats, seed):
    one = EpochSampler(length, batch_size=batch * processes, seed=seed, repeats=repeats)
    many = [
        EpochSampler(length, batch_size=batch, processes=processes, rank=rank, seed=seed, repeats=repeats)
        for rank in range(processes)
    ]
    for number in range(one.batches_per_epoch + 2):  # into the second epoch
        shares = [order.batch(number) for order in many]
        assert sorted(key for share in shares for key in share) == sorted(one.batch(number))
        assert {len(share) for share in shares} == {batch}


def test_an_epoch_shows_every_image_once_and_the_next_one_in_another_order():
    order = EpochSampler(40, batch_size=10, seed=0)
    epochs = [[key.image for number in range(4 * e, 4 * e + 4) for key in order.batch(number)] for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(40))
    assert epochs[0] != epochs[1]


def test_repeated_augmentation_shows_fewer_images_in_several_variations():
    order = EpochSampler(30, batch_size=6, seed=0, repeats=3)
    keys = [key for number in range(order.batches_per_epoch) for key in order.batch(number)]
    assert len(keys) == 30
    assert len({key.image for key in keys}) == 10
    assert {key.repeat for key in keys} == {0, 1, 2}


def test_accumulation_never_crosses_the_end_of_an_epoch():
    assert EpochSampler(100, batch_size=10, accumulate=3, seed=0).batches_per_epoch == 9


def test_a_batch_larger_than_the_data_set_gets_one_sentence():
    with pytest.raises(HoldfastError, match="must not exceed the 10 training images, got 4 × 2 × 2 = 16"):
        EpochSampler(10, batch_size=4, processes=2, accumulate=2, seed=0)


@pytest.mark.parametrize("crop", ["resized", "pad", "none"])
def test_every_crop_gives_the_models_size(crop):
    transform = training_transform(AugmentRecipe(crop=crop), ImageFormat(48, (0.5,) * 3, (0.5,) * 3, "bicubic", 1.0))
    with seeded(0):
        assert transform(open_data("digits").image(0)).shape == (3, 48, 48)


def test_without_augmentation_training_images_are_the_validation_images():
    plain = AugmentRecipe(crop="none", hflip=0)
    source = open_data("digits")
    with seeded(0):
        varied = training_transform(plain, DIGITS)(source.image(7))
    torch.testing.assert_close(varied, validation_transform(DIGITS)(source.image(7)), atol=0, rtol=0)


def test_images_are_corrupted_where_the_recipe_asks_for_it():
    plain = AugmentRecipe(crop="none", hflip=0)
    noisy = AugmentRecipe(crop="none", hflip=0, corruption={"kinds": ["gaussian_noise"], "severities": [5]})
    image = open_data("digits").image(0)
    with seeded(0):
        difference = training_transform(noisy, DIGITS)(image) - training_transform(plain, DIGITS)(image)
    assert 0.1 < difference.std() < 1
    with pytest.raises(HoldfastError, match=r"unknown option 'kindz' of augment.corruption; did you mean 'kinds'"):
        training_transform(AugmentRecipe(corruption={"kindz": []}), DIGITS)


def test_the_strongest_posterize_gives_a_black_image():
    strongest = AugmentRecipe(crop="none", hflip=0, rand_augment="rand-m10-n1-inc1")
    transform = training_transform(strongest, DIGITS)
    ops = next(step.ops for step in transform.transforms if hasattr(step, "ops"))
    (posterize,) = (op.aug_fn for op in ops if op.name == "PosterizeIncreasing")
    image = open_data("digits").image(0)
    assert posterize(image, 0).getextrema() == ((0, 0),) * 3
    assert posterize(image, 8) is image
    assert max(high for _, high in posterize(image, 1).getextrema()) == 128


def test_mixing_follows_the_key_and_ends_where_the_recipe_says():
    mix = batch_mixer(AugmentRecipe(mixup=0.8, cutmix=1.0, smoothing=0.1, mix_off_epoch=3), classes=10)
    batch, labels = torch.rand(4, 3, 8, 8), torch.tensor([1, 2, 3, 4])
    with seeded(1):
        first = mix(batch.clone(), labels, 2)
    with seeded(1):
        again = mix(batch.clone(), labels, 2)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], batch)
    torch.testing.assert_close(first[1].sum(dim=1), torch.ones(4))
    unmixed, targets = mix(batch.clone(), labels, 3)
    assert torch.equal(unmixed, batch)
    assert torch.equal(targets.argmax(dim=1), labels)


def test_unmixed_epochs_are_erased_as_well():
    recipe = AugmentRecipe(erasing=1.0, erasing_order="after", mixup=0.8, mix_off_epoch=3)
    images, _ = batch_mixer(recipe, classes=2)(torch.zeros(4, 3, 16, 16), torch.zeros(4, dtype=torch.long), 3)
    assert images.flatten(1).any(dim=1).all()
