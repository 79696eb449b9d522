"""A model's answers to eight fixed images: what its weights, settings and code do together, beside their fingerprint.

Records keep them in their header. Whoever goes on with records asks again and compares with a tolerance, because other
threads and devices round differently; what changes answers without changing anything that we can hash is seen here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

IMAGES = 8
VALUES = 32  # of an answer that are kept, spread over it
SINGLE, HALF = 1e-4, 5e-2  # how far answers may be apart, of the largest
OBJECTS = "objects"  # lists of boxes may gain or lose one by rounding: so many images may differ
MAY_DIFFER = {OBJECTS: 2}

Look = Callable[[Tensor], Mapping[str, Any]]


def probe_images(size: tuple[int, int]) -> Tensor:
    """Eight byte images (8, 3, H, W): coloured squares, coarse to fine, with noise; the same everywhere."""
    rng = np.random.RandomState(20261118)  # whose numbers NumPy promises never to change
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
    """What a model answers to the probe images, as plain data for a header.

    Args:
        look: byte images (n, 3, H, W) → answers by view.
        size: height and width of the images.
        device: where the model is.
        tolerance: a model whose two answers to one image are further apart, of the largest, is random.
        batch_size: how many images a model gets whose answers depend on it; all others get two, whatever was asked.
    """
    batches = list(_batches(probe_images(size), batch_size))
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        answers = [_predict_images(look, images)[:count] for images, count in batches]
        again = _predict_images(look, batches[0][0])[: batches[0][1]]
    told = {view: _describe_answers([each[view] for part in answers for each in part]) for view in answers[0][0]}
    first = {view: {**kept, "answers": kept["answers"][: len(again)]} for view, kept in told.items()}
    second = {view: _describe_answers([each[view] for each in again]) for view in told}
    random = any(_count_differences(first[view], second[view], tolerance=tolerance) for view in told)
    return {"device": device.type, "random": random, "views": {} if random else told}


def same_answers(recorded: Any, now: Mapping[str, Any], *, tolerance: float) -> bool:
    """Whether two probes are of one model; those of random models tell nothing more than that they are random."""
    try:
        if recorded["device"] != now["device"]:
            tolerance = HALF  # convolutions on GPUs round to ten bits
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
    """How far two answers of a model may be apart, of the largest: less precise models round more coarsely."""
    kinds = {value.dtype for value in (*model.parameters(), *model.buffers()) if value.is_floating_point()}
    coarse = amp != "no" or kinds & {torch.float16, torch.bfloat16} or depends_on_batch(model)
    return HALF if coarse or any(getattr(each, "coarse", False) for each in model.modules()) else SINGLE


def depends_on_batch(model: nn.Module) -> bool:
    """Whether a model's answers to an image depend on those beside it: int8 layers choose their scale by the batch."""
    return any(
        "quantized.dynamic" in type(module).__module__ or getattr(module, "scales_by_batch", False)
        for module in model.modules()
    )


def _batches(images: Tensor, size: int) -> Iterator[tuple[Tensor, int]]:
    """The images in batches of one size, with how many of each count: the last is filled up with the first images."""
    for part in images.split(size):
        missing = size - len(part)
        filled = images.repeat(-(-missing // len(images)), 1, 1, 1)[:missing]
        yield torch.cat([part, filled]) if missing else part, len(part)


def _predict_images(look: Look, images: Tensor) -> list[dict[str, Any]]:
    """The answers image by image; a model that takes one image at a time gets them so."""
    try:
        parts = [look(images)]
    except Exception:  # whatever a foreign model raises when it is given two
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
    return {"kind": "other", "answers": []}  # of a task of one's own, that we know nothing about


def _of_tensor(answer: Tensor) -> str:
    """The best class, how far it is ahead, the largest value, and some of all values."""
    values = answer.detach().float().cpu().reshape(-1).numpy()
    finite = np.abs(values[np.isfinite(values)])
    best = int(np.nanargmax(values)) if answer.ndim == 1 and not np.isnan(values).all() else -1
    ahead = np.inf if len(values) < 2 else float(np.subtract(*np.sort(np.nan_to_num(values))[[-1, -2]]))
    spread = np.linspace(0, len(values) - 1, min(VALUES, len(values))).astype(int)
    return _line(best, [ahead if best >= 0 else 0.0, finite.max(initial=0.0), *values[spread]])


def _of_objects(answer: Mapping[str, Tensor]) -> str:
    """Sums over the boxes by their scores: of the scores, of the corners and of the classes."""
    scores, boxes, labels = (answer[name].detach().double().cpu() for name in ("scores", "boxes", "labels"))
    sums = [scores.sum(), *(scores @ boxes / 100 if len(scores) else torch.zeros(4)), (scores @ labels) / 10]
    values = np.array([float(value) for value in sums])
    return _line(-1, [0.0, float(np.abs(values).max()), *values])


def _line(best: int, values: Sequence[float]) -> str:
    return " ".join([str(best), *(f"{value:.6g}" for value in values)])


def _count_differences(one: Mapping[str, Any], other: Mapping[str, Any], *, tolerance: float) -> int:
    """How many images were answered differently."""
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
