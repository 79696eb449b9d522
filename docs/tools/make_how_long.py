"""Makes the tables of how-long.md from what perf/costs.py has stored: ``python docs/tools/make_how_long.py``."""

import json
import re
from pathlib import Path

from holdfast.io.markdown import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-long.md"
TABLE = ROOT / "perf" / "results" / "costs.json"
CELLS = 76  # the clean images, and 15 kinds × 5 severities
MODELS = {
    "deit_tiny_patch16_224": "DeiT-T",
    "deit_small_patch16_224": "DeiT-S",
    "deit_base_patch16_224": "DeiT-B",
    "fan_tiny_8_p4_hybrid": "FAN-T-Hybrid",
    "fan_base_16_p4_hybrid": "FAN-B-Hybrid",
}
ATTACKS = {"fgsm": "FGSM", "pgd5": "PGD-5", "occlusion-random": "occlusion, 10 masks"}
DENSE = {
    "SegFormer head on FAN-T-Hybrid, 1024×2048": ("Cityscapes-C, 500 images", 500),
    "Mask R-CNN on FAN-T-Hybrid, 480×640": ("COCO-C, 5,000 images", 5000),
}
WORKERS = (1, 8, 64)


def page() -> str:
    """The page with its tables."""
    stored = json.loads(TABLE.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("costs", _costs(stored)), ("sets", _sets(stored["cases"]))):
        body = "\n".join([f"<!-- {name} -->", *lines, f"<!-- /{name} -->"])
        text = re.sub(rf"<!-- {name} -->.*?<!-- /{name} -->", lambda _, body=body: body, text, flags=re.DOTALL)
    return text


def _costs(stored: dict) -> list[str]:
    cases, machine = stored["cases"], stored["environment"]
    load = max(case["load"] for case in cases.values())
    making = {
        **{f"{name}, 224 px": cases[name] for name in ("corruptions", "perturbations")},
        "corruptions, 32 px": cases["vit_nano, 32 px"],
        **{f"{cases[name]['suite']}, {name.rpartition(', ')[2]}": cases[name] for name in _dense(cases)},
    }
    models = {
        "ViT-nano, 32 px": cases["vit_nano, 32 px"],
        **{f"{label}, 224 px": cases[name] for name, label in MODELS.items()},
        **{name: cases[name] for name in _dense(cases)},
    }
    attacked = cases["deit_tiny_patch16_224"]
    attacks = [(label, cases[name]["attacking"]) for name, label in ATTACKS.items()]
    return [
        f"Processor time of one thread on one core ({machine['processor']}), while the load of the machine was up to",
        f"{load:.0f}. Making an image means decoding it once and corrupting it for all cells of the suite.",
        "",
        table(
            ("suite", "cells", "making an image for all cells"),
            [(name, str(case["cells"]), _time(case["making"])) for name, case in making.items()],
        ),
        "",
        table(("model", "one forward pass"), [(name, _time(_look(case))) for name, case in models.items()]),
        "",
        table(
            ("attack on one image, DeiT-T", "time", "in forward passes"),
            [(label, _time(took), f"{took / _look(attacked):.0f}") for label, took in attacks],
        ),
    ]


def _sets(cases: dict) -> list[str]:
    making = cases["corruptions"]["making"]
    rows = {
        f"ImageNet-C on the fly, 50,000 images, {label}": 50_000 * (making + CELLS * _look(cases[name]))
        for name, label in MODELS.items()
    }
    for name in _dense(cases):
        label, images = DENSE[name]
        rows[f"{label}, {name.split(',')[0]}"] = images * (cases[name]["making"] + cases[name]["looking"])
    workers = [f"{count} worker{'s' if count > 1 else ''}" for count in WORKERS]
    body = [(label, *(_time(seconds / count) for count in WORKERS)) for label, seconds in rows.items()]
    return [table(("what", *workers), body)]


def _dense(cases: dict) -> list[str]:
    return [name for name in DENSE if name in cases]


def _look(case: dict) -> float:
    return case["looking"] / case["cells"]


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms" if seconds < 0.01 else f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.0f} h"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
