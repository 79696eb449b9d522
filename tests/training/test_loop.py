"""What a run does, writes and leaves behind."""

import json
from pathlib import Path

import pytest
import timm
import torch
import yaml
from torch import nn

import holdfast
from holdfast.methods import CrossEntropy, Loss
from holdfast.training.recipe_files import load_recipe
from tests.training.helpers import RANDOM, assert_same_run, log_of, run, tiny


def test_a_run_leaves_recipe_log_checkpoints_and_a_model_that_timm_loads(tmp_path):
    result = holdfast.train(tiny(), out=tmp_path / "run", show=False)
    assert result.step == 8
    assert result.stopped_by == 0
    assert load_recipe(tmp_path / "run" / "recipe.yaml") == load_recipe(tiny())
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text()).keys() >= {"seed", "optimizer", "schedule"}
    model = timm.create_model(f"local-dir:{tmp_path / 'run'}", pretrained=True).eval()
    assert model.num_classes == 10
    assert len(model.blocks) == 1
    assert (tmp_path / "run" / "checkpoints" / "last").resolve().name == "step-00000008"
    assert [line["step"] for line in log_of(tmp_path / "run", "epoch")] == [4, 8]
    assert log_of(tmp_path / "run", "epoch")[-1]["top1"] == result.accuracy
    step = log_of(tmp_path / "run", "step")[0]
    assert step.keys() >= {"step", "epoch", "lr", "loss", "cross_entropy", "images_per_s"}


def test_the_result_does_not_depend_on_the_number_of_workers(tmp_path):
    for workers in (0, 2):
        run(tmp_path / str(workers), **RANDOM, data={"workers": workers})
    assert_same_run(tmp_path / "0", tmp_path / "2")


def test_another_seed_gives_another_run(tmp_path):
    for seed in (0, 1):
        run(tmp_path / str(seed), seed=seed)
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "0", tmp_path / "1")


def test_the_callers_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(5)
    undisturbed = torch.rand(3)
    torch.manual_seed(5)
    run(tmp_path / "run", train={"epochs": 1})
    assert torch.equal(torch.rand(3), undisturbed)


def test_accumulation_equals_the_larger_batch(tmp_path):
    plain = {"optimizer": {"name": "sgd", "lr": 0.1}}
    run(tmp_path / "large", **plain, train={"batch_size": 16})
    run(tmp_path / "small", **plain, train={"batch_size": 4, "accumulate": 4})
    first, second = (timm.create_model(f"local-dir:{tmp_path / name}", pretrained=True) for name in ("large", "small"))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("every", ["step", "epoch"])
def test_the_learning_rate_warms_up_and_follows_the_cosine(tmp_path, every):
    run(
        tmp_path / "run",
        optimizer={"lr": 1e-3, "lr_base_batch": 32},
        schedule={"warmup_epochs": 1, "warmup_lr": 1e-5, "min_lr": 1e-5, "cooldown_epochs": 1, "every": every},
        train={"epochs": 3, "log_steps": 1},
    )
    rates = [line["lr"] for line in log_of(tmp_path / "run", "step")]
    assert len(rates) == 4 * (3 + 1)
    assert rates[0] == 1e-5
    assert max(rates) < 1e-3 * 16 / 32  # scaled to the batch; the cosine has begun when warm-up ends
    assert rates[4] == max(rates) > 3e-4
    assert rates[-1] == pytest.approx(1e-5)
    if every == "epoch":
        assert len(set(rates[4:8])) == 1


def test_averaged_weights_are_what_is_exported_and_measured(tmp_path):
    run(tmp_path / "run", train={"ema": 0.5})
    last = tmp_path / "run" / "checkpoints" / "last"
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (last / "ema.safetensors").read_bytes()
    assert (last / "model.safetensors").read_bytes() != (last / "ema.safetensors").read_bytes()
    assert log_of(tmp_path / "run", "epoch")[0].keys() >= {"top1", "top1_without_ema"}


def test_biases_norms_and_class_tokens_are_not_decayed(tmp_path):
    from holdfast.training.build import build_optimizer
    from holdfast.training.recipe import OptimizerRecipe

    model = timm.create_model("fan_nano", num_classes=10)
    optimizer = build_optimizer(model, OptimizerRecipe(weight_decay=0.1), global_batch=1)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed = {names[id(p)] for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert "blocks.0.attn.q.weight" in decayed or any("attn" in name for name in decayed)
    assert not [name for name in decayed if name.endswith("bias") or "norm" in name or name == "cls_token"]


def test_clipping_and_gradient_checkpointing_train(tmp_path):
    run(tmp_path / "run", optimizer={"clip_grad": 0.01}, train={"epochs": 1, "grad_checkpointing": True})
    assert log_of(tmp_path / "run", "step")[0]["grad_norm"] > 0.01


def test_bf16_trains_on_a_cpu(tmp_path):
    result = run(tmp_path / "run", train={"epochs": 1, "precision": "bf16"})
    assert result.step == 4
    assert run(tmp_path / "other", train={"epochs": 1}).step == 4  # in the same process, in another precision


def test_only_last_best_and_kept_checkpoints_remain(tmp_path):
    run(tmp_path / "run", train={"epochs": 5, "keep_epochs": 2, "checkpoint_steps": 3})
    folder = tmp_path / "run" / "checkpoints"
    best = (folder / "best").resolve().name
    assert {path.name for path in folder.glob("step-*")} == {"step-00000008", "step-00000016", "step-00000020", best}
    assert not list(folder.glob(".*"))


def test_a_tensorboard_event_file_appears(tmp_path):
    run(tmp_path / "run", train={"trackers": ["tensorboard"], "epochs": 1})
    events = min((tmp_path / "run").rglob("events.out.tfevents.*"), key=lambda path: len(path.parts))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(events.parent)).Reload()
    assert {"step/loss", "epoch/top1"} <= set(accumulator.Tags()["scalars"])


