"""Makes docs/images/corruptions.jpg and c-bar.jpg: every kind at 5 severities on one photograph, preset imagenet.

Also home.jpg, the fifteen common kinds at severity 3. Run ``python docs/tools/make_gallery.py [corruptions.jpg]
[c-bar.jpg] [home.jpg]``. Frost is our procedural stand-in: the photographs have no clear licence.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_image

from holdfast.corruptions import ALL, EXTRA, PUBLISHED, SEVERITIES, corrupt, keyed, prepare, recorded_name
from holdfast.corruptions.severities import STANDARD

CELL, GAP, LABEL, HEADER = 128, 3, 150, 26
IMAGES = Path(__file__).parents[1] / "images"
HOME = "home.jpg"
SHEETS = {"corruptions.jpg": ALL, "c-bar.jpg": PUBLISHED[len(ALL) :]}


def main() -> None:
    """Draw all sheets, or those that are named."""
    for name in sys.argv[1:] or [*SHEETS, HOME]:
        if name == HOME:
            draw_home(IMAGES / name)
        else:
            draw_sheet(["clean", *SHEETS[name]], IMAGES / name)


def draw_home(target: Path, severity: int = 3) -> None:
    """Draw the photograph and its fifteen common corruptions in four rows, with labels that a phone can show."""
    photograph = prepare(Image.fromarray(load_sample_image("china.jpg")), "imagenet")
    size, gap, line = 224, 6, 34
    sheet = Image.new("RGB", (4 * size + 3 * gap, 4 * (size + line)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(24)
    for number, kind in enumerate(["clean", *STANDARD]):
        place = ((number % 4) * (size + gap), (number // 4) * (size + line))
        picture = photograph if kind == "clean" else corrupted(photograph, kind, severity)
        draw.text((place[0] + 4, place[1] + 2), kind.replace("_", " "), "black", font)
        sheet.paste(Image.fromarray(picture), (place[0], place[1] + line))
    save(sheet, target)


def save(sheet: Image.Image, target: Path) -> None:
    """Save a sheet and print its size."""
    target.parent.mkdir(exist_ok=True)
    sheet.save(target, quality=87, optimize=True)
    print(f"{target.name}: {sheet.size[0]}×{sheet.size[1]}, {target.stat().st_size / 1e6:.2f} MB")


def draw_sheet(cells: Sequence[str], target: Path) -> None:
    """Draw two columns of rows."""
    rows = -(-len(cells) // 2)
    photograph = prepare(Image.fromarray(load_sample_image("china.jpg")), "imagenet")
    block = LABEL + len(SEVERITIES) * (CELL + GAP) + 14
    sheet = Image.new("RGB", (2 * block, HEADER + rows * (CELL + GAP)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    for number, kind in enumerate(cells):
        left, top = block * (number // rows), HEADER + (number % rows) * (CELL + GAP)
        draw.text((left + 8, top + CELL // 2 - 18), label(kind), "black", font)
        for column, severity in enumerate(SEVERITIES):
            place = (left + LABEL + column * (CELL + GAP), top)
            if number % rows == 0:
                draw.text((place[0] + CELL // 2 - 4, 4), str(severity), "black", font)
            if kind != "clean" or severity == 1:
                picture = Image.fromarray(photograph if kind == "clean" else corrupted(photograph, kind, severity))
                sheet.paste(picture.resize((CELL, CELL), Image.Resampling.LANCZOS), place)
    save(sheet, target)


def corrupted(photograph: np.ndarray, kind: str, severity: int) -> np.ndarray:
    """One cell."""
    draws = keyed(0, "china", kind, severity)
    return corrupt(photograph, kind, severity=severity, preset="imagenet", rng=draws, textures="procedural")


def label(kind: str) -> str:
    """The name under which results are kept, and whether it is an extra."""
    name = recorded_name(kind, "procedural").replace("_", "\n").replace("(", "\n(")
    return f"{name}\n(extra)" if kind in EXTRA else name


if __name__ == "__main__":
    main()
