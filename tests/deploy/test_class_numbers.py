"""Which class of the data a detector's class number means: a rank, or a category id, of which COCO's have gaps."""

import pytest
import torch

from holdfast.errors import HoldfastError


def test_the_80_categories_of_coco_are_read_from_80_and_from_91_classes(tmp_path):
    from holdfast.deploy.class_numbers import class_numbers
    from tests.docs.world import COCO_IDS

    ranks = class_numbers(COCO_IDS, known=80, first=0, asked=None)
    ids = class_numbers(COCO_IDS, known=91, first=0, asked=None)
    assert ranks.labels(torch.tensor([0, 79]))[0].tolist() == [1, 80]
    labels, kept = ids.labels(torch.tensor([1, 90, 12, 0]))  # 12 was never used, 0 is nothing
    assert labels[kept].tolist() == [1, 80]
    with pytest.raises(HoldfastError, match=r"must have the 80 classes .*or 91.* got 79"):
        class_numbers(COCO_IDS, known=79, first=0, asked=None)
    with pytest.raises(HoldfastError, match="classes must be numbers 0 to 90, got 97"):
        ids.labels(torch.tensor([97]))
