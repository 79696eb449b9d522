"""Studies of detection and segmentation: scores of whole sets, their differences, and a small study from end to end."""

import json

import numpy as np
import pytest

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.evaluation.evaluate import evaluate
from holdfast.metrics.average_precision import record_scores
from holdfast.studies.columns import available, difference, scores
from holdfast.studies.dense_tables import breaks_table, classes_table, cost_table, kinds_table
from holdfast.studies.plan import load_study
from holdfast.studies.results import RunResult, all_results, fingerprint, read_result, write_result
from holdfast.studies.set_scores import set_difference, set_scores

CELLS = {
    "clean": {"family": "clean"},
    **{
        f"{kind}/{s}": {"family": "corruption", "kind": kind, "severity": s} for kind in ("fog", "snow") for s in (1, 5)
    },
    "dusk": {"family": "condition", "kind": "dusk"},
}
STUDY = """
# Two detectors
recipe: scene_objects/mask_fan_nano_hybrid
common:
  data: {train: "scene-objects:train,plain,4", val: "scene-objects:val,plain,2", val_subset: null, workers: 0}
  model:
    kwargs:
      {encoder_options: {depth: 2, img_size: 64}, fixed_size: [64, 64], channels: 16, head_width: 16, mask_convs: [8],
      proposals: [20, 10], samples: 8, detections: 5, score_threshold: 0.0}
  objective: {name: robust, options: {}}
  train: {epochs: 1, batch_size: 2}
rows:
  baseline: {}
  AFAT: {objective: {options: {afat: {weight: 0.01}, adl: {variant: paper, tau: 0.9}}}}
seeds: [0]
test: "scene-objects:test,plain"
limit: 2
suites: [clean, corruptions-135]
shifts: {busy: "scene-objects:test,3"}
claims:
  - {says: "it holds", row: AFAT, against: baseline, column: box_ap_c}
  - {says: "it holds elsewhere", row: AFAT, against: baseline, column: mask_ap_busy}
"""


def result(seed: int, values: np.ndarray) -> RunResult:
    header = {"task": "detection", "cells": CELLS, "cell_order": list(CELLS), "measured_images": 7}
    return RunResult("r", seed, {}, {}, header, draws={"box_ap": values})


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.2, 0.8, (len(CELLS), 1 + 50))


def test_means_over_kinds_shifts_and_what_is_kept_are_counted_by_hand():
    values = drawn(0)
    found = set_scores(result(0, values))
    assert found["box_ap"] == pytest.approx(100 * values[0])
    by_kind = [values[1:3].mean(axis=0), values[3:5].mean(axis=0)]
    assert found["box_ap_c"] == pytest.approx(100 * np.mean(by_kind, axis=0))
    assert found["box_ap_kept"] == pytest.approx(100 * np.mean(by_kind, axis=0) / values[0])
    assert found["box_ap_dusk"] == pytest.approx(100 * values[5])


def test_a_difference_is_drawn_over_images_and_seeds_together():
    runs, against = ([result(s, drawn(10 * side + s)) for s in (0, 1, 2)] for side in (0, 1))
    found = set_difference("box_ap", runs, against)
    apart = np.stack([100 * (a.draws["box_ap"][0] - b.draws["box_ap"][0]) for a, b in zip(runs, against, strict=True)])
    assert found.value == pytest.approx(apart[:, 0].mean())
    rng = np.random.default_rng(9)
    loop = [apart[rng.integers(3, size=3), 1 + draw].mean() for draw in range(50) for _ in range(200)]
    assert [found.low, found.high] == pytest.approx(np.quantile(loop, [0.025, 0.975]), abs=4)
    alone = set_difference("box_ap", runs[:1], against[:1])  # one seed: the images alone
    assert [alone.low, alone.high] == pytest.approx(np.quantile(np.repeat(apart[0, 1:], 20), [0.025, 0.975]))


def test_draws_survive_being_written_and_runs_of_other_draws_are_not_compared(tmp_path):
    path = tmp_path / "results" / "r-seed0.safetensors"
    write_result(path, result(0, drawn(1)))
    again = read_result(path)
    assert again.draws["box_ap"] == pytest.approx(drawn(1), abs=1e-6)
    assert [cell.name for cell in again.cells] == list(CELLS)
    with pytest.raises(HoldfastError, match="equally many draws"):
        set_difference("box_ap", [again], [result(0, drawn(2)[:, :20])])


