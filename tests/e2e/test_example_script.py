"""The example "my timm model on my folder" runs as it is, on a small model and a synthetic folder."""

import runpy
import sys
from pathlib import Path

import numpy as np
from PIL import Image

SCRIPT = Path(__file__).parents[2] / "examples" / "my_timm_model_on_my_folder.py"


def test_my_timm_model_on_my_folder(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{number}.png")
    arguments = [str(SCRIPT), str(tmp_path / "images"), "vit_nano", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "mCA" in capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "vit_nano" in page
    assert 'id="data-1-heat"' in page
    assert 'id="analysis-stability-0"' in page
