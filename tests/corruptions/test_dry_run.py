"""A dry run of a folder's corruption."""

import shutil

import numpy as np
import pytest
from PIL import Image

from holdfast.cli.main import main


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def test_corrupting_a_folder_is_forecast(photos, tmp_path, capsys):
    words = ["corrupt", str(photos), str(tmp_path / "out"), "--kinds", "fog,contrast", "--workers", "1"]
    assert main([*words, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "6 images, 10 cells, 60 files" in told
    assert not (tmp_path / "out").exists()
    assert main(words) == 0
    assert "the dry run estimated" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "out" / "fog")
    assert main([*words, "--dry-run"]) == 0
    assert "30 of them there already" in capsys.readouterr().out
