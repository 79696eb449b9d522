"""Any model by a short text, with the weights that the text names."""

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models._hub import save_for_hf

from holdfast.errors import HoldfastError
from holdfast.models.specs import load_model
from tests.evaluation.toys import Brightest

IMAGE = torch.linspace(0, 1, 3 * 32 * 32).view(1, 3, 32, 32)


@pytest.mark.parametrize("name", ["vit_nano", "test_vit", "test_resnet", "rvt_nano"])
def test_a_checkpoint_brings_its_classes(tmp_path, name):
    options = {"img_size": 32} if name == "test_vit" else {}
    model = timm.create_model(name, num_classes=7, **options).eval()
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, tmp_path / "weights.safetensors")
    loaded = load_model(f"timm:{name}@{tmp_path / 'weights.safetensors'}")
    assert loaded.name == f"timm:{name}@{tmp_path / 'weights.safetensors'}"
    assert loaded.model.num_classes == 7
    if not options:  # test_vit is built for its own size and interpolates positions
        with torch.no_grad():
            torch.testing.assert_close(loaded.model.eval()(IMAGE), model(IMAGE))


def test_local_folders_and_runs_load_the_same_weights(tmp_path):
    model = timm.create_model("vit_nano", num_classes=7).eval()
    save_for_hf(model, str(tmp_path), safe_serialization=True)
    with torch.no_grad():
        expected = model(IMAGE)
        for spec in (f"local-dir:{tmp_path}", f"run:{tmp_path}", str(tmp_path), tmp_path):
            torch.testing.assert_close(load_model(spec).model.eval()(IMAGE), expected)
    assert load_model(tmp_path).folder == tmp_path
    assert load_model(f"local-dir:{tmp_path}").folder is None


def test_adapted_runs_give_their_views(tmp_path):
    from holdfast import tora
    from holdfast.models.tora_files import BACKBONE, save_tora

    backbone = timm.create_model("vit_nano", num_classes=7).eval()
    save_for_hf(backbone, str(tmp_path / BACKBONE), safe_serialization=True)
    save_tora(tora(backbone), tmp_path)
    assert set(load_model(f"run:{tmp_path}").model.views(IMAGE)) == {"joint", "acc", "rob"}


def test_modules_and_functions():
    module = Brightest()
    assert load_model(module).model is module
    assert load_model(module).name == "Brightest"
    assert isinstance(load_model("python:tests.evaluation.toys:brightest").model, Brightest)
    assert load_model(timm.create_model("vit_nano")).name == "vit_nano"


def test_a_damaged_run_is_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(HoldfastError, match=r"the model in .* cannot be loaded"):
        load_model(tmp_path)
    with pytest.raises(HoldfastError, match="no checkpoint file at"):
        load_model(f"timm:vit_nano@{tmp_path / 'nothing.pth'}")
