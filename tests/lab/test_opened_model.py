"""A deployed file in the lab: it shows everything but attention, and says what it lacks."""

import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from holdfast import evaluate
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.lab import inspect_image, open_model, probabilities
from holdfast.lab.session import Session, ViewState
from tests.evaluation.toys import colours
from tests.models.onnx_graphs import brightest


def test_a_file_answers_as_in_the_records_and_shows_no_attention(tmp_path):
    path = f"onnx:{brightest(tmp_path / 'm.onnx')}"
    recorded = evaluate(path, colours(4), "corruptions,occlusion-random", workers=0, show=False)
    lens = open_model(path, colours(4))
    for damage, cell in (("fog/3", "fog/3"), ("occlude/0.1", "occlusion-random")):
        seen = inspect_image(lens, 2, damage)
        confidence = recorded.cells[cell].confidences[2]
        assert probabilities(seen.after.answers[""][0]).max() == pytest.approx(confidence.flat[0], abs=1e-5)
    assert seen.after.attention == ()
    panel = Session([lens]).inspect(ViewState(2, "fog/3"))["panels"][0]
    assert panel["attention"] is None
    assert "right" in panel["answers"] or "wrong" in panel["answers"]
    assert b"PNG" in Session([lens]).download(ViewState(2, "fog/3"), "picture.png")[:8]


def test_what_a_file_cannot_do_or_does_not_say_is_one_sentence(tmp_path):
    with pytest.raises(HoldfastError, match="attacks need a gradient"):
        inspect_image(open_model(f"onnx:{brightest(tmp_path / 'm.onnx')}", colours(4)), 0, "pgd/8")
    untold = f"onnx:{brightest(tmp_path / 'n.onnx', told=None)}"
    with pytest.raises(HoldfastError, match="--mean and --std"):
        open_model(untold, colours(4))
    protocol = EvalProtocol(mean=(0.1, 0.2, 0.3), std=(1, 1, 1))
    session = Session([open_model(untold, colours(4), protocol=protocol)])
    assert (
        "protocol=EvalProtocol(mean=(0.1, 0.2, 0.3), std=(1, 1, 1))"
        in session.download(ViewState(0), "lines.py").decode()
    )
