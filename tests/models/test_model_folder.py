"""Model folders: every weight comes from the file, and a configuration that the file cannot fill is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf

from holdfast.errors import HoldfastError
from holdfast.models import create_model
from holdfast.models.model_folder import load_folder


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    model = create_model("vit_nano", num_classes=5, depth=1)
    save_for_hf(model, tmp_path, model_args={"depth": 1}, safe_serialization=True)
    return tmp_path


def change(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def test_a_folder_gives_the_model_and_its_weights(folder):
    model = load_folder(folder)
    held = load_file(folder / "model.safetensors")
    assert model.num_classes == 5
    for name, value in model.state_dict().items():
        assert torch.equal(value, held[name]), name


def test_a_missing_tensor_is_refused(folder):
    held = load_file(folder / "model.safetensors")
    del held["head.weight"]
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(HoldfastError, match=r"head\.weight"):
        load_folder(folder)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"num_classes": 7}, "must describe its weights, but specifies 7 classes, and they have 5"),
        ({"model_args": {"depth": 10_000}}, "specifies depth 10000; they allow at most"),
        ({"model_args": {"embed_dim": 10**9}}, "specifies embed_dim 1000000000; they allow at most 8192"),
        ({"model_args": {"depth": 1, "embed_dim": 4096}}, "specifies .* of them, and model.safetensors holds"),
    ],
)
def test_a_configuration_that_the_file_cannot_fill_is_refused(folder, values, sentence):
    change(folder, **values)
    with pytest.raises(HoldfastError, match=sentence):
        load_folder(folder)
