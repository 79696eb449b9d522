"""A corruption that worker processes import without anything heavy."""

import numpy as np


def rolled(images, draws, *, by):
    """Red becomes green, green blue, blue red, so that the brightest channel is another one."""
    return np.roll(images, by, axis=-1)


ROLLED = [{"by": by} for by in (0, 0, 0, 1, 1)]  # harmless up to severity 3
