"""The lab: watch one image break through one model or two, and see why. ``holdfast lab`` is its page.

`open_model` and `inspect_image` are the pure part and need nothing but Holdfast; the page needs the extra ``lab``.
"""

from holdfast._deprecated import renamed
from holdfast.lab.edits import Edits, parse_edits
from holdfast.lab.inspect import ImagePrediction, Inspection, LabImage, inspect_image, probabilities, right
from holdfast.lab.opened_model import OpenedModel, open_model

__all__ = [
    "Edits",
    "ImagePrediction",
    "Inspection",
    "LabImage",
    "OpenedModel",
    "inspect_image",
    "open_model",
    "parse_edits",
    "probabilities",
    "right",
]

__getattr__ = renamed(__name__)
