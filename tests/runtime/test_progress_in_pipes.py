"""Progress outside a terminal: lines for what takes long, nothing for what does not, the same in notebooks."""

import builtins
import time

import pytest

from holdfast.runtime import progress
from holdfast.runtime.progress import ProgressLine


class ZMQInteractiveShell:
    """What IPython calls the shell of a notebook."""


@pytest.fixture(params=["pipe", "notebook"])
def outside(request, monkeypatch):
    if request.param == "notebook":
        monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
        monkeypatch.setattr(progress, "find_spec", lambda name: None)  # a notebook without ipywidgets
    monkeypatch.setenv("FORCE_COLOR", "1")  # as kernels and CI do
    monkeypatch.setattr(progress, "PATIENCE", 0.2)


def advance(show, *, seconds):
    with ProgressLine("evaluating", total=10, unit="images", show=show, header="a header") as line:
        line.say("a remark")
        for _ in range(2):
            line.advance(2)
            time.sleep(seconds)
        line.advance(1)


def test_short_work_is_silent_unless_somebody_asks(outside, capsys):
    advance(None, seconds=0)
    assert capsys.readouterr().err == ""
    advance(True, seconds=0)
    assert capsys.readouterr().err.splitlines() == ["a header", "a remark"]


def test_long_work_prints_its_header_and_a_line(outside, capsys):
    advance(None, seconds=0.15)
    header, line = capsys.readouterr().err.splitlines()
    assert header == "a header"
    assert line.startswith("evaluating: 5/10 images, ")


def test_false_is_silent(outside, capsys):
    advance(False, seconds=0.15)
    assert capsys.readouterr().err == ""
