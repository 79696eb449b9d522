"""Data of an inspection for the templates: images, predictions, attention."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from holdfast.analysis.query_maps import place_of, query_map, received_map, small_map
from holdfast.attention import AttentionHandle
from holdfast.lab.inspect import ImagePrediction, Inspection, focus_of, probabilities, right
from holdfast.lab.opened_model import OpenedModel
from holdfast.models.sliding_window import predicted_map
from holdfast.plotting import annotate
from holdfast.plotting.class_colours import hex_colour
from holdfast.tasks.examples.base import class_name
from holdfast.tasks.examples.boxes import SCORE

TOP = 5
BOXES_SIDE = 400  # pixels to which small images are enlarged, so that the names of boxes are legible
MOST_BOXES = 50


def shots(inspection: Inspection) -> dict[str, Any]:
    """Images before and after, and their amplified difference."""
    before, after = (annotate.shrunk(seen.bytes) for seen in (inspection.before, inspection.after))
    changed, gain = annotate.difference(annotate.shrunk(inspection.aligned.bytes), after)
    return {
        "before": annotate.data_url(before),
        "after": annotate.data_url(after),
        "difference": annotate.data_url(changed),
        "gain": f"{gain:.3g}",
        "size": list(before.shape[:2]),
    }


def answers(inspection: Inspection) -> dict[str, Any]:
    """Predictions before and after, by view; for dense tasks also images of them."""
    views: list[dict[str, Any]] = [
        {
            "name": view,
            "words": VIEWS.get(view, ""),
            "before": _prediction_data(inspection, inspection.before, view),
            "after": _prediction_data(inspection, inspection.after, view),
        }
        for view in inspection.after.answers
    ]
    return {
        "words": _SCORES.get(inspection.opened.task.name, ""),
        "views": views,
        "verdict": verdict(views[0]["before"], views[0]["after"], changed=inspection.after is not inspection.before),
        "pictures": [_titled_image(title, image) for title, image in drawn_answers(inspection)],
        "legend": _legend(inspection) if inspection.opened.task.evaluation.label_maps else [],
    }


def _prediction_data(inspection: Inspection, seen: ImagePrediction, view: str) -> dict[str, Any]:
    prediction: dict[str, Any] = {"right": right(inspection, seen, view), "top": []}
    if inspection.opened.task.scoring.one_class:
        prediction["top"] = top_classes(
            inspection.opened, probabilities(seen.answers[view][0]), inspection.picture.target
        )
    return prediction


def top_classes(opened: OpenedModel, chances: np.ndarray, target: Any) -> list[dict[str, Any]]:
    """The five best classes."""
    order = np.argsort(-chances, kind="stable")[:TOP]
    return [{"name": opened.classes[n], "chance": float(chances[n]), "true": n == target} for n in order.tolist()]


def verdict(before: Mapping[str, Any], after: Mapping[str, Any], *, changed: bool) -> dict[str, Any]:
    """Summary in one line: the prediction before and after, and whether it flipped."""
    return {"before": _headline(before), "after": _headline(after), "changed": changed, **_outcome(before, after)}


def _headline(prediction: Mapping[str, Any]) -> dict[str, str]:
    if prediction["top"]:
        return {"name": prediction["top"][0]["name"], "value": f"{100 * prediction['top'][0]['chance']:.1f} %"}
    return {"name": "" if prediction["right"] is None else f"{100 * prediction['right']:.1f} %", "value": ""}


def _outcome(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    if not after["top"]:
        lost = 0 if after["right"] is None else 100 * (before["right"] - after["right"])
        return {"state": "bad" if lost > 5 else "even", "words": f"{-lost:+.1f} points" if round(lost, 1) else ""}
    flips = before["top"][0]["name"] != after["top"][0]["name"]
    if after["right"] is None:
        return {"state": "bad" if flips else "even", "words": "flips" if flips else "holds"}
    words = {(1, 1): "right", (1, 0): "flips", (0, 1): "flips to correct", (0, 0): "wrong"}
    return {"state": "good" if after["right"] else "bad", "words": words[bool(before["right"]), bool(after["right"])]}


def drawn_answers(inspection: Inspection) -> list[tuple[str, np.ndarray]]:
    """Titled images of a dense prediction; empty for classification."""
    draw = _DRAWN.get(inspection.opened.task.name)
    return draw(inspection) if draw is not None else []


def _maps(inspection: Inspection) -> list[tuple[str, np.ndarray]]:
    """Label maps of the first view and their errors."""
    true, images = inspection.picture.target, []
    for title, seen in (("before", inspection.before), ("after", inspection.after)):
        labels = _labels(inspection, seen)
        images.append((f"labels, {title}", annotate.label_map(labels)))
        if true is not None:
            image = seen.bytes if seen.bytes.shape[:2] == true.shape else np.full((*true.shape, 3), 255, np.uint8)
            wrong = (labels != true) & (true != annotate.UNLABELLED)
            images.append((f"errors, {title}", np.asarray(annotate.errors_over(Image.fromarray(image), wrong))))
    if true is not None:
        images.insert(0, ("labels, true", annotate.label_map(np.asarray(true))))
    return images


def _labels(inspection: Inspection, seen: ImagePrediction) -> np.ndarray:
    true = inspection.picture.target
    size = true.shape if true is not None else seen.bytes.shape[:2]
    return predicted_map(next(iter(seen.answers.values()))[0], size, cell="the lab")


def _legend(inspection: Inspection) -> list[dict[str, str]]:
    """Names and colours of the classes on the maps."""
    maps = [_labels(inspection, seen) for seen in (inspection.before, inspection.after)]
    if inspection.picture.target is not None:
        maps.append(np.asarray(inspection.picture.target))
    found = sorted(set(np.unique(np.concatenate([each.ravel() for each in maps])).tolist()) - {255})
    names = dict(enumerate(inspection.opened.classes))
    return [{"name": names.get(n, str(n)), "colour": hex_colour(n)} for n in found]


def _boxes(inspection: Inspection) -> list[tuple[str, np.ndarray]]:
    names, found = inspection.opened.classes, []
    for title, seen in (("boxes, before", inspection.before), ("boxes, after", inspection.after)):
        first = next(iter(seen.answers.values()))[0]
        boxes, labels, scores = (first[name].numpy(force=True) for name in ("boxes", "labels", "scores"))
        sure = np.flatnonzero(scores >= SCORE)[:MOST_BOXES]
        labels = labels[sure] - 1  # a detector counts classes from 1
        words = [f"{class_name(n, names)} {score:.2f}" for n, score in zip(labels, scores[sure], strict=True)]
        found.append((title, _with_boxes(seen.bytes, boxes[sure], labels, words)))
    if (true := inspection.picture.target) is None:
        return found
    words = [class_name(int(label), names) for label in true.labels]
    return [("boxes, true", _with_boxes(inspection.before.bytes, true.boxes, true.labels, words)), *found]


def _with_boxes(image: np.ndarray, boxes: np.ndarray, labels: np.ndarray, words: Sequence[str]) -> np.ndarray:
    """Draw boxes on an image, enlarged if it is small, so that their names are legible."""
    scale = max(1, BOXES_SIDE // max(image.shape[:2]))
    picture = Image.fromarray(image).resize((scale * image.shape[1], scale * image.shape[0]), Image.Resampling.NEAREST)
    return np.asarray(
        annotate.draw_boxes(picture, image.shape[:2], boxes, labels, np.zeros((0, 1, 1), bool), names=words)
    )


def _titled_image(title: str, image: np.ndarray) -> dict[str, str]:
    return {"title": title, "url": annotate.data_url(annotate.shrunk(image))}


VIEWS = {"joint": "gated, the model's prediction", "acc": "accuracy adapters only", "rob": "robustness adapters only"}
_SCORES = {"segmentation": "of labelled pixels correct", "detection": "F1"}
_DRAWN: Mapping[str, Callable[[Inspection], list[tuple[str, np.ndarray]]]] = {
    "segmentation": _maps,
    "detection": _boxes,
}


# ---------------------------------------------------------------------------------------------- attention


def choose_layer_and_head(inspection: Inspection, layer: int, head: int) -> tuple[int, int | None]:
    """Clamp layer and head to existing ones; −1 is the last layer, and the mean of the heads."""
    layers = len(inspection.after.attention)
    layer = layers - 1 if not 0 <= layer < layers else layer
    heads = inspection.after.attention[layer].q.shape[1]
    return layer, head if 0 <= head < heads else None


def attention(inspection: Inspection, *, layer: int, head: int) -> dict[str, Any] | None:
    """One layer's attention before and after: received attention, stability, effective tokens, top share."""
    if not inspection.after.attention:
        return None
    number, one = choose_layer_and_head(inspection, layer, head)
    handles = [seen.attention[number] for seen in (inspection.aligned, inspection.after)]
    maps = [received_attention(handle, one) for handle in handles]
    focus = [focus_of(seen, number) for seen in (inspection.aligned, inspection.after)]
    return {
        **_heats(maps),
        "grid": _grid(handles[1]),
        "layer": number,
        "layers": len(inspection.after.attention),
        "head": -1 if one is None else one,
        "heads": int(handles[1].q.shape[1]),
        "unit": "channels" if handles[1].kind == "channel" else "tokens",
        "stability": _of_head(inspection.layer_stability(number), one),
        "effective": [_of_head(each.effective_tokens[0], one) for each in focus],
        "top_share": [_of_head(each.top_share[0], one) for each in focus],
    }


