"""Bring your own: from a plug-in through the command line, and from a script, both to the report.

The terminal is looked at on the way: train on one of 80 columns, evaluate into a pipe.
"""

import os
import pty
import re
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest

from tests.chaos.processes import start

ROOT = Path(__file__).parents[2]
PLUGIN = Path(__file__).parent / "own_things.py"
SMALL = "--model.name=own_glance --data.train=sides --data.val=sides --data.workers=0 --train.device=cpu"
OWN_TERM = "--objective.name=robust --objective.options.own_quiet.weight=0.01"
TRAIN = f"train digits/vit_nano --out run {SMALL} {OWN_TERM} --train.epochs=3 --train.batch_size=4 --train.log_steps=1"
MEASURE = (
    "evaluate run --suite clean,own-corruptions,own-tint --attack own-tint:eps=0.2|0.4 --attack pgd:eps=1/255|4/255"
)

FROM_A_SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import own_things as own
import holdfast

model = own.own_glance()
holdfast.train("digits/vit_nano", out="script", data=(own.loader(), own.loader()), show=False, overrides={{
    "model": {{"name": "own_glance"}}, "data": {{"workers": 0}}, "schedule": {{"warmup_epochs": 0}},
    "train": {{"epochs": 1, "batch_size": 4, "device": "cpu"}},
    "objective": {{"name": "robust", "options": {{"own_quiet": {{"weight": 0.01}}}}}}}})

def darker(model, images, labels):
    return images / 2

suites = ["clean,own-corruptions", own.OwnTint(eps=0.3), darker, "pgd:eps=1/255|4/255"]
records = holdfast.evaluate("script", own.loader(), suites, out="script", workers=0, show=False)
summary = records.summary()
attacks = ["attack/OwnTint:eps=0.3", "attack/darker", "attack/pgd:eps=4/255"]
for key in ["clean", "own_sure", "accuracy/own_bands", *attacks]:
    print(key, summary[key])
holdfast.analyze("script", own.loader(), ["own-brightness"], out="script")
holdfast.report(["script"], out="script.html")
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "TERM": "xterm"}


def on_a_terminal(words: list[str], folder: Path, *, columns: int) -> list[str]:
    """What a terminal of that width shows, as lines; every redrawn one counts."""
    main, side = pty.openpty()
    ioctl(side, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    held = {key: value for key, value in environment().items() if key != "COLUMNS"}
    running = subprocess.Popen(words, cwd=folder, env=held, stdin=side, stdout=side, stderr=side)
    os.close(side)
    seen = b""
    while True:
        try:
            more = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        seen += more
    os.close(main)
    assert running.wait() == 0, seen.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    return [line for line in re.split(r"[\r\n]+", plain) if line.strip()]


def piped(text: str, folder: Path) -> tuple[str, str]:
    """What a command writes into pipes: its output, and its messages."""
    output, errors = folder / "output", folder / "errors"
    with start([*text.split(), "--plugin", str(PLUGIN)], output=output, errors=errors, folder=folder) as command:
        assert command.wait() == 0, errors.read_text()
    return output.read_text(), errors.read_text()


def run_script(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def command(text: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", *text.split(), "--plugin", str(PLUGIN)]


@pytest.mark.timeout(600)
def test_everything_of_ones_own_from_the_command_line_to_the_report(tmp_path):
    shown = on_a_terminal(command(TRAIN), tmp_path, columns=80)
    bars = [line for line in shown if "━" in line]
    assert max(map(len, bars)) <= 80
    assert any(re.search(r"^epoch \d +━+.* \d+/12 [\d.]+/s \d:\d\d:\d\d loss [\d.]+", line) for line in bars), bars
    assert re.search(r"finished after 12 steps; the exported weights scored [\d.]+ % in validation: run", shown[-1])

    output, errors = piped(MEASURE, tmp_path)
    told = errors.splitlines()
    assert re.search(r"^evaluating run:run on sides: 16 images × 11 cells, on cpu$", told[0]), told
    for suite in ("clean", "own-corruptions", "own-tint", "own-tint:eps=0.4", "pgd:eps=4/255"):
        assert any(line.startswith(f"suite {suite} is done: ") for line in told), (suite, told)
    assert "\x1b" not in output + errors
    for label in ("clean", "own sure", "own-tint", "own-tint:eps=0.2", "own-tint:eps=0.4", "pgd:eps=1/255", "Band"):
        assert re.search(rf"^ *{re.escape(label)}( |$)", output, re.MULTILINE), (label, output)

    assert "own brightness" in piped("analyze run --only own-brightness", tmp_path)[0]
    piped("report run --out report.html", tmp_path)
    page = (tmp_path / "report.html").read_text()
    for word in ("own_bands", "own-tint:eps=0.4", "pgd:eps=4/255", "own sure", "How bright are they?", "own_quiet"):
        assert word in page, word


@pytest.mark.timeout(600)
def test_everything_of_ones_own_from_a_script_to_the_report(tmp_path):
    script = FROM_A_SCRIPT.format(folder=str(PLUGIN.parent))
    done = run_script([sys.executable, "-c", script], tmp_path)
    scores = dict(re.findall(r"^(\S+) .*? ([\d.]+) %", done.stdout, re.MULTILINE))
    assert set(scores) >= {"clean", "own_sure", "accuracy/own_bands", "attack/OwnTint:eps=0.3", "attack/darker"}
    page = (tmp_path / "script.html").read_text()
    for word in ("own_bands", "OwnTint:eps=0.3", "darker", "own sure", "How bright are they?", "own_quiet"):
        assert word in page, word
