"""Output probe: a model's outputs for eight fixed images, which records store beside its fingerprint.

An evaluation that resumes records computes them again and compares with a tolerance, because other threads and devices
round differently. The probe detects changes of the outputs that no hash of weights, settings and code shows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

IMAGES = 8
VALUES = 32  # stored values per output, evenly spread
SINGLE, HALF = 1e-4, 5e-2  # tolerances relative to the largest value
OBJECTS = "objects"  # rounding may add or remove a box, so some images may differ
MAY_DIFFER = {OBJECTS: 2}

Look = Callable[[Tensor], Mapping[str, Any]]


def probe_images(size: tuple[int, int]) -> Tensor:
    """Eight uint8 images (8, 3, H, W): coloured squares, coarse to fine, with noise; the same on every machine."""
    rng = np.random.RandomState(20261118)  # NumPy guarantees that its stream never changes
    rows, columns = np.arange(size[0]), np.arange(size[1])
    images = []
    for number in range(IMAGES):
        side = 2 << number % 4
        squares = rng.randint(0, 224, (3, side, side))
        picture = squares[:, (rows * side // size[0])[:, None], columns * side // size[1]]
        images.append(picture + rng.randint(0, 32, picture.shape))
    return torch.from_numpy(np.stack(images).astype(np.uint8))


def probe_answers(
    look: Look, size: tuple[int, int], *, device: torch.device, tolerance: float, batch_size: int = 2
) -> dict[str, Any]:
    """A model's outputs for the probe images, as plain data for a header.

    Args:
        look: uint8 images (n, 3, H, W) → outputs by view.
        size: height and width of the images.
        device: the model's device.
        tolerance: relative difference of two outputs for one image above which the model counts as random.
        batch_size: batch size for models whose outputs depend on it; all others get two images at a time.
    """
    batches = list(_batches(probe_images(size), batch_size))
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        answers = [_predict_images(look, images)[:count] for images, count in batches]
        again = _predict_images(look, batches[0][0])[: batches[0][1]]
    described = {view: _describe_answers([each[view] for part in answers for each in part]) for view in answers[0][0]}
    first = {view: {**kept, "answers": kept["answers"][: len(again)]} for view, kept in described.items()}
    second = {view: _describe_answers([each[view] for each in again]) for view in described}
    random = any(_count_differences(first[view], second[view], tolerance=tolerance) for view in described)
    return {"device": device.type, "random": random, "views": {} if random else described}


def same_answers(recorded: Any, now: Mapping[str, Any], *, tolerance: float) -> bool:
    """Whether two probes are of the same model; for random models, only whether both are random."""
    try:
        if recorded["device"] != now["device"]:
            tolerance = HALF  # convolutions on GPUs use TF32, with ten bits of mantissa
        if recorded["random"] != now["random"] or recorded["views"].keys() != now["views"].keys():
            return False
        pairs = [(recorded["views"][view], now["views"][view]) for view in now["views"]]
        return all(
            one["kind"] == other["kind"]
            and _count_differences(one, other, tolerance=tolerance) <= MAY_DIFFER.get(one["kind"], 0)
            for one, other in pairs
        )
    except (KeyError, TypeError, ValueError, AttributeError):  # a damaged header
        return False


def tolerance_of(model: nn.Module, *, amp: str) -> float:
    """The relative tolerance of a model's outputs, by its precision."""
    kinds = {value.dtype for value in (*model.parameters(), *model.buffers()) if value.is_floating_point()}
    coarse = amp != "no" or kinds & {torch.float16, torch.bfloat16} or depends_on_batch(model)
    return HALF if coarse or any(getattr(each, "coarse", False) for each in model.modules()) else SINGLE


def depends_on_batch(model: nn.Module) -> bool:
    """Whether a model's outputs depend on the batch: dynamic int8 layers compute their scale from it."""
    return any(
        "quantized.dynamic" in type(module).__module__ or getattr(module, "scales_by_batch", False)
        for module in model.modules()
    )


def _batches(images: Tensor, size: int) -> Iterator[tuple[Tensor, int]]:
    """Batches of one size, with the number of images that count: the last is filled up with the first images."""
    for part in images.split(size):
        missing = size - len(part)
        filled = images.repeat(-(-missing // len(images)), 1, 1, 1)[:missing]
        yield torch.cat([part, filled]) if missing else part, len(part)


def _predict_images(look: Look, images: Tensor) -> list[dict[str, Any]]:
    """The outputs image by image; a model that fails on two images gets one at a time."""
    try:
        parts = [look(images)]
    except Exception:  # a user's model may raise anything when it gets two
        parts = [look(image[None]) for image in images]
    return [
        {view: answers[number] for view, answers in part.items()}
        for part in parts
        for number in range(len(next(iter(part.values()))))
    ]


def _describe_answers(answers: Sequence[Any]) -> dict[str, Any]:
    first = answers[0]
    if isinstance(first, Tensor):
        return {"kind": "tensor", "answers": [_of_tensor(answer) for answer in answers]}
    if isinstance(first, Mapping) and {"boxes", "scores", "labels"} <= first.keys():
        return {"kind": OBJECTS, "answers": [_of_objects(answer) for answer in answers]}
    return {"kind": "other", "answers": []}  # a user-defined task, of unknown output


def _of_tensor(answer: Tensor) -> str:
    """The best class, its margin, the largest value, and a sample of the values."""
    values = answer.detach().float().cpu().reshape(-1).numpy()
    finite = np.abs(values[np.isfinite(values)])
    best = int(np.nanargmax(values)) if answer.ndim == 1 and not np.isnan(values).all() else -1
    ahead = np.inf if len(values) < 2 else float(np.subtract(*np.sort(np.nan_to_num(values))[[-1, -2]]))
    spread = np.linspace(0, len(values) - 1, min(VALUES, len(values))).astype(int)
    return _line(best, [ahead if best >= 0 else 0.0, finite.max(initial=0.0), *values[spread]])


def _of_objects(answer: Mapping[str, Tensor]) -> str:
    """Score-weighted sums over the boxes: of scores, corners and classes."""
    scores, boxes, labels = (answer[name].detach().double().cpu() for name in ("scores", "boxes", "labels"))
    sums = [scores.sum(), *(scores @ boxes / 100 if len(scores) else torch.zeros(4)), (scores @ labels) / 10]
    values = np.array([float(value) for value in sums])
    return _line(-1, [0.0, float(np.abs(values).max()), *values])


def _line(best: int, values: Sequence[float]) -> str:
    return " ".join([str(best), *(f"{value:.6g}" for value in values)])


def _count_differences(one: Mapping[str, Any], other: Mapping[str, Any], *, tolerance: float) -> int:
    """The number of images with different outputs."""
    pairs = zip(one["answers"], other["answers"], strict=True)
    return sum(not _alike(ours.split(), theirs.split(), tolerance=tolerance) for ours, theirs in pairs)


def _alike(one: Sequence[str], other: Sequence[str], *, tolerance: float) -> bool:
    ours, theirs = (np.array(list(map(float, words))) for words in (one, other))
    if ours.shape != theirs.shape:
        return False
    near = tolerance * max(ours[2], theirs[2])
    tied = min(ours[1], theirs[1]) <= 2 * near
    if ours[0] != theirs[0] and not tied:
        return False
    with np.errstate(invalid="ignore"):
        same = (np.abs(ours - theirs) <= near) | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    return bool(same[3:].all())
