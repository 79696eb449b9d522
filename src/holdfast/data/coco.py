"""COCO, and your own data in its format: ``coco:IMAGES,ANNOTATIONS``.

Labels are the ranks of the category ids, which have gaps in COCO (80 ids from 1 to 90). Crowds, images without objects
and grey images are kept: all of them count in the evaluation.
"""

import json
from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
from faster_coco_eval.core import mask as coco_masks
from PIL import Image

from holdfast.data.detection_targets import Objects, Rle
from holdfast.data.image_folder import decode_file
from holdfast.errors import HoldfastError

FORM = "coco:IMAGES,ANNOTATIONS"


class CocoSource:
    """A folder of images with an annotation file; the id of an image is its path relative to the folder."""

    task = "detection"

    def __init__(self, folder: Path, annotations: Path) -> None:
        self.root = folder
        self._file = annotations.name
        if not folder.is_dir():
            raise HoldfastError(f"IMAGES of {FORM} must be a folder, got {str(folder)!r}")
        content = _read_annotations(annotations)
        # COCO annotates 80 of its 91 categories: labels are ranks, and category_ids maps predictions back
        categories = sorted(content["categories"], key=lambda category: category["id"])
        self.category_ids = tuple(int(category["id"]) for category in categories)
        self.classes = tuple(str(category.get("name", category["id"])) for category in categories)
        self._label_of = {number: label for label, number in enumerate(self.category_ids)}
        self._images = sorted(content["images"], key=lambda image: image["id"])
        self._check_images()
        self._found = self._group_by_image(content["annotations"])

    def __len__(self) -> int:
        return len(self._images)

    def id(self, index: int) -> str:
        """The file's path relative to the folder."""
        return str(self._images[index]["file_name"])

    def image(self, index: int) -> Image.Image:
        """Decode one file; its size must match the annotations."""
        id = self.id(index)
        image = decode_file(self.root / id, id=id)
        height, width = self.size(index)
        if image.size != (width, height):
            raise HoldfastError(
                f"image {id!r} must have the size {height}×{width} that {self._file} gives it, "
                f"got {image.size[1]}×{image.size[0]}"
            )
        return image

    def size(self, index: int) -> tuple[int, int]:
        """Height and width according to the annotations."""
        return int(self._images[index]["height"]), int(self._images[index]["width"])

    def target(self, index: int) -> Objects:
        """The annotated objects of one image."""
        rows, size = self._found[self._images[index]["id"]], self.size(index)
        boxes = np.array([row["bbox"] for row in rows], np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]  # COCO stores x, y, width, height; Objects x0, y0, x1, y1
        masked = all("segmentation" in row for row in rows)
        return Objects(
            size,
            boxes,
            np.array([self._label_of[row["category_id"]] for row in rows], np.int64),
            np.array([row.get("area", row["bbox"][2] * row["bbox"][3]) for row in rows], np.float64),
            np.array([bool(row.get("iscrowd", 0)) for row in rows], bool),
            tuple(self._mask(row, size) for row in rows) if masked else None,
        )

    def _group_by_image(self, annotations: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
        sizes = {image["id"]: self.size(index) for index, image in enumerate(self._images)}
        found: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in annotations:
            _check(row, sizes=sizes, categories=self._label_of, file=self._file)
            if not row.get("ignore", 0):
                found[row["image_id"]].append(row)
        if not any(not row.get("iscrowd", 0) for rows in found.values() for row in rows):
            raise HoldfastError(f"{self._file} must annotate at least one object, got none")
        return found

    def _check_images(self) -> None:
        for what, values in (
            ("categories", self.category_ids),
            ("images", [image["id"] for image in self._images]),
            ("file names of images", [str(image["file_name"]) for image in self._images]),
        ):
            if len(set(values)) != len(values):
                raise HoldfastError(f"{what} of {self._file} must be unique, got duplicates")
            if not values:
                raise HoldfastError(f"{self._file} must have {what}, got none")
        for image in self._images:
            name = str(image["file_name"])
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise HoldfastError(f"file_name of {self._file} must be a path below the image folder, got {name!r}")
            for side in ("height", "width"):
                if not _is_whole(image[side]) or image[side] < 1:
                    raise HoldfastError(
                        f"{side} of image {name!r} in {self._file} must be a number of pixels, got {image[side]!r}"
                    )

    def _mask(self, row: dict[str, Any], size: tuple[int, int]) -> Rle:
        outline = row["segmentation"]
        try:
            if isinstance(outline, list):
                return coco_masks.merge(coco_masks.frPyObjects(outline, *size))
            return coco_masks.frPyObjects(outline, *size) if isinstance(outline["counts"], list) else outline
        except (TypeError, ValueError, KeyError, RuntimeError) as error:
            raise HoldfastError(f"segmentation of {_name(row, self._file)} cannot be read ({error})") from error


def open_coco(rest: str, *, split: str) -> CocoSource:
    """Open ``coco:IMAGES,ANNOTATIONS``; ``split`` is ignored, so name other files for validation."""
    folder, comma, annotations = rest.rpartition(",")
    if not comma or not folder or not annotations:
        raise HoldfastError(f"data 'coco:{rest}' must name a folder and a file, as in {FORM}")
    return CocoSource(Path(folder).expanduser(), Path(annotations).expanduser())


def _read_annotations(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not JSON"
        raise HoldfastError(f"ANNOTATIONS of {FORM} must be a JSON file, got {str(path)!r} ({reason})") from error
    for key, needed in (
        ("images", {"id", "file_name", "height", "width"}),
        ("categories", {"id"}),
        ("annotations", set()),
    ):
        rows = content.get(key) if isinstance(content, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise HoldfastError(
                f"{path.name} must hold the lists images, categories and annotations, but {key} is missing or no list"
            )
        for row in rows:
            if needed - row.keys():
                raise HoldfastError(f"{key} of {path.name} must have {', '.join(sorted(needed))}, got {sorted(row)}")
        ids = [row["id"] for row in rows if "id" in needed]
        named = key == "images" and all(isinstance(id, str) for id in ids)  # not in COCO itself
        if wrong := [] if named else [id for id in ids if not _is_whole(id)]:
            raise HoldfastError(f"ids of {key} in {path.name} must be whole numbers, got {wrong[0]!r}")
    return content


def _check(row: dict[str, Any], *, sizes: dict[int, tuple[int, int]], categories: dict[int, int], file: str) -> None:
    """Raise an error for an invalid annotation; boxes of zero area are valid, since COCO itself has some."""
    missing = {"image_id", "category_id", "bbox"} - row.keys()
    if missing:
        raise HoldfastError(f"{_name(row, file)} must have {', '.join(sorted(missing))}")
    if not isinstance(row["image_id"], Hashable) or row["image_id"] not in sizes:
        raise HoldfastError(f"{_name(row, file)} must refer to an image in the file, got image {row['image_id']!r}")
    if not isinstance(row["category_id"], Hashable) or row["category_id"] not in categories:
        raise HoldfastError(f"{_name(row, file)} must refer to a category in the file, got {row['category_id']!r}")
    box = row["bbox"]
    numbers = isinstance(box, list) and len(box) == 4 and all(isinstance(v, int | float) for v in box)
    if not numbers or not np.isfinite(box).all() or min(box[2:]) < 0:
        raise HoldfastError(f"bbox of {_name(row, file)} must be x, y, width and height, none negative, got {box!r}")
    area = row.get("area", 0)
    if isinstance(area, bool) or not isinstance(area, int | float) or not 0 <= area < np.inf:
        raise HoldfastError(f"area of {_name(row, file)} must be a number of pixels, 0 or more, got {area!r}")
    _check_outline(row, size=sizes[row["image_id"]], file=file)


def _check_outline(row: dict[str, Any], *, size: tuple[int, int], file: str) -> None:
    outline = row.get("segmentation")
    if outline is None:
        row.pop("segmentation", None)
    elif isinstance(outline, dict):
        if tuple(outline.get("size", ())) != size:
            raise HoldfastError(
                f"mask of {_name(row, file)} must have its image's size {size[0]}×{size[1]}, got {outline.get('size')}"
            )
        lengths = counted_lengths(outline.get("counts"))
        if lengths is None or min(lengths, default=0) < 0 or sum(lengths) != size[0] * size[1]:
            raise HoldfastError(
                f"counts of the mask of {_name(row, file)} must be run lengths of {size[0]}×{size[1]} pixels in all"
            )
    elif not isinstance(outline, list) or not outline or not all(map(_is_polygon, outline)):
        raise HoldfastError(f"polygons of {_name(row, file)} must have three points or more, as x, y, x, y …")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()


def _is_polygon(part: Any) -> bool:
    numbers = isinstance(part, list) and all(isinstance(v, int | float) for v in part)
    return numbers and len(part) >= 6 and len(part) % 2 == 0 and bool(np.isfinite(part).all())


def counted_lengths(counts: Any) -> list[int] | None:
    """Run lengths of a mask, plain or in COCO's compressed text; None if it is neither.

    The decoder of the library reads beyond its memory where they do not add up to the image.
    """
    if isinstance(counts, list):
        whole = all(isinstance(count, int) and not isinstance(count, bool) for count in counts)
        return counts if whole else None
    if not isinstance(counts, str) or not counts.isascii():
        return None
    found: list[int] = []
    value, shift = 0, 0
    for letter in counts:  # six bits a letter from "0": five of the number, little end first, and whether it goes on
        bits = ord(letter) - 48
        if not 0 <= bits < 64 or shift > 30:
            return None
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        value -= (1 << shift) if bits & 16 else 0  # the last five bits have the sign
        found.append(value + (found[-2] if len(found) > 2 else 0))  # from the fourth on, differences to two before
        value, shift = 0, 0
    return found if shift == 0 else None


def _name(row: dict[str, Any], file: str) -> str:
    return f"annotation {row.get('id', '?')} of {file}"
