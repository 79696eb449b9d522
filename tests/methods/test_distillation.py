"""Distillation: the published formulas, a teacher that is left alone, and one recipe from teacher to log."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.methods import Distillation, FeatureAlignment, RobustObjective, build_objective, corruptor_for
from holdfast.methods.distillation import hard_distillation, soft_distillation
from holdfast.training.loop import train
from tests.training.helpers import log_of, run, tiny

MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


def train_robust(out: Path, options: dict) -> Path:
    return train(tiny(objective={"name": "robust", "options": options}), out=out, show=False).folder


def softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


def test_both_forms_equal_their_definitions():
    student, teacher = torch.randn(5, 7), torch.randn(5, 7)
    p, q = softmax(teacher.numpy() / 3.0), softmax(student.numpy() / 3.0)
    expected = 9.0 * (p * np.log(p / q)).sum(axis=1).mean()
    assert soft_distillation(student, teacher).item() == pytest.approx(expected, rel=1e-5)
    chosen = softmax(student.numpy())[np.arange(5), teacher.numpy().argmax(axis=1)]
    assert hard_distillation(student, teacher).item() == pytest.approx(-np.log(chosen).mean(), rel=1e-5)
    assert soft_distillation(student, student).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("kind", "alpha"), [("hard", 0.5), ("soft", 0.1)])
def test_the_total_weighs_task_and_teacher_as_published(kind, alpha):
    model, teacher = timm.create_model("vit_nano").eval(), timm.create_model("fan_nano")
    teacher.pretrained_cfg = {**teacher.pretrained_cfg, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.25, 0.3)}
    images, targets = torch.rand(4, 3, 32, 32) * 2 - 1, torch.arange(4)
    loss = RobustObjective([Distillation(teacher, kind)], mean=MEAN, std=STD)(model, images, targets)
    own_mean, own_std = torch.tensor([0.4, 0.5, 0.6]).view(-1, 1, 1), torch.tensor([0.2, 0.25, 0.3]).view(-1, 1, 1)
    logits, answers = model(images), teacher.eval()(((images + 1) / 2 - own_mean) / own_std)
    told = hard_distillation(logits, answers) if kind == "hard" else soft_distillation(logits, answers)
    expected = (1 - alpha) * F.cross_entropy(logits, targets) + alpha * told
    torch.testing.assert_close(loss.total, expected, atol=1e-5, rtol=1e-5)
    assert loss.parts["teacher_agreement"] == (logits.argmax(1) == answers.argmax(1)).float().mean()


def test_the_teacher_sees_clean_images_in_its_own_size_and_is_left_alone():
    model, teacher = timm.create_model("fan_nano"), timm.create_model("vit_nano", img_size=64).train()
    teacher.pretrained_cfg = {**teacher.pretrained_cfg, "input_size": (3, 64, 64)}
    before = copy.deepcopy(teacher.state_dict())
    sizes = []
    teacher.register_forward_pre_hook(lambda module, inputs: sizes.append(tuple(inputs[0].shape)))
    terms = [FeatureAlignment(corruptor_for(model, (32, 32)), mean=MEAN, std=STD), Distillation(teacher)]
    objective = RobustObjective(terms, mean=MEAN, std=STD)
    objective(model, torch.rand(4, 3, 32, 32), torch.arange(4)).total.backward()
    assert sizes == [(4, 3, 64, 64)]
    assert not teacher.training
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(torch.equal(before[key], value) for key, value in teacher.state_dict().items())
    assert set(objective.modules) == {"corruptor"}


def test_a_recipe_learns_from_an_earlier_run(tmp_path):
    teacher = run(tmp_path / "teacher").folder
    told = {"distillation": {"teacher": f"run:{teacher}", "kind": "soft", "weight": 0.9}}
    lines = log_of(train_robust(tmp_path / "student", told), "step")
    assert all(line["distillation"] > 0 for line in lines)
    assert all(0 <= line["teacher_agreement"] <= 1 for line in lines)
    expected = 0.1 * lines[-1]["cross_entropy"] + 0.9 * lines[-1]["distillation"]
    assert lines[-1]["loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda t: Distillation(t, "firm"), "kind of distillation must be 'hard' or 'soft', got 'firm'"),
        (lambda t: Distillation(t, weight=1.5), "weight of distillation must lie between 0 and 1, got 1.5"),
        (lambda t: Distillation(t, temperature=0.0), "temperature of distillation must be positive, got 0.0"),
    ],
)
def test_bad_settings_get_one_sentence(call, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        call(timm.create_model("vit_nano"))


def test_a_teacher_of_other_classes_or_none_is_refused_before_the_first_step(tmp_path):
    torch.save(timm.create_model("vit_nano", num_classes=7).state_dict(), tmp_path / "seven.pth")
    for told, sentence in (
        ({"teacher": f"timm:vit_nano@{tmp_path / 'seven.pth'}"}, "must have the model's 10 classes, got one with 7"),
        ({"kind": "hard"}, "distillation.teacher must name a model"),
    ):
        with pytest.raises(HoldfastError, match=sentence):
            train_robust(tmp_path / "run", {"distillation": told})
    assert not (tmp_path / "run").exists()


def test_a_teacher_whose_classes_stand_in_another_order_is_matched_by_their_names(tmp_path):
    run(tmp_path / "teacher", train={"epochs": 1})
    path = tmp_path / "teacher" / "config.json"
    options = {"distillation": {"teacher": f"run:{tmp_path / 'teacher'}"}}
    context = {"model": timm.create_model("vit_nano", num_classes=10), "size": (32, 32), "mean": MEAN, "std": STD}
    images, mean, std = torch.rand(2, 3, 32, 32), torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    answers = []
    for names in ("0123456789", "9876543210"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"label_names": list(names)}))
        (term,) = build_objective("robust", options, context | {"classes": tuple("0123456789")}).terms
        answers.append(term.answers(images, mean=mean, std=std))
    assert torch.equal(answers[1], answers[0].flip(1))
