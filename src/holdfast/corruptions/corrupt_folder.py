"""Corrupt a folder of images: parallel and resumable, each file written atomically.

The target mirrors the source as ``<kind>/<severity>/<path>``. The id of an image is its relative path, so its
corruption depends on no other file. Existing files are not made again.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image as Pillow

from holdfast._version import __version__
from holdfast.corruptions.apply import FUNCTIONS, corrupt_batch, prepare
from holdfast.corruptions.custom import Registered, know, registered
from holdfast.corruptions.filters import Image
from holdfast.corruptions.frost_textures import recorded_name, texture_source
from holdfast.corruptions.severities import own_kinds
from holdfast.errors import HoldfastError, first_line
from holdfast.io import atomic
from holdfast.io.folder_index import index_folder
from holdfast.io.images import check_exif, decode
from holdfast.runtime.plugins import code_fingerprint
from holdfast.runtime.signals import exit_with_parent

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
MANIFEST = "manifest.json"
_ENDINGS = {".png": b"IEND\xaeB`\x82", ".jpg": b"\xff\xd9"}  # the last bytes of a complete file


@dataclass(frozen=True)
class KindAtSeverity:
    """One corruption kind at one severity."""

    kind: str
    severity: int


@dataclass(frozen=True)
class FolderSettings:
    """Settings that determine the bytes of a corrupted folder. ``quality`` None: PNG, else JPEG."""

    seed: int = 0
    preset: str = "any"
    quality: int | None = None
    textures: str | None = None
    exif: str = "ignore"

    @property
    def suffix(self) -> str:
        """File suffix of the corrupted images."""
        return ".png" if self.quality is None else ".jpg"

    def name(self, relative: str) -> str:
        """The path of a corrupted file within its severity's folder; a suffix of the right format stays."""
        path = Path(relative)
        same = (".png",) if self.quality is None else (".jpg", ".jpeg")
        return relative if path.suffix.lower() in same else path.with_suffix(self.suffix).as_posix()

    def place(self, cell: KindAtSeverity) -> Path:
        """The folder of a cell within the target."""
        return Path(recorded_name(cell.kind, self.textures), str(cell.severity))


@dataclass(frozen=True)
class Outcome:
    """Result for one image: the number of files written, the number that existed, and any error."""

    relative: str
    written: int = 0
    found: int = 0
    error: str | None = None
    turned: bool = False  # whether its EXIF data specify a rotation


class CannotWrite(HoldfastError):
    """The target folder cannot be written, so the run must stop."""


def find_images(source: Path) -> list[str]:
    """Relative POSIX paths of all images in a folder and its subfolders, sorted."""
    if not source.is_dir():
        raise HoldfastError(f"source: expected a folder of images, got {str(source)!r}")
    found = sorted(name for name in index_folder(source, SUFFIXES, links=False).names if not _is_hidden(name))
    if not found:
        raise HoldfastError(f"source: expected images ({', '.join(SUFFIXES)}) in {str(source)!r}, found none")
    return found


def _is_hidden(relative: str) -> bool:
    return relative.rpartition("/")[2].startswith(".")


def corrupt_folder(
    source: Path,
    target: Path,
    *,
    cells: Sequence[KindAtSeverity],
    settings: FolderSettings,
    workers: int = 1,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    run: Callable[..., Iterator[Outcome]] | None = None,
) -> list[Outcome]:
    """Corrupt all images of a folder; images that cannot be read are reported, not fatal.

    ``run`` replaces the local workers: it gets source, target, images, cells and settings, and yields an `Outcome` for
    each image.
    """
    images = check_folder(source, target, settings)
    with _write_errors(target):
        manifest = _first_manifest(target, cells, settings)
        target.mkdir(parents=True, exist_ok=True)
        _save_manifest(target / MANIFEST, manifest)
        atomic.remove_leftovers(target.rglob(".*.tmp"))
    outcomes = []
    for outcome in (run or partial(_run_workers, workers=workers))(source, target, images, tuple(cells), settings):
        outcomes.append(outcome)
        on_outcome(outcome)
    outcomes.sort(key=lambda outcome: outcome.relative)
    with _write_errors(target):
        _save_manifest(target / MANIFEST, read_manifest(target) | _summarise_outcomes(outcomes))
    return outcomes


def check_folder(source: Path, target: Path, settings: FolderSettings) -> list[str]:
    """The images of a folder; raises an error for a bad source or target before anything is written."""
    if target.resolve().is_relative_to(source.resolve()):
        raise HoldfastError(f"target: expected a folder outside of {str(source)!r}, got {str(target)!r}")
    images = find_images(source)
    _check_names(images, settings)
    check_exif(settings.exif)
    texture_source(settings.textures)
    return images


def corrupt_file(
    source: Path, target: Path, relative: str, cells: Sequence[KindAtSeverity], settings: FolderSettings
) -> Outcome:
    """Decode one image once and write all its cells that do not exist yet."""
    missing = {cell: target / settings.place(cell) / settings.name(relative) for cell in cells}
    missing = {cell: path for cell, path in missing.items() if not is_complete(path, settings)}
    turned = False
    try:
        if missing:
            picture, turned = decode(source / relative, exif=settings.exif)
            image = prepare(picture, settings.preset)
        for cell, path in missing.items():
            corrupted = _corrupt_image(image, relative, cell, settings)
            with _write_errors(target):
                _write(corrupted, path, settings)
    except CannotWrite:
        raise
    except HoldfastError as error:
        return Outcome(relative, error=first_line(error))
    except MemoryError:
        return Outcome(relative, error="not enough memory for this image")
    return Outcome(relative, written=len(missing), found=len(cells) - len(missing), turned=turned)


