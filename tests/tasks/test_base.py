"""A task that Holdfast has never heard of goes the whole way through public seams: one file and two rows."""

import json
from pathlib import Path

import numpy as np
import pytest

import holdfast
from holdfast.corruptions import STANDARD, corrupt_batch
from holdfast.data.factory import SOURCES, SourceRow
from holdfast.errors import HoldfastError
from holdfast.metrics import compare
from holdfast.records import load_records
from holdfast.tasks import TASKS, register_task, task_named
from tests.evaluation.toys import Brightest, colours
from tests.tasks.counting import COUNTING, CountBright, Squares

QUICK = {"workers": 0, "show": False}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The two rows: the task and its data."""
    monkeypatch.setattr("holdfast.tasks.TASKS", dict(TASKS))
    register_task("counting", COUNTING, "how many squares")
    row = SourceRow("squares", "bright squares", lambda rest, *, split: Squares())
    monkeypatch.setitem(SOURCES, "squares", row)


def test_evaluation_under_corruption_keeps_counts_and_scores_them(tmp_path):
    source = Squares()
    records = holdfast.evaluate(CountBright(), source, "clean,corruptions,pgd5-rspc", out=tmp_path, **QUICK)
    assert records.task == records.header["task"] == "counting"
    assert records.cells["clean"].counts == pytest.approx([source.number(i) for i in range(24)], abs=1e-4)

    images = [np.array(source.image(index)) for index in range(24)]
    ids = [source.id(index) for index in range(24)]
    dark = corrupt_batch(images, "brightness", ids=ids, severity=5, preset="cifar", seed=0)
    expected = 16 * np.stack(dark).mean(axis=(1, 2, 3)) / 255
    assert records.cells["brightness/5"].counts == pytest.approx(expected, abs=1e-3)

    scores = records.summary()
    assert scores["clean"].value == 100
    right = [[np.mean(records.cells[f"{kind}/{s}"].right) for s in range(1, 6)] for kind in STANDARD]
    assert scores["mean_corruption_hits"].value == pytest.approx(100 * np.mean(right))
    assert scores["retention"].value == pytest.approx(100 * np.mean(right))
    assert scores["hits/brightness"].value == pytest.approx(100 * np.mean(right[STANDARD.index("brightness")]))
    assert scores["attack/pgd5-rspc"].value < 100  # a square is 1/16 of the image: 8/255 everywhere is half a square

    (again,) = load_records(tmp_path)
    assert again.summary(intervals=False)["retention"].value == scores["retention"].value
    assert list(again.to_pandas().columns) == ["cell", "view", "id", "count", "target"]


def test_a_training_step_lowers_the_tasks_own_loss_and_validation_says_its_own_score(tmp_path):
    recipe = {
        "data": {"train": "squares", "val": "squares", "workers": 0},
        "model": {"name": "vit_nano", "kwargs": {"depth": 1}},
        "optimizer": {"lr": 0.003},
        "train": {"epochs": 8, "batch_size": 12, "ema": 0, "log_steps": 1},
        "objective": {"name": "cross_entropy"},
    }
    result = holdfast.train(recipe, out=tmp_path / "run", show=False)
    log = [line for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines() if '"step"' in line]
    losses = [json.loads(line)["loss"] for line in log if json.loads(line)["event"] == "step"]
    assert losses[-1] < losses[0]
    assert any("hits" in line for line in log)
    assert result.best is not None

    records = holdfast.evaluate(tmp_path / "run", "squares", "clean,fgsm", **QUICK)
    assert set(records.summary(intervals=False).scores) == {"clean", "attack/fgsm"}


def test_the_report_has_a_row_of_it(tmp_path):
    for name in ("one", "two"):
        holdfast.evaluate(CountBright(), Squares(), "clean,corruptions", out=tmp_path / name, **QUICK)
    page = holdfast.report([tmp_path / "one", tmp_path / "two"], names=["first", "second"])
    assert "mean hits" in page
    assert "share of counts within a half" in page
    assert "first has score 100" in page


def test_two_tasks_are_never_mixed(tmp_path):
    counted = holdfast.evaluate(CountBright(), Squares(), "clean", **QUICK)
    classified = holdfast.evaluate(Brightest(), colours(4), "clean", **QUICK)
    with pytest.raises(HoldfastError, match="the same task, got counting and classification"):
        compare(counted, classified)
    with pytest.raises(HoldfastError, match="needs one class per image, which counting does not have"):
        holdfast.evaluate(CountBright(), Squares(), "patch-fool", **QUICK)


def test_a_name_is_registered_once_and_unknown_names_are_refused():
    with pytest.raises(HoldfastError, match="'counting' is already registered"):
        register_task("counting", COUNTING)
    with pytest.raises(HoldfastError, match=r"task must be one of classification.*'countin'; did you mean"):
        task_named("countin")


def test_it_takes_one_file():
    package = Path(holdfast.__file__).parent
    assert not [path for path in package.rglob("*.py") if "Counting" in path.read_text(encoding="utf-8")]
