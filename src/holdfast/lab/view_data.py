"""What the page shows of a look, as plain data: pictures, answers, attention. The templates make text of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from holdfast.analysis.query_maps import place_of, query_map, received_map, small_map
from holdfast.attention import AttentionHandle
from holdfast.lab.inspect import ImagePrediction, Inspection, focus_of, probabilities, right
from holdfast.lab.opened_model import OpenedModel
from holdfast.models.sliding_window import predicted_map
from holdfast.plotting import annotate

TOP = 5


def shots(look: Inspection) -> dict[str, Any]:
    """Before, after and their difference."""
    before, after = (annotate.shrunk(seen.bytes) for seen in (look.before, look.after))
    changed, gain = annotate.difference(annotate.shrunk(look.aligned.bytes), after)
    return {
        "before": annotate.data_url(before),
        "after": annotate.data_url(after),
        "difference": annotate.data_url(changed),
        "gain": f"{gain:.3g}",
        "size": list(before.shape[:2]),
    }


def answers(look: Inspection) -> dict[str, Any]:
    """What the model says, before and after, view by view; and pictures of it, where it says more than a class."""
    views: list[dict[str, Any]] = [
        {
            "name": view,
            "words": VIEWS.get(view, ""),
            "before": _prediction_data(look, look.before, view),
            "after": _prediction_data(look, look.after, view),
        }
        for view in look.after.answers
    ]
    return {
        "words": _SCORES.get(look.lens.task.name, ""),
        "views": views,
        "verdict": verdict(views[0]["before"], views[0]["after"], changed=look.after is not look.before),
        "pictures": [_titled_image(title, image) for title, image in drawn_answers(look)],
        "legend": _legend(look) if look.lens.task.name == "segmentation" else [],
    }


def _prediction_data(look: Inspection, seen: ImagePrediction, view: str) -> dict[str, Any]:
    said: dict[str, Any] = {"right": right(look, seen, view), "top": []}
    if look.lens.task.name == "classification":
        said["top"] = top_classes(look.lens, probabilities(seen.answers[view][0]), look.picture.target)
    return said


def top_classes(lens: OpenedModel, chances: np.ndarray, target: Any) -> list[dict[str, Any]]:
    """The five best classes."""
    order = np.argsort(-chances, kind="stable")[:TOP]
    return [{"name": lens.classes[n], "chance": float(chances[n]), "true": n == target} for n in order.tolist()]


def verdict(before: Mapping[str, Any], after: Mapping[str, Any], *, changed: bool) -> dict[str, Any]:
    """All of it in one line: the answer before and after, and what became of it."""
    return {"before": _headline(before), "after": _headline(after), "changed": changed, **_became(before, after)}


def _headline(said: Mapping[str, Any]) -> dict[str, str]:
    if said["top"]:
        return {"name": said["top"][0]["name"], "value": f"{100 * said['top'][0]['chance']:.1f} %"}
    return {"name": "" if said["right"] is None else f"{100 * said['right']:.1f} %", "value": ""}


def _became(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    if not after["top"]:
        lost = 0 if after["right"] is None else 100 * (before["right"] - after["right"])
        return {"state": "bad" if lost > 5 else "even", "words": f"{-lost:+.1f} points" if round(lost, 1) else ""}
    flips = before["top"][0]["name"] != after["top"][0]["name"]
    if after["right"] is None:
        return {"state": "bad" if flips else "even", "words": "flips" if flips else "holds"}
    words = {(1, 1): "right", (1, 0): "flips", (0, 1): "flips, to the right one", (0, 0): "wrong"}
    return {"state": "good" if after["right"] else "bad", "words": words[bool(before["right"]), bool(after["right"])]}


def drawn_answers(look: Inspection) -> list[tuple[str, np.ndarray]]:
    """Pictures of an answer that is more than a class, with their titles."""
    draw = _DRAWN.get(look.lens.task.name)
    return draw(look) if draw is not None else []


def _maps(look: Inspection) -> list[tuple[str, np.ndarray]]:
    """Label maps and their errors, of the first view."""
    true, shown = look.picture.target, []
    for title, seen in (("before", look.before), ("after", look.after)):
        labels = _labels(look, seen)
        shown.append((f"labels, {title}", annotate.label_map(labels)))
        if true is not None:
            image = seen.bytes if seen.bytes.shape[:2] == true.shape else np.full((*true.shape, 3), 255, np.uint8)
            shown.append((f"errors, {title}", annotate.errors(labels, true, image)))
    if true is not None:
        shown.insert(0, ("labels, true", annotate.label_map(np.asarray(true))))
    return shown


def _labels(look: Inspection, seen: ImagePrediction) -> np.ndarray:
    true = look.picture.target
    size = true.shape if true is not None else seen.bytes.shape[:2]
    return predicted_map(next(iter(seen.answers.values()))[0], size, cell="a look")


def _legend(look: Inspection) -> list[dict[str, str]]:
    """The classes that are on the maps, and their colours."""
    maps = [_labels(look, seen) for seen in (look.before, look.after)]
    if look.picture.target is not None:
        maps.append(np.asarray(look.picture.target))
    found = sorted(set(np.unique(np.concatenate([each.ravel() for each in maps])).tolist()) - {255})
    names = dict(enumerate(look.lens.classes))
    return [{"name": names.get(n, str(n)), "colour": annotate.colour_of(n)} for n in found]


def _boxes(look: Inspection) -> list[tuple[str, np.ndarray]]:
    seen = (("boxes, before", look.before), ("boxes, after", look.after))
    found = [
        (title, annotate.boxes(one.bytes, next(iter(one.answers.values()))[0], look.lens.classes))
        for title, one in seen
    ]
    if (true := look.picture.target) is None:
        return found
    objects = {"boxes": true.boxes, "labels": true.labels + 1, "scores": None}
    return [("boxes, true", annotate.boxes(look.before.bytes, objects, look.lens.classes)), *found]


def _titled_image(title: str, image: np.ndarray) -> dict[str, str]:
    return {"title": title, "url": annotate.data_url(annotate.shrunk(image))}


VIEWS = {"joint": "gated, as it is used", "acc": "accuracy adapters alone", "rob": "robustness adapters alone"}
_SCORES = {"segmentation": "of the labelled pixels", "detection": "F1"}
_DRAWN: Mapping[str, Callable[[Inspection], list[tuple[str, np.ndarray]]]] = {
    "segmentation": _maps,
    "detection": _boxes,
}


# ---------------------------------------------------------------------------------------------- attention


def choose_layer_and_head(look: Inspection, layer: int, head: int) -> tuple[int, int | None]:
    """The layer and head that there are; −1 is the last layer, and the mean of the heads."""
    layers = len(look.after.attention)
    layer = layers - 1 if not 0 <= layer < layers else layer
    heads = look.after.attention[layer].q.shape[1]
    return layer, head if 0 <= head < heads else None


def attention(look: Inspection, *, layer: int, head: int) -> dict[str, Any] | None:
    """One layer's attention before and after: what tokens receive, its stability, effective tokens, top share."""
    if not look.after.attention:
        return None
    number, one = choose_layer_and_head(look, layer, head)
    handles = [seen.attention[number] for seen in (look.aligned, look.after)]
    maps = [received_attention(handle, one) for handle in handles]
    focus = [focus_of(seen, number) for seen in (look.aligned, look.after)]
    return {
        **_heats(maps),
        "grid": _grid(handles[1]),
        "layer": number,
        "layers": len(look.after.attention),
        "head": -1 if one is None else one,
        "heads": int(handles[1].q.shape[1]),
        "unit": "channels" if handles[1].kind == "channel" else "tokens",
        "stability": _of_head(look.layer_stability(number), one),
        "effective": [_of_head(each.effective_tokens[0], one) for each in focus],
        "top_share": [_of_head(each.top_share[0], one) for each in focus],
    }


