"""What an evaluation refuses, in one sentence and without a trace, instead of measuring something else."""

import json
import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast import EvalProtocol
from holdfast.cli.main import main
from holdfast.corruptions.corrupt_folder import FolderSettings, KindAtSeverity, corrupt_folder
from holdfast.data import check_known_classes, open_data, open_official
from holdfast.data.source import ArraySource
from holdfast.errors import HoldfastError
from holdfast.reporting.page import report
from tests.training.helpers import run


class Answers(nn.Module):
    """Answers whatever it is told to."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, images):
        return self.answer(images)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda images: torch.zeros(1, 10), "the model must return one output per image, got 1 for"),
        (lambda images: torch.zeros(len(images)), "must return logits of shape"),
        (lambda images: torch.zeros(()), "must return logits of shape"),
        (lambda images: torch.full((len(images), 10), float("nan")), "must return finite logits, got NaN or infinity"),
        (lambda images: torch.zeros(len(images), 10) / (images.mean((1, 2, 3)) == 0.5)[:, None], "finite logits"),
    ],
)
def test_answers_that_cannot_be_scored_are_refused_and_leave_nothing(tmp_path, answer, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        holdfast.evaluate(Answers(answer), "digits:test", out=tmp_path / "a" / "b", limit=20, workers=0)
    assert not list(tmp_path.iterdir())


def folder_of(root, names):
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (32, 32), (number * 20, 0, 9)).save(root / name / f"{number}.png")
    return f"folder:{root}"


def test_a_run_is_measured_on_other_classes_only_when_asked(tmp_path, capsys):
    ours, theirs = (folder_of(tmp_path / name, names) for name, names in (("a", ["cat", "dog"]), ("b", ["cat", "fox"])))
    values = {"train": ours, "val": ours, "train_subset": None, "val_subset": None}
    run(tmp_path / "run", data=values, train={"epochs": 1, "batch_size": 8})
    command = ["evaluate", str(tmp_path / "run"), "--data", theirs, "--suite=clean", "--workers=0"]
    assert main(command) == 2
    assert "number 1 is 'dog' for the model and 'fox' in the data; --classes-differ" in capsys.readouterr().err
    assert not (tmp_path / "run" / "records").exists()
    assert main([*command, "--classes-differ"]) == 0


def test_numbers_name_no_class():
    digits, names = open_data("digits:test"), ("zero", *"abcdefghi")
    named = ArraySource(
        "named", np.zeros((10, 4, 4, 3), np.uint8), np.arange(10), ("none", *"abcdefghi"), np.arange(10)
    )
    with pytest.raises(HoldfastError, match="number 0 is 'zero' for the model and 'none' in the data"):
        check_known_classes(names, named, data="named")
    for known in (names, None, ("a", "b")):  # the number of classes is somebody else's check
        assert check_known_classes(known, digits, data="digits") is None


def test_what_holdfast_corrupt_has_made_is_never_called_official(tmp_path):
    names = sorted(f"n{number:08d}" for number in range(2))
    folder_of(tmp_path / "clean", names)
    settings = FolderSettings(seed=7, preset="imagenet", quality=85)
    corrupt_folder(tmp_path / "clean", tmp_path / "c", cells=[KindAtSeverity("fog", 3)], settings=settings)
    assert open_official(f"imagenet-c:{tmp_path / 'c'}").origin == (
        "made by holdfast corrupt, seed 7, preset imagenet, jpeg:85"
    )
    model = Answers(lambda images: torch.zeros(len(images), 2))
    records = holdfast.evaluate(
        model,
        f"imagenet-c:{tmp_path / 'c'}",
        "imagenet-c",
        out=tmp_path / "out",
        workers=0,
        protocol=EvalProtocol(size=224),
    )
    assert records.header["label"].startswith("made by holdfast corrupt, seed 7")
    page = report(tmp_path / "out")
    assert "made by holdfast corrupt, seed 7" in page
    assert "as distributed" not in page
    (tmp_path / "c" / "manifest.json").write_text("")
    assert open_official(f"imagenet-c:{tmp_path / 'c'}").origin.startswith("of unknown making")
    (tmp_path / "c" / "manifest.json").unlink()
    assert open_official(f"imagenet-c:{tmp_path / 'c'}").origin is None


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("raise RuntimeError('broken')", "cannot be imported (broken)"),
        ("raise SystemExit(3)", "cannot be imported (3)"),
        ("def build(): raise KeyError('x')", "raised KeyError"),
        ("def build(): return 3", "must return a torch module, got int"),
        ("x = 1", "must be a function"),
    ],
)
def test_modules_that_raise_are_one_sentence(tmp_path, monkeypatch, capsys, code, sentence):
    monkeypatch.chdir(tmp_path)
    name = f"module_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    assert main(["evaluate", "--model", f"python:{name}:build", "--data", "digits:test", "--out", "out"]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_device_that_computes_nothing_is_refused(tmp_path, capsys):
    run(tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run"), "--device=meta"]) == 2
    assert "that torch can use on this machine, got 'meta' (meta tensors have no data)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"y": np.array([2**32 - 1] * 6)}, "must count classes from 0 to 99999, got 4294967295"),
        ({"y": np.array(["a"] * 6)}, "must hold whole numbers, got <U1"),
        ({"y": np.linspace(0, 1, 6)}, "must hold whole numbers, got float64"),
        ({"x": np.zeros((6, 0, 8, 3), np.uint8)}, "must hold images of at least one pixel"),
        ({"classes": np.array([["a", "b"]])}, "must be a list of names, got shape (1, 2)"),
    ],
)
def test_odd_arrays_are_one_sentence(tmp_path, arrays, sentence):
    from tests.data.test_source import write_npz

    with pytest.raises(HoldfastError) as refused:
        open_data(f"npz:{write_npz(tmp_path / 'x.npz', **arrays)}")
    assert sentence in str(refused.value)


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1100, 600, 600, 3), np.uint8), y=np.zeros(1100, np.int64))
    with pytest.raises(HoldfastError, match=r"must hold images, but \d+ bytes would decompress to 1 GiB"):
        open_data(f"npz:{tmp_path / 'x.npz'}")


def test_a_corruptor_cannot_ask_for_memory_that_its_file_does_not_hold(tmp_path):
    from safetensors.torch import save_file

    from holdfast.models.corruption_model import load_corruptor

    weights = {"patch_embed.weight": torch.zeros(1, 3, 2, 2), "fc.weight": torch.zeros(454_000, 0)}
    shape = {"rows": 1000, "columns": 454, "patch_size": 2}
    save_file(weights, tmp_path / "x.safetensors", metadata={"corruptor": json.dumps(shape)})
    with pytest.raises(HoldfastError, match="must be a file written by save_corruptor"):
        load_corruptor(tmp_path / "x.safetensors")
    (tmp_path / "y.safetensors").write_text("no safetensors")
    with pytest.raises(HoldfastError, match="must be a file written by save_corruptor"):
        load_corruptor(tmp_path / "y.safetensors")


def test_equal_weights_are_equal_files(tmp_path):
    from holdfast.models.corruption_model import Corruptor, save_corruptor

    corruptor = Corruptor((4, 4), patch_size=8)
    for number in range(8):
        save_corruptor(corruptor, tmp_path / str(number))
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_links_in_circles_show_every_image_once(tmp_path):
    spec = folder_of(tmp_path / "x", ["a", "b"])
    (tmp_path / "x" / "a" / "loop").symlink_to(tmp_path / "x" / "a")
    (tmp_path / "x" / "b" / "up").symlink_to(tmp_path / "x")
    (tmp_path / "x" / "b" / "top").symlink_to("/")
    assert len(open_data(spec)) == 8


def test_names_of_files_need_not_be_text(tmp_path):
    spec = folder_of(tmp_path / "x", ["a", "b"])
    source = tmp_path / "x" / "a"
    (source / "0.png").rename(os.fsdecode(bytes(source) + b"/\xff\xfe.png"))
    values = {"train": spec, "val": spec, "train_subset": None, "val_subset": None}
    run(tmp_path / "run", data=values, train={"epochs": 1, "batch_size": 8})
    records = holdfast.evaluate(tmp_path / "run", spec, "clean,pgd5", workers=0)
    assert len(records.cells["clean"]) == 8
    assert report(tmp_path / "run")
