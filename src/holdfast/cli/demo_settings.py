"""Settings of ``holdfast demo`` per task: embedded images, small models, minutes on two cores."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Overrides = Mapping[str, Any]  # of a recipe


@dataclass(frozen=True)
class Effort:
    """Amount of work of a demo.

    Attributes:
        training: training images.
        validation: validation images.
        epochs: training epochs of every model.
        images: number of test images.
        analysis_images: number of images in the analyses.
        masks: random occlusions per analysed image.
        examples: number of failures whose thumbnails are stored for the report.
    """

    training: str = "digits"
    validation: str = "digits"
    epochs: int = 5
    images: int = 100
    analysis_images: int = 64
    masks: int = 20
    examples: int = 0


@dataclass(frozen=True)
class Demo:
    """Models, data and scores of one task's demo.

    Attributes:
        title: title of the report.
        description: one line printed at the start.
        models: recipe and overrides by model name; the first is the baseline.
        data: the test images, and ``tested`` their name in the table.
        suites: suites of the evaluation.
        columns: headings of the printed scores.
        compared: score of the pairwise comparison with the baseline.
        analyses: names of the analyses; None for all, empty for none.
        full: amount of work, and ``quick`` that of ``--quick``.
        folder: default output folder.
    """

    title: str
    description: str
    models: Mapping[str, tuple[str, Overrides]]
    data: str
    tested: str
    suites: str
    columns: Mapping[str, str]
    compared: str
    full: Effort
    quick: Effort
    analyses: str | None = None
    folder: str = field(default="demo")


ADL: Overrides = {"objective": {"name": "robust", "options": {"adl": {"weight": 1.0, "variant": "paper"}}}}
AFAT: Overrides = {"objective": {"name": "robust", "options": {"afat": {"weight": 0.01, "ratio": 0.1}}}}

CLASSIFICATION = Demo(
    title="Holdfast demo: three ways to train FAN-nano",
    description="3 models on scikit-learn's digits",
    models={
        "baseline": ("digits/fan_nano", {}),
        "tap_adl": ("digits/fan_nano_tap_adl", {}),
        "afat": ("digits/fan_nano_afat", {}),
    },
    data="digits:test",
    tested="test digits",
    suites="clean,corruptions,pgd5-rspc,occlusion-random",
    columns={
        "clean": "clean",
        "mean_corruption_accuracy": "corrupted",
        "retention": "retention",
        "attack/pgd5-rspc": "PGD",
        "attack/occlusion-random": "occlusion",
    },
    compared="mean_corruption_accuracy",
    full=Effort(examples=48),
    quick=Effort(
        "digits:train[0:256]", "digits:val[0:60]", epochs=2, images=20, analysis_images=10, masks=4, examples=24
    ),
)

_SCENES = "scenes/fan_mini"
SEGMENTATION = Demo(
    title="Holdfast demo: three ways to train a segmenter",
    description="3 segmenters on embedded scenes of digits",
    models={
        "baseline": (_SCENES, {}),
        "tap_adl": (_SCENES, {"model": {"kwargs": {"head": "segformer", "tap": "tap"}}, **ADL}),
        "afat": (_SCENES, AFAT),
    },
    data="scenes:test,plain",
    tested="test scenes",
    suites="clean,corruptions,segpgd5",
    columns={
        "clean": "mIoU",
        "mean_corruption_miou": "corrupted",
        "retention": "retention",
        "boundary_iou": "boundary",
        "attack/segpgd5": "SegPGD",
    },
    compared="mean_corruption_miou",
    full=Effort(
        "scenes:train,plain,640", "scenes:val,plain,40", epochs=3, images=24, analysis_images=6, masks=4, examples=24
    ),
    quick=Effort(
        "scenes:train,plain,64", "scenes:val,plain,4", epochs=1, images=4, analysis_images=2, masks=2, examples=8
    ),
    analyses="stability,overfocus,diversity,noise-decay,grouping,maps",
    folder="demo-segmentation",
)

# the smallest Mask R-CNN that still learns in minutes; one size for all images, so that AFAT's published model fits
_SMALL: dict[str, Any] = {
    "encoder": "fan_nano_hybrid",
    "encoder_options": {"patch_size": 16, "trunk_stride": 8, "img_size": 96},
    "kind": "mask",
    "channels": 64,
    "head_width": 256,
    "mask_convs": [64, 64],
    "top_channels": 192,
    "min_size": 64,
    "max_size": 96,
    "fixed_size": [64, 96],
    "proposals": [100, 50],
    "anchors": 128,
    "samples": 32,
    "detections": 20,
}
_WITH_TAP = {**_SMALL, "encoder_options": {**_SMALL["encoder_options"], "tap": "tap"}}
_OBJECTS = "scene_objects/mask_fan_nano_hybrid"
_ONCE: Overrides = {"data": {"val_subset": None}, "train": {"eval_epochs": 2}}  # validated at the end alone
DETECTION = Demo(
    title="Holdfast demo: three ways to train a detector",
    description="3 small Mask R-CNN on embedded scenes of digits",
    models={
        "baseline": (_OBJECTS, {"model": {"kwargs": _SMALL}, **_ONCE}),
        "tap_adl": (_OBJECTS, {"model": {"kwargs": _WITH_TAP}, **_ONCE, **ADL}),
        "afat": (_OBJECTS, {"model": {"kwargs": _SMALL}, **_ONCE, **AFAT}),
    },
    data="scene-objects:test,plain,64x96",
    tested="test scenes",
    suites="clean,coco-c",
    columns={
        "clean": "box AP",
        "mpc": "box mPC",
        "rpc": "box rPC",
        "mask_clean": "mask AP",
        "mask_mpc": "mask mPC",
    },
    compared="mpc",
    full=Effort(
        "scene-objects:train,plain,64x96,800", "scene-objects:val,plain,64x96,40", epochs=2, images=16, examples=24
    ),
    quick=Effort(
        "scene-objects:train,plain,64x96,32", "scene-objects:val,plain,64x96,4", epochs=1, images=3, examples=6
    ),
    analyses="",
    folder="demo-detection",
)

DEMOS = {"classification": CLASSIFICATION, "segmentation": SEGMENTATION, "detection": DETECTION}
