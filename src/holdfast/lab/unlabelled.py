"""Images without labels in the lab: flat folders, and data whose classes are not those of the model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.corruptions.corrupt_folder import find_images
from holdfast.data.image_folder import EXTENSIONS


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Images of a source without their targets.

    Attributes:
        source: the source of the images.
        task: the task of the model.
        classes: names of the model's classes.
        reason: why the labels are not used, as a sentence.
    """

    source: Any
    task: str
    classes: tuple[str, ...]
    reason: str

    @property
    def prepared(self) -> Any:
        """Height and width of images that come preprocessed."""
        return getattr(self.source, "prepared", None)

    def __len__(self) -> int:
        return len(self.source)

    def id(self, index: int) -> str:
        """The stable id of one image."""
        return str(self.source.id(index))

    def image(self, index: int) -> Any:
        """One image, RGB."""
        return self.source.image(index)


def flat_images(spec: Any) -> tuple[Path, ...]:
    """The images of ``folder:DIR`` without class folders; empty for all other data."""
    kind, _, rest = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    folder = Path(rest).expanduser()
    if kind != "folder" or not rest or not folder.is_dir() or any(each.is_dir() for each in folder.iterdir()):
        return ()
    return tuple(folder / name for name in find_images(folder) if Path(name).suffix.lower() in EXTENSIONS)
