"""The lab: edit one image (corruptions, occlusion, attacks) and inspect how one or two models react.

`open_model` and `inspect_image` work without a browser; the page of ``holdfast lab`` needs the extra ``lab``.
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
