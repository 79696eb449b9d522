"""One call each, through public seams: a corruption, an attack, a metric, an official set and a suite reach the report.

An analysis does so in tests/analysis/test_base.py, a task in tests/tasks/test_base.py.
"""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import holdfast
from holdfast.cli.main import main
from holdfast.corruptions import KINDS, corrupt, corrupt_batch, register, select
from holdfast.errors import HoldfastError
from holdfast.evaluation.suites import register_attack, register_official, register_suite
from holdfast.metrics import compare, register_metric
from holdfast.records import load_records
from holdfast.reporting.export import export
from holdfast.runtime.plugins import code_fingerprint
from tests.chaos.processes import start
from tests.evaluation.toys import Brightest, plain
from tests.plugins import toys
from tests.plugins.rolling import ROLLED, rolled

QUICK = {"workers": 0, "show": False}
ROOT = Path(__file__).parents[2]
MODEL = "--model=python:tests.evaluation.toys:brightest"


def headline(page, score):
    """The first table's number of a score."""
    found = re.search(rf'data-score="{score}" data-suite="[^"]*" data-value="([^"]+)"', page)
    return float(found[1]) if found else None


def source():
    """Half of the images by 8 levels, half by 120."""
    return plain([0, 1, 2] * 4, margin=[8] * 6 + [120] * 6)


def test_a_corruption_goes_from_files_through_worker_processes_to_the_report(pictures, tmp_path, capsys):
    register(rolled, severities=ROLLED, group="mine", short="Roll", random=False)
    assert main(["list", "corruptions", "rolled"]) == 0
    assert re.search(r"rolled\s+mine\s+own\s+no\s+by", capsys.readouterr().out)

    files = tmp_path / "corrupted"
    assert main(["corrupt", str(pictures), str(files), "--kinds=own", "--workers=2"]) == 0  # spawned processes
    written = np.asarray(Image.open(files / "rolled/4/0/00.png"))
    assert np.array_equal(written, np.roll(np.asarray(Image.open(pictures / "0/00.png")), 1, axis=-1))

    run = tmp_path / "run"
    suites = "--suite=clean,own-corruptions"
    assert main(["evaluate", MODEL, f"--data=folder:{pictures}", suites, "--workers=2", f"--out={run}"]) == 0
    (records,) = load_records(run)
    assert records.summary(intervals=False)["accuracy/rolled"].value == 60  # three of five severities do nothing
    assert records.cells["rolled/5"].header["parameters"] == {"by": 1}

    page = holdfast.report(run)
    assert [re.search(rf'data-cell="rolled/{s}">(\d+)', page)[1] for s in range(1, 6)] == ["100"] * 3 + ["0"] * 2
    assert re.search(r'<th colspan="8"[^>]*>mine</th>', page)  # clean, five severities, their mean and the kind
    assert f"--suite {'clean,own-corruptions'}" in page  # the command that makes it again
    table = export([records, records], "latex")
    assert "Roll" in table
    assert "{mine}" in table


def test_a_report_without_the_plug_in_still_shows_its_corruption(tmp_path, monkeypatch):
    register(rolled, severities=ROLLED, group="mine", random=False)
    holdfast.evaluate(Brightest(), source(), "clean,own-corruptions", out=tmp_path, **QUICK)
    monkeypatch.delitem(KINDS, "rolled")
    page = holdfast.report(tmp_path)
    assert 'data-cell="rolled/4">0' in page
    assert re.search(r'<th colspan="8"[^>]*>own</th>', page)


def test_a_corruption_has_severities_for_its_presets_and_draws_by_image():
    five = [{"by": by} for by in (1, 1, 1, 2, 2)]
    kind = register(rolled, severities={"any": ROLLED, "cifar": five}, random=False, name="turned")
    image = np.asarray(source().images[0])
    assert np.array_equal(corrupt(image, "turned", severity=1), image)
    assert np.array_equal(corrupt(image, "turned", severity=1, preset="cifar"), np.roll(image, 1, axis=-1))
    assert (select("own"), select("turned,fog"), kind.group) == (("turned",), ("turned", "fog"), "own")
    with pytest.raises(HoldfastError, match=r"severities of turned \(cifar, any\), got 'tiny'"):
        corrupt(np.zeros((64, 64, 3), np.uint8), "turned", preset="tiny")


def broken(images, draws):
    return images.astype(float)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "fog"}, "'fog' is already registered"),
        ({"name": "My Fog"}, "name must be lower-case letters"),
        ({"group": "weather"}, "group must not be a published one (noise, blur"),
        ({"short": "Rolled"}, "at most four letters"),
        ({"severities": ROLLED[:3]}, "severities must be five"),
        ({"severities": [{"to": 1}] * 5}, "must be parameters that rolled takes, got {'to': 1}"),
        ({"severities": {"imagenett": ROLLED}}, "did you mean 'imagenet'"),
    ],
)
def test_what_cannot_be_registered_is_told_in_one_sentence(options, sentence):
    with pytest.raises(HoldfastError, match=re.escape(sentence)):
        register(rolled, **({"severities": ROLLED} | options))
    assert select("all") == select("standard,extra")


