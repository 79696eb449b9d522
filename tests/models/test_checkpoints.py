"""Published weights load, in every container and spelling; everything else is refused without running a thing."""

import argparse
import json
import pickle
import re

import pytest
import timm
import torch

import holdfast
from holdfast.cli.main import main


def logits(model: torch.nn.Module, size: tuple[int, int] = (32, 32)) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.linspace(-2, 2, 2 * 3 * size[0] * size[1]).reshape(2, 3, *size))


def trained(name: str, **kwargs) -> torch.nn.Module:
    """A model none of whose weights are at their start values."""
    model = timm.create_model(name, **kwargs)
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.is_floating_point() and not key.endswith("attn_mask"):
                value.add_(0.1 * torch.rand_like(value))
    return model


def saver_dict(state: dict, **more) -> dict:
    """What timm's saver of the day wrote beside the weights."""
    arguments = argparse.Namespace(model="fan", lr=1e-3, aa="rand-m9")
    return {
        "epoch": 3,
        "arch": "fan",
        "state_dict": state,
        "optimizer": {"state": {}},
        "args": arguments,
        "version": 2,
        **more,
    }


def noise_like(state: dict) -> dict:
    return {key: torch.randn_like(value) if value.is_floating_point() else value for key, value in state.items()}


CONTAINERS = {
    "bare": lambda state: state,
    "state_dict": saver_dict,
    "state_dict beside averaged weights": lambda state: saver_dict(noise_like(state), state_dict_ema=state),
    "model": lambda state: {"model": state, "epoch": 3},
    "model beside averaged weights": lambda state: {"model": noise_like(state), "model_ema": state},
    "module. prefix": lambda state: saver_dict({f"module.{key}": value for key, value in state.items()}),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_gives_equal_logits(container, tmp_path):
    source = trained("fan_nano")
    torch.save(CONTAINERS[container](source.state_dict()), tmp_path / "official.pth.tar")
    model = timm.create_model("fan_nano")
    loaded = holdfast.load_checkpoint(model, tmp_path / "official.pth.tar")
    assert loaded.left_out == ()
    torch.testing.assert_close(logits(model), logits(source), atol=0, rtol=0)


def test_plain_weights_are_taken_if_asked_for(tmp_path):
    source = trained("fan_nano")
    torch.save(saver_dict(source.state_dict(), state_dict_ema=noise_like(source.state_dict())), tmp_path / "x.pth")
    model = timm.create_model("fan_nano")
    holdfast.load_checkpoint(model, tmp_path / "x.pth", ema=False)
    torch.testing.assert_close(logits(model), logits(source), atol=0, rtol=0)


@pytest.mark.parametrize("convert", [False, True])
def test_averaged_weights_are_insisted_on_in_files_with_saved_arguments(convert, tmp_path):
    source, file = trained("fan_nano"), tmp_path / "x.pth.tar"
    torch.save(saver_dict(noise_like(source.state_dict()), state_dict_ema=source.state_dict()), file)
    if convert:
        assert main(["convert", str(file), str(tmp_path / "out"), "--model", "fan_nano", "--ema"]) == 0
        model = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True)
    else:
        model = timm.create_model("fan_nano")
        holdfast.load_checkpoint(model, file, ema=True)
    torch.testing.assert_close(logits(model), logits(source), atol=0, rtol=0)


def test_fan_with_convolutional_projections_converts(tmp_path, capsys):
    source = trained("fan_nano", conv_qkv=True)
    assert {"blocks.0.attn.qkv.0.weight", "blocks.0.attn.fc.weight"} <= source.state_dict().keys()
    torch.save(saver_dict(source.state_dict()), tmp_path / "afat.pth.tar")
    assert main(["convert", str(tmp_path / "afat.pth.tar"), str(tmp_path / "out"), "--model", "fan_nano"]) == 0
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True)
    torch.testing.assert_close(logits(again), logits(source), atol=0, rtol=0)
    with holdfast.watch(again) as seen:
        logits(again)
    assert seen.attention[0].maps().shape == (2, 4, 64, 64)


def test_masks_are_interpolated_for_another_resolution(tmp_path):
    source = trained("rvt_nano")
    torch.save({"model": source.state_dict()}, tmp_path / "rvt.pth")
    larger = timm.create_model("rvt_nano", img_size=(48, 64))
    holdfast.load_checkpoint(larger, tmp_path / "rvt.pth")
    assert larger.transformers[0].blocks[0].attn.att_mask.shape == (4, 192, 192)
    torch.testing.assert_close(logits(larger, (48, 64)), logits(source, (48, 64)), atol=1e-5, rtol=1e-4)


def test_a_head_of_another_size_is_left_out_and_said(tmp_path, caplog):
    source = trained("fan_nano", num_classes=191)
    torch.save(saver_dict(source.state_dict()), tmp_path / "in22k.pth")
    model = timm.create_model("fan_nano")
    head = model.head.weight.clone()
    loaded = holdfast.load_checkpoint(model, tmp_path / "in22k.pth")
    assert loaded.left_out == ("head.bias", "head.weight")
    assert "left out head.weight, its shape is (191, 96)" in caplog.text
    torch.testing.assert_close(model.head.weight, head)
    torch.testing.assert_close(model.blocks[0].attn.q.weight, source.blocks[0].attn.q.weight)


