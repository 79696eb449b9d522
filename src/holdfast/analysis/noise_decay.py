"""Noise decay and significant eigenvalues, block by block.

FAN, Sec. 2.2 and Fig. 3: Gaussian noise x ~ N(0, 1) is fed to the network, and what the blocks leave of it is measured
by a normalised feature norm, beside the number of significant eigenvalues of the tokens' affinity S = Z Zᵀ, an
estimate of the number of groups. By what the norm is divided is not published. Two readings:

- ``added``: the noise is added to an image, ‖f(x + n) − f(x)‖ / ‖f(x)‖: the perturbation that is left of it.
- ``alone``: the noise is all the network sees, ‖f(n)‖ / ‖f(x)‖: its features' norm in that of the image's features.

Class and register tokens are left out of both, as of the eigenvalues.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.analysis.base import Analysis, FigureSpec, Found, Numbers, Page, Results, Tick
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import MODULES, Setting, Settings, one_of
from holdfast.errors import HoldfastError
from holdfast.plotting.curves import BANDS, band, whole_numbers
from holdfast.plotting.style import check_some, colour, grid_of, legend_above, new_figure, note, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from holdfast.analysis.probe import Probe


def _positive(name: str, value: Any) -> None:
    if not value > 0:
        raise HoldfastError(f"{name} must be positive, got {value}")


def _inner_share(name: str, value: Any) -> None:
    if not 0 < value < 1:
        raise HoldfastError(f"{name} must lie between 0 and 1, got {value}")


NOISE = Setting(
    "noise", "added", "noise decay: 'added' to the image, or 'alone' (FAN, Sec. 2.2)", check=one_of("added", "alone")
)
NOISE_STD = Setting("noise_std", 1.0, "deviation of the noise on normalised images", float, _positive)
EPSILON = Setting("epsilon", 0.01, "significant eigenvalues: above this · the largest", float, _inner_share)
RATIOS = {"added": "‖f(x+n) − f(x)‖ / ‖f(x)‖", "alone": "‖f(n)‖ / ‖f(x)‖"}


def relative_change(clean: "Tensor", noisy: "Tensor") -> "Tensor":
    """‖noisy − clean‖ / ‖clean‖ of every image, over all other axes, (B,)."""
    if clean.shape != noisy.shape:
        raise HoldfastError(f"clean and noisy features must be alike, got {tuple(clean.shape)}, {tuple(noisy.shape)}")
    return relative_norm(noisy.double() - clean.double(), clean)


def relative_norm(features: "Tensor", reference: "Tensor") -> "Tensor":
    """‖features‖ / ‖reference‖ of every image, over all other axes, (B,)."""
    length = reference.flatten(1).double().norm(dim=1)
    return (features.flatten(1).double().norm(dim=1) / length.clamp_min(1e-300)).float()


def significant_eigenvalues(tokens: "Tensor", *, epsilon: float) -> "Tensor":
    """The number of eigenvalues of Z Zᵀ above ε · the largest, (B, N, C) → (B,).

    The eigenvalues of Z Zᵀ that are not zero are those of Zᵀ Z: the smaller of the two is decomposed.
    """
    import torch

    _inner_share("epsilon", epsilon)
    z = tokens.detach().double()
    gram = z.mT @ z if z.shape[1] > z.shape[2] else z @ z.mT
    values = torch.linalg.eigvalsh(gram)  # ascending
    return (values > epsilon * values[:, -1:]).sum(dim=1)


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """Arrays: ``change`` and ``eigenvalues`` (images, modules), ``tokens`` (modules,): how many eigenvalues exist."""
    import torch

    from holdfast.analysis.token_features import check_reached, outputs_of
    from holdfast.attacks import rng

    names = list(settings.modules) or subject.token_blocks
    layouts = subject.layouts(names)
    change, eigenvalues, tokens = [], [], np.zeros(len(names), dtype=np.int32)
    for batch in subject.batches():
        images = subject.model.normalise(subject.clean(batch))
        noise = rng.normal(images, seed=subject.seed, ids=list(batch.ids), purpose="noise-decay")
        noise = settings.noise_std * noise
        with outputs_of(subject.inner, names) as seen:
            subject.model.model(images)
            clean = [layouts[name].tokens(seen[name]) for name in names]
            subject.model.model(images + noise if settings.noise == "added" else noise)
            check_reached(seen, names)
            noisy = [layouts[name].tokens(seen[name]) for name in names]
        measure = relative_change if settings.noise == "added" else _norm_of_noise
        change.append(torch.stack([measure(*pair) for pair in zip(clean, noisy, strict=True)], dim=1).cpu().numpy())
        counts = [significant_eigenvalues(each, epsilon=settings.epsilon) for each in clean]
        eigenvalues.append(torch.stack(counts, dim=1).int().cpu().numpy())
        tokens[:] = [each.shape[1] for each in clean]
        tick(len(batch.ids))
    facts = {"modules": names, "noise_std": settings.noise_std, "epsilon": settings.epsilon, "noise": settings.noise}
    return facts, {"change": np.concatenate(change), "eigenvalues": np.concatenate(eigenvalues), "tokens": tokens}


def _norm_of_noise(clean: "Tensor", noisy: "Tensor") -> "Tensor":
    return relative_norm(noisy, clean)


def headline(result: AnalysisResult) -> Numbers:
    """The means of the last block."""
    alone = " alone" if result.header.get("noise") == "alone" else ""
    return {
        f"noise{alone} left, last block": float(result.arrays["change"][:, -1].mean()),
        "significant eigenvalues, last block": float(result.arrays["eigenvalues"][:, -1].mean()),
    }


# ---------------------------------------------------------------------------------------------- figures


def depth_figure(results: Results) -> "Figure":
    """Remaining noise and significant eigenvalues over relative depth (FAN, Fig. 3)."""
    header = check_some(results, "noise decay result")[0].header
    figure = new_figure(8.4, 3.6)
    left, right = grid_of(figure, 1, 2)[0]
    for number, result in enumerate(results):
        depth = np.linspace(0, 1, result.arrays["change"].shape[1] + 1)[1:]
        band(left, result.arrays["change"], number, result.label, places=depth)
        band(right, result.arrays["eigenvalues"].astype(float), number, result.label, places=depth)
    tidy(left, xlabel="depth (first to last layer)", ylabel=RATIOS[header.get("noise", "added")])
    left.set_title(_noise(header), fontsize=9)
    left.set_ylim(bottom=0)
    tidy(right, xlabel="depth (first to last layer)", ylabel="significant eigenvalues")
    right.set_title(f"eigenvalues of Z Zᵀ above {header['epsilon']:g} · largest", fontsize=9)
    right.set_ylim(bottom=0)
    legend_above(figure, left)
    note(figure, f"{BANDS}; class tokens left out")
    return figure


def decay_and_eigenvalues(result: AnalysisResult) -> "Figure":
    """One model's noise decay beside its insignificant eigenvalues, block by block (FAN, Fig. 3 a and b)."""
    change, eigenvalues, header = result.arrays["change"], result.arrays["eigenvalues"], result.header
    figure = new_figure(5.6, 3.4)
    axis = figure.subplots()
    band(axis, change, 0, "noise left")
    title = f"{result.label}: {_noise(header)}"
    tidy(axis, xlabel="layer", ylabel=RATIOS[header.get("noise", "added")], title=title)
    axis.set_ylim(bottom=0)
    axis.yaxis.label.set_color(colour(0))
    other = axis.twinx()
    band(other, result.arrays["tokens"] - eigenvalues.astype(float), 1, "insignificant eigenvalues")
    tidy(other, ylabel=f"insignificant eigenvalues (≤ {header['epsilon']:g} · largest)")
    other.grid(visible=False)
    other.spines["right"].set_visible(True)
    other.yaxis.label.set_color(colour(1))
    other.set_ylim(bottom=0)
    whole_numbers(axis)
    note(figure, f"{BANDS}; class tokens left out")
    return figure


def _noise(header: Any) -> str:
    where = "added to normalised images" if header.get("noise", "added") == "added" else "instead of an image"
    return f"noise N(0, {header['noise_std']:g}²) {where}"


def pages(results: Results) -> Iterator[Page]:
    """All models over depth; a single model also as in the paper."""
    yield "noise-decay", lambda: depth_figure(results)
    if len(results) == 1:
        yield "noise-decay-eigenvalues", lambda: decay_and_eigenvalues(results[0])


ANALYSIS = Analysis(
    "noise-decay",
    "noise that remains after each block, and significant eigenvalues",
    run,
    settings=(NOISE, NOISE_STD, EPSILON, MODULES),
    headline=headline,
    pages=pages,
    shown=FigureSpec(
        "What blocks leave of noise",
        "Relative change of the features under noise, and significant eigenvalues, over depth. Lines are means over "
        "images, bands their quartiles.",
        depth_figure,
        panels=True,
    ),
    alike=lambda result: result.header.get("definition", 1),
    definition=2,  # until 2, class tokens counted in the change, and some models' axes were taken for others
)
