"""A way to adapt a frozen model of one's own: one row, and recipe, phases, runs, specs and report know it."""

import json
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import holdfast
from holdfast.errors import HoldfastError
from holdfast.methods import methods
from holdfast.models.adaptation import ADAPTERS, AdapterEntry
from holdfast.models.factory import load_model
from tests.training.helpers import assert_same_weights, log_of, run, tiny


class Rescaled(nn.Module):
    """Logits of a frozen model, scaled and shifted."""

    def __init__(self, backbone: nn.Module, *, scale: float = 1.0) -> None:
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.shift = nn.Parameter(torch.zeros(backbone.num_classes))
        self.pretrained_cfg, self.num_classes = backbone.pretrained_cfg, backbone.num_classes

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.scale * self.backbone(images) + self.shift


def begin(model: Rescaled, phase: str) -> None:
    model.shift.requires_grad_(phase == "shift")
    model.scale.requires_grad_(phase == "scale")


def save(model: Rescaled, folder: Path, notes) -> None:
    save_file({"scale": model.scale.detach(), "shift": model.shift.detach()}, folder / "rescaled.safetensors")
    (folder / "rescaled.json").write_text(json.dumps({**notes}))


def take_over(model: Rescaled, folder: Path) -> None:
    model.load_state_dict(load_file(folder / "rescaled.safetensors"), strict=False)


def load(folder: Path) -> Rescaled:
    model = Rescaled(timm.create_model(f"local-dir:{folder / 'backbone'}", pretrained=True))
    take_over(model, folder)
    return model.eval()


@pytest.fixture
def registered(monkeypatch):
    """The one row."""
    row = AdapterEntry(
        line="logits scaled and shifted",
        adapt=Rescaled,
        save=save,
        load=load,
        take_over=take_over,
        marker="rescaled.json",
        phases=("shift", "scale"),
        begin=begin,
    )
    monkeypatch.setitem(ADAPTERS, "rescaled", row)


def recipe(frozen: Path, **adapt) -> dict:
    model = {"init": f"run:{frozen}", "adapt": {"name": "rescaled", **adapt}}
    return tiny(model=model, optimizer={"lr": 0.1}, train={"epochs": 1, "phases": {"first_epochs": 2}})


def test_an_adapter_of_ones_own_reaches_recipe_phases_log_spec_and_report(registered, tmp_path):
    frozen, out = run(tmp_path / "frozen").folder, tmp_path / "out"
    values = recipe(frozen, options={"scale": 2.0})
    holdfast.train(values, out=out, show=False)
    assert sorted(path.name for path in out.iterdir()) == ["phase1-shift", "recipe.yaml", "scale"]
    first, last = (load_file(out / part / "rescaled.safetensors") for part in ("phase1-shift", "scale"))
    assert first["scale"] == 2
    assert first["shift"].abs().max() > 0
    assert last["scale"] != 2
    assert torch.equal(first["shift"], last["shift"])
    assert len(log_of(out / "phase1-shift", "epoch")) == 2
    assert log_of(out / "scale", "step")[-1]["cross_entropy"] > 0
    assert_same_weights(frozen / "model.safetensors", out / "scale" / "backbone" / "model.safetensors")
    assert methods()["model.adapt: rescaled"] == "logits scaled and shifted"

    assert load_model(f"run:{out / 'scale'}").model.scale == last["scale"]
    records = holdfast.evaluate(f"run:{out / 'scale'}", "digits", "clean", limit=20, workers=0, show=False)
    page = holdfast.report(out / "scale")
    assert f"{records.summary(intervals=False)['clean'].value:.1f}" in page

    log = (out / "phase1-shift" / "log.jsonl").read_bytes()
    holdfast.train(values, out=out, resume=True, show=False)
    assert (out / "phase1-shift" / "log.jsonl").read_bytes().startswith(log)


def test_what_it_does_not_know_is_refused_before_anything_is_written(registered, tmp_path):
    frozen = run(tmp_path / "frozen").folder
    for values, sentence in (
        (recipe(frozen, options={"scales": 2.0}), "unknown option 'scales' of model.adapt 'rescaled'"),
        (recipe(frozen) | {"train": {"phases": {"run": "both"}}}, "all or one of shift, scale, got 'both'"),
        (tiny(train={"phases": {"run": "all"}}), "train.phases is for recipes with model.adapt"),
    ):
        with pytest.raises(HoldfastError, match=sentence):
            holdfast.train(values, out=tmp_path / "out", show=False)
    assert not (tmp_path / "out").exists()
