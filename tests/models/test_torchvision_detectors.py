"""torchvision's detectors, as they are: their labels may be COCO's category ids."""

import pytest
import torch
from torch import nn
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn, ssdlite320_mobilenet_v3_large

import holdfast
from holdfast.models.torchvision_detectors import RankedLabels, answered_classes, ranked_labels

IDS = (1, 3, 90)


class Answers(nn.Module):
    """Says the same of every image."""

    num_classes = 90

    def forward(self, images):
        labels = torch.tensor([90, 2, 1])
        boxes = torch.arange(12.0).view(3, 4)
        return [{"boxes": boxes, "labels": labels, "scores": torch.tensor([0.9, 0.8, 0.7])} for _ in images]


def test_category_ids_become_ranks_and_ids_that_the_data_lack_are_dropped():
    model = ranked_labels(Answers(), IDS)
    assert isinstance(model, RankedLabels)
    (found,) = model(torch.zeros(1, 3, 8, 8))
    assert found["labels"].tolist() == [3, 1]
    assert found["scores"].tolist() == pytest.approx([0.9, 0.7])
    assert found["boxes"].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]


def test_models_of_the_datas_classes_and_models_that_do_not_tell_stay_as_they_are():
    own = Answers()
    own.num_classes = 3
    silent = nn.Identity()
    assert ranked_labels(own, IDS) is own
    assert ranked_labels(silent, IDS) is silent


def test_models_of_other_classes_are_refused():
    own = Answers()
    own.num_classes = 20
    with pytest.raises(holdfast.HoldfastError, match=r"must have the 3 classes of the data .* up to 90.*, got 20"):
        ranked_labels(own, IDS)


@pytest.mark.parametrize("build", [fasterrcnn_mobilenet_v3_large_320_fpn, ssdlite320_mobilenet_v3_large])
def test_torchvisions_detectors_tell_their_classes(build):
    model = build(weights=None, weights_backbone=None, num_classes=91)
    assert answered_classes(model) == 90
