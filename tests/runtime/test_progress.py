"""What people see while a command works: at 80 columns, and in files."""

import io
import re

import numpy as np
from rich.console import Console

from holdfast.cli.main import main
from holdfast.runtime.progress import ProgressLine, clock, fit_parts, rate
from tests.evaluation.toys import plain


def drawn(line: ProgressLine, width: int) -> list[str]:
    """The bar as a terminal of that width shows it."""
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(line._progress.get_renderable())
    return console.file.getvalue().splitlines()


def test_eighty_columns_keep_count_bar_rate_and_time_and_drop_figures_first(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    line = ProgressLine("epoch 12", total=12_345, unit="steps", show=True)
    line.advance(2345)
    parts = ["loss 1.234", "cross_entropy 1.111", "grad_norm 2.5", "lr 0.001", "images_per_s 123.4"]
    line.figures(parts)
    (told,) = drawn(line, 80)
    assert re.search(r"^epoch 12 +━+.* 2345/12345 .*/s .*:.*loss 1.234", told)
    assert "cross_entropy" not in told
    monkeypatch.setenv("COLUMNS", "160")
    wide = ProgressLine("epoch 12", total=12_345, unit="steps", show=True)
    wide.figures(parts)
    (told,) = drawn(wide, 160)
    assert "grad_norm 2.5" in told


def test_words_for_numbers():
    assert fit_parts(["loss 1.2", "lr 0.1"], 8) == "loss 1.2"
    assert fit_parts(["loss 1.2", "lr 0.1"], 20) == "loss 1.2  lr 0.1"
    assert fit_parts(["loss 1.2"], 3) == ""
    assert [rate(1234.5), rate(12.34), rate(0.0123)] == ["1234", "12.3", "0.012"]
    assert clock(3725.9) == "1:02:05"


def test_piped_output_has_a_header_and_a_line_for_every_finished_suite(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("holdfast.runtime.progress.EVERY", 0.0)
    data = plain([0, 1, 2] * 4, margin=[8] * 12)
    np.savez(tmp_path / "data.npz", x=data.images, y=data.targets)
    words = ["--model=python:tests.evaluation.toys:brightest", f"--data=npz:{tmp_path / 'data.npz'}"]
    assert main(["evaluate", *words, "--suite=clean,fgsm", f"--out={tmp_path / 'run'}", "--workers=0"]) == 0
    said = capsys.readouterr().err
    assert f"evaluating python:tests.evaluation.toys:brightest on npz:{tmp_path}" in said.splitlines()[0]
    assert "12 images × 2 cells" in said.splitlines()[0]
    assert re.search(r"^suite clean is done: clean: \d+/24 images, .*/s, .* left, clean 100.0 %$", said, re.MULTILINE)
    assert re.search(r"^suite fgsm is done: ", said, re.MULTILINE)
    assert re.search(r"^evaluating: 12/24 images, .*/s, 0:00:\d\d left", said, re.MULTILINE)
    assert "\x1b" not in said