def token_row(look: Inspection, *, layer: int, head: int, row: float, column: float) -> dict[str, Any] | None:
    """Where one token looks, before and after; its place is given in shares of the image."""
    if not look.after.attention:
        return None
    number, one = choose_layer_and_head(look, layer, head)
    handles = [seen.attention[number] for seen in (look.aligned, look.after)]
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
    """What the colours of maps that are shown side by side reach from and to."""
    return float(min(each.min() for each in maps)), float(max(each.max() for each in maps))


def received_attention(handle: AttentionHandle, head: int | None) -> np.ndarray:
    """What every token receives; of channels the whole small map."""
    if _grid(handle) is not None:
        return received_map(handle, head=head)[0].cpu().numpy()
    whole = small_map(handle, average=head is None)[0]
    return (whole if head is None else whole[head]).cpu().numpy()


def _grid(handle: AttentionHandle) -> list[int] | None:
    grid = handle.image_grid if handle.kind == "window" else handle.grid
    return [int(side) for side in grid] if handle.kind in ("token", "window") and grid is not None else None


def _of_head(values: torch.Tensor, head: int | None) -> float:
    return float(values[head] if head is not None and head < len(values) else values.mean())


def inside(look: Inspection, *, layer: int, head: int) -> dict[str, Any]:
    """What takes a little longer: stability of every layer, FAN's channel gates, TORA's gate maps."""
    found: dict[str, Any] = {"layers": [], "pictures": []}
    if look.cosines:
        number, one = choose_layer_and_head(look, layer, head)
        values = [_of_head(each.flattened[0], one) for each in look.cosines]
        found |= {"layers": values, "chosen": number, "stability": look.stability, "floor": _floor(values)}
        found["pictures"] += _channel_gates(look, number)
    if look.gates is not None:
        found["pictures"] += _gate_maps(look, layer)
    return found


def _floor(values: Sequence[float]) -> float:
    """Where bars begin, so that their differences are seen."""
    return max(floor for floor in (0.0, 0.5, 0.8, 0.9, 0.95, 0.99) if floor <= max(0.0, min(values) - 1e-3))


def _channel_gates(look: Inspection, layer: int) -> list[dict[str, str]]:
    before, after = look.aligned.channel_gates(), look.after.channel_gates()
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


def _gate_maps(look: Inspection, layer: int) -> list[dict[str, str]]:
    """TORA's gate, before and after in the same colours, which reach as far from ½ as the gate does."""
    assert look.gates is not None
    blocks = len(look.gates[0])
    number = layer if 0 <= layer < blocks else blocks - 1
    maps = [share[number].cpu().numpy() for share in look.gates]
    reach = max(0.005, *(float(np.abs(each - 0.5).max()) for each in maps))
    said = f"robustness adapter's share in block {number + 1}"
    return [
        {
            "title": f"{said}, {when}: {each.mean():.3f} (blue {0.5 - reach:.2g}, white ½, red {0.5 + reach:.2g})",
            "url": annotate.data_url(annotate.shares(0.5 + (each - 0.5) / (2 * reach))),
            "form": "map",
        }
        for when, each in zip(("before", "after"), maps, strict=True)
    ]
