"""Attack criteria: the loss that an attack maximises and the test for a misclassification, one criterion per task."""

import pytest
from torch import nn

from holdfast.attacks import SegPGD
from holdfast.attacks.criteria import MISCLASSIFICATION
from holdfast.errors import HoldfastError
from tests.attacks.test_segpgd import (
    Pixelwise,
    scene,
)


def test_a_classifier_and_labels_that_do_not_fit_get_one_sentence():
    attack, (images, labels) = SegPGD(0.1, 0.1, 1), scene()
    with pytest.raises(HoldfastError, match=r"logits \(images, classes, height, width\), got \(2, 5\)"):
        attack(nn.Sequential(nn.Flatten(), nn.Linear(300, 5)), images, labels)
    with pytest.raises(HoldfastError, match="needs a class per pixel"):
        attack(Pixelwise(), images, labels, goal=MISCLASSIFICATION)
    with pytest.raises(HoldfastError, match="labels must be maps"):
        attack(Pixelwise(), images, labels[:, :5])
    with pytest.raises(HoldfastError, match="labels must lie in 0…2"):
        attack(Pixelwise(), images, labels.masked_fill(labels == 0, 7))
