"""The lab: watch one image break through one model or two, and see why. ``holdfast lab`` is its page.

`open_lens` and `look` are the pure part and need nothing but Holdfast; the page needs the extra ``lab``.
"""

from holdfast.lab.damage import Damage, parse_damage
from holdfast.lab.lens import Lens, open_lens
from holdfast.lab.look import Glance, Look, Picture, look, probabilities, right

__all__ = [
    "Damage",
    "Glance",
    "Lens",
    "Look",
    "Picture",
    "look",
    "open_lens",
    "parse_damage",
    "probabilities",
    "right",
]
