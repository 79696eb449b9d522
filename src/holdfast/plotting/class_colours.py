"""Colours of classes on label maps, masks and boxes: a class has one colour in reports, overlays and the lab."""

import numpy as np

# Okabe and Ito's colour-blind safe palette without black, then lighter and darker colours; further classes repeat them
PALETTE = np.array(
    [
        (0, 114, 178), (213, 94, 0), (0, 158, 115), (240, 228, 66), (204, 121, 167), (86, 180, 233), (230, 159, 0),
        (136, 34, 85), (17, 119, 51), (51, 34, 136), (170, 68, 153), (153, 153, 51), (102, 17, 0), (136, 204, 238),
    ],
    dtype=np.uint8,
)  # fmt: skip


def class_colour(number: int) -> tuple[int, int, int]:
    """RGB colour of a class, counted from 0."""
    red, green, blue = PALETTE[number % len(PALETTE)].tolist()
    return red, green, blue


def hex_colour(number: int) -> str:
    """Colour of a class for HTML, ``#0072b2``."""
    return "#{:02x}{:02x}{:02x}".format(*class_colour(number))
