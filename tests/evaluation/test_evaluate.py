"""``holdfast.evaluate``: its signature, and bad input before any work."""

import inspect
import json

import numpy as np
import pytest
from torch import nn

from holdfast import EvalProtocol, evaluate
from holdfast.data import open_data
from holdfast.errors import HoldfastError
from tests.evaluation.test_runner import QUICK
from tests.evaluation.toys import Brightest, ByLevel, colours


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (ByLevel(4, 10), {}, "the model must have the 3 classes of 'colours', got 4"),
        (nn.Identity(), {}, r"the model must return logits of shape \(images, classes\), got \(1, 3, 32, 32\)"),
        (nn.Linear(7, 3), {}, "the model fails on images of 32×32"),
        (Brightest(), {"workers": -1}, "workers must be 0 or more, got -1"),
        (Brightest(), {"limit": -1}, "limit must be at least 1, or 0 for all images, got -1"),
        (Brightest(), {"device": "gpu"}, "device must be auto, cpu, .* got 'gpu'; did you mean 'cuda'"),
        (
            Brightest(),
            {"protocol": EvalProtocol(preset="imagnet")},
            "preset: expected one of .* did you mean 'imagenet'",
        ),
        (Brightest(), {"protocol": EvalProtocol(mean=(0, 0))}, "mean and std must be three values"),
        ("run:nowhere", {}, "config.json and model.safetensors are missing in 'nowhere'"),
        ("resnet", {}, "model must be a module, a run's folder or a spec, got 'resnet'"),
        ("timm:resnet_18", {}, "unknown model 'resnet_18'; did you mean 'resnet18'"),
        ("python:tests.evaluation.toys:not_a_model", {}, "must return a torch module, got str"),
        ("python:tests.evaluation.toys:nothing", {}, "has none of that name"),
        ("python:no.such.module:build", {}, "cannot be imported"),
        ("python:tests.evaluation.toys", {}, "must name a module and a function"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence_before_any_work(tmp_path, model, options, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        evaluate(model, colours(3), "clean", out=tmp_path / "out", **{**QUICK, **options})
    assert not (tmp_path / "out").exists()


def test_the_signature_stays_small():
    assert len(inspect.signature(evaluate).parameters) <= 13


def test_weights_that_cannot_be_fetched_are_one_sentence(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(HoldfastError, match=r"the weights of timm:resnet18 cannot be downloaded .* timm:resnet18@FILE"):
        evaluate("timm:resnet18", colours(3), "clean", **QUICK)


def test_sources_with_twice_the_same_id_are_refused():
    source = colours(4)
    twice = type(source)("x", source.images, source.targets, source.classes, np.zeros(4, dtype=int))
    with pytest.raises(HoldfastError, match="ids of a data set must be unique"):
        evaluate(Brightest(), twice, "clean", **QUICK)


def test_the_header_says_everything(tmp_path):
    records = evaluate(Brightest(), colours(6), "clean", out=tmp_path, limit=4, seed=3, **QUICK)
    header = json.loads((records.folder / "evaluation.json").read_text())
    assert header == records.header
    assert {
        "model",
        "model_fingerprint",
        "data",
        "data_fingerprint",
        "seed",
        "preset",
        "preprocessing",
        "versions",
        "label",
        "limit",
        "frost",
    } < set(header)
    assert records.folder.parent == tmp_path / "records"
    assert records.folder.name == f"colours-{header['fingerprint'][:8]}"


def test_digits_are_evaluated_on_their_test_split():
    class Ten(ByLevel):
        pass

    records = evaluate(Ten(10, 10), "digits", "clean", **QUICK)
    test = open_data("digits:test")
    assert records.cells["clean"].ids.tolist() == [test.id(index) for index in range(len(test))]