def is_complete(path: Path, settings: FolderSettings) -> bool:
    """Whether a file exists and is complete: after a power failure, a file renamed into place may be truncated."""
    ending = _ENDINGS[settings.suffix]
    try:
        with path.open("rb") as file:
            file.seek(-len(ending), os.SEEK_END)
            return file.read() == ending
    except OSError:  # missing, or shorter than that
        return False


@contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise CannotWrite(
            f"target: {str(target)!r} cannot be written ({reason}); solve that and rerun to resume"
        ) from error


def _corrupt_image(image: Image, relative: str, cell: KindAtSeverity, settings: FolderSettings) -> Image:
    return corrupt_batch(
        [image],
        cell.kind,
        ids=[relative],
        severity=cell.severity,
        preset=settings.preset,
        seed=settings.seed,
        textures=settings.textures,
    )[0]


def _write(image: Image, path: Path, settings: FolderSettings) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.replace_unsynced(path) as part:
        if settings.quality is None:
            Pillow.fromarray(image).save(part, "PNG", compress_level=1)
        else:
            Pillow.fromarray(image).save(part, "JPEG", quality=settings.quality, optimize=True)


def _run_workers(
    source: Path,
    target: Path,
    images: list[str],
    cells: tuple[KindAtSeverity, ...],
    settings: FolderSettings,
    workers: int,
) -> Iterator[Outcome]:
    if workers == 1:
        for relative in images:
            yield corrupt_file(source, target, relative, cells, settings)
        return
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_begin_worker, initargs=(registered(),)
    ) as pool:
        waiting: set[Future[Outcome]] = set()
        try:
            for relative in images:
                waiting.add(pool.submit(corrupt_file, source, target, relative, cells, settings))
                if len(waiting) >= 4 * workers:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in waiting)
        except BrokenProcessPool:
            raise HoldfastError(
                "workers: one of them died, perhaps out of memory; rerun to resume, with fewer --workers"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_worker(own: Sequence[Registered]) -> None:
    cv2.setNumThreads(1)  # the worker processes already use all cores
    exit_with_parent()
    know(own)


def _check_names(images: list[str], settings: FolderSettings) -> None:
    first: dict[str, str] = {}
    for relative in images:
        other = first.setdefault(settings.name(relative), relative)
        if other != relative:
            raise HoldfastError(
                f"source: {other!r} and {relative!r} would both be written as {settings.name(relative)!r}: rename one"
            )


def _versions() -> dict[str, str]:
    libraries = {"numpy": np.__version__, "scipy": version("scipy"), "pillow": Pillow.__version__}
    return {"holdfast": __version__, **libraries, "opencv": cv2.__version__}


def _first_manifest(target: Path, cells: Sequence[KindAtSeverity], settings: FolderSettings) -> dict[str, Any]:
    """The manifest of the folder; raises an error for a folder that was made with other settings."""
    path = target / MANIFEST
    ours = asdict(settings)
    if settings.exif == "ignore":
        del ours["exif"]
    ours.pop("textures")  # only whether the photographs are the published ones matters, not where they are
    if any(cell.kind == "frost" for cell in cells):
        ours["frost"] = recorded_name("frost", settings.textures)
    for kind in sorted({cell.kind for cell in cells} & {*own_kinds()}):
        ours[f"code of {kind}"] = code_fingerprint(FUNCTIONS[kind])
    names = sorted({f"{recorded_name(cell.kind, settings.textures)}/{cell.severity}" for cell in cells})
    if path.exists():
        before = read_manifest(target)
        requested = {"exif": "ignore", **ours}
        wrong = {name: before[name] for name in requested if name in before and before[name] != requested[name]}
        if wrong:
            name, value = next(iter(wrong.items()))
            raise HoldfastError(
                f"target: {str(target)!r} was made with {name} {value}, not {requested[name]}; name another folder"
            )
        names = sorted({*before.get("cells", []), *names})
        ours = {**before, **ours}
    return {**ours, "cells": names, "versions": _versions(), "finished": False}


def read_manifest(target: Path) -> dict[str, Any]:
    """The manifest of a folder made by ``holdfast corrupt``."""
    path = target / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, ValueError, RecursionError) as error:
        raise HoldfastError(
            f"target: {str(path)!r} is damaged; delete it if you know the folder's settings, or name another folder"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("cells", []), list):
        raise HoldfastError(f"target: {str(path)!r} is not the manifest of a corrupted folder; name another folder")
    return content


def _summarise_outcomes(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    failed = {outcome.relative: outcome.error for outcome in outcomes if outcome.error}
    return {"images": len(outcomes), "failed": failed, "finished": True}


def _save_manifest(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    with atomic.replace_unsynced(path) as part:
        part.write_bytes(text.encode("utf-8", "surrogateescape"))  # file names need not be UTF-8
