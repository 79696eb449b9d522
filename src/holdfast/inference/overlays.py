"""Prediction overlays: a PNG file per image, and an animated WebP of all images (FAN, Figure 8)."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, features

from holdfast.errors import HoldfastError
from holdfast.io import atomic

SIDE = 480  # longest side of a frame of the film, in pixels
QUALITY = 80


def overlay_paths(images: Sequence[Path], given: Sequence[str | Path], folder: Path) -> list[Path]:
    """Paths of the overlays: the images' names and subfolders below ``folder``, as PNG files."""
    roots = [Path(each).expanduser() for each in given]
    found = [(folder / _relative(image, roots)).with_suffix(".png") for image in images]
    taken = {image.resolve() for image in images}
    for path in found:
        if path.resolve() in taken:
            raise HoldfastError(f"overlays must be another folder than the images': {str(path)!r} would be overwritten")
        if found.count(path) > 1:
            raise HoldfastError(f"images must differ in more than their extension: two overlays would be {str(path)!r}")
    return found


def _relative(image: Path, roots: Sequence[Path]) -> Path:
    inside = next((root for root in roots if root.is_dir() and image.is_relative_to(root)), None)
    return image.relative_to(inside) if inside is not None else Path(image.name)


def write_overlay(path: Path, overlay: Image.Image) -> None:
    """Write one overlay as PNG, atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(path) as unfinished:
            overlay.save(unfinished, format="PNG", optimize=True)
    except OSError as error:
        raise HoldfastError(f"overlays must be a folder we can write to, got {str(path.parent)!r}") from error


def check_film(path: Path) -> None:
    """Raise an error if the film cannot be written, before anything is computed."""
    if path.suffix.lower() != ".webp":
        raise HoldfastError(f"film must be a file that ends with .webp, got {str(path)!r}")
    if path.is_dir() or not path.parent.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder {str(path.parent)!r}"
        raise HoldfastError(f"film must be a file we can write, got {str(path)!r} ({reason})")
    if not features.check("webp"):
        raise HoldfastError("film needs Pillow with WebP support; run: pip install --upgrade pillow")


def film_frame(picture: Image.Image, overlay: Image.Image) -> Image.Image:
    """Place the picture beside its overlay, at most 480 pixels each."""
    both = []
    for each in (picture.convert("RGB"), overlay.convert("RGB")):
        small = each.copy()
        small.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
        both.append(small)
    frame = Image.new("RGB", (both[0].width + both[1].width, both[0].height))
    frame.paste(both[0], (0, 0))
    frame.paste(both[1], (both[0].width, 0))
    return frame


def write_film(path: Path, frames: Sequence[Image.Image], *, fps: float) -> None:
    """Write an endless animated WebP of all frames, at the size of the first."""
    first = frames[0]
    alike = [frame if frame.size == first.size else frame.resize(first.size) for frame in frames]
    try:
        with atomic.replace_file(path) as unfinished:
            first.save(
                unfinished,
                format="WEBP",
                save_all=True,
                append_images=alike[1:],
                duration=round(1000 / fps),
                loop=0,
                quality=QUALITY,
            )
    except OSError as error:
        raise HoldfastError(f"film must be a file we can write, got {str(path)!r} ({error})") from error