def token_row(inspection: Inspection, *, layer: int, head: int, row: float, column: float) -> dict[str, Any] | None:
    """Attention map of one token before and after; its position is given in fractions of the image."""
    if not inspection.after.attention:
        return None
    number, one = choose_layer_and_head(inspection, layer, head)
    handles = [seen.attention[number] for seen in (inspection.aligned, inspection.after)]
    if _grid(handles[1]) is None:
        return None
    places = [place_of(handle, (min(max(row, 0), 1), min(max(column, 0), 1))) for handle in handles]
    maps = [query_map(h, p, head=one)[0].cpu().numpy() for h, p in zip(handles, places, strict=True)]
    return {**_heats(maps), "row": places[1].row, "column": places[1].column, "grid": list(places[1].grid)}


def _heats(maps: list[np.ndarray]) -> dict[str, Any]:
    low, high = bounds(maps)
    before, after = (annotate.data_url(annotate.heat(each, low=low, high=high)) for each in maps)
    return {"before": before, "after": after, "low": f"{low:.3g}", "high": f"{high:.3g}"}


def bounds(maps: Sequence[np.ndarray]) -> tuple[float, float]:
    """Common minimum and maximum of several maps, for a shared colour scale."""
    return float(min(each.min() for each in maps)), float(max(each.max() for each in maps))