def test_conversion_keeps_a_head_of_another_size(tmp_path):
    source = trained("fan_nano", num_classes=191)
    torch.save(saver_dict(source.state_dict()), tmp_path / "in22k.pth")
    assert main(["convert", str(tmp_path / "in22k.pth"), str(tmp_path / "out"), "--model", "fan_nano"]) == 0
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True)
    torch.testing.assert_close(logits(again), logits(source), atol=0, rtol=0)


def test_converted_folders_hold_safetensors_and_a_config(tmp_path, capsys):
    source = trained("tap_rvt_tiny_plus", img_size=224, num_classes=3)
    torch.save({"model": source.state_dict()}, tmp_path / "tap.pth")
    assert main(["convert", str(tmp_path / "tap.pth"), str(tmp_path / "out"), "--model", "tap_rvt_tiny_plus"]) == 0
    assert "timm.create_model(" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["architecture"], config["num_classes"]) == ("tap_rvt_tiny_plus", 3)


class Exploit:
    """Unpickling this would run a command."""

    def __init__(self, witness):
        self.witness = witness

    def __reduce__(self):
        return (open, (str(self.witness), "w"))


@pytest.fixture
def bad_files(tmp_path):
    good = timm.create_model("fan_nano")
    torch.save(good.state_dict(), tmp_path / "good.pth")
    torch.save(saver_dict(timm.create_model("fan_nano_hybrid").state_dict()), tmp_path / "hybrid.pth")
    (tmp_path / "truncated.pth").write_bytes((tmp_path / "good.pth").read_bytes()[:5000])
    (tmp_path / "empty.pth").write_bytes(b"")
    (tmp_path / "text.safetensors").write_text("not weights")
    torch.save({"state_dict": good.state_dict(), "extra": Exploit(tmp_path / "witness")}, tmp_path / "evil.pth")
    (tmp_path / "evil_pickle.pth").write_bytes(pickle.dumps(Exploit(tmp_path / "witness")))
    torch.save({"epoch": 3}, tmp_path / "weightless.pth")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("mine")
    return tmp_path


BAD_INPUT = {  # file, further arguments, sentence
    "wrong architecture": (
        "hybrid.pth",
        [],
        r"does not fit FAN: \d+ missing \(blocks.5.attn.kv.bias, .*, …\); \d+ unexpected \(",
    ),
    "truncated": ("truncated.pth", [], "truncated.pth cannot be read as a checkpoint"),
    "empty": ("empty.pth", [], "empty.pth cannot be read as a checkpoint"),
    "not safetensors": ("text.safetensors", [], "text.safetensors cannot be read as a checkpoint"),
    "malicious": ("evil.pth", [], "evil.pth was refused: it holds Python objects beside weights"),
    "malicious pickle": ("evil_pickle.pth", [], "evil_pickle.pth was refused"),
    "no weights": ("weightless.pth", [], "weightless.pth holds no weights"),
    "absent": ("nowhere.pth", [], "no checkpoint file at"),
    "malicious, averaged": ("evil.pth", ["--ema"], "evil.pth was refused: it holds Python objects beside weights"),
    "damaged, averaged": ("truncated.pth", ["--ema"], "truncated.pth cannot be read as a checkpoint"),
    "no averaged weights": ("good.pth", ["--ema"], "holds no averaged"),
    "unknown model": ("good.pth", ["--model", "fan_nanoo"], "unknown model 'fan_nanoo'; did you mean 'fan_nano'"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_files_get_one_sentence_and_nothing_is_written(case, bad_files, capsys):
    file, more, sentence = BAD_INPUT[case]
    before = sorted(bad_files.rglob("*"))
    model = [] if "--model" in more else ["--model", "fan_nano"]
    assert main(["convert", str(bad_files / file), str(bad_files / "out"), *model, *more]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert re.search(sentence, error), error
    assert sorted(bad_files.rglob("*")) == before


def test_a_folder_with_something_in_it_is_not_overwritten(bad_files, capsys):
    assert main(["convert", str(bad_files / "good.pth"), str(bad_files / "full"), "--model", "fan_nano"]) == 2
    assert "OUT must be a new or empty folder" in capsys.readouterr().err
    assert [path.name for path in (bad_files / "full").iterdir()] == ["something"]


def test_a_file_that_does_not_fit_changes_nothing(tmp_path):
    torch.save(
        {"model": timm.create_model("rvt_nano", masked_blocks=7, num_heads=(2,)).state_dict()}, tmp_path / "x.pth"
    )
    model = timm.create_model("rvt_nano")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(holdfast.HoldfastError, match="7 of another shape"):
        holdfast.load_checkpoint(model, tmp_path / "x.pth")
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
