"""Attacks with any setting: from text, as sweeps, as objects and as functions, on the command line and in Python."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import holdfast
from holdfast.attacks import PRESETS, AutoAttack, GradientAttack, Occlusion
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.evaluation.attack_specs import attacks_from_text
from holdfast.evaluation.suites import SUITES, parse_suites
from tests.evaluation.toys import Brightest, plain

QUICK = {"workers": 0, "show": False}


def source():
    """Half of the images by 8 levels, half by 120."""
    return plain([0, 1, 2] * 4, margin=[8] * 6 + [120] * 6)


def attack(text):
    (found,) = attacks_from_text(text)
    return found.attack


def test_settings_are_written_as_people_write_them():
    assert attack("pgd:eps=4/255,steps=20") == GradientAttack(4 / 255, alpha=2.5 * 4 / 255 / 20, steps=20)
    assert attack("pgd:eps=0.5,norm=l2,random_start=false,alpha=1e-1") == GradientAttack(
        0.5, 0.1, 20, norm="l2", random_start=False
    )
    assert attack("fgsm:eps=3/255") == GradientAttack(3 / 255, 3 / 255, 1, random_start=False)
    assert attack("pgd5:eps=2/255") == GradientAttack(2 / 255, 1 / 255, 5)  # the step keeps its share of the radius
    assert attack("occlusion:ratio=0.25,masks=3") == Occlusion(0.25, masks=3)
    assert attack("autoattack:eps=1/255,members=apgd-ce+square") == AutoAttack(1 / 255, members=("apgd-ce", "square"))
    assert attack("patch-fool:pixels=none,patches=4").patches == 4


def test_several_values_are_a_sweep_of_all_combinations():
    found = list(attacks_from_text("pgd:eps=1/255|2/255,steps=5|10"))
    assert [suite.name for suite in found] == [
        "pgd:eps=1/255,steps=5",
        "pgd:eps=1/255,steps=10",
        "pgd:eps=2/255,steps=5",
        "pgd:eps=2/255,steps=10",
    ]
    assert found[3].attack == GradientAttack(2 / 255, 2.5 * 2 / 255 / 10, 10)


def test_a_sweep_from_the_command_line_to_the_report(tmp_path, capsys):
    data = source()
    np.savez(tmp_path / "data.npz", x=data.images, y=data.targets)
    command = ["evaluate", "--model=python:tests.evaluation.toys:brightest", f"--data=npz:{tmp_path / 'data.npz'}"]
    sweep = ["--attack", "pgd:eps=1/255|20/255,steps=3", "--attack", "occlusion:ratio=0,masks=1,patch_size=8"]
    assert main([*command, *sweep, f"--out={tmp_path / 'run'}", "--workers=0"]) == 0
    assert "pgd:eps=20/255,steps=3" in capsys.readouterr().out
    (records,) = holdfast.load_records(tmp_path / "run")
    summary = records.summary(intervals=False)
    assert summary["attack/pgd:eps=1/255,steps=3"].value == 100  # two levels of 8 are not enough
    assert summary["attack/pgd:eps=20/255,steps=3"].value == 50  # forty beat 8, not 120
    assert records.cells["occlusion:ratio=0,masks=1,patch_size=8"].header["settings"]["patch_size"] == 8
    page = holdfast.report(tmp_path / "run")
    assert "--suite clean --attack occlusion:ratio=0,masks=1,patch_size=8 --attack pgd:eps=1/255,steps=3" in page
    assert main([*command, "--attack", "pgd5"]) == 2
    assert "--attack must be NAME:KEY=VALUE" in capsys.readouterr().err


@dataclass(frozen=True)
class Lighter:
    """Add light to the channel after the right one."""

    eps: float
    twice: bool = False

    def __call__(self, model, images, labels):
        lighter = images.clone()
        for image, label in zip(lighter, labels, strict=True):
            image[(int(label) + 1) % 3] += self.eps * (1 + self.twice)
        return lighter.clamp(0, 1)


def unchanged(model, images, labels, *, seed):
    return images


def dark(model, images, labels):
    return images - 2


def flat(model, images, labels):
    return images.flatten(1)


def test_objects_and_functions_are_suites():
    records = holdfast.evaluate(Brightest(), source(), ["clean,fgsm", Lighter(20 / 255), unchanged], **QUICK)
    assert list(records.cells) == ["clean", "fgsm", "Lighter:eps=20/255", "unchanged"]
    assert records.summary(intervals=False)["attack/Lighter:eps=20/255"].value == 50
    assert records.cells["unchanged"].accuracy == 1
    told = records.cells["Lighter:eps=20/255"].header
    assert told["settings"] == {"eps": 20 / 255, "twice": False}
    assert len(told["code"]) == 16
    assert "code" not in records.cells["fgsm"].header
    (alone,) = holdfast.evaluate(Brightest(), source(), GradientAttack(1 / 255, 1 / 255, 1), **QUICK).cells
    assert alone == "GradientAttack:eps=1/255,alpha=1/255,steps=1"
    (known,) = holdfast.evaluate(Brightest(), source(), PRESETS["fgsm"], **QUICK).cells
    assert known == "fgsm"


@pytest.mark.parametrize(
    ("suites", "sentence"),
    [
        ("pgd:epsilon=4/255", "unknown setting 'epsilon' in 'pgd:epsilon=4/255'; did you mean 'steps'|eps"),
        ("pdg:eps=4/255", "unknown attack 'pdg' in 'pdg:eps=4/255'; did you mean 'pgd'"),
        ("pgd:eps", "must be NAME:KEY=VALUE"),
        ("pgd:eps=1/0", "eps must be a number such as 0.5 or 4/255, got '1/0'"),
        ("pgd:eps=4", "eps must be at most 1, for pixels from 0 to 1, got 4; did you mean 4/255?"),
        ("segpgd:eps=8", "got 8; did you mean 8/255?"),
        ("pgd:steps=2.5", "steps must be a whole number, got '2.5'"),
        ("pgd:random_start=maybe", "random_start must be true or false, got 'maybe'"),
        ("pgd:norm=l7", "norm must be one of linf, l2, got 'l7'"),
        ("pgd:eps=1/255,eps=2/255", "every setting must be given once"),
        ("pgd:eps=-1/255", "eps must be 0 or more"),
        ([Lighter], "an attack must be an object or a function"),
        ([3.5], "suites must be names, attacks or a sequence of both, got float"),
        ({"clean": 1}, "suites must be names, attacks or a sequence of both, got dict"),
        ([lambda model: model], "an attack must take model, images and labels"),
        ([torch.nn.Linear(2, 2)], "an attack must take model, images and labels, but Linear does not"),
        ([], "suites must name at least one of"),
        ([Lighter(0.00001), Lighter(0.0000100000001)], "two are called 'Lighter:eps=1e-05'"),
    ],
)
def test_what_is_no_attack_is_one_sentence(suites, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        holdfast.evaluate(Brightest(), source(), suites, **QUICK)


def test_what_an_attack_returns_is_checked():
    with pytest.raises(HoldfastError, match=r"^dark: an attack must return images with values in \[0, 1\]"):
        holdfast.evaluate(Brightest(), source(), dark, **QUICK)
    with pytest.raises(HoldfastError, match=r"^flat: .*its input's shape .*got \(12, 3072\)"):
        holdfast.evaluate(Brightest(), source(), flat, **QUICK)


def test_changed_registries_are_one_sentence(monkeypatch):
    monkeypatch.setitem(SUITES, "mine", "a line alone")
    with pytest.raises(HoldfastError, match="suite 'mine' has no cells: register it with register_suite"):
        holdfast.evaluate(Brightest(), source(), "mine", **QUICK)
    monkeypatch.setitem(PRESETS, "mine-too", Lighter(0.1))
    with pytest.raises(HoldfastError, match="unknown suite 'mine-too'; did you mean 'mine'"):
        parse_suites("mine-too")
