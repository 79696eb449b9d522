"""Shipped recipes at a size that takes seconds: few and narrow blocks, small images; all else is the recipe's own.

:func:`train_recipes` trains every recipe that is named, one after the other in one group of processes.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import timm
from safetensors.torch import save_file

from holdfast.training.accelerator import engine
from holdfast.training.loop import train
from holdfast.training.recipe import Recipe, TrainRecipe
from holdfast.training.recipe_files import load_recipe, merge

DETECTOR = {
    "channels": 8,
    "head_width": 16,
    "mask_convs": [8],
    "min_size": 64,
    "max_size": 96,
    "proposals": [20, 20],
    "samples": 16,
    "anchors": 32,
}
LABEL_MAPS = ("scenes", "camvid", "cityscapes")
OF_SEGMENTER = {
    "data": {"train": "scenes:train,64x64,8", "val": "scenes:val,64x64,2"},
    "augment": {"joint": {"crop": [64, 64], "box": None}},
    "train": {"steps": 2},
}


def pictures(folder: Path) -> str:
    """Eight images of noise of two classes."""
    rng = np.random.default_rng(0)
    np.savez(folder / "pictures.npz", x=rng.integers(0, 256, (8, 40, 40, 3), dtype=np.uint8), y=np.arange(8) % 2)
    return f"npz:{folder / 'pictures.npz'}"


def shrunken_model(model: str) -> dict:
    """Arguments by which a model is small."""
    if model == "detector":  # whose encoder is
        return {}
    if "swin" in model:
        return {"depths": [1, 1, 1, 1], "embed_dim": 16, "num_heads": [1, 2, 4, 8]}
    if "rvt" in model:
        stages = 2 if "tiny" in model else 1
        return {"depths": [1] * stages, "masked_blocks": 1, "embed_dims": [32] * stages, "num_heads": [2] * stages}
    if "resnet" in model or "resnext" in model:
        return {"layers": [1, 1, 1, 1]}
    if "convit" in model:
        return {"depth": 2, "local_up_to_layer": 1, "embed_dim": 8, "num_heads": 4}
    if "deit" in model:
        return {"depth": 1, "embed_dim": 32, "num_heads": 2}
    if "fan" in model:
        kwargs = {"depth": 1, "embed_dim": 32, "num_heads": 2, "feature_block": 0}
        kwargs |= {"depth": 4} if "p16" in model else {}  # three of whose blocks a segmenter looks at
        return kwargs | ({"tail": [64, 1, 4]} if "Xlarge" in model else {})
    return {"depth": 1}


def shrunken(name: str, data: str, folder: Path) -> dict:
    """What makes a recipe small, as overrides; ``data`` are classified images, ``folder`` takes starting weights."""
    recipe = load_recipe(name)
    size = 32 if "nano" in (recipe.model.name or "nano") else 64
    train = {"batch_size": 4, "global_batch": 4, "epochs": 1, "device": "cpu", "log_steps": 1}
    small = {
        "data": {"train": data, "val": data, "workers": 0, "size": size},
        "model": {
            "kwargs": shrunken_model(recipe.model.name or ""),
            **({} if recipe.model.name else {"name": "vit_nano"}),
        },
        "train": train,
        "schedule": {"cooldown_epochs": 0, "warmup_epochs": 0},
    }
    if recipe.model.name == "detector":
        return merge(small, of_detector(recipe))
    if recipe.data.train.partition(":")[0] in LABEL_MAPS:
        del train["epochs"]
        return merge(small, OF_SEGMENTER)
    if recipe.model.init is not None:
        small["model"] |= {"init": weight_file(recipe, folder, size=size)}
    if recipe.model.adapt is not None:  # its phases are runs of their own, and its weights have other classes here
        small = merge(small, {"model": {"head": "auto"}, "train": {"phases": {"run": "robust", "weights": None}}})
    return small


def of_detector(recipe: Recipe) -> dict:
    """A detector with few channels on scenes of objects."""
    small = {**DETECTOR, "encoder_options": shrunken_model(recipe.model.kwargs["encoder"])}
    if "fixed_size" in recipe.model.kwargs:
        small = merge(small, {"fixed_size": [64, 64], "encoder_options": {"img_size": 64}})
    return {
        "data": {
            "train": "scene-objects:train,64x80,8",
            "val": "scene-objects:val,64x80,2",
            "size": None,
            "val_subset": None,
        },
        "model": {"kwargs": small},
        "augment": {"object_scales": [64, 72], "object_crop_sides": [40, 60]},
    }


def weight_file(recipe: Recipe, folder: Path, *, size: int) -> str:
    """Random weights of a recipe's shrunken model; of another number of classes where the recipe wants a new head."""
    kwargs = shrunken_model(recipe.model.name or "")
    classes = {"num_classes": 5} if recipe.model.head == "new" else {}
    model = timm.create_model(str(recipe.model.name), img_size=size, **kwargs, **classes)
    save_file(model.state_dict(), folder / "pretrained.safetensors")
    return str(folder / "pretrained.safetensors")


def train_recipes(folder: Path, names: Sequence[str]) -> int:
    """A run of every recipe, which must end with the same weights in all processes; its exit code."""
    with engine(TrainRecipe(device="cpu"), folder=folder) as accelerator:
        if accelerator.is_main_process:
            pictures(folder)
        accelerator.wait_for_everyone()
        for name in names:
            own = folder / name.replace("/", "-")
            if accelerator.is_main_process:
                own.mkdir()
            accelerator.wait_for_everyone()
            train(name, out=own / "run", overrides=shrunken(name, f"npz:{folder / 'pictures.npz'}", own), show=False)
    return 0
