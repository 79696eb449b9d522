"""A dry run does nothing but measure, and the command itself says afterwards how far off it was."""

import time

import pytest

from holdfast.cli.main import main
from holdfast.evaluation import dry_run as evaluation_forecast
from holdfast.evaluation.setup import EvaluationRequest
from holdfast.runtime import dry_run
from holdfast.runtime.dry_run import (
    DryRunReport,
    Seconds,
    compare_with_dry_run,
    how_far_off,
    human_bytes,
    human_seconds,
    remember,
)
from tests.evaluation.toys import ByLevel

SMALL = ["--train.epochs=1", "--data.train_subset=32", "--data.val_subset=16", "--data.workers=0"]
SMALL += ["--train.batch_size=8"]


def said(seconds: float, **options) -> DryRunReport:
    return DryRunReport("would", {}, 0, Seconds(seconds, seconds), **options)


@pytest.mark.parametrize("suite", ["occlusion-learned", "occlusion-learned:epochs=1"])
def test_an_attack_that_is_fitted_first_is_forecast_too(tmp_path, capsys, monkeypatch, suite):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "fitted_toy.py").write_text(
        "from tests.evaluation.toys import ByLevel\n\n\ndef make():\n    return ByLevel(10, 20)\n"
    )
    words = [
        "evaluate",
        "--model=python:fitted_toy:make",
        "--data=digits:test",
        "--limit=20",
        "--workers=0",
        "--out=out",
    ]
    assert main([*words, "--suite", suite, "--dry-run"]) == 0
    assert "20 images, " in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_an_evaluation_is_forecast_without_being_done_and_compared_when_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "toy_model.py").write_text(
        "from tests.evaluation.toys import ByLevel\n\n\ndef make():\n    return ByLevel(10, 20)\n"
    )
    words = "evaluate --model python:toy_model:make --data digits:test --suite clean,corruptions --limit 20 --workers 0"
    assert main([*words.split(), "--out", "out", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "20 images, 76 cells, 76 units" in told
    assert "of processor time (starting" in told
    assert not (tmp_path / "out").exists()

    assert main([*words.split(), "--out", "out"]) == 0
    assert "of processor time; the dry run estimated" in capsys.readouterr().err
    size = sum(file.stat().st_size for file in (tmp_path / "out").rglob("*.*.[0-9]*.safetensors"))
    on_disk = evaluation_forecast.dry_run_report(
        EvaluationRequest(ByLevel(10, 20), "digits:test", "clean,corruptions", limit=20)
    ).size
    assert on_disk == pytest.approx(size, rel=0.15)

    assert main([*words.split(), "--out", "out"]) == 0  # nothing to compare with any more
    assert "dry run" not in capsys.readouterr().err
    assert main([*words.split(), "--out", "out", "--dry-run"]) == 0
    assert "76 of them finished" in capsys.readouterr().out


def test_attempts_that_were_stopped_count(monkeypatch):
    times = iter([2.0, 5.0])
    monkeypatch.setattr(dry_run, "spent", lambda: next(times))
    remember("corrupt", {"source": "a"}, said(10.0))
    with pytest.raises(KeyboardInterrupt), compare_with_dry_run("corrupt", {"source": "a"}):
        raise KeyboardInterrupt
    with compare_with_dry_run("corrupt", {"source": "a", "workers": 7}) as account:
        pass
    assert account.comparison == {"said": 10.0, "took": 7.0}


def test_an_attempt_that_was_killed_makes_a_comparison_impossible():
    remember("corrupt", {"source": "b"}, said(10.0))
    killed = compare_with_dry_run("corrupt", {"source": "b"})
    killed.__enter__()  # and nobody ever leaves
    with compare_with_dry_run("corrupt", {"source": "b"}) as account:
        time.sleep(0)
    assert account.sentence == ""


@pytest.mark.parametrize(
    ("took", "verdict"), [(10.0, "12 s, 20 % too much"), (15.0, "12 s, 20 % too little"), (12.0, "12 s, exactly that")]
)
def test_how_far_off_is_a_share_of_what_it_took(took, verdict):
    assert how_far_off(12.0, took).endswith(verdict)


def test_times_and_sizes_are_readable():
    assert [human_seconds(value) for value in (1.23, 45, 600, 86400)] == ["1.2 s", "45 s", "10 min", "24.0 h"]
    assert [human_bytes(value) for value in (12, 4500, 119e6, 2.5e12)] == ["12 bytes", "4.5 kB", "119 MB", "2.5 TB"]
