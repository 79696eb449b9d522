"""The small things that stand in for the photographs, runs, weights and variables that the pages speak of.

Most blocks find what they need here by the names that pages already use: ``runs/a``, ``photos/``, ``flowers/train``.
A page that speaks of something new either uses one of these names or adds its stand-in here.
"""

import ast
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import holdfast
from holdfast.data import open_data
from holdfast.published import published
from tests.deploy.detection_graphs import constant_graph
from tests.docs.blocks import ROOT, blocks_of
from tests.models import test_adaptation as own_adapter
from tests.tasks.detectors import coco_folder

SMALL_VIT = "'vit_tiny_patch16_224', depth=2, embed_dim=48, num_heads=3, dynamic_img_size=True"

CIFAR = (
    "--data.train=npz:data/cifar10_train.npz[0:30] --data.val=npz:data/cifar10_train.npz[30:40] "
    "--test=npz:data/cifar10_test.npz"
)

STAND_IN = ".stand-in"

# what is too large, or not on this machine, and what is taken instead; in commands, Python and YAML alike
STAND_INS = {
    'timm.create_model("deit_small_patch16_224", pretrained=True)': f"timm.create_model({SMALL_VIT})",
    '"vit_base_patch16_224.augreg_in21k_ft_in1k", pretrained=True': '"vit_tiny_patch16_224", depth=2',
    "holdfast evaluate RUN ": "holdfast evaluate runs/a ",
    '"fan_nano", num_classes=10)': '"fan_nano", num_classes=10, depth=1)',
    "clean,corruptions,segpgd5": "clean,segpgd5",
    "holdfast train photos ": "holdfast train photos --model.name=vit_nano --init weights/vit_nano.safetensors ",
    "timm:deit_small_patch16_224.fb_in1k": "weights/vit_nano.safetensors --model.name=vit_nano",
    "timm:deit_small_patch16_224": "python:small_models:vit",
    "--model timm:vit_small_patch16_224 ": "--model timm:vit_nano@weights/vit_nano.safetensors ",
    "timm:resnet50": "python:small_models:resnet",
    "timm:regnety_160.deit_in1k": "timm:vit_nano@weights/vit_nano.safetensors",
    "/data/imagenet/val": "imagenet",
    "/data/imagenetv2-matched-frequency-format-val": "imagenet",
    "/data/objectnet-1.0": "objectnet",
    "/data/cue-conflict": "cues",
    "/path/to/val": "imagenet",
    "folder:photos ": "folder:imagenet ",
    "folder:val ": "folder:imagenet ",
    '"fan_base_16_p4_hybrid"': '"fan_tiny_8_p4_hybrid"',
    "--model fan_base_16_p4_hybrid": "--model fan_tiny_8_p4_hybrid",
    "cifar10:": "npz:data/cifar10_test.npz",
    "crop: [288, 384]": "crop: [96, 128]",
    '"fan_small_12_p4_hybrid", "cascade"': '"fan_tiny_8_p4_hybrid", "cascade", min_size=64, max_size=64',
    'open_model("runs/digits-fan_nano"': 'open_model("runs/a"',
    "[0.1,0.5,0.9]": "[0.5]",
    "[0.1,0.3,0.5,0.7,0.9]": "[0.5]",
    "--data.download=true": CIFAR,
    "coco:train,train.json": "coco:coco,coco/instances.json",
    "coco:val,val.json": "coco:coco,coco/instances.json",
    "coco:val2017,annotations/instances_val2017.json": "coco:coco,coco/instances.json",
    "coco:val2017,instances_val2017.json": "coco:coco,coco/instances.json",
    "coco/mask_fan_tiny_hybrid_1x": "coco/mask_fan_tiny_hybrid_1x --model.kwargs.min_size=64 --train.accumulate=1",
    "[0:45000]": "[0:30]",
    "[45000:50000]": "[30:40]",
    'weights="DEFAULT"': "weights=None, weights_backbone=None, num_classes=91, min_size=64, max_size=64",
    "/shared/deit": "shared/deit",
}

