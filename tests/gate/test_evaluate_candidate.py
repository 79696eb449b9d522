"""Evaluation of a candidate model with the data, suites, protocol and seed of a baseline."""

import pytest

import holdfast
from holdfast import EvalProtocol, evaluate
from holdfast.errors import HoldfastError
from holdfast.gate import paired_scores_of
from holdfast.gate.evaluate_candidate import evaluate_like_baseline
from holdfast.models import create_model
from tests.evaluation.test_preprocessing import (
    ALONE,
    Configured,
    noise,
)


def test_the_gate_measures_a_new_model_as_its_baseline_was():
    from holdfast.gate.compatibility import find_differences
    from holdfast.gate.evaluate_candidate import evaluate_like_baseline
    from holdfast.gate.paired_scores import make_paired_scores

    cfg = {"input_size": (3, 48, 48), "crop_pct": 0.8}
    source = noise(6)
    for preparation in ("model", "benchmark"):
        old = make_paired_scores(
            evaluate(Configured(**cfg), source, protocol=EvalProtocol(preparation=preparation), **ALONE)
        )
        (new,) = evaluate_like_baseline(
            [old], Configured(**{**cfg, "crop_pct": 0.9}), data=[source], workers=0, show=False
        )
        assert not find_differences(new, old)
        assert ("preparation" in new.header["preprocessing"]) == (preparation == "model")
    other = make_paired_scores(evaluate(Configured(**cfg), source, **ALONE))
    assert "steps" in find_differences(other, old)


def test_a_baseline_of_an_own_attack_asks_for_the_plug_in():
    def brighten(model, images, labels):
        return (images + 0.1).clamp(0, 1)

    model = create_model("vit_nano", num_classes=10, depth=1)
    records = holdfast.evaluate(model, "digits:test", brighten, limit=10, workers=0)
    with pytest.raises(HoldfastError, match=r"measured on 'brighten', which is not registered here: .* --plugin FILE"):
        evaluate_like_baseline(paired_scores_of(records), model)
