"""``holdfast.gate``, the package as a function."""

import inspect

import pytest
import torch

import holdfast
from holdfast.gate import GateResult, decide, paired_scores_of, read_rules, save_baseline
from tests.evaluation.toys import Brightest, colours


class Worse(Brightest):
    """Sees red wherever it looks."""

    def forward(self, images):
        return super().forward(images) + torch.tensor([100.0, 0, 0])


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    out = tmp_path_factory.mktemp("gate")
    data = colours(60)
    models = {"good": Brightest(), "worse": Worse()}
    sets = {name: holdfast.evaluate(model, data, "clean", out=out / name, workers=0) for name, model in models.items()}
    save_baseline(paired_scores_of(sets["good"]), out / "baseline.json")
    return out, sets, data


def test_the_package_is_called_like_its_siblings(evaluated):
    _, sets, _ = evaluated
    result = holdfast.gate(sets["worse"], sets["good"])
    assert list(inspect.signature(holdfast.gate).parameters)[:2] == ["candidate", "against"]
    assert isinstance(result, GateResult)
    assert not result
    assert not result.passed
    expected = decide(paired_scores_of(sets["worse"]), paired_scores_of(sets["good"]), holdfast.gate.Rules())
    assert list(result.verdicts) == expected
    assert repr(result).endswith("rules failed")
    assert "<testsuites" in result.junit()
    assert "FAIL" in result.markdown()


@pytest.mark.parametrize("kind", ["records", "folder", "model"])
def test_candidates_and_baselines_of_every_kind_give_the_same_verdicts(evaluated, kind):
    out, sets, data = evaluated
    candidate = {"records": sets["good"], "folder": out / "good", "model": Brightest()}[kind]
    options = {"data": data, "workers": 0} if kind == "model" else {}
    for against in (out / "baseline.json", out / "good", sets["good"]):
        result = holdfast.gate(candidate, against, margin=1.0, **options)
        assert result
        assert [verdict.interval.value for verdict in result.verdicts] == [0.0] * len(result.verdicts)


def test_rules_are_sentences_or_a_file(evaluated, tmp_path):
    _, sets, _ = evaluated
    (tmp_path / "rules.yaml").write_text("rules: [clean >= 10]\n")
    assert read_rules(tmp_path / "rules.yaml").rules
    for rules in (["clean >= 10"], tmp_path / "rules.yaml"):
        assert [verdict.rule.text for verdict in holdfast.gate(sets["worse"], sets["good"], rules=rules).verdicts] == [
            "clean >= 10"
        ]
