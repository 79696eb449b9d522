"""The one reading of a model's spec: ``timm:NAME[@FILE]``, ``run:DIR``, ``local-dir:DIR``, ``python:…``."""

from pathlib import Path
from typing import NamedTuple

FORMS = {
    "run": "run:DIR",
    "timm": "timm:NAME[@CHECKPOINT]",
    "local-dir": "local-dir:DIR",
    "python": "python:module:function",
}


class ModelSpec(NamedTuple):
    """A spec's two parts; of a text that is none, ``kind`` is empty and ``rest`` the text."""

    kind: str
    rest: str

    @property
    def architecture(self) -> str:
        """The timm name, without a checkpoint's file and without the tag of the pretrained weights."""
        return self.rest.partition("@")[0].partition(".")[0]

    @property
    def folder(self) -> Path | None:
        """The folder of ``run:DIR``, or of a plain path that is one; None for any other model."""
        if self.kind == "run":
            return Path(self.rest).expanduser()
        return Path(self.rest) if not self.kind and Path(self.rest).is_dir() else None


def model_spec(text: str) -> ModelSpec:
    """What a text says about a model."""
    kind, _, rest = text.partition(":")
    return ModelSpec(kind, rest) if kind in FORMS and rest else ModelSpec("", text)