def received_attention(handle: AttentionHandle, head: int | None) -> np.ndarray:
    """Attention that every token receives; for channel attention the whole map."""
    if _grid(handle) is not None:
        return received_map(handle, head=head)[0].cpu().numpy()
    whole = small_map(handle, average=head is None)[0]
    return (whole if head is None else whole[head]).cpu().numpy()


def _grid(handle: AttentionHandle) -> list[int] | None:
    grid = handle.image_grid if handle.kind == "window" else handle.grid
    return [int(side) for side in grid] if handle.kind in ("token", "window") and grid is not None else None


def _of_head(values: torch.Tensor, head: int | None) -> float:
    return float(values[head] if head is not None and head < len(values) else values.mean())


def inside(inspection: Inspection, *, layer: int, head: int) -> dict[str, Any]:
    """The slower part: stability of every layer, FAN's channel gates, TORA's gate maps."""
    found: dict[str, Any] = {"layers": [], "pictures": []}
    if inspection.cosines:
        number, one = choose_layer_and_head(inspection, layer, head)
        values = [_of_head(each.flattened[0], one) for each in inspection.cosines]
        found |= {"layers": values, "chosen": number, "stability": inspection.stability, "floor": _floor(values)}
        found["pictures"] += _channel_gates(inspection, number)
    if inspection.gates is not None:
        found["pictures"] += _gate_maps(inspection, layer)
    return found


def _floor(values: Sequence[float]) -> float:
    """Lower end of the bars, chosen so that differences are visible."""
    return max(floor for floor in (0.0, 0.5, 0.8, 0.9, 0.95, 0.99) if floor <= max(0.0, min(values) - 1e-3))


def _channel_gates(inspection: Inspection, layer: int) -> list[dict[str, str]]:
    before, after = inspection.aligned.channel_gates(), inspection.after.channel_gates()
    if not before:
        return []
    number = min(layer, len(before) - 1)
    a, b = (gates[number][0].float().cpu() for gates in (before, after))
    cosine = float(torch.nn.functional.cosine_similarity(a, b, dim=0))
    rows = torch.stack([a, b]).numpy()
    low, high = bounds([rows])
    title = f"channel attention of block {number + 1}, before above, after below: cosine {cosine:.4f}, dark {low:.4g}, "
    shades = annotate.heat(rows, low=low, high=high).repeat(12, axis=0)
    return [{"title": f"{title}bright {high:.4g}", "url": annotate.data_url(shades), "form": "wide"}]


def _gate_maps(inspection: Inspection, layer: int) -> list[dict[str, str]]:
    """TORA's gate before and after on one colour scale, symmetric around ½."""
    assert inspection.gates is not None
    blocks = len(inspection.gates[0])
    number = layer if 0 <= layer < blocks else blocks - 1
    maps = [share[number].cpu().numpy() for share in inspection.gates]
    reach = max(0.005, *(float(np.abs(each - 0.5).max()) for each in maps))
    title = f"robustness adapter's share in block {number + 1}"
    return [
        {
            "title": f"{title}, {when}: {each.mean():.3f} (blue {0.5 - reach:.2g}, white ½, red {0.5 + reach:.2g})",
            "url": annotate.data_url(annotate.shares(0.5 + (each - 0.5) / (2 * reach))),
            "form": "map",
        }
        for when, each in zip(("before", "after"), maps, strict=True)
    ]
