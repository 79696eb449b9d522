"""One of everything that people bring: the plug-in of the walks, and what a script would hand over in Python."""

from dataclasses import dataclass

import numpy as np
import torch
from timm.models import register_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import holdfast
from holdfast.analysis.base import Analysis, FigureSpec
from holdfast.analysis.registry import register_analysis
from holdfast.attacks import AttackResult
from holdfast.data import from_torch, register_source
from holdfast.evaluation.suites import register_attack
from holdfast.methods import Loss, Term, register_term
from holdfast.metrics import ScoreDefinition, column, register_metric
from holdfast.plotting.style import new_figure


def pixels():
    """Squares that are bright on the left or on the right; which of the two is the class."""
    labels = torch.arange(16) % 2
    images = torch.full((16, 3, 32, 32), 0.2)
    for image, label in zip(images, labels, strict=True):
        image[:, :, 16 * int(label) : 16 * int(label) + 16] = 0.8
    return images, labels


def loader():
    """As people have them."""
    return DataLoader(TensorDataset(*pixels()), batch_size=5)


register_source("sides", lambda rest, *, split: from_torch(loader(), name="sides"), "bright left or right")


@register_model
def own_glance(pretrained=False, num_classes=2, in_chans=3, **kwargs):
    """A model of one's own, with timm's registry as its only tie."""
    model = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * in_chans, num_classes))
    model.pretrained_cfg = {"input_size": (3, 32, 32), "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
    return model


class OwnQuiet(Term):
    """A penalty on large logits."""

    def __init__(self, weight=1e-3):
        self.weight = weight

    def loss(self, forward):
        penalty = forward.outputs.square().mean()
        return Loss(self.weight * penalty, {"own_quiet": penalty.detach()})


register_term("own_quiet", lambda options, context: OwnQuiet(**options), "a penalty on large logits")


def own_bands(images, draws, *, width):
    """Every other band of rows turns black."""
    result = images.copy()
    result[:, np.arange(images.shape[1]) // width % 2 == 1] = 0
    return result


holdfast.corruptions.register_corruption(
    "own_bands", own_bands, severities=[{"width": width} for width in (8, 6, 4, 3, 2)], short="Band", random=False
)


@dataclass(frozen=True)
class OwnTint:
    """More red everywhere."""

    eps: float = 0.1

    def __call__(self, model, images, labels, *, seed):
        tinted = images.clone()
        tinted[:, 0] = (tinted[:, 0] + self.eps).clamp(max=1)
        predictions = model(tinted).argmax(1)
        return AttackResult(tinted, predictions, predictions != labels)


register_attack("own-tint", OwnTint(), "more red")


def _columns(cell):
    return {"sure": (cell.confidences > 0.6).astype(np.float64)} if cell.spec.family == "clean" else {}


def _formulas(cells):
    for cell in cells:
        if cell.family == "clean":
            name = column(cell.name, "sure")
            text = "images that the model is more than 60 % sure of"
            yield ScoreDefinition(
                "own_sure", "own sure", "%", "high", text, lambda m, n=name: 100 * m[n], headline=True
            )


register_metric("own_sure", _formulas, "sure of", columns=_columns)


def _run(subject, settings, tick):
    values = []
    for batch in subject.batches():
        values.append(subject.clean(batch).mean(dim=(1, 2, 3)).numpy())
        tick(len(batch.ids))
    return {}, {"brightness": np.concatenate(values)}


def _draw(results):
    figure = new_figure(4, 3)
    figure.subplots().boxplot([result.arrays["brightness"] for result in results])
    return figure


analysis = Analysis(
    "own-brightness",
    "how bright the images are",
    _run,
    headline=lambda result: {"own brightness": float(result.arrays["brightness"].mean())},
    pages=lambda results: iter([("own-brightness", lambda: _draw(results))]),
    shown=FigureSpec("How bright are they?", "Mean pixel of every image.", _draw),
)
register_analysis("own-brightness", analysis, analysis.line)
