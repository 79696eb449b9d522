"""Does a gain on ImageNet-C carry over? Asked through the command line: evaluate, gate, report; and from Python."""

import html

import numpy as np
import pytest
import torch
from torch import nn

from holdfast import compare
from holdfast.cli.main import main
from holdfast.corruptions import C_BAR_SUITES, STANDARD
from holdfast.records.records import load_records
from tests.evaluation.toys import Brightest, plain

COUNT = 60


class Centre(nn.Module):
    """The brightest channel of four pixels: right on clean images, easily misled."""

    def forward(self, images):
        return 20 * images[:, :, 15:17, 15:17].mean(dim=(2, 3))


def centre():
    return Centre()


def whole():
    return Brightest()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("carry over")
    source = plain([number % 3 for number in range(COUNT)], margin=[8, 12, 16, 20] * (COUNT // 4))
    np.savez(folder / "plain.npz", x=source.images, y=source.targets, classes=np.array(source.classes))
    for model in ("whole", "centre"):
        arguments = ["--model", f"python:tests.e2e.test_carry_over:{model}", "--data", f"npz:{folder / 'plain.npz'}"]
        suites = ["--suite", "clean,corruptions,cifar-c-bar", "--out", str(folder / model), "--workers", "0"]
        assert main(["evaluate", *arguments, *suites]) == 0
    return folder


def test_the_gate_says_that_the_gain_carries_over(runs, tmp_path, capsys):
    files = ["--junit", str(tmp_path / "gate.xml"), "--markdown", str(tmp_path / "gate.md")]
    assert main(["gate", str(runs / "whole"), "--against", str(runs / "centre"), "--margin", "5", *files]) == 0
    out = capsys.readouterr().out
    found = compare(load_records(runs / "whole"), load_records(runs / "centre")).carry_over
    assert found.verdict == "carries over"
    assert "the gain of the new model over the baseline on C" in out
    bounds = (
        f"carries over to C-bar: {found.on_c_bar.value:+.2f} ({found.on_c_bar.low:+.2f} to {found.on_c_bar.high:+.2f})"
    )
    assert bounds in out
    assert bounds in (tmp_path / "gate.md").read_text(encoding="utf-8").replace("\\", "")  # brackets are escaped
    assert bounds in (tmp_path / "gate.xml").read_text(encoding="utf-8")
    (tmp_path / "gate.yaml").write_text("- C-bar better\n", encoding="utf-8")
    rules = ["--rules", str(tmp_path / "gate.yaml")]
    assert main(["gate", str(runs / "whole"), "--against", str(runs / "centre"), *rules]) == 0


def test_the_gate_says_nothing_of_a_model_that_is_worse_on_c(runs, capsys):
    assert main(["gate", str(runs / "centre"), "--against", str(runs / "whole")]) == 1
    assert "carries over" not in capsys.readouterr().out


def test_the_report_says_it_by_the_names_of_the_runs(runs, tmp_path):
    page = tmp_path / "report.html"
    assert main(["report", str(runs / "centre"), str(runs / "whole"), "--out", str(page)]) == 0
    text = html.unescape(page.read_text(encoding="utf-8"))
    assert "The gain of whole over centre on C (" in text
    assert ") carries over to C-bar: " in text
    assert "C-bar mCA" in text


def test_the_terminal_says_it_below_the_differences(runs):
    text = str(compare(load_records(runs / "centre"), load_records(runs / "whole")))
    assert text.splitlines()[-1].startswith("the gain of python:tests.e2e.test_carry_over:whole over ")
    assert "carries over to C-bar" in text


class ByRed(nn.Module):
    """Ten classes by the mean red level of a window in the centre."""

    def __init__(self, side):
        super().__init__()
        self.side = side
        self.register_buffer("levels", 20 * torch.arange(10.0) + 10)

    def forward(self, images):
        start = (images.shape[-1] - self.side) // 2
        window = images[:, 0, start : start + self.side, start : start + self.side]
        return -(255 * window.mean(dim=(1, 2))[:, None] - self.levels).abs()


def red_whole():
    return ByRed(32)


def red_centre():
    return ByRed(2)


def write_stored(folder, kinds, rng):
    """Sixty images per severity whose red is that of their class, and noisier at every severity."""
    folder.mkdir()
    labels = np.tile(np.arange(COUNT) % 10, 5)
    deviations = np.repeat([10, 15, 20, 25, 30], COUNT)[:, None, None, None]
    for kind in kinds:
        noise = rng.normal(size=(5 * COUNT, 32, 32, 3)) * deviations
        images = np.clip(20 * labels[:, None, None, None] + 10 + noise, 0, 255)
        np.save(folder / f"{kind}.npy", images.astype(np.uint8))
    np.save(folder / "labels.npy", labels)


def test_stored_sets_of_the_same_images_get_a_verdict_too(tmp_path, capsys):
    rng = np.random.default_rng(0)
    write_stored(tmp_path / "c", STANDARD, rng)
    write_stored(tmp_path / "bar", C_BAR_SUITES["cifar-c-bar"], rng)
    data = ["--data", f"cifar10-c:{tmp_path / 'c'}", f"cifar10-c-bar:{tmp_path / 'bar'}"]
    for model in ("red_whole", "red_centre"):
        arguments = ["--model", f"python:tests.e2e.test_carry_over:{model}", *data, "--suite", "cifar-c,cifar-c-bar"]
        assert main(["evaluate", *arguments, "--out", str(tmp_path / model), "--workers", "0"]) == 0
    capsys.readouterr()
    assert main(["gate", str(tmp_path / "red_whole"), "--against", str(tmp_path / "red_centre"), "--margin", "5"]) == 0
    out = capsys.readouterr().out
    assert out.count("carries over to C-bar: ") == 1
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "red_centre"), str(tmp_path / "red_whole"), "--out", str(page)]) == 0
    text = html.unescape(page.read_text(encoding="utf-8"))
    assert text.count("The gain of red_whole over red_centre on C (") == 1
    assert out.partition("carries over to C-bar: ")[2].splitlines()[0] in text
