"""The page on evaluation shows what its example prints."""

import re

import pytest

from holdfast.cli.main import main
from tests.docs.blocks import ROOT, blocks_of


@pytest.mark.full
def test_the_page_on_evaluation_shows_what_its_example_prints(tmp_path, monkeypatch, capsys):
    """To the last digit on the same kind of CPU; within three points elsewhere."""
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "evaluate.md"
    example = next(block for block in blocks_of(page) if "fan_nano_afat" in block.text)
    shown = next(block.text for block in blocks_of(page) if block.text.startswith("run:runs/digits"))
    for line in example.text.strip().splitlines():
        capsys.readouterr()
        assert main(line.split()[1:]) == 0
    printed = capsys.readouterr().out
    pattern = re.compile(r"\d+\.\d+")
    for line in shown.splitlines():
        words = pattern.sub("#", line).split()
        (found,) = [told for told in printed.splitlines() if pattern.sub("#", told).split() == words and told] or [""]
        values = [[float(value) for value in pattern.findall(text)] for text in (line, found)]
        assert values[0] == pytest.approx(values[1], abs=3), line
