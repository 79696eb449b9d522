"""Evaluations of segmenters and detectors that stop early: enough images first, then a score of the whole set."""

import torch
from torch import nn

from holdfast import ComputeConfig, EvalProtocol, evaluate
from holdfast.metrics.scoring.detection import DetectionScoring
from holdfast.metrics.scoring.segmentation import SegmentationScoring

QUICK = {"workers": 0, "show": None, "compute": ComputeConfig(shard_size=8)}


class Segmenter(nn.Module):
    """Labels by brightness."""

    num_classes = 11

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)
        return -(grey - torch.linspace(-2, 2, self.num_classes)[None, :, None, None]).abs()


def test_a_segmenter_gets_more_images_first_and_ends_like_a_full_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr(SegmentationScoring, "first_images", 9)
    protocol = EvalProtocol(classes_differ=True)
    words = ("scenes:test,32x32,24", "clean,corruptions")
    some = evaluate(Segmenter(), *words, out=tmp_path, protocol=protocol, until=9, **QUICK)
    counts = {len(cell) for name, cell in some.cells.items() if name != "clean"}
    assert some.passes is not None
    assert min(counts) >= 9
    assert "mean_corruption_miou" in some.summary()
    whole = evaluate(Segmenter(), *words, out=tmp_path, protocol=protocol, **QUICK)
    assert whole.passes is None
    assert {len(cell) for cell in whole.cells.values()} == {24}


def test_the_usual_first_numbers():
    assert SegmentationScoring.first_images == 128
    assert DetectionScoring.first_images == 500
