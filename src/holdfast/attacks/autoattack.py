"""AutoAttack (Croce and Hein 2020): the member attacks of `pyautoattack`, run by a loop that can be resumed.

The members run one after another on the images that are still classified correctly. The package's own loop cannot
resume from the state it saves, so this one replaces it: it writes a state file after every batch, and an interrupted
run resumes from it.
"""

import importlib
import importlib.metadata
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.attacks.autoattack_state import State, fingerprint
from holdfast.attacks.base import AttackResult
from holdfast.attacks.criteria import check_logits
from holdfast.attacks.eval_mode import attack_mode, own_copies, predict
from holdfast.attacks.pixel_model import check_images
from holdfast.errors import HoldfastError, nearest

STANDARD = ("apgd-ce", "apgd-t", "fab-t", "square")
_PACKAGE_NORMS = {"linf": "Linf", "l2": "L2"}
_LOGGER = {"logger": logging.getLogger(__name__)}  # receives APGD's warnings of vanishing gradients
# the DLR loss divides by z₁ − z₃ of the sorted logits, its targeted form by z₁ − (z₃ + z₄)/2
_FEWEST_CLASSES = {"apgd-dlr": 3, "apgd-t": 4}

Member = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class AutoAttack:
    """AutoAttack's settings; the defaults are its standard version.

    Attributes:
        eps: radius of the ball, in units of [0,1] pixels: 4/255 on ImageNet, 8/255 (L2: 0.5) on CIFAR.
        norm: ``linf`` or ``l2``.
        members: the attacks, in order: ``apgd-ce``, ``apgd-dlr``, ``apgd-t``, ``fab``, ``fab-t``, ``square``.
        iterations: steps of APGD and FAB.
        restarts: random restarts of APGD and FAB.
        targets: target classes that targeted members try, at most all but one.
        queries: query budget of the Square attack.
        batch_size: images attacked at once. The members draw random numbers per batch, so results depend on it
            slightly.
    """

    eps: float
    norm: Literal["linf", "l2"] = "linf"
    members: tuple[str, ...] = STANDARD
    iterations: int = 100
    restarts: int = 1
    targets: int = 9
    queries: int = 5000
    batch_size: int = 100

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise HoldfastError(f"eps must be positive, got {self.eps}")
        if self.norm not in _PACKAGE_NORMS:
            raise HoldfastError(f"norm must be one of {', '.join(_PACKAGE_NORMS)}, got {self.norm!r}")
        for name in ("iterations", "restarts", "targets", "queries", "batch_size"):
            if getattr(self, name) < 1:
                raise HoldfastError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.members:
            raise HoldfastError(f"members must name at least one of {', '.join(MEMBERS)}, got none")
        for member in self.members:
            if member not in MEMBERS:
                hint = nearest(member, MEMBERS) or f"; expected some of {', '.join(MEMBERS)}"
                raise HoldfastError(f"unknown member {member!r} of AutoAttack{hint}")

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int = 0, state: str | Path | None = None
    ) -> AttackResult:
        """Attack the images and predict the adversarial images that result.

        ``state`` is a file that is written after every batch; if it exists, the run resumes from it.
        """
        check_images(images)
        with attack_mode(model) as victim, torch.no_grad(), torch.random.fork_rng():
            images, labels = own_copies(images, labels)
            progress = _begin(self, victim, images, labels, seed, Path(state) if state is not None else None)
            members = {name: MEMBERS[name](_Settings(self, victim, seed, progress.classes)) for name in self.members}
            for place in range(progress.member, len(self.members)):
                _run_member(self, members[self.members[place]], victim, images, labels, progress, place)
            adversarial = progress.adversarial_images(images)
            predictions = _predict(self, victim, adversarial, labels)
        record = {"attack": "autoattack", **asdict(self), "seed": seed, "pyautoattack": _version()}
        record["accuracy_after"] = dict(progress.accuracy)
        return AttackResult(adversarial, predictions, predictions != labels, record)