def test_shifts_belong_to_what_a_run_is_known_by(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(STUDY)
    first = load_study(file)
    file.write_text(STUDY.replace("scene-objects:test,3", "scene-objects:test,5"))
    assert fingerprint(load_study(file), "AFAT", 0) != fingerprint(first, "AFAT", 0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "s.yaml").write_text(STUDY)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr("holdfast.studies.measures.RESAMPLES", 5)
    assert main(["study", str(folder / "s.yaml"), "--out", str(folder / "out")]) == 0
    monkeypatch.undo()
    study = load_study(folder / "s.yaml")
    return folder / "out", all_results(folder / "out", study)


def test_a_study_of_detectors_shows_precision_and_judges_claims(finished):
    out, results = finished
    columns = available(results)
    assert list(columns)[:6] == ["box_ap", "box_ap_c", "box_ap_kept", "mask_ap", "mask_ap_c", "mask_ap_kept"]
    assert columns["box_ap_c"].says == "box AP, mean over 15 corruptions at severity 1, 3, 5, %"
    page = (out / "summary.md").read_text()
    assert "| it holds elsewhere | AFAT − baseline, mask AP busy |" in page
    assert "Measured on 2 test images." in page
    assert difference(columns["box_ap_c"], results["AFAT"], results["baseline"]).level == 0.95


def test_what_a_study_keeps_is_what_the_records_say(finished):
    out, results = finished
    (run,) = results["baseline"]
    spec = f"run:{out}/runs/baseline/seed0"
    suites = "clean,corruptions-135"
    records = evaluate(spec, "scene-objects:test,plain", suites, limit=2, workers=0, show=False)
    assert len(records.cells) == 46
    own = {name: record_scores(cell.fields) for name, cell in records.cells.items()}
    mean = np.mean([100 * found["bbox"]["AP"] for name, found in own.items() if name != "clean"])
    assert scores(available(results)["box_ap_c"], [run]).mean == pytest.approx(mean, abs=1e-4)
    clean = 100 * own["clean"]["segm"]["AP"]
    assert scores(available(results)["mask_ap"], [run]).mean == pytest.approx(clean, abs=1e-4)


def test_both_methods_were_alive_while_the_detector_was_trained(finished):
    out, _ = finished
    lines = [json.loads(line) for line in (out / "runs/AFAT/seed0/log.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["event"] == "step"][-1]
    assert all(last[figure] > 0 for figure in ("alignment", "corruptor_grad_norm", "adl", "loss_classifier"))


def test_tables_of_kinds_and_of_what_breaks_are_made_of_the_results(finished):
    _, results = finished
    (run,) = results["AFAT"]
    fog = [place for place, cell in enumerate(run.cells) if cell.kind == "fog"]
    expected = 100 * run.draws["box_ap"][fog, 0].mean()
    line = next(line for line in kinds_table(results).splitlines() if line.startswith("| fog |"))
    assert line.split(" | ")[-1].rstrip(" |") == f"{expected:.1f}"
    counts = run.figures["objects"][0, 0]  # of clean images, all sizes
    (broken,) = [line for line in breaks_table(results).splitlines() if line.startswith("| AFAT |")]
    assert broken.split(" | ")[1:5] == [f"{100 * count / counts.sum():.1f}" for count in counts]
    assert "| AFAT |" in cost_table(results)


def test_the_table_of_classes_holds_their_iou_clean_and_corrupted():
    values = np.random.default_rng(0).uniform(size=(len(CELLS), 2))
    header = {"task": "segmentation", "cells": CELLS, "cell_order": list(CELLS)}
    run = RunResult("r", 0, {}, {}, header, draws={"miou": drawn(0)}, figures={"class_iou": values})
    table = classes_table({"r": [run]}, names=("sky", "road"))
    assert f"| road | {100 * values[0, 1]:.1f} | {100 * values[1:5, 1].mean():.1f} |" in table