COCO_IDS = [n for n in range(1, 91) if n not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)]  # the 80 of COCO

# appended to a command, where the last value of an option counts
SMALLER = {
    "train": (
        "--train.epochs=1 --train.batch_size=2 --train.global_batch=2 --data.train_subset=4 --data.val_subset=4 "
        "--data.workers=0 --train.device=cpu --schedule.warmup_epochs=0"
    ),
    "evaluate": "--limit 2 --workers 0",
    "improve": (
        "--dry-run --methods low-lr --data.train=digits --data.val=digits --data.workers=0 --train.batch_size=8 "
        "--train.device=cpu --out runs/improve"
    ),
    "analyze": "--limit 2 --masks 2 --mask-images 2 --pictures 1 --clusters 2 --batch-size 2",
    "study": (
        "--rows baseline --seeds 0 --limit 4 --processes 1 --train.epochs=1 --train.batch_size=2 --data.workers=0 "
        "--data.train_subset=4 --data.val_subset=4"
    ),
}

TINY = (
    "{'data': {'train_subset': 4, 'val_subset': 4, 'workers': 0}, "
    "'train': {'epochs': 1, 'batch_size': 2, 'global_batch': 2, 'device': 'cpu'}, 'schedule': {'warmup_epochs': 0}}"
)
SMALLER_CALLS = {
    "holdfast.train": f"overrides={TINY}, show=False",
    "holdfast.evaluate": "limit=2, workers=0, show=False",
    "holdfast.analyze": "limit=2",
}

# recipes of 224 px: the same options on a network that learns in a moment
LARGE_RECIPES = "--model.name=fan_nano_hybrid --model.kwargs={} --data.size=32 --data.train=digits --data.val=digits"


def small(text: str) -> str:
    """A block's text with the stand-ins in it, the longer ones first."""
    for name in sorted(STAND_INS, key=len, reverse=True):
        text = text.replace(name, STAND_INS[name])
    return text


def smaller(words: list[str]) -> list[str]:
    """A command's words, with less to do."""
    command, *rest = words
    if {"--redraw", "--predictions", "--table-only", "--resume"} & set(rest):
        return words
    if command == "analyze" and {"--masks", "--limit"} <= set(rest):  # the gallery shows what these numbers make
        return [*words, "--figures", "svg"]
    added = SMALLER.get(command, "").split()
    if command == "analyze" and "--figures" not in rest:  # 300 dpi take longer than the analyses
        added += ["--figures", "svg"]
    if command == "analyze" and "--only" not in rest:  # all of them are run by their own pages and tests
        added += ["--only", "stability"]
    if command == "train" and rest and rest[0].startswith("imagenet/"):
        given = [word for word in LARGE_RECIPES.split() if not any(r.startswith(word.split("=")[0]) for r in rest)]
        added = [*added, *given]
    if command == "train" and any("tora_" in word for word in rest):
        added = [*added, "--train.phases.first_epochs=1"]
    return [command, *rest, *added]


