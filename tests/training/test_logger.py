"""The log of a run: means of the loss parts, whole lines only, and nothing after the checkpoint of a resumed run."""

import json
import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

from holdfast.errors import HoldfastError
from holdfast.training.logger import Meter, TrainingLogger, append_log, read_log


@pytest.fixture(scope="module")
def accelerator():
    yield Accelerator(cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)  # later tests train in other precisions and groups
    GradientState._reset_state()


def test_a_reading_is_the_mean_since_the_last_one(accelerator):
    meter = Meter(accelerator)
    for loss, part in ((1.0, 4.0), (2.0, 0.0)):
        meter.add({"loss": torch.tensor(loss, requires_grad=True), "adl": torch.tensor(part)})
    values = meter.read(images_per_step=8)
    assert (values["loss"], values["adl"]) == (1.5, 2.0)
    assert values["images_per_s"] > 0
    meter.add({"loss": torch.tensor(7.0)})
    assert meter.read(images_per_step=8)["loss"] == 7.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run(accelerator, tmp_path, value):
    meter = Meter(accelerator)
    meter.check_finite(step=1, folder=tmp_path)
    meter.add({"loss": torch.tensor(1.0)})
    meter.check_finite(step=2, folder=tmp_path)
    meter.add({"loss": torch.tensor(value)})
    with pytest.raises(HoldfastError, match=r"not finite \(detected at step 3\); the last good checkpoint is kept"):
        meter.check_finite(step=3, folder=tmp_path)


def test_damaged_lines_are_no_entries(tmp_path):
    path = tmp_path / "log.jsonl"
    append_log(path, "step", step=1, loss=0.5)
    with path.open("a") as log:
        log.write('[1]\n{"event": "step"}\n{"event": 3, "step": 2}\n' + "[" * 100_000 + '\n{"event": "st')
    assert read_log(path) == [{"event": "step", "step": 1, "loss": 0.5}]
    with pytest.raises(HoldfastError, match="cannot be read"):
        read_log(tmp_path / "nowhere")
    with pytest.raises(HoldfastError, match=r"cannot be written .* at step 4"):
        append_log(tmp_path, "step", step=4)


def test_a_resumed_run_forgets_what_came_after_its_checkpoint(accelerator, tmp_path):
    for step in (2, 4, 6):
        append_log(tmp_path / "log.jsonl", "step", step=step)
    append_log(tmp_path / "log.jsonl", "end", step=4)
    with TrainingLogger(accelerator, tmp_path, steps=8, show=False) as logger:
        logger.continue_from(4)
        logger.write("step", step=5, epoch=1, loss=0.25)
        assert [line["step"] for line in logger.lines()] == [2, 4, 5]
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last == {"event": "step", "step": 5, "epoch": 1, "loss": 0.25}
