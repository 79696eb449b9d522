"""What pictures of single images are drawn from: maps and overlays, occluded patches, dilations, gates."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.analysis.attention_runs import Found, Tick
from holdfast.analysis.queries import middle_window, place_of, query_map, small_map
from holdfast.analysis.settings import Settings
from holdfast.analysis.stability import layer_cosines
from holdfast.analysis.subject import Batch, NotApplicable, Subject, as_bytes, describe_layers
from holdfast.attacks.occlusion import cover_of
from holdfast.attacks.pixels import backbone
from holdfast.attention import AttentionHandle
from holdfast.errors import HoldfastError
from holdfast.layers.tap import TokenAwarePooling
from holdfast.models.corruptor import Corruptor, load_corruptor, occlude
from holdfast.models.tora import ToraViT, gate_maps

Parts = dict[str, list[np.ndarray]]


def run_maps(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """A few images' attention, clean and under the first cell.

    Arrays, each with the images first: ``images/<state>``; ``mean/<state>/<layer>`` (M, M), heads averaged;
    ``heads/<state>`` (heads, M, M) of the last layer; ``query/<state>/<layer>`` (rows, columns), where attention is
    between places of the image; ``cosine`` (layers,).
    """
    parts: Parts = {}
    layers: list[dict[str, Any]] = []
    for batch in subject.batches(subject.some(settings.pictures)):
        seen = {}
        for state, pixels in _states(subject, batch, settings).items():
            _add(parts, f"images/{state}", as_bytes(pixels))
            with subject.watched() as inside:
                subject.model(pixels)
            seen[state] = inside.attention
            layers = describe_layers(inside.attention)
            _keep_maps(parts, state, inside.attention)
            _keep_queries(parts, state, inside.attention, settings, layers)
        cosines = [layer.flattened.mean(dim=1) for layer in layer_cosines(seen["clean"], seen["corrupted"])]
        _add(parts, "cosine", torch.stack(cosines, dim=1).cpu().numpy())
        tick(len(batch.ids))
    return {"layers": layers, "cell": settings.cells[0]}, _joined(parts)


def run_patches(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """What a corruption model occludes, and what it costs (AFAT, Fig. 5).

    Arrays: ``images``, ``occluded``; ``kept`` (images, rows, columns); ``confidence`` and ``right`` (images, 2): the
    true class's probability, clean and occluded.
    """
    if subject.corruptor is None:
        raise NotApplicable("there is no corruption model: only AFAT runs have one; give another with --corruptor FILE")
    if not subject.answers:
        raise NotApplicable(
            "the model's classes are not those of the data, so there is no confidence in the true class"
        )
    parts: Parts = {}
    names = []
    corruptor = subject.corruptor.to(subject.device).eval()
    for batch in subject.batches(subject.some(max(settings.pictures, 6))):
        pixels, ids = subject.clean(batch), list(batch.ids)
        keep = corruptor.keep(subject.model.normalise(pixels), settings.ratio)
        cover = cover_of("normalised", subject.model, pixels, seed=subject.seed, names=[*ids], purpose="patches")
        occluded = occlude(pixels, keep, cover, low=0.0, high=1.0)
        logits = torch.stack([subject.model(pixels), subject.model(occluded)], dim=1)  # B 2 classes
        confidence = logits.softmax(dim=-1).gather(2, batch.targets.view(-1, 1, 1).expand(-1, 2, 1))[..., 0]
        right = logits.argmax(dim=-1) == batch.targets.unsqueeze(1)
        kept = keep[:, 0] > 0.5
        for name, value in (("images", as_bytes(pixels)), ("occluded", as_bytes(occluded))):
            _add(parts, name, value)
        for name, tensor in (("kept", kept), ("confidence", confidence), ("right", right)):
            _add(parts, name, tensor.cpu().numpy())
        names += [str(subject.source.classes[int(target)]) for target in batch.targets]
        tick(len(batch.ids))
    return {"ratio": settings.ratio, "names": names}, _joined(parts)


def run_dilation(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """Arrays: ``images``; ``dilation/<block>`` (images, rows, columns); ``weights`` (blocks, branches), the mean."""
    if not any(isinstance(module, TokenAwarePooling) for module in subject.inner.modules()):
        raise NotApplicable("the model has no token-aware pooling (TAP)")
    parts: Parts = {}
    weights: list[np.ndarray] = []
    for batch in subject.batches(subject.some(settings.pictures)):
        pixels = subject.clean(batch)
        _add(parts, "images", as_bytes(pixels))
        with subject.watched() as seen:
            subject.model(pixels)
        pools = seen.tap_weights()
        for block, weight in enumerate(pools):
            _add(parts, f"dilation/{block}", mean_dilation(weight).cpu().numpy().astype(np.float16))
        weights.append(torch.stack([weight.mean(dim=(2, 3)) for weight in pools], dim=1).cpu().numpy())
        tick(len(batch.ids))
    mean = np.concatenate(weights).mean(axis=0)
    return {"branches": int(mean.shape[1])}, {**_joined(parts), "weights": mean}


def run_gates(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """Arrays: ``images``; ``gates/<block>`` (images, rows, columns): the robustness adapter's share, 0 to 1 (TORA)."""
    model = backbone(subject.model)
    if not isinstance(model, ToraViT):
        raise NotApplicable("the model has no gated adapters (TORA)")
    parts: Parts = {}
    for batch in subject.batches(subject.some(settings.pictures)):
        pixels = subject.clean(batch)
        maps = gate_maps(model, subject.model.normalise(pixels))
        share = maps["rob"] / (maps["acc"] + maps["rob"])  # B blocks rows columns
        _add(parts, "images", as_bytes(pixels))
        for block in range(share.shape[1]):
            _add(parts, f"gates/{block}", share[:, block].cpu().numpy().astype(np.float16))
        tick(len(batch.ids))
    return {"method": model.settings.method}, _joined(parts)


