"""TRADES (Zhang et al., ICML 2019) and MART (Wang et al., ICLR 2020): predictions that an attack must not move.

TRADES adds β · KL(p(x) ‖ p(x′)) to the loss of the clean images; x′ maximises that divergence. MART trains on images
that maximise cross-entropy, and weighs the divergence by how wrong the clean prediction is. The target of the
divergence carries gradient, as released. The released TRADES looks at x once more for it; we take the pass of the loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.attacks.criteria import classes
from holdfast.attacks.eval_mode import attack_mode
from holdfast.errors import HoldfastError
from holdfast.methods.loss_terms import Context, ForwardPass, Term, from_options
from holdfast.methods.objective import Loss

NOISE = 0.001  # deviation of the start: at x itself the divergence has no gradient
SMALL = 1e-12


@dataclass(frozen=True)
class Trades(Term):
    """β · KL(p(x) ‖ p(x′)) beside the loss of the clean images.

    Attributes:
        beta: weight of the divergence; published 6 for CIFAR-10, and from 1 to 10.
        eps: radius of the attack, L∞, in units of [0, 1] pixels; published 0.031.
        alpha: its step; null for a quarter of the radius, about what is published.
        steps: how many; published 10.
    """

    beta: float = 6.0
    eps: float = 4 / 255
    alpha: float | None = None
    steps: int = 5

    def __post_init__(self) -> None:
        _check("trades", self.eps, self.alpha, self.steps)

    def loss(self, forward: ForwardPass) -> Loss:
        """The weighted divergence between the predictions for clean and attacked images."""
        clean = _answers(forward)
        attacked = _attacked(forward, self.eps, self.alpha, self.steps, divergence_from_clean)
        divergence = kl_divergence(clean, forward.model(attacked))
        return Loss(self.beta * divergence, {"trades_kl": divergence.detach()})


@dataclass(frozen=True)
class Mart(Term):
    """Boosted cross-entropy of attacked images and λ · KL(p(x) ‖ p(x′)) · (1 − p_y(x)), without a clean term.

    Attributes:
        weight: λ; published 5 or 6.
        eps: radius of the attack, L∞, in units of [0, 1] pixels; published 0.031.
        alpha: its step; null for a quarter of the radius, about what is published.
        steps: how many; published 10.
    """

    weight: float = 5.0
    eps: float = 4 / 255
    alpha: float | None = None
    steps: int = 5

    def __post_init__(self) -> None:
        _check("mart", self.eps, self.alpha, self.steps)

    @property
    def clean_weight(self) -> float:
        """The clean images count in the divergence alone."""
        return 0.0

    def loss(self, forward: ForwardPass) -> Loss:
        """Both terms of the attacked images."""
        clean, targets = _answers(forward), forward.targets
        attacked = _attacked(forward, self.eps, self.alpha, self.steps, lambda _: summed_cross_entropy(targets))
        boosted, divergence = mart_terms(clean, forward.model(attacked), targets)
        parts = {"mart_cross_entropy": boosted.detach(), "mart_kl": divergence.detach()}
        return Loss(boosted + self.weight * divergence, parts)


def kl_divergence(clean: Tensor, attacked: Tensor) -> Tensor:
    """KL(p(x) ‖ p(x′)) of logits, summed over classes, mean over the batch; gradient flows through both."""
    return F.kl_div(attacked.log_softmax(-1), clean.log_softmax(-1), reduction="batchmean", log_target=True)


def mart_terms(clean: Tensor, attacked: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The boosted cross-entropy of x′, and the divergence weighed by 1 − p_y(x)."""
    labels = classes(targets).unsqueeze(1)
    near, far = clean.softmax(-1), attacked.softmax(-1)
    wrong = far.scatter(1, labels, -1.0).amax(dim=1)  # of the most probable wrong class
    boosted = F.cross_entropy(attacked, targets) - (1.0001 - wrong + SMALL).log().mean()
    divergence = (near * (near.clamp(min=SMALL).log() - (far + SMALL).log())).sum(dim=1)
    weight = 1.0000001 - near.gather(1, labels).squeeze(1)
    return boosted, (divergence * weight).mean()


# ---------------------------------------------------------------------- the attack

Climbed = Callable[[Tensor], Tensor]  # of logits, what the attack raises


def divergence_from_clean(clean: Tensor) -> Climbed:
    """What TRADES climbs: the divergence from the clean prediction, which stays as it is."""
    return lambda logits: F.kl_div(logits.log_softmax(-1), clean.log_softmax(-1), reduction="sum", log_target=True)


def summed_cross_entropy(targets: Tensor) -> Climbed:
    """What MART climbs."""
    return lambda logits: F.cross_entropy(logits, targets, reduction="sum")


def climb(
    model: nn.Module,
    pixels: Tensor,
    begin: Callable[[Tensor], Climbed],
    *,
    eps: float,
    alpha: float,
    steps: int,
    noise: Tensor,
    normalise: Callable[[Tensor], Tensor] = lambda pixels: pixels,
) -> Tensor:
    """Signed steps from x + noise, which is not projected first; the model is in evaluation mode and left as it was.

    Args:
        model: takes normalised images.
        pixels: the clean images, from 0 to 1.
        begin: of the logits of the clean images, what is climbed.
        eps: radius, L∞.
        alpha: step.
        steps: how many.
        noise: where to start.
        normalise: pixels to the model's images.
    """
    pixels = pixels.detach()
    with attack_mode(model) as quiet:
        with torch.no_grad():
            climbed = begin(quiet(normalise(pixels)))
        attacked = pixels + noise
        for _ in range(steps):
            attacked = attacked.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(climbed(quiet(normalise(attacked))), attacked)
            attacked = attacked.detach() + alpha * gradient.sign()
            attacked = torch.clamp(attacked, pixels - eps, pixels + eps).clamp(0, 1)
    return attacked.detach()


def _attacked(
    forward: ForwardPass, eps: float, alpha: float | None, steps: int, begin: Callable[[Tensor], Climbed]
) -> Tensor:
    """The attacked images, normalised as the clean ones are."""
    setting, images = forward.setting, forward.images
    mean, std = setting.mean.to(images), setting.std.to(images)
    pixels = (images * std + mean).clamp(0, 1)
    noise = NOISE * torch.randn(pixels.shape).to(pixels)  # the loop's own generator
    step = eps / 4 if alpha is None else alpha

    def normalise(values: Tensor) -> Tensor:
        return (values - mean) / std

    options: dict[str, Any] = {"eps": eps, "alpha": step, "steps": steps, "noise": noise, "normalise": normalise}
    return normalise(climb(forward.model, pixels, begin, **options))


def _answers(forward: ForwardPass) -> Tensor:
    outputs = forward.outputs
    if not isinstance(outputs, Tensor) or outputs.ndim != 2:
        raise HoldfastError("trades and mart compare one answer per image; use adversarial for other tasks")
    return outputs


def _check(name: str, eps: float, alpha: float | None, steps: int) -> None:
    if not 0 < eps < 1 or (alpha is not None and alpha <= 0) or steps < 1:
        raise HoldfastError(
            f"eps of {name} must lie between 0 and 1, alpha above 0, steps at least 1; got {eps}, {alpha} and {steps}"
        )


def trades_term(options: Any, context: Context) -> Trades:
    """From a recipe's option ``trades``."""
    return from_options(Trades, "trades", options)


def mart_term(options: Any, context: Context) -> Mart:
    """From a recipe's option ``mart``."""
    return from_options(Mart, "mart", options)
