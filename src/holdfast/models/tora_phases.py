"""TORA's training phases (Li and Xu, CVPR 2023). Training the heads in phase 1 only is ours."""

from dataclasses import dataclass

from holdfast.errors import HoldfastError, nearest
from holdfast.models.tora import ToraViT


@dataclass(frozen=True)
class Phase:
    """The trained prediction, the adapter and head trained beside the fusion, and λ if it is fixed."""

    view: str
    learns: tuple[str, ...]
    weight: float | None = None


PHASES = {
    "robust": Phase("rob", ("rob",), weight=1.0),  # phase 1: min over Ψ_R, Φ of L_ROB
    "accuracy": Phase("acc", ("acc",), weight=0.0),  # phase 1: min over Ψ_A, Φ of L_ACC
    "joint": Phase("joint", ()),  # phase 2: min over Φ of λ L_ROB + (1 − λ) L_ACC
}
TWO_PHASES = ("tora", "adapter-fusion")


def begin_phase(model: ToraViT, phase: str) -> None:
    """Make the parameters of a phase trainable and freeze the rest; without a fusion, train all added modules."""
    if phase not in PHASES:
        raise HoldfastError(f"phase must be one of {', '.join(PHASES)}, got {phase!r}{nearest(phase, PHASES)}")
    method = model.settings.method
    model.requires_grad_(False)
    if method not in TWO_PHASES:
        if phase != "joint":
            raise HoldfastError(f"method {method} has one phase, joint; got {phase!r}")
        for added in (model.layers, model.heads, model.tokens):
            added.requires_grad_(True)
        return
    for layer in model.layers:
        layer.fusion.requires_grad_(True)
    for name in PHASES[phase].learns:
        for part in (*(layer.get_submodule(name) for layer in model.layers), model.heads[name], model.tokens[name]):
            part.requires_grad_(True)