class WithPlayer:
    """Cross-entropy on images that an owned module has shifted; the module ascends what the model descends."""

    def __init__(self):
        torch.manual_seed(0)
        self.shift = nn.Conv2d(3, 3, 1)
        self.modules = {"shift": self.shift}
        self.optimizers = {"shift": torch.optim.SGD(self.shift.parameters(), lr=0.01, momentum=0.9)}

    def __call__(self, model, images, targets):
        loss = CrossEntropy()(model, images + self.shift(images), targets)
        return Loss(loss.total, {**loss.parts, "twice": 2 * loss.total.detach()})

    def update(self):
        norm = self.shift.weight.grad.norm()
        for parameter in self.shift.parameters():
            parameter.grad.neg_()
        self.optimizers["shift"].step()
        self.optimizers["shift"].zero_grad()
        return {"shift_grad": norm}


def test_an_objective_may_own_modules_that_move_with_the_same_backward_pass(tmp_path):
    objective = WithPlayer()
    before = objective.shift.weight.detach().clone()
    run(tmp_path / "run", objective=objective)
    assert not torch.equal(objective.shift.weight, before)
    line = log_of(tmp_path / "run", "step")[0]
    assert line["shift_grad"] > 0
    assert line["twice"] == pytest.approx(2 * line["loss"], rel=1e-6)
    assert (tmp_path / "run" / "checkpoints" / "last" / "objective.shift.safetensors").exists()


def test_a_run_with_an_owned_module_resumes_exactly(tmp_path):
    run(tmp_path / "whole", objective=WithPlayer())
    stopping = StopsAt(5, WithPlayer())
    assert run(tmp_path / "parts", objective=stopping).stopped_by
    run(tmp_path / "parts", resume=True, objective=WithPlayer())
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_the_objective_of_the_documentation_runs(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text()
    example = next(block for block in page.split("```python\n") if "class Quieter" in block).split("holdfast.train(")[0]
    names: dict = {}
    exec(example, names)
    run(tmp_path / "run", objective=names["Quieter"](), train={"epochs": 1})
    line = log_of(tmp_path / "run", "step")[0]
    assert line["loss"] == pytest.approx(line["cross_entropy"] + line["penalty"], rel=1e-5)


class StopsAt:
    """An objective during whose n-th call somebody sends a signal."""

    def __init__(self, call, inner=None, signal=None):
        import signal as signals

        self.remaining, self.inner = call, inner or CrossEntropy()
        self.signal = signal or signals.SIGTERM
        if hasattr(self.inner, "update"):
            self.modules, self.optimizers, self.update = self.inner.modules, self.inner.optimizers, self.inner.update

    def __call__(self, model, images, targets):
        import signal as signals

        self.remaining -= 1
        if self.remaining == 0:
            signals.raise_signal(self.signal)
        return self.inner(model, images, targets)


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
def test_a_signal_saves_in_the_middle_of_an_epoch_and_the_run_resumes_exactly(tmp_path, signal):
    import signal as signals

    run(tmp_path / "whole", **RANDOM)
    number = getattr(signals, signal)
    result = run(tmp_path / "parts", **RANDOM, objective=StopsAt(11, signal=number))  # two batches per step: step 6
    assert (result.step, result.stopped_by) == (6, number)
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    assert run(tmp_path / "parts", **RANDOM, resume=True).step == 8
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert [line["step"] for line in log_of(tmp_path / "parts")] == [
        line["step"] for line in log_of(tmp_path / "whole")
    ]


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    run(tmp_path / "run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert run(tmp_path / "run", resume=True).step == 8
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    assert len(log_of(tmp_path / "run", "end")) == 1


def test_resume_starts_a_run_that_does_not_exist_yet(tmp_path):
    assert run(tmp_path / "run", resume=True, train={"epochs": 1}).step == 4


class ExplodesAt(StopsAt):
    def __call__(self, model, images, targets):
        self.remaining -= 1
        loss = self.inner(model, images, targets)
        return Loss(loss.total * float("nan")) if self.remaining <= 0 else loss


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(holdfast.HoldfastError, match=r"not finite \(detected at step 6\); the last good checkpoint"):
        run(tmp_path / "run", objective=ExplodesAt(6))
    last = tmp_path / "run" / "checkpoints" / "last"
    assert json.loads((last / "state.json").read_text())["position"]["step"] == 4
    assert run(tmp_path / "run", resume=True).step == 8


def test_a_full_disk_leaves_the_previous_checkpoint_intact(tmp_path):
    import resource

    class FillsTheDisk(StopsAt):
        def __call__(self, model, images, targets):
            self.remaining -= 1
            if self.remaining == 0:  # no file may grow beyond 100 kB from now on: writes fail as on a full disk
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
            return self.inner(model, images, targets)

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(holdfast.HoldfastError, match=r"cannot be written .* the previous one is intact"):
            run(tmp_path / "run", objective=FillsTheDisk(6))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    folder = tmp_path / "run" / "checkpoints"
    assert [path.name for path in folder.glob("step-*")] == ["step-00000004"]
    assert not list(folder.glob(".*"))
    run(tmp_path / "run", resume=True)
    run(tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
