"""Candidates are recipes: names and sums of methods become the values that plain training does not have."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.improvement.candidates import candidate, chosen_candidates
from holdfast.training.initialize import start_model
from holdfast.training.recipe_files import load_recipe


def base(**model):
    return load_recipe("digits/vit_nano", {"model": model})


def test_plain_training_comes_first_and_unknown_names_are_refused():
    assert chosen_candidates(("sam", "tap+adl"), against="corruptions") == ("plain", "sam", "tap+adl")
    assert {"plain", "low-lr", "adversarial", "trades", "tora"} <= set(chosen_candidates((), against="attacks"))
    with pytest.raises(HoldfastError, match="got 'augmx'; did you mean 'augmix'"):
        chosen_candidates(("augmx",), against="corruptions")


@pytest.mark.parametrize(
    ("model", "name", "kind"),
    [
        ({"name": "fan_nano"}, "fan_nano", "tap"),
        ({"name": "vit_tiny_patch16_224", "init": "weights.safetensors"}, "tap_vit_tiny_patch16_224", "tap-identity"),
        ({"name": None, "init": "timm:deit_tiny_patch16_224.fb_in1k"}, "tap_deit_tiny_patch16_224", "tap-identity"),
    ],
)
def test_tap_is_a_candidate_of_models_that_can_have_it(model, name, kind):
    (found,) = candidate("tap+adl", base(**model))
    assert found.values["model"] == {"name": name, "kwargs": {"tap": kind}}
    assert "adl" in found.values["objective"]["options"]
    if "init" not in model:
        recipe = found.recipe(base(**model), length={"epochs": 1})
        names = [key for key, _ in start_model(recipe.model, classes=10, size=32).named_parameters()]
        assert any("dilation_predictor" in key for key in names)


def test_tap_of_a_detector_is_that_of_its_encoder():
    detector = load_recipe("scene_objects/mask_fan_nano_hybrid")
    (found,) = candidate("tap", detector)
    values = found.recipe(detector).model
    assert values.name == "detector"
    assert values.kwargs["encoder_options"] == {**detector.model.kwargs["encoder_options"], "tap": "tap"}


def test_other_models_have_no_tap():
    with pytest.raises(HoldfastError, match="there is no TAP for vit_nano"):
        candidate("tap", base())
