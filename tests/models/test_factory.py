"""Any model by a short text, with the weights that the text names."""

import json
import time

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from timm.models._hub import save_for_hf

from holdfast.errors import HoldfastError
from holdfast.models.factory import load_model
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


@pytest.fixture
def run(tmp_path):
    model = timm.create_model("vit_nano", num_classes=10)
    save_for_hf(model, str(tmp_path), safe_serialization=True, model_args={"depth": 8})
    return tmp_path


def change_config(folder, *places, **values):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for place in places:
        (config if place == "" else config[place]).update(values)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("places", [("", "model_args", "pretrained_cfg"), ("",)])
@pytest.mark.parametrize("classes", [9, 11, 0, 1000, 10**9, 10**400, -1, "10", None])
def test_a_run_whose_config_asks_for_another_head_is_refused(run, classes, places, caplog):
    """A head that the weights do not hold would be random; timm reads the number in three places."""
    change_config(run, *places, num_classes=classes)
    begin = time.monotonic()
    for spec in (f"run:{run}", f"local-dir:{run}"):
        with pytest.raises(HoldfastError) as told:
            load_model(spec)
        assert "\n" not in str(told.value)
    assert time.monotonic() - begin < 10
    assert not caplog.records


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"depth": 10**6}, "specifies depth 1000000; they allow at most [0-9]+"),
        ({"depth": 9}, "does not fit VisionTransformer: 12 missing"),
        ({"depth": 7}, "does not fit VisionTransformer: 12 unexpected"),
        ({"embed_dim": 10**9}, "specifies embed_dim 1000000000"),
        ({"embed_dim": 8192}, r"specifies [0-9,]+ of them, and model.safetensors holds [0-9,]+$"),
        ({"mlp_ratio": 1e12}, "specifies mlp_ratio 1000000000000.0"),
        ({"mlp_ratio": 8000.0}, "of them, and model.safetensors holds"),
        ({"img_size": [10**7, 32]}, "specifies img_size 10000000"),
    ],
)
def test_absurd_sizes_are_refused_before_anything_is_built(run, values, sentence):
    change_config(run, "model_args", **values)
    begin = time.monotonic()
    with pytest.raises(HoldfastError, match=sentence):
        load_model(run)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    ("values", "changed"), [({"img_size": 64}, "pos_embed"), ({"patch_size": 2}, "patch_embed.proj.weight, pos_embed")]
)
def test_weights_that_would_be_interpolated_are_refused(run, values, changed):
    """timm fits them to another image or patch size, which is another model."""
    change_config(run, "model_args", **values)
    with pytest.raises(HoldfastError, match=f"unchanged, but {changed} would be interpolated"):
        load_model(run)


def test_a_run_that_lacks_a_weight_or_has_one_too_many_is_refused(run):
    weights = load_file(run / "model.safetensors")
    save_file({key: value for key, value in weights.items() if key != "norm.bias"}, run / "model.safetensors")
    with pytest.raises(HoldfastError, match=r"1 missing \(norm.bias\)"):
        load_model(run)
    save_file({**weights, "extra": torch.ones(3)}, run / "model.safetensors")
    with pytest.raises(HoldfastError, match=r"1 unexpected \(extra\)"):
        load_model(run)


def test_a_head_without_weights_is_refused_in_adapted_runs_too(tmp_path):
    from holdfast import tora
    from holdfast.models.tora_checkpoints import BACKBONE, save_tora

    backbone = timm.create_model("vit_nano", num_classes=7).eval()
    save_for_hf(backbone, str(tmp_path / BACKBONE), safe_serialization=True, model_args={"depth": 8})
    save_tora(tora(backbone), tmp_path)
    change_config(tmp_path / BACKBONE, "", "model_args", "pretrained_cfg", num_classes=6)
    with pytest.raises(HoldfastError, match=r"must hold all weights of the run's model, but head.bias does not fit"):
        load_model(tmp_path)


def test_adapted_runs_give_their_views(tmp_path):
    from holdfast import tora
    from holdfast.models.tora_checkpoints import BACKBONE, save_tora

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
