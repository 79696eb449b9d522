"""AutoAttack's members really run, in order, and a killed run goes on where it was."""

import sys

import pyautoattack
import pytest
import torch
from torch import nn

from holdfast import HoldfastError
from holdfast.attacks import PRESETS, AutoAttack
from holdfast.attacks.autoattack import MEMBERS, STANDARD
from tests.attacks.test_projected_gradient_descent import assert_same, batch, small, state_of

EPS = 8 / 255


def test_apgd_ce_runs_through_the_wrapper_and_accuracy_is_recomputed(reader, digits):
    data = digits[:50]
    result = AutoAttack(EPS, members=("apgd-ce",), iterations=5)(reader, data.images, data.labels)
    with torch.no_grad():
        again = reader(result.images).argmax(dim=1)
        clean = (reader(data.images).argmax(dim=1) == data.labels).double().mean().item()
    assert torch.equal(result.predictions, again)
    assert result.accuracy(data.labels) == (again == data.labels).double().mean().item()
    assert result.record["accuracy_after"] == {"clean": clean, "apgd-ce": result.accuracy(data.labels)}
    assert result.accuracy(data.labels) < clean - 0.1
    assert (result.images - data.images).abs().max() <= EPS + 1e-6
    assert result.images.min() >= 0
    assert result.images.max() <= 1


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_images_equal_those_of_the_packages_own_driver(norm):
    model, (images, labels) = small(), batch(12)
    labels = model(images).argmax(dim=1)
    eps, members = (EPS if norm == "linf" else 0.3), ["apgd-ce", "square"]
    theirs = pyautoattack.AutoAttack(
        model, version="custom", attacks=members, eps=eps, norm={"linf": "Linf", "l2": "L2"}[norm], seed=3
    )
    theirs.apgd.n_restarts, theirs.square.n_queries = 1, 50
    expected, _ = theirs.run_standard_evaluation(images, labels, batch_size=5)
    attack = AutoAttack(eps, norm=norm, members=tuple(members), queries=50, batch_size=5)
    torch.testing.assert_close(attack(model, images, labels, seed=3).images, expected)


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_runs_and_stays_in_the_ball(member):
    model, (images, _) = small(), batch(4)
    labels = model(images).argmax(dim=1)
    result = AutoAttack(0.2, members=(member,), iterations=4, queries=20, targets=2)(model, images, labels)
    assert result.record["members"] == (member,)
    assert (result.images - images).abs().max() <= 0.2 + 1e-5
    assert result.images.min() >= 0
    assert result.images.max() <= 1


def test_the_standard_version_is_the_published_one():
    assert STANDARD == ("apgd-ce", "apgd-t", "fab-t", "square")
    published = {"autoattack-imagenet": (4 / 255, "linf"), "autoattack-cifar": (8 / 255, "linf")}
    for name, (eps, norm) in {**published, "autoattack-cifar-l2": (0.5, "l2")}.items():
        attack = PRESETS[name]
        assert (attack.eps, attack.norm, attack.members) == (eps, norm, STANDARD)
        assert (attack.iterations, attack.restarts, attack.targets, attack.queries) == (100, 1, 9, 5000)


def test_the_model_and_the_global_random_state_are_untouched():
    model, (images, labels) = small().train(), batch(4)
    before, random = state_of(model), torch.get_rng_state()
    AutoAttack(0.1, iterations=2, queries=5)(model, images, labels)
    assert_same(before, state_of(model))
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"eps": 0}, "eps must be positive, got 0"),
        ({"eps": 0.1, "norm": "Linf"}, "norm must be one of linf, l2, got 'Linf'"),
        ({"eps": 0.1, "members": ()}, "members must name at least one of apgd-ce"),
        ({"eps": 0.1, "members": ("apgd",)}, "unknown member 'apgd' of AutoAttack; did you mean"),
        ({"eps": 0.1, "queries": 0}, "queries must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        AutoAttack(**settings)


def test_too_few_classes_are_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 3))
    with pytest.raises(HoldfastError, match="apgd-t needs at least 4 classes, the model has 3"):
        AutoAttack(0.1)(model, torch.rand(2, 3, 8, 8), torch.tensor([0, 1]))


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyautoattack"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyautoattack", None)  # what an import that fails looks like
    model, (images, labels) = small(), batch(2)
    with pytest.raises(HoldfastError, match=r"pip install 'pyautoattack"):
        AutoAttack(0.1)(model, images, labels)