def _begin(attack: AutoAttack, model: nn.Module, images: Tensor, labels: Tensor, seed: int, path: Path | None) -> State:
    logits = model(images[:1])
    classes = logits.shape[-1]
    check_logits(logits, labels[:1])
    for member in attack.members:
        if classes < _FEWEST_CLASSES.get(member, 2):
            raise HoldfastError(f"{member} needs at least {_FEWEST_CLASSES[member]} classes, the model has {classes}")
    key = fingerprint(asdict(attack), seed, model, images, labels)
    if path is not None and path.exists():
        return State.read(path, key=key, classes=classes)
    robust = _predict(attack, model, images, labels) == labels
    return State.new(robust, key=key, path=path, classes=classes)


def _run_member(
    attack: AutoAttack, member: Member, model: nn.Module, images: Tensor, labels: Tensor, state: State, place: int
) -> None:
    """Run one member, batch by batch, on all images that were still classified correctly when it began."""
    batches = state.robust.nonzero().squeeze(1).split(attack.batch_size)
    for number, rows in enumerate(batches):
        if number < state.batch or not len(rows):
            continue
        found = member(images[rows].clone(), labels[rows].clone())
        # the members' own bookkeeping is not trusted: a success is what a fresh forward pass misclassifies
        fooled = predict(model, found, labels[rows]) != labels[rows]
        state.record(rows[fooled], found[fooled], batch=number + 1)
    state.finish(attack.members[place])


def _predict(attack: AutoAttack, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    parts = zip(images.split(attack.batch_size), labels.split(attack.batch_size), strict=True)
    return torch.cat([predict(model, part, right) for part, right in parts])


# ------------------------------------------------------------------------------------------- the package's members


@dataclass(frozen=True, eq=False)
class _Settings:
    attack: AutoAttack
    model: nn.Module
    seed: int
    classes: int
    common: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        attack = self.attack
        common = {
            "eps": attack.eps,
            "norm": _PACKAGE_NORMS[attack.norm],
            "seed": self.seed,
            "n_restarts": attack.restarts,
        }
        object.__setattr__(self, "common", common)

    @property
    def targets(self) -> int:
        return min(self.attack.targets, self.classes - 1)


def _apgd(loss: str) -> Callable[[_Settings], Member]:
    def build(run: _Settings) -> Member:
        make = _package("autopgd_base").APGDAttack
        return make(run.model, n_iter=run.attack.iterations, loss=loss, **run.common, **_LOGGER).perturb

    return build


def _apgd_targeted(run: _Settings) -> Member:
    make = _package("autopgd_base").APGDAttack_targeted
    return make(run.model, n_iter=run.attack.iterations, n_target_classes=run.targets, **run.common, **_LOGGER).perturb


def _fab(targeted: bool) -> Callable[[_Settings], Member]:
    def build(run: _Settings) -> Member:
        make = _package("fab_pt").FABAttack_PT
        settings = {"n_iter": run.attack.iterations, "targeted": targeted, "n_target_classes": run.targets}
        return make(run.model, **settings, **run.common).perturb

    return build


def _square(run: _Settings) -> Member:
    make = _package("square").SquareAttack
    common = {**run.common, "n_restarts": 1}
    return make(run.model, p_init=0.8, n_queries=run.attack.queries, resc_schedule=False, **common).perturb


MEMBERS: dict[str, Callable[[_Settings], Member]] = {
    "apgd-ce": _apgd("ce"),
    "apgd-dlr": _apgd("dlr"),
    "apgd-t": _apgd_targeted,
    "fab": _fab(targeted=False),
    "fab-t": _fab(targeted=True),
    "square": _square,
}


def _package(module: str) -> Any:
    try:
        return importlib.import_module(f"pyautoattack.{module}")
    except ImportError as error:
        raise HoldfastError("AutoAttack needs an extra: pip install 'pyautoattack>=0.2,<0.3'") from error


def _version() -> str:
    return importlib.metadata.version("pyautoattack")