def smaller_calls(text: str) -> ast.Module:
    """Python with less to do, where it calls what takes long."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SMALLER_CALLS:
            added = ast.parse(f"f({SMALLER_CALLS[ast.unparse(node.func)]})", mode="eval").body.keywords
            if len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):  # data of a page's own are small
                added = [keyword for keyword in added if keyword.arg != "limit"]
            held = {keyword.arg: keyword.value for keyword in node.keywords}
            for keyword in added:
                if keyword.arg == "overrides" and "overrides" in held:  # both, ours last
                    keyword.value = ast.Dict([None, None], [held["overrides"], keyword.value])
            given = {keyword.arg for keyword in added}
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in given] + added
    return ast.fix_missing_locations(tree)


def build(folder: Path) -> None:
    """Everything that the pages name, in a folder that they then work in."""
    _pictures(folder)
    _weights(folder)
    _foreign_files(folder)
    _runs(folder)
    (folder / "small_models.py").write_text(
        f"import timm\n\n\ndef vit():\n    return timm.create_model({SMALL_VIT})\n\n\n"
        "def resnet():\n    return timm.create_model('resnet10t')\n"
    )
    (plugin,) = (
        block.text for block in blocks_of(ROOT / "docs" / "bring-your-own.md") if block.text.startswith("# stripes.py")
    )
    (folder / "stripes.py").write_text(plugin)


def _pictures(folder: Path) -> None:
    random = np.random.default_rng(0)
    large = [random.integers(0, 256, (16, 16, 3), dtype=np.uint8).repeat(16, 0).repeat(16, 1) for _ in range(4)]
    Image.fromarray(large[0]).save(folder / "new.jpg")
    classes = [f"{name}/{kind}" for name in ("flowers", "photos") for kind in ("train/rose", "train/tulip")]
    for name in ("val", *classes, *(name.replace("train", "val") for name in classes)):
        (folder / name).mkdir(parents=True)
        for index, pixels in enumerate(large[: 1 if name == "val" else 2]):
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    Image.fromarray(large[0]).save(folder / "picture.png")
    for place in ("photo/train", "photo/val", "photo/test", "sketch/test"):  # two domains
        for name in ("cat", "dog"):
            (folder / "animals" / place / name).mkdir(parents=True)
            for index, pixels in enumerate(large[:2]):
                Image.fromarray(pixels).save(folder / "animals" / place / name / f"{index}.png")
    for name, members in published("objectnet")["classes"].items():
        (folder / "objectnet" / name).mkdir(parents=True)
        Image.fromarray(large[members[0] % 4]).save(folder / "objectnet" / name / "0.png")
    for number, name in enumerate(published("imagenet_16")["classes"]):
        (folder / "cues" / name).mkdir(parents=True)
        Image.fromarray(large[number % 4][:224, :224]).save(folder / "cues" / name / f"{name}1-cat2.png")
    for index in range(1000):  # class folders as wide as ImageNet, one picture in each
        (folder / "imagenet" / f"{index:03d}").mkdir(parents=True)
        (folder / "imagenet" / f"{index:03d}" / "0.png").symlink_to(folder / "picture.png")
    (folder / "coco").mkdir()
    coco_folder(folder / "coco", images=4, ids=COCO_IDS)
    scenes = open_data("scenes:test,96x128,4")
    for name in ("train", "val"):
        for index in range(4):
            for part, pixels in (("images", scenes.image(index)), ("labels", Image.fromarray(scenes.target(index)))):
                (folder / name / part).mkdir(parents=True, exist_ok=True)
                pixels.save(folder / name / part / f"{index}.png")
    (folder / "data").mkdir()
    x, y = random.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8), np.arange(40) % 10
    for part in ("train", "test"):
        np.savez(folder / "data" / f"cifar10_{part}.npz", x=x, y=y)


def _weights(folder: Path) -> None:
    from safetensors.torch import save_file

    (folder / "weights").mkdir()
    torch.manual_seed(0)
    save_file(timm.create_model("vit_nano").state_dict(), folder / "weights" / "vit_nano.safetensors")
    for name in ("fan_hybrid_base.pth.tar", "fan_hybrid_small.pth.tar", "fan_hybrid_tiny.pth.tar", "released.pth"):
        torch.save({"state_dict": timm.create_model("fan_tiny_8_p4_hybrid").state_dict()}, folder / name)


def _foreign_files(folder: Path) -> None:
    """ONNX files as other projects export them, which answer every image alike."""
    boxes, scores = np.array([[8, 8, 40, 50], [30, 10, 60, 60]], np.float32), np.zeros((100, 80), np.float32)
    scores[:2, :2] = [[0.9, 0.1], [0.2, 0.8]]
    grid = np.concatenate([np.tile(boxes, (50, 1)), scores], axis=1).T[None]
    constant_graph(folder / "yolov8n.onnx", {"output0": grid})
    rows = np.array([[0, 0.9, 5, 6, 21, 26], [1, 0.5, 25, 6, 41, 26]], np.float32)
    constant_graph(folder / "picodet.onnx", {"rows": rows, "count": np.array([2])}, more=("scale_factor",))
    classes = len(open_data(f"masks:{folder / 'val' / 'images'},{folder / 'val' / 'labels'}").classes)
    logits = np.random.default_rng(0).normal(0, 1, (1, classes, 12, 16)).astype(np.float32)
    constant_graph(folder / "segmenter.onnx", {"logits": logits})
    (folder / "coco.names").write_text("\n".join(f"c{number}" for number in COCO_IDS) + "\n")


def _runs(folder: Path) -> None:
    """A run that was trained for a step and measured on two images, under the names that the pages use."""
    first = folder / "runs" / "a"
    recipe = {
        "data": {"train_subset": 8, "val_subset": 8, "workers": 0},
        "model": {"name": "fan_nano", "kwargs": {"depth": 2}},
        "objective": {"name": "robust", "options": {"afat": {"weight": 0.1}}},
        "train": {"epochs": 1, "batch_size": 8, "device": "cpu"},
    }
    holdfast.train(recipe, out=first, show=False)
    holdfast.evaluate(str(first), "digits:test", "clean,corruptions", limit=10, workers=0, show=False)
    for name in ("b", "fan", "vit", "baseline", "afat"):
        shutil.copytree(first, folder / "runs" / name)
        (folder / "runs" / name / STAND_IN).touch()


def make_room(words: list[str]) -> None:
    """A page that trains a run itself needs no stand-in of its name."""
    if words[0] == "train" and "--out" in words and "--resume" not in words:
        out = Path(words[words.index("--out") + 1])
        if (out / STAND_IN).exists():
            shutil.rmtree(out)


def digits(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels in [0, 1] and labels of the embedded digits."""
    source = open_data("digits:test")
    images = torch.stack([torch.tensor(np.array(source.image(i))).permute(2, 0, 1) for i in range(count)])
    return images / 255, torch.tensor([int(source.targets[i]) for i in range(count)])