def mean_dilation(weights: Tensor) -> Tensor:
    """Σ dilation · weight of every token, (B, branches, H, W) → (B, H, W): 0 is the token alone."""
    dilations = torch.arange(weights.shape[1], dtype=weights.dtype, device=weights.device)
    return (weights * dilations.view(-1, 1, 1)).sum(dim=1)


def find_corruptor(path: Path | None, folder: Path | None) -> Corruptor | None:
    """The corruption model of a file, else of the run, else none."""
    if path is None:
        path = folder / "corruptor.safetensors" if folder is not None else None
        if path is None or not path.is_file():
            return None
    if not path.is_file():
        raise HoldfastError(f"corruptor must be a file of an AFAT run (corruptor.safetensors), got {str(path)!r}")
    return load_corruptor(path)


def _states(subject: Subject, batch: Batch, settings: Settings) -> dict[str, Tensor]:
    return {"clean": subject.clean(batch), "corrupted": subject.corrupted(batch, settings.cells[0])}


def _keep_maps(parts: Parts, state: str, handles: list[AttentionHandle]) -> None:
    for number, handle in enumerate(handles):
        mean = small_map(handle, window=middle_window(handle))
        _add(parts, f"mean/{state}/{number}", mean.cpu().numpy().astype(np.float16))
    heads = small_map(handles[-1], window=middle_window(handles[-1]), average=False)
    _add(parts, f"heads/{state}", heads.cpu().numpy().astype(np.float16))


def _keep_queries(
    parts: Parts,
    state: str,
    handles: list[AttentionHandle],
    settings: Settings,
    layers: list[dict[str, Any]],
) -> None:
    for number, handle in enumerate(handles):
        if handle.kind == "channel" or handle.grid is None:
            continue
        place = place_of(handle, settings.query)
        looked_at = query_map(handle, place)
        _add(parts, f"query/{state}/{number}", looked_at.cpu().numpy().astype(np.float16))
        layers[number] |= {"query": [place.row, place.column], "queries": list(place.grid)}


def _add(parts: Parts, name: str, array: np.ndarray) -> None:
    parts.setdefault(name, []).append(array)


def _joined(parts: Parts) -> dict[str, np.ndarray]:
    return {name: np.concatenate(rows) for name, rows in parts.items()}
