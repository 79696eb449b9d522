"""Starting from earlier weights: new heads, new resolutions, layer-wise learning rates, frozen parts."""

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.training.initialize import start_model
from holdfast.training.recipe import ModelRecipe
from tests.training.helpers import run

TINY_VIT = {"depth": 2, "embed_dim": 48, "num_heads": 3, "patch_size": 8}


@pytest.fixture
def timm_file(tmp_path):
    """A timm ViT for 64-px images and 1000 classes, in a local file."""
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, **TINY_VIT)
    path = tmp_path / "vit.safetensors"
    save_file(model.state_dict(), path)
    return path


def recipe(**values) -> ModelRecipe:
    return ModelRecipe(**{"name": "vit_tiny_patch16_224", "kwargs": TINY_VIT, **values})


def test_a_timm_model_from_a_file_gets_a_new_head_and_resolution_and_trains(tmp_path, timm_file):
    out = tmp_path / "run"
    run(
        out,
        model={"name": "vit_tiny_patch16_224", "kwargs": TINY_VIT, "init": str(timm_file)},
        data={"size": 32},
        optimizer={"layer_decay": 0.7, "lr": 1e-4},
    )
    old, new = load_file(timm_file), load_file(out / "model.safetensors")
    assert old["pos_embed"].shape == (1, 65, 48)
    assert new["pos_embed"].shape == (1, 17, 48)
    assert new["head.weight"].shape == (10, 48)
    block = "blocks.0.attn.qkv.weight"
    assert not torch.equal(new[block], old[block])
    torch.testing.assert_close(new[block], old[block], atol=1e-2, rtol=0)  # a few small steps away
    again = timm.create_model(f"local-dir:{out}", pretrained=True)
    assert again.patch_embed.img_size == (32, 32)


def test_positions_are_interpolated_to_the_new_resolution(timm_file):
    torch.manual_seed(0)
    model = start_model(recipe(init=str(timm_file)), classes=1000, size=64)
    larger = start_model(recipe(init=str(timm_file)), classes=1000, size=128)
    assert larger.pos_embed.shape == (1, 257, 48)
    small, large = (m.pos_embed[:, 1:].mean(dim=1) for m in (model, larger))
    torch.testing.assert_close(small, large, atol=2e-3, rtol=0)


@pytest.mark.parametrize(("head", "kept"), [("auto", True), ("keep", True), ("new", False)])
def test_a_head_that_fits_is_kept_unless_a_new_one_is_asked_for(timm_file, head, kept):
    model = start_model(recipe(init=str(timm_file), head=head), classes=1000, size=64)
    assert torch.equal(model.head.weight, load_file(timm_file)["head.weight"]) is kept


def test_keeping_a_head_of_another_number_of_classes_gets_one_sentence(timm_file):
    with pytest.raises(HoldfastError, match=r"has 1000 classes but the data have 10; set model.head to auto or new"):
        start_model(recipe(init=str(timm_file), head="keep"), classes=10, size=64)
    with pytest.raises(HoldfastError, match="timm:vit_tiny_patch16_224 has 1000 classes but the data have 10"):
        start_model(ModelRecipe(init="timm:vit_tiny_patch16_224", head="keep"), classes=10, size=None)


@pytest.mark.parametrize("init", ["timm", "file"])
def test_tap_is_added_to_weights_that_were_trained_without_it(timm_file, init):
    overlay = {"pretrained_cfg_overlay": {"file": str(timm_file)}} if init == "timm" else {}
    values = {
        "name": "tap_vit_tiny_patch16_224",
        "init": str(timm_file) if init == "file" else "timm:vit_tiny_patch16_224",
    }
    tapped = ModelRecipe(**values, kwargs={**TINY_VIT, **overlay, "tap": "tap-identity"})
    state = start_model(tapped, classes=1000, size=64).state_dict()
    weights = load_file(timm_file)
    assert all(torch.equal(state[key], weights[key]) for key in weights)
    assert {key.split(".")[2] for key in state.keys() - weights.keys()} == {"dilation_predictor"}


