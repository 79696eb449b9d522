"""TORA's tables from records: every number is the mean of what the records say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
import yaml

import holdfast
from holdfast.models.tora_checkpoints import save_tora
from holdfast.records.records import load_records
from holdfast.reporting.export.text_tables import markdown
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.trade_off import heads_table, methods_table, trade_off_curve, trade_off_runs

SUITES = "clean,pgd5-rspc"


def finished_run(folder, *, method: str, weight: float, seed: int, start=None) -> None:
    """What a run leaves: adapters that moved a little, a recipe, a log, and records."""
    torch.manual_seed(seed)
    model = holdfast.tora(timm.create_model("vit_nano", depth=1, patch_size=8), method=method)
    for name, parameter in model.named_parameters():
        if not name.startswith("backbone."):
            torch.nn.init.normal_(parameter, std=0.2)
    save_tora(model, folder, notes={"phase": "joint", "lambdas": [weight]})
    log(folder, seconds=36, start=start)
    holdfast.evaluate(model, "digits", SUITES, out=folder, limit=20, workers=0, device="cpu", show=False)


def log(folder, *, seconds: float, start=None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    train = {"batch_size": 10, "accumulate": 2}
    (folder / "recipe.yaml").write_text(
        yaml.safe_dump({"train": train, "model": {"adapt": {"name": "tora", "start": start}}})
    )
    steps = [{"event": "step", "step": n, "images_per_s": 2 * 10 * 5 / (seconds / 2)} for n in (5, 10)]
    end = {"event": "end", "step": 10, "processes": 1}
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*steps, end]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    log(root / "phase1", seconds=360)
    for seed in (0, 1):
        finished_run(root / f"s{seed}" / "lambda-0.1", method="tora", weight=0.1, seed=seed, start=str(root / "phase1"))
    finished_run(root / "s0" / "lambda-0.9", method="tora", weight=0.9, seed=2)
    finished_run(root / "head" / "lambda-0.1", method="head-only", weight=0.1, seed=3)
    return root


def accuracy(folder, view: str, cell: str) -> float:
    (records,) = load_records(folder)
    held = records.view(view).cells[cell]
    return 100 * float((held.predictions == held.targets).mean())


def test_every_lambda_has_a_line_per_prediction(folder):
    table = heads_table(trade_off_runs(read_runs([folder])))
    assert [row.name for row in table.rows] == [f"λ {w}, {v}" for w in (0.1, 0.9) for v in ("acc", "rob", "joint")]
    column = [column.label for column in table.columns].index("clean")
    both = [accuracy(folder / seed / "lambda-0.1", "rob", "clean") for seed in ("s0", "s1")]
    value = table.rows[1].cells[column]
    assert (value.value, value.low, value.high) == pytest.approx((sum(both) / 2, min(both), max(both)))
    last = table.rows[5].cells[-1]
    assert last.value == pytest.approx(accuracy(folder / "s0" / "lambda-0.9", "joint", "pgd5-rspc"))
    assert not last.has_interval


def test_methods_stand_beside_each_other_with_their_cost(folder):
    table = methods_table(trade_off_runs(read_runs([folder])))
    assert [row.name for row in table.rows] == ["λ 0.1, head-only", "λ 0.1, tora", "λ 0.9, tora"]
    assert [column.label for column in table.columns[:3]] == ["GMACs", "params", "hours"]
    gmacs, millions, hours = (value.value for value in table.rows[1].cells[:3])
    model = holdfast.tora(timm.create_model("vit_nano", depth=1, patch_size=8))
    assert millions == pytest.approx(sum(p.numel() for p in model.parameters()) / 1e6)
    assert 0 < table.rows[0].cells[0].value < gmacs
    assert hours == pytest.approx((36 + 360) / 3600)
    assert table.rows[2].cells[2].value == pytest.approx(36 / 3600)
    assert "| λ 0.9, tora |" in markdown([table], [])


def test_the_curve_has_a_point_per_run_and_prediction(folder):
    points = trade_off_curve(trade_off_runs(read_runs([folder / "s0"])), robust="attack/pgd5-rspc")
    assert [(p["lambda"], p["view"]) for p in points] == [(w, v) for w in (0.1, 0.9) for v in ("joint", "acc", "rob")]
    assert points[0]["clean"] == pytest.approx(accuracy(folder / "s0" / "lambda-0.1", "joint", "clean"))


def test_it_is_a_section_of_the_report(folder):
    page = holdfast.report(folder)
    assert page.count('<section id="trade-off">') == 1
    assert "λ 0.1, head-only" in page
    both = [accuracy(folder / seed / "lambda-0.1", "rob", "clean") for seed in ("s0", "s1")]
    assert f"{sum(both) / 2:.1f} ({min(both):.1f} to {max(both):.1f})" in page


def test_other_runs_have_no_such_section(folder, tmp_path):
    log(tmp_path / "run", seconds=36)
    assert not trade_off_runs(read_runs([folder / "phase1"]))
    assert "trade-off" not in holdfast.report(tmp_path / "run")


def test_a_script_prints_both_tables_for_the_documentation(folder, tmp_path):
    def script(*folders):
        command = [
            sys.executable,
            str(Path(__file__).parents[3] / "docs" / "tools" / "make_tora_tables.py"),
            *map(str, folders),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = script(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| λ 0.1, tora |") == 1
    assert "| λ 0.9, rob |" in done.stdout
    log(tmp_path / "run", seconds=36)
    refused = script(tmp_path / "run")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: runs must be folders of finished TORA runs")