def classifier(**options: Any) -> torch.nn.Module:
    """A network of 224 px that is quick."""
    torch.manual_seed(0)
    return timm.create_model("fan_tiny_12_p16_224", depth=2, **options)


def photograph(side: int) -> np.ndarray:
    """Bytes, as a decoded file."""
    return np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)


def run_records() -> Any:
    """What was measured of the first run."""
    from holdfast.records import load_records

    return load_records("runs/a")[0]


# names that Python on a page uses without saying where they come from: page -> name -> how to make it, at its first use
NAMES: dict[str, dict[str, Callable[[], Any]]] = {
    "": {
        "model": classifier,
        "images": lambda: torch.rand(2, 3, 224, 224),
        "targets": lambda: torch.tensor([3, 5]),
        "image": lambda: torch.rand(3, 64, 64),
        "records": run_records,
        "others": run_records,
    },
    "docs/afat.md": {"optimizer": lambda: torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)},
    "docs/attacks.md": {
        "images": lambda: digits(2)[0],
        "labels": lambda: digits(2)[1],
        "names": lambda: ["a", "b"],
        "ids": lambda: ["a", "b"],
        "step": lambda: 0,
        "batches": lambda: [digits(2)],
    },
    "docs/evaluate.md": {
        "my_test_set": lambda: TensorDataset(*digits(10)),
        "x": lambda: digits(10)[0],
        "y": lambda: digits(10)[1],
        "train_set": lambda: TensorDataset(*digits(10)),
        "val_set": lambda: TensorDataset(*digits(10)),
    },
    "docs/measure-model.md": {"my_test_set": lambda: TensorDataset(*digits(10))},
    "docs/train.md": {
        "add_parts": lambda: own_adapter.Rescaled,
        "save_parts": lambda: own_adapter.save,
        "load_whole": lambda: own_adapter.load,
        "load_parts": lambda: own_adapter.take_over,
        "let_learn": lambda: own_adapter.begin,
    },
    "docs/c-bar.md": {"image": lambda: photograph(64)},
    "docs/corruptions.md": {
        "image": lambda: photograph(256),
        "images": lambda: [photograph(32)] * 5,
        "names": lambda: list("abcde"),
    },
}
