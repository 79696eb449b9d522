"""Analysis results: arrays and a header in one file, from which all figures can be drawn without the model."""

import json
import subprocess
import sys

import numpy as np
import pytest

from holdfast.analysis.registry import ANALYSES
from holdfast.analysis.results import AnalysisResult, load_result, load_results, save_result
from holdfast.errors import HoldfastError


@pytest.mark.parametrize(
    "damage", [{"settings": "../.."}, {"layers": [3]}, {"layers": {}}, {"cost": 0}, {"versions": []}]
)
def test_a_header_of_another_shape_is_a_damaged_result(damage, tmp_path):
    path = save_result(tmp_path, AnalysisResult("overfocus", damage, {"top_share": np.zeros((1, 1, 1))}))
    with pytest.raises(HoldfastError, match="cannot be read as a result of holdfast analyze"):
        load_result(path)


def test_stored_results_are_read_told_and_drawn_without_torch(tmp_path):
    arrays = {"similarity": np.full((3, 2), 0.5, np.float32)}
    save_result(
        tmp_path / "analysis" / "x", AnalysisResult("diversity", {"label": "a", "data": "d", "settings": {}}, arrays)
    )
    script = f"""
import sys
from holdfast.analysis.figure_groups import figure_pages
from holdfast.analysis.results import load_results
from holdfast.analysis.registry import headlines
results = load_results({str(tmp_path)!r})
print(headlines(results))
assert not {{"torch", "timm", "matplotlib"}} & set(sys.modules), "before drawing"
print([name for name, draw in figure_pages(results) if draw()])
assert not {{"torch", "timm"}} & set(sys.modules), "after drawing"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["{'cosine between heads': 0.5}", "['diversity-layers']"]


def test_results_of_before_are_still_read(tmp_path):
    """Files without a definition, and with settings that were fewer then."""
    arrays = {
        "change": np.ones((2, 3), np.float32),
        "eigenvalues": np.ones((2, 3), np.int32),
        "tokens": np.full(3, 4, np.int32),
    }
    header = {"label": "old", "data": "digits", "data_fingerprint": "f", "modules": ["a", "b", "c"], "noise_std": 1.0}
    header |= {"epsilon": 0.01, "settings": {"noise_std": 1.0, "epsilon": 0.01, "modules": []}}
    save_result(tmp_path, AnalysisResult("noise-decay", header, arrays))
    (result,) = load_results(tmp_path)
    assert ANALYSES["noise-decay"].headline(result)["noise left, last block"] == 1
    assert "added to normalised images" in _texts(ANALYSES["noise-decay"].shown.draw([result]))
    assert json.loads(json.dumps(dict(result.header))) == header


def _texts(figure):
    return " ".join(axis.get_title() for axis in figure.axes)