def test_a_run_starts_from_another_run(tmp_path):
    run(tmp_path / "first", train={"epochs": 1})
    run(tmp_path / "second", train={"epochs": 1}, model={"name": None, "init": f"run:{tmp_path / 'first'}"})
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "second"))
    assert first.keys() == second.keys()
    start = start_model(
        ModelRecipe(kwargs={"depth": 1}, init=f"run:{tmp_path / 'first'}"), classes=10, size=None
    ).state_dict()
    assert all(torch.equal(start[key], first[key]) for key in first)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"init": "nowhere.safetensors"},
            "init must be timm:NAME, run:DIR or a weight file; 'nowhere.safetensors' does not exist",
        ),
        ({"init": "run:nowhere"}, "run:nowhere must be a finished run"),
        ({"init": "timm:vit_nano"}, "must agree, got 'vit_tiny_patch16_224' and 'timm:vit_nano'"),
        ({"name": None}, "the recipe names no model: set model.name, or --init"),
        ({"name": "vit_tny_patch16_224"}, "unknown model 'vit_tny_patch16_224'; did you mean 'vit_tiny_patch16_224'"),
        ({"frozen": ["block.0"]}, "'block.0' is not a part of the model; did you mean 'blocks.0'"),
        ({"frozen": ["cls_token", "pos_embed", "patch_embed", "blocks", "norm", "head"]}, "leave something to train"),
    ],
)
def test_impossible_starts_get_one_sentence(values, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        start_model(recipe(**values), classes=10, size=64)


def test_files_that_are_no_weights_of_this_model_get_one_sentence(tmp_path, timm_file):
    other = tmp_path / "other.safetensors"
    save_file({**load_file(timm_file), "extra": torch.zeros(1)}, other)
    with pytest.raises(HoldfastError, match=r"does not fit VisionTransformer: 1 unexpected \(extra\)"):
        start_model(recipe(init=str(other)), classes=1000, size=64)
    with pytest.raises(HoldfastError, match=r"12 missing \(blocks\.2\."):
        start_model(recipe(init=str(timm_file), kwargs={**TINY_VIT, "depth": 3}), classes=1000, size=64)
    text = tmp_path / "text.pth"
    text.write_text("not weights")
    with pytest.raises(HoldfastError, match=r"text\.pth (was refused|cannot be read)"):
        start_model(recipe(init=str(text)), classes=1000, size=64)


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/holdfast-was-here",)


def test_a_pickle_that_wants_to_run_code_is_refused(tmp_path):
    path = tmp_path / "evil.pth"
    torch.save({"state_dict": Evil()}, path)
    with pytest.raises(HoldfastError, match="was refused"):
        start_model(recipe(init=str(path)), classes=1000, size=64)


def test_paas_masks_are_interpolated_to_the_new_resolution(tmp_path):
    old = start_model(ModelRecipe(name="rvt_nano"), classes=10, size=None)
    save_file(old.state_dict(), tmp_path / "rvt.safetensors")
    new = start_model(ModelRecipe(name="rvt_nano", init=str(tmp_path / "rvt.safetensors")), classes=10, size=64)
    masks = [next(value for key, value in m.state_dict().items() if key.endswith("att_mask")) for m in (old, new)]
    assert [mask.shape[-1] for mask in masks] == [64, 256]
    assert new(torch.randn(1, 3, 64, 64)).shape == (1, 10)


def test_weights_that_cannot_be_fetched_say_what_to_do(capsys, tmp_path):
    # our own models have no weights to fetch, which needs no network to find out
    argv = ["train", "digits/fan_nano", "--init", "timm:fan_nano", "--out", str(tmp_path / "run")]
    assert main(argv) == 2
    assert "cannot be downloaded" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
