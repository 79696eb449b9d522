"""``holdfast predict`` prepares images and reads answers as ``holdfast evaluate`` does."""

import numpy as np
import pytest
from PIL import Image

import holdfast
from holdfast import EvalProtocol, evaluate
from holdfast.cli.main import main
from tests.evaluation.toys import colours


def test_foreign_files_are_refused_by_predict_as_by_evaluate(tmp_path, capsys):
    graphs = pytest.importorskip("tests.models.onnx_graphs", reason="needs the extra onnx")
    Image.fromarray(np.full((32, 32, 3), 90, np.uint8)).save(tmp_path / "x.png")
    untold = graphs.brightest(tmp_path / "m.onnx", told=None)
    sizeless = graphs.brightest(tmp_path / "s.onnx", side=None, told=None)
    for path, lacking in ((untold, "mean and std"), (sizeless, "size and mean and std")):
        assert main(["predict", str(tmp_path / "x.png"), "--model", f"onnx:{path}"]) == 2
        assert f"does not define its {lacking}" in capsys.readouterr().err


def test_predict_takes_probabilities_for_what_they_are(tmp_path):
    graphs = pytest.importorskip("tests.models.onnx_graphs", reason="needs the extra onnx")
    source = colours(3)
    for number in range(3):
        source.image(number).save(tmp_path / f"{number}.png")
    softmax = graphs.brightest(tmp_path / "p.onnx", softmax=True, told=None)
    protocol = EvalProtocol(mean=(0, 0, 0), std=(1, 1, 1), probabilities=True)
    wanted = evaluate(f"onnx:{softmax}", source, workers=0, show=False, protocol=protocol).cells["clean"].confidences
    found = holdfast.predict(f"onnx:{softmax}", tmp_path, top=1, protocol=protocol)
    assert [each.rows[0]["probability"] for each in found] == pytest.approx(wanted.tolist(), abs=1e-6)
