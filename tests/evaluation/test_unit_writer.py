"""Units: one per cell and shard, none for answers that are no numbers."""

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast import ComputeConfig, evaluate
from holdfast.errors import HoldfastError
from holdfast.records.records import read_records
from tests.evaluation.test_runner import QUICK
from tests.evaluation.toys import Brightest, ByLevel, colours


def test_a_shard_without_a_readable_image_is_a_finished_unit(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(b"broken")
    Image.new("RGB", (32, 32), (9, 0, 0)).save(tmp_path / "a" / "1.png")
    for model in (Brightest(), ByLevel(3, 10)):
        records = evaluate(model, f"folder:{tmp_path}", "clean,fgsm", compute=ComputeConfig(shard_size=1), **QUICK)
        assert records.cells["clean"].ids.tolist() == ["a/1.png"]
        assert len(records.excluded) == 3


class NaN(Brightest):
    def forward(self, images):
        logits = super().forward(images)
        bright = images.mean(dim=(1, 2, 3)) > 0.75
        return torch.where(bright[:, None], torch.nan, logits)


def test_nan_names_its_cell_and_records_nothing_for_it(tmp_path):
    with pytest.raises(HoldfastError, match=r"got NaN or infinity for \d+ of \d+ images in (frost|brightness)/\d"):
        evaluate(NaN(), colours(6), "clean,corruptions", out=tmp_path, **QUICK)
    (folder,) = (tmp_path / "records").iterdir()
    kept = read_records(folder).cells
    assert "clean" in kept
    assert "brightness/5" not in kept
    for cell in kept.values():
        assert np.isfinite(cell.nll).all()
