"""The notebooks run from top to bottom: as they are on embedded images, and with a model and a folder of one's own."""

import ast
import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
MEASURE, WHY = "measure_my_model", "why_does_it_fail"
SMALL = {"IMAGES": 10, "EPOCHS": 1, "LEARN_FROM": 32}


def cells(name: str) -> list[dict]:
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def executed(name: str, **parameters) -> dict:
    """What the cells leave, run in order; parameters go in behind the cell that is tagged so, as papermill does."""
    matplotlib.use("agg")
    known: dict = {"__name__": "__main__"}
    for number, cell in enumerate(cells(name)):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}.ipynb, cell {number}", "exec"), known)
        if "parameters" in cell["metadata"].get("tags", []):
            assert set(parameters) <= set(known)
            known.update(parameters)
    return known


class Levels(nn.Module):
    """Bright or dark; nothing to look into."""

    def forward(self, images):
        level = images.mean((1, 2, 3))
        return torch.stack([level, 0.8 - level], 1) * 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Dark and bright photographs of several sizes, a folder per class."""
    place, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name, low in (("dark", 0), ("bright", 120)):
        (place / name).mkdir()
        for number in range(6):
            pixels = random.integers(low, low + 136, (64 + number, 70, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / name / f"{number}.png")
    return place


def test_they_run_as_they_are_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    measured = executed(MEASURE, **SMALL)
    assert len(measured["records"].cells) == 76
    assert 'class="example"' in Path("report.html").read_text()
    assert "clean no worse: no" in capsys.readouterr().out  # too few images to resolve, which passes
    seen = executed(WHY, **SMALL)
    assert seen["records"].folder == measured["records"].folder  # measured once
    assert set(seen["found"].results) == {"stability", "overfocus", "maps", "occlusion"}
    assert "worst: " in capsys.readouterr().out


def test_they_take_a_model_and_a_folder_of_ones_own(tmp_path, monkeypatch, folder, capsys):
    monkeypatch.chdir(tmp_path)
    own = {"MODEL": Levels(), "DATA": f"folder:{folder}", "IMAGES": None, "OUT": "mine"}
    records = executed(MEASURE, **own)["records"]
    assert records.header["class_names"] == ["bright", "dark"]
    found = executed(WHY, **own)["found"]
    assert set(found.results) == {"occlusion"}
    assert set(found.skipped) == {"stability", "overfocus", "maps"}
    assert not Path("runs").exists()


@pytest.mark.full
def test_they_run_with_their_own_parameters(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert executed(MEASURE)["summary"]["clean"].value > 80
    executed(WHY)


@pytest.mark.parametrize("name", [MEASURE, WHY])
def test_they_are_stored_as_notebooks_are_and_without_counts(name):
    content = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert set(content) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    ids = [cell["id"] for cell in content["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in content["cells"]:
        extra = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | extra
        assert cell.get("execution_count") is None
        if extra:
            ast.parse("".join(cell["source"]))  # no magics: plain Python


@pytest.mark.parametrize("name", [MEASURE, WHY])
def test_the_site_shows_what_the_notebooks_print(name):
    kinds = [
        kind for cell in cells(name) for output in cell.get("outputs", []) for kind in output.get("data", {"text"})
    ]
    assert "image/png" in kinds, "run docs/tools/make_notebooks.py"
    assert "text" in kinds
    assert not [o for cell in cells(name) for o in cell.get("outputs", []) if o["output_type"] == "error"]
