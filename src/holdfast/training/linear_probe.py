"""A linear probe: the head that logistic regression fits to the frozen features (phase 1 of LP-FT, Kumar et al. 2022).

The features are standardised by one mean and one deviation of them all, which are folded into the weights; the
regularisation with the best validation accuracy wins, the first of equal ones.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.runtime.device import training_modes_kept
from holdfast.training.loader import Batch

C_VALUES = tuple(10.0**exponent for exponent in range(-7, 3))  # inverse strengths of the L2 penalty
ITERATIONS = 200


@dataclass(frozen=True)
class Probe:
    """Weights (classes, features) and biases (classes,) of a head, the penalty's C, and its validation accuracy, %."""

    weight: np.ndarray
    bias: np.ndarray
    c: float
    accuracy: float


def fit_head(model: nn.Module, train: Iterable[Batch], val: Iterable[Batch], *, device: torch.device) -> Probe:
    """Give a classifier the head that fits its frozen features best, and return it."""
    head = linear_head(model)
    features, labels = features_of(model, head, train, device=device)
    others, answers = features_of(model, head, val, device=device)
    probe = fit_probe(features, labels, others, answers, classes=head.out_features)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(probe.weight))
        head.bias.copy_(torch.from_numpy(probe.bias))
    return probe


def linear_head(model: nn.Module) -> nn.Linear:
    """The model's classifier; refuses what is not one linear layer with a bias."""
    find: Any = getattr(model, "get_classifier", None)
    head = find() if callable(find) else None
    if not isinstance(head, nn.Linear) or head.bias is None:
        kind = type(head).__name__ if head is not None else "none"
        raise HoldfastError(
            f"a linear probe needs a model whose head is one linear layer; {type(model).__name__} has {kind}"
        )
    return head


@torch.no_grad()
def features_of(
    model: nn.Module, head: nn.Linear, batches: Iterable[Batch], *, device: torch.device
) -> tuple[np.ndarray, np.ndarray]:
    """What the head sees of every image in evaluation mode, (N, features), and the images' classes, (N,)."""
    seen: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].float().cpu()))
    labels = []
    with hook, training_modes_kept(model):  # a hook is removed on exit
        model.eval()
        for batch in batches:
            if len(batch.images):
                assert isinstance(batch.images, Tensor)
                model(batch.images.to(device))
                labels.append(torch.as_tensor(batch.targets))
    return torch.cat(seen).numpy(), torch.cat(labels).numpy()


def fit_probe(
    features: np.ndarray,
    labels: np.ndarray,
    val_features: np.ndarray,
    val_labels: np.ndarray,
    *,
    classes: int,
    c_values: Sequence[float] = C_VALUES,
) -> Probe:
    """L2-regularised logistic regression for every C, from weak to strong fits, each from the one before."""
    if len(np.unique(labels)) < 2:
        raise HoldfastError("a linear probe needs training images of at least two classes, got one")
    mean, deviation = float(features.mean()), float(features.std()) or 1.0
    regression = LogisticRegression(warm_start=True, max_iter=ITERATIONS)
    best: Probe | None = None
    for c in c_values:
        regression.set_params(C=c)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # as published: so many iterations and no more
            regression.fit((features - mean) / deviation, labels)
        weight, bias = head_of(regression, classes=classes)
        weight, bias = weight / deviation, bias - weight.sum(axis=1) * mean / deviation
        right = float(100 * np.mean((val_features @ weight.T + bias).argmax(axis=1) == val_labels))
        if best is None or right > best.accuracy:
            best = Probe(weight.astype(np.float32), bias.astype(np.float32), c, right)
    assert best is not None
    return best


def head_of(regression: LogisticRegression, *, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """A row and a bias per class: of two classes halves of the one vector, of a class without images zeros."""
    rows, offsets = regression.coef_, regression.intercept_
    if len(rows) == 1:
        rows, offsets = np.concatenate([-rows / 2, rows / 2]), np.concatenate([-offsets / 2, offsets / 2])
    weight, bias = np.zeros((classes, rows.shape[1])), np.zeros(classes)
    weight[regression.classes_], bias[regression.classes_] = rows, offsets
    return weight, bias
