"""Makes docs/images/corruptions.jpg: 19 kinds at 5 severities on one photograph, preset imagenet.

Run ``python docs/tools/make_gallery.py``. Frost is our procedural stand-in: the photographs have no clear licence.
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_image

from holdfast.corruptions import ALL, SEVERITIES, STANDARD, corrupt, keyed, prepare, recorded_name

CELL, GAP, LABEL, HEADER = 128, 3, 150, 26
ROWS = 10
TARGET = Path(__file__).parents[1] / "images" / "corruptions.jpg"


def main() -> None:
    """Draw two columns of rows, the extras last."""
    photograph = prepare(Image.fromarray(load_sample_image("china.jpg")), "imagenet")
    block = LABEL + len(SEVERITIES) * (CELL + GAP) + 14
    sheet = Image.new("RGB", (2 * block, HEADER + ROWS * (CELL + GAP)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    cells = ["clean", *ALL]
    for number, kind in enumerate(cells):
        left, top = block * (number // ROWS), HEADER + (number % ROWS) * (CELL + GAP)
        draw.text((left + 8, top + CELL // 2 - 18), label(kind), "black", font)
        for column, severity in enumerate(SEVERITIES):
            place = (left + LABEL + column * (CELL + GAP), top)
            if number % ROWS == 0:
                draw.text((place[0] + CELL // 2 - 4, 4), str(severity), "black", font)
            if kind != "clean" or severity == 1:
                picture = Image.fromarray(photograph if kind == "clean" else corrupted(photograph, kind, severity))
                sheet.paste(picture.resize((CELL, CELL), Image.Resampling.LANCZOS), place)
    TARGET.parent.mkdir(exist_ok=True)
    sheet.save(TARGET, quality=87, optimize=True)
    print(f"{TARGET.name}: {sheet.size[0]}×{sheet.size[1]}, {TARGET.stat().st_size / 1e6:.2f} MB")


def corrupted(photograph: np.ndarray, kind: str, severity: int) -> np.ndarray:
    """One cell."""
    draws = keyed(0, "china", kind, severity)
    return corrupt(photograph, kind, severity=severity, preset="imagenet", rng=draws, textures="procedural")


def label(kind: str) -> str:
    """The name under which results are kept, and whether it is an extra."""
    name = recorded_name(kind, "procedural").replace("_", "\n").replace("(", "\n(")
    return name if kind in ("clean", *STANDARD) else f"{name}\n(extra)"


if __name__ == "__main__":
    main()