def test_a_corruption_must_be_found_by_workers_and_return_images():
    with pytest.raises(HoldfastError, match="top level of a module"):
        register(lambda images, draws: images, severities=[{}] * 5, name="nothing")
    register(broken, severities=[{}] * 5)
    with pytest.raises(HoldfastError, match=r"broken must return uint8 images of the input's shape.*float64"):
        corrupt_batch(source().images[:2], "broken", ids=["a", "b"])


def test_an_attack_is_one_row(pictures, tmp_path, capsys):
    register_attack("tint", toys.Tint(eps=20 / 255), "light on the channel after the right one")
    assert main(["list", "suites", "tint"]) == 0
    assert "light on the channel" in capsys.readouterr().out
    run = tmp_path / "run"
    assert main(["evaluate", MODEL, f"--data=folder:{pictures}", "--suite=clean,tint", f"--out={run}"]) == 0
    (records,) = load_records(run)
    assert records.cells["tint"].header["settings"] == {"eps": 20 / 255}
    page = holdfast.report(run)
    assert (headline(page, "clean"), headline(page, "attack/tint")) == (100, 50)  # 20 levels beat 8, not 120
    with pytest.raises(HoldfastError, match="suite 'tint' is already registered"):
        register_attack("tint", toys.Tint(0.1), "again")
    with pytest.raises(HoldfastError, match="attack must be an object or a function"):
        register_attack("other", "tint", "nothing")


def test_a_metric_is_one_row_with_an_interval_and_a_difference(tmp_path):
    register_metric("sure", toys.sure_formulas, columns=toys.sure_columns)
    records = holdfast.evaluate(Brightest(), source(), "clean", out=tmp_path / "one", **QUICK)
    other = holdfast.evaluate(Brightest(), source(), "clean", out=tmp_path / "two", **QUICK)
    expected = 100 * float((records.cells["clean"].confidences > 0.9).mean())
    assert expected == 50
    score = records.summary()["sure"]
    assert (score.value, score.low < 50 < score.high) == (expected, True)
    assert compare(records, other).differences["sure"].interval.value == 0
    page = holdfast.report([tmp_path / "one", tmp_path / "two"])
    assert headline(page, "sure") == expected
    assert "more than 90 % sure" in page
    with pytest.raises(HoldfastError, match="metric 'sure' is already registered"):
        register_metric("sure", toys.sure_formulas)


def test_an_official_set_is_one_row(pictures, tmp_path, capsys):
    register_official("postcards", "Postcards: class folders", toys.look_at_postcards)
    assert main(["list", "data", "postcards"]) == 0
    assert "postcards:DIR" in capsys.readouterr().out
    run, data = tmp_path / "run", f"--data=postcards:{pictures}"
    assert main(["evaluate", MODEL, data, "--suite=postcards", f"--out={run}"]) == 0
    page = holdfast.report(run)
    assert headline(page, "postcards") == 100
    assert "as distributed" in page
    assert main(["evaluate", MODEL, data, "--suite=clean", f"--out={run}"]) == 2
    assert main(["evaluate", MODEL, f"--data=folder:{pictures}", "--suite=postcards", f"--out={run}"]) == 2
    assert "needs --data postcards:DIR" in capsys.readouterr().err


def test_a_suite_of_a_new_kind_of_cell_is_one_file_and_one_row(pictures, tmp_path, capsys):
    register_suite("negatives", "every picture as its negative", toys.negative_cells)
    assert main(["list", "suites", "negatives"]) == 0
    assert "its negative" in capsys.readouterr().out
    run, data = tmp_path / "run", f"--data=folder:{pictures}"
    assert main(["evaluate", MODEL, data, "--suite=clean,negatives", "--workers=1", f"--out={run}"]) == 0
    page = holdfast.report(run)
    assert "negatives" in page  # the suite, in the command that makes it again
    assert headline(page, "mean_condition_accuracy") == 0  # the brightest channel is the darkest now
    (records,) = load_records(run)
    assert records.cells["negative"].header["suite"] == "negatives"


PLUGIN = """
import numpy as np
from holdfast.corruptions import register

def rolled(images, draws, *, by):
    return np.roll(images, by, axis=-1)

register(rolled, severities=[{"by": by} for by in (0, 0, 0, 1, 1)], random=False)
"""


def test_the_command_line_runs_files_that_register(pictures, tmp_path, capsys):
    (tmp_path / "my_corruptions.py").write_text(PLUGIN)
    plugin = f"--plugin={tmp_path / 'my_corruptions.py'}"
    assert main(["list", "corruptions", "rolled", plugin]) == 0
    assert "rolled" in capsys.readouterr().out
    files = tmp_path / "corrupted"
    assert main(["corrupt", str(pictures), str(files), plugin, "--kinds=rolled", "--severity=5", "--workers=2"]) == 0
    assert len(list(files.glob("rolled/5/*/*.png"))) == 12


