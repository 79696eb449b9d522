"""What a run is told before it begins, because it may not be what was meant."""

import numpy as np
import pytest
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.training.loop import train
from holdfast.training.recipe_files import find_recipe, load_recipe
from tests.training.helpers import run, tiny

STEPPED = [
    "camvid/fan_mini",
    *(f"cityscapes/{path.stem}" for path in find_recipe("cityscapes/fan_tiny_hybrid").parent.glob("*.yaml")),
]


def grey_folder(root, *, seed, names=("a", "b")):
    rng = np.random.default_rng(seed)
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(8):
            Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(root / name / f"{number}.png")
    return f"folder:{root}"


def whole(train_spec, val_spec):
    return {"train": train_spec, "val": val_spec, "train_subset": None, "val_subset": None}


def test_identical_training_and_validation_sets_are_said_once(tmp_path, caplog):
    first, copy = (grey_folder(tmp_path / name, seed=0) for name in ("first", "copy"))
    run(tmp_path / "same", data=whole(first, first))
    run(tmp_path / "equal", data=whole(first, copy) | {"train_subset": 8}, train={"batch_size": 4})
    told = [message for message in caplog.messages if "data.train and data.val hold the same images" in message]
    assert len(told) == 2  # once per run


def test_other_images_under_the_same_names_are_no_reason_to_warn(tmp_path, caplog):
    first, other = (grey_folder(tmp_path / name, seed=seed) for seed, name in enumerate(("first", "other")))
    run(tmp_path / "run", data=whole(first, other))
    run(tmp_path / "digits")
    run(tmp_path / "halves", data=whole(f"{first}[0::2]", f"{first}[1::2]"), train={"batch_size": 4})
    assert not [message for message in caplog.messages if "the same" in message]


def test_there_are_recipes_with_a_length_in_steps():
    assert len(STEPPED) >= 9  # Cityscapes and CamVid
    assert all(load_recipe(name).train.steps for name in STEPPED)


@pytest.mark.parametrize("name", STEPPED)
def test_epochs_that_are_given_win_over_the_recipes_steps(name):
    recipe = load_recipe(name, {"train": {"epochs": 1}})
    assert (recipe.train.epochs, recipe.train.steps) == (1, None)
    assert load_recipe(name, {"train": {"steps": 7}}).train.steps == 7
    with pytest.raises(HoldfastError, match=r"train\.epochs and train.steps both set the length, got 1 and 7"):
        load_recipe(name, {"train": {"epochs": 1, "steps": 7}})


def test_epochs_are_what_a_run_of_a_recipe_with_steps_trains(tmp_path):
    result = train(tiny(train={"steps": 3}), out=tmp_path / "run", overrides={"train": {"epochs": 1}}, show=False)
    assert result.step == 4  # 64 images, 16 at a time


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"schedule": {"warmup_epochs": 5}}, "the warm-up (schedule.warmup_epochs=5, 20 steps)"),
        ({"schedule": {"shape": "poly", "warmup_steps": 1500}}, "the warm-up (schedule.warmup_steps=1500, 1500 steps)"),
        ({"schedule": {"warmup_epochs": 1}, "train": {"epochs": 1}}, "the warm-up (schedule.warmup_epochs=1, 4 steps)"),
    ],
)
def test_a_warm_up_longer_than_the_training_is_warned_of(tmp_path, caplog, values, sentence):
    run(tmp_path / "run", **values)
    (told,) = caplog.messages
    assert told.startswith(sentence)
    assert told.endswith("the learning rate never reaches its peak")


def test_a_warm_up_within_the_training_is_not(tmp_path, caplog):
    run(tmp_path / "run")
    assert not caplog.messages


def test_the_header_says_the_peak_learning_rate_of_the_global_batch(tmp_path, capsys):
    rate = {"lr": 6.4e-4, "lr_base_batch": 512}
    train(tiny(optimizer=rate, train={"accumulate": 2}), out=tmp_path / "run", show=True)
    assert "peak learning rate 4e-05, on cpu" in capsys.readouterr().err  # 6.4e-4 × 32 / 512
