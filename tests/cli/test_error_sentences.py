"""Errors name what was probably meant: every case is a command that a newcomer types."""

import shutil

import pytest
import torch
from torch import nn

import holdfast
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.io.training_log import idle_parts
from holdfast.models import create_model
from tests.training.helpers import run


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A finished run, a folder of records alone, a folder of images, and a file of weights without a head."""
    root = tmp_path_factory.mktemp("newcomer")
    run(root / "demo" / "a", train={"epochs": 1})
    (root / "demo" / "report.html").write_text("a page")
    model = create_model("vit_nano", num_classes=10)
    holdfast.evaluate(model, "digits:test", "clean", limit=10, out=root / "measured", workers=0)
    (root / "plain" / "class").mkdir(parents=True)
    (root / "pictures").mkdir()
    (root / "pictures" / "broken.png").write_bytes(b"no image")
    for folder in ("splits/train/cat", "splits/val/cat", "pair"):
        (root / folder).mkdir(parents=True)
    for name in ("a", "b"):
        shutil.copytree(root / "demo" / "a", root / "pair" / name)
    headless = {key: value for key, value in model.state_dict().items() if not key.startswith("head.")}
    torch.save(headless, root / "backbone.pth")
    torch.save(model.state_dict(), root / "whole.pth")
    return root


CASES = {
    "a value of the recipe": ("train digits/fan_nano --lr 0.1", "did you mean '--optimizer.lr'?"),
    "a value with a dash": ("train digits/fan_nano --batch-size=8", "did you mean '--train.batch_size'?"),
    "one letter too many": ("train digits/fan_nano --methods afat", "did you mean '--method'?"),
    "nothing is near": ("list models --zzz", "unknown option '--zzz'"),
    "one of a kind": ("list model", "got 'model'; did you mean 'models'?"),
    "no model": ("predict plain", "holdfast predict needs --model; see holdfast predict --help"),
    "a name of timm": ("evaluate --model resnet18 --data digits:test", "did you mean 'timm:resnet18'?"),
    "a misspelt name of timm": ("evaluate --model resnet_18 --data digits", "did you mean 'timm:resnet18'?"),
    "a name of timm, without data": ("evaluate --model resnet18", "did you mean 'timm:resnet18'?"),
    "a file of weights": ("evaluate --model whole.pth --data digits", "as in timm:NAME@whole.pth"),
    "a file of ONNX": ("evaluate --model model.onnx --data digits", "did you mean 'onnx:model.onnx'?"),
    "no such run": ("evaluate demo/nope", "'demo/nope' does not exist"),
    "a folder without its prefix": ("evaluate demo/a --data plain", "did you mean 'folder:plain'?"),
    "records alone": ("export measured", "holds records but no model; give the model itself: vit_nano"),
    "records alone, with data": ("evaluate measured --data digits", "holds records but no model"),
    "an unreadable image": ("predict pictures --model demo/a", "; --skip-bad leaves such images out"),
    "the second of two runs": ("evaluate demo/a demo/nope --data digits:test", "'demo/nope' does not exist"),
    "records for the second run": ("evaluate demo/a measured --data digits:test", "holds records but no model"),
    "a page for its run": ("report demo/report.html", "'demo/report.html' is a file; did you mean 'demo'?"),
    "no head": (
        "evaluate --model timm:vit_nano@backbone.pth --data digits:test",
        "backbone.pth has no classification head that fits vit_nano",
    ),
    "the folder of the runs": ("evaluate demo --data digits", "'demo' is not a run, but holds runs: 'demo/a'; give"),
    "the folder of the runs, without data": ("analyze demo", "'demo' is not a run, but holds runs: 'demo/a'; give"),
    "a card of several runs": ("card pair", "a card needs one run, but 'pair' holds 2; give one of them"),
    "a corruption for its suite": ("evaluate demo/a --suite clean,fog", "the suite 'corruptions' measures it"),
    "255ths as they are": (
        "evaluate demo/a --attack pgd:eps=4",
        "at most 1, for pixels from 0 to 1, got 4; did you mean 4/255?",
    ),
    "255ths of AutoAttack": ("evaluate demo/a --attack autoattack:eps=8", "got 8; did you mean 8/255?"),
    "a device by its kind": ("evaluate demo/a --data digits:test --device gpu", "got 'gpu'; did you mean 'cuda'?"),
    "images without folders": ("evaluate demo/a --data folder:pictures", "per class, got 1 image and no folders"),
    "folders of splits": (
        "train digits/fan_nano --data.train folder:splits",
        "holds splits instead of classes; did you mean 'folder:splits/train' or 'folder:splits/val'?",
    ),
    "no such folder": ("evaluate demo/a --data folder:nowhere", "'nowhere' does not exist"),
    "no kind to list": ("list", "holdfast list needs KIND;"),
    "no target": ("corrupt pictures", "holdfast corrupt needs DST;"),
    "an option of its own": ("--verison", "unknown option '--verison'; did you mean '--version'?"),
    "an option before its command": ("--model demo/a", "unknown option '--model'; options follow the command"),
    "a letter too few": ("train digits/fan_nano --model.name vit_nan", "; did you mean 'vit_nano' or 'rvt_nano'"),
    "another recipe": ("train demo/a/recipe.yaml --out demo/a --resume --train.epochs=2", "--init run:demo/a"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_names_what_was_meant(case, folders, monkeypatch, capsys):
    monkeypatch.chdir(folders)
    command, sentence = CASES[case]
    before = sorted(folders.rglob("*"))
    assert main(command.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err
    assert "--help'" not in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert sorted(folders.rglob("*")) == before


class Grey(nn.Module):
    """A classifier of grey images."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))

    def forward(self, images):
        return self.body(images)


def test_a_model_of_grey_images_is_told_apart_from_one_of_another_size():
    with pytest.raises(HoldfastError, match=r"must take images of 3 channels \(RGB\), but takes 1:"):
        holdfast.evaluate(Grey(), "digits:test", "clean", limit=10, workers=0)


def test_floats_from_0_to_255_are_recognised_whatever_the_model_subtracts():
    images, labels = torch.rand(4, 3, 32, 32) * 255, torch.arange(4)
    model = create_model("vit_nano", num_classes=10, depth=1)
    protocols = [None, holdfast.EvalProtocol(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))]
    for protocol in protocols:
        with pytest.raises(HoldfastError, match="look like pixels from 0 to 255; pass them as uint8 or divide"):
            holdfast.evaluate(model, (images, labels), "clean", protocol=protocol)


def test_a_term_is_not_called_idle_after_one_line():
    line = {"event": "step", "step": 1, "afat": 0.0}
    assert idle_parts([line]) == []
    assert len(idle_parts([line, {**line, "step": 2}])) == 1