def test_a_plug_in_that_is_not_there_is_told_in_one_sentence(monkeypatch, capsys):
    assert main(["list", "corruptions", "--plugin", "nowhere.py"]) == 2
    assert "--plugin must be a Python file, but 'nowhere.py' does not exist" in capsys.readouterr().err
    monkeypatch.setenv("HOLDFAST_PLUGINS", "no_such_module")
    assert main(["list", "corruptions"]) == 2
    assert "--plugin 'no_such_module' cannot be imported" in capsys.readouterr().err


LIGHT = """
import numpy as np

LIGHT = {light}

def brighter(images):
    return np.clip(images.astype(int) + LIGHT, 0, 255).astype(np.uint8)
"""
MY_FOG = """
from holdfast.corruptions import register

def my_fog(images, draws):
    return brighter(images)

register(my_fog, severities=[{}] * 5, random=False)
"""


def holdfast_command(*words, cwd):
    """Run a command in a process of its own: its exit code, and what it printed."""
    with start([*map(str, words)], output=cwd / "told", folder=cwd) as command:
        return command.wait(), command.told()


def test_two_plug_ins_of_one_name_never_mix(pictures, tmp_path):
    """The same command after an edit in a file that the plug-in imports: other records, and nothing to compare."""
    (tmp_path / "my_fog.py").write_text("from my_light import brighter\n" + MY_FOG)
    for light in (0, 100):
        (tmp_path / "my_light.py").write_text(LIGHT.format(light=light))
        options = [f"--data=folder:{pictures}", "--suite=clean,own-corruptions", f"--out={tmp_path / 'run'}"]
        code, told = holdfast_command("evaluate", MODEL, *options, "--plugin=my_fog.py", "--workers=1", cwd=tmp_path)
        assert code == 0, told
    assert "was measured with other plug-ins, or other code of them: measuring again" in told
    one, other = load_records(tmp_path / "run")
    assert list(one.header["plugins"]) == ["my_fog"]
    assert one.header["plugins"] != other.header["plugins"]
    assert one.cells["my_fog/1"].header["code"] != other.cells["my_fog/1"].header["code"]
    assert list(compare(one, other).differences) == ["clean", "nll", "ece"]


DIM = """
import functools
import numpy as np

TABLE = {"by": [1]}
STEPS = np.array([1])
FIRST = 1

def brought(function):
    @functools.wraps(function)
    def called(images, draws, **options):
        return function(images, draws, **options) + 0
    return called

class Base:
    def step(self):
        return 1

class Chosen(Base):
    pass

CHOSEN = Chosen()

@brought
def my_dim(images, draws, *, first=FIRST):
    return images // np.uint8(TABLE["by"][0] * STEPS[0] * CHOSEN.step() * first)
"""
EDITS = {
    "nothing": ("", ""),
    "a dict of lists": ("[1]}", "[9]}"),
    "an array": ("np.array([1])", "np.array([9])"),
    "a default": ("FIRST = 1", "FIRST = 9"),
    "a decorator": ("+ 0", "+ 9"),
    "a base class of an object": ("return 1", "return 9"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_the_code_of_a_corruption_has_the_values_that_it_uses(edit, tmp_path, monkeypatch):
    found = []
    for folder, (before, after) in {"one": ("", ""), "other": EDITS[edit]}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "my_dim.py").write_text(DIM.replace(before, after))
        monkeypatch.syspath_prepend(str(tmp_path / folder))
        monkeypatch.delitem(sys.modules, "my_dim", raising=False)
        found.append(code_fingerprint(importlib.import_module("my_dim").my_dim))
    monkeypatch.delitem(sys.modules, "my_dim")
    assert (found[0] == found[1]) == (edit == "nothing")


def test_a_plug_in_with_a_name_that_is_taken_is_refused(tmp_path, capsys):
    (tmp_path / "numpy.py").write_text("")
    assert main(["list", "corruptions", f"--plugin={tmp_path / 'numpy.py'}"]) == 2
    assert "--plugin must have a unique module name, but 'numpy' is also" in capsys.readouterr().err
    (tmp_path / "broken_plug_in.py").write_text("1 / 0")
    assert main(["list", "corruptions", f"--plugin={tmp_path / 'broken_plug_in.py'}"]) == 2
    assert "failed while loading (ZeroDivisionError: division by zero)" in capsys.readouterr().err


def test_a_folder_of_one_corruption_does_not_go_on_with_another_of_its_name(pictures, tmp_path):
    out = tmp_path / "foggy"
    for light, expected in ((0, 0), (100, 2)):
        (tmp_path / "my_fog.py").write_text(LIGHT.format(light=light) + MY_FOG)
        code, told = holdfast_command(
            "corrupt", pictures, out, "--kinds=my_fog", "--severity=1", "--plugin=my_fog.py", cwd=tmp_path
        )
        assert code == expected, told
    assert "was made with code of my_fog" in told
