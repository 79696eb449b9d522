"""Output probe: a model's outputs for eight fixed images, which records store beside its fingerprint."""

import pytest
from torch import nn

from holdfast import evaluate
from holdfast.models.output_probe import HALF, SINGLE, depends_on_batch, same_answers
from holdfast.records.header import write_header
from tests.evaluation.test_normalized_model import measured
from tests.evaluation.test_record_set import (
    QUICK,
    answer,
)
from tests.evaluation.toys import Brightest, colours


def test_a_float_models_records_do_not_name_the_batch_size():
    assert not depends_on_batch(Brightest())
    assert "batch_size" not in measured(Brightest(), data=colours(4)).header


def test_half_precision_models_are_compared_more_generously():
    from holdfast.models.output_probe import tolerance_of

    assert tolerance_of(nn.Linear(2, 2).half(), amp="no") == HALF
    assert tolerance_of(nn.Linear(2, 2), amp="bfloat16") == HALF
    assert tolerance_of(nn.Linear(2, 2), amp="no") < HALF


@pytest.mark.parametrize("damage", [{}, {"random": 3}, {"views": {"": 1}}, {"views": {"": {"answers": ["x"] * 8}}}])
def test_a_damaged_probe_is_no_agreement(tmp_path, damage):
    records = evaluate(Brightest(), colours(3), "clean", out=tmp_path, **QUICK)
    now = records.header["probe"]
    assert same_answers(now, now, tolerance=SINGLE)
    assert not same_answers({**now, **damage} if damage else {}, now, tolerance=SINGLE)
    write_header(records.folder, {**records.header, "probe": damage})
    assert evaluate(Brightest(), colours(3), "clean", out=tmp_path, **QUICK).header == records.header


@pytest.mark.parametrize(
    ("one", "other", "tolerance", "same"),
    [
        (answer(10.0, 2.0), answer(10.0009, 2.0), SINGLE, True),
        (answer(10.0, 2.0), answer(10.002, 2.0), SINGLE, False),
        (answer(10.0, 2.0), answer(10.4, 2.0), HALF, True),
        (answer(10.0, 2.0), answer(10.6, 2.0), HALF, False),
        (answer(10.0, 2.0), answer(10.0, 2.0, best=1), SINGLE, False),
        (answer(10.0, 10.0, ahead=0.0001), answer(10.0, 10.0, best=1, ahead=0.0001), SINGLE, True),
        (answer(float("nan"), 2.0), answer(float("nan"), 2.0), SINGLE, True),
        (answer(float("nan"), 2.0), answer(1.0, 2.0), SINGLE, False),
        (answer(1.0, 2.0), answer(1.0, 2.0, 3.0), SINGLE, False),
    ],
)
def test_answers_agree_within_the_tolerance_and_in_the_best_class_unless_tied(one, other, tolerance, same):
    assert same_answers(one, other, tolerance=tolerance) is same


def test_a_gpu_may_round_otherwise_than_a_cpu():
    there = {**answer(10.002, 2.0), "device": "cuda"}
    assert same_answers(there, answer(10.0, 2.0), tolerance=SINGLE)
