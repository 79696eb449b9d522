"""Studies of detection and segmentation: scores of whole sets, their differences, and a small study from end to end."""

import json

import numpy as np
import pytest
from dense_tables import breaks_table, classes_table, cost_table, kinds_table

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.evaluation.evaluate import evaluate
from holdfast.metrics.average_precision import record_scores
from holdfast.metrics.intervals import t_quantile
from holdfast.records.records import CellRecord, Records
from holdfast.studies.columns import available, columns, formulas, run_replicates, scores
from holdfast.studies.config import load_study
from holdfast.studies.differences import difference, seed_variance
from holdfast.studies.measure_run import of_domains
from holdfast.studies.report import interval_note
from holdfast.studies.results import RunResult, all_results, fingerprint, read_result, write_result

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


def result(seed: int, values: np.ndarray, **header) -> RunResult:
    header = {"task": "detection", "cells": CELLS, "cell_order": list(CELLS), "measured_images": 40, **header}
    return RunResult("r", seed, {}, {}, header, draws={"box_ap": values})


def set_scores(run: RunResult) -> dict[str, np.ndarray]:
    return {name: run_replicates(run).score(formula) for name, formula in formulas(run).items()}


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


def test_what_is_kept_of_nothing_is_no_number_in_scores_and_replicates():
    values = drawn(0)
    values[0, [0, 3]] = 0.0
    found = set_scores(result(0, values))["box_ap_kept"]
    assert np.isnan(found[[0, 3]]).all()
    assert np.isfinite(np.delete(found, [0, 3])).all()
    rows = {"a": [result(0, drawn(0))], "b": [result(0, drawn(1))], "none": [result(0, values)]}
    assert np.isnan(difference(columns()["box_ap_kept"], rows, "none", "a").value)
    values[0, 0] = 0.5
    once = difference(columns()["box_ap_kept"], rows | {"none": [result(0, values)]}, "none", "a")
    assert np.isfinite(once.value)
    assert np.isnan([once.low, once.high]).all()  # one draw has none, so nothing tells the error


REPLICATES = {"replicates": {"groups": 50, "shifts": {"dusk": 12}}}


def both_rows(**header):
    return {row: [result(s, drawn(10 * side + s), **header) for s in (0, 1, 2)] for side, row in enumerate(("a", "b"))}


def test_a_difference_of_replicates_has_the_jackknifes_error_over_images():
    one = {row: runs[:1] for row, runs in both_rows(**REPLICATES).items()}
    for name, row, groups in (("box_ap", 0, 50), ("box_ap_dusk", 5, 12)):  # other data have groups of their own
        found = difference(columns(["dusk"])[name], one, "a", "b")
        apart = 100 * (drawn(0) - drawn(10))[row, : 1 + groups]
        error = np.sqrt((groups - 1) / groups * np.square(apart[1:] - apart[1:].mean()).sum())
        assert found.value == pytest.approx(apart[0])
        assert found.high - found.value == pytest.approx(t_quantile(groups - 1) * error)
    assert "jackknife over the images" in interval_note(one)


def test_a_difference_of_stored_draws_has_their_deviation_and_the_page_says_so():
    one = {row: runs[:1] for row, runs in both_rows().items()}
    found = difference(columns()["box_ap"], one, "a", "b")
    apart = 100 * (drawn(0) - drawn(10))[0]
    assert found.value == pytest.approx(apart[0])
    assert found.high - found.value == pytest.approx(t_quantile(39) * np.std(apart[1:], ddof=1))  # of 40 images
    assert "standard deviation of stored draws" in interval_note(one)
    assert "Jackknife replicates need a new run." in interval_note(one)


def test_stored_draws_of_a_film_know_as_much_as_there_are_blocks_of_frames():
    one = {row: runs[:1] for row, runs in both_rows(test="camvid:data", shifts={"dusk": 120}).items()}
    for name, row, blocks in (("box_ap", 0, 4), ("box_ap_dusk", 5, 12)):
        found = difference(columns(["dusk"])[name], one, "a", "b")
        error = np.std(100 * (drawn(0) - drawn(10))[row, 1:], ddof=1)
        assert found.high - found.value == pytest.approx(t_quantile(blocks - 1) * error)


def test_several_seeds_of_sets_have_both_variances():
    rows = both_rows(**REPLICATES)
    apart = np.stack([100 * (drawn(s) - drawn(10 + s))[0] for s in (0, 1, 2)])
    column = columns()["box_ap"]
    assert seed_variance(column, rows).variance == pytest.approx(np.var(apart[:, 0], ddof=1))
    found, mean = difference(column, rows, "a", "b"), apart.mean(axis=0)
    images = 49 / 50 * np.square(mean[1:] - mean[1:].mean()).sum()
    seeds = np.var(apart[:, 0], ddof=1) / 3
    freedom = (images + seeds) ** 2 / (images**2 / 49 + seeds**2 / 2)
    assert found.value == pytest.approx(apart[:, 0].mean())
    assert found.high - found.value == pytest.approx(t_quantile(freedom) * np.sqrt(images + seeds))


def test_draws_survive_being_written_and_runs_of_other_draws_have_no_interval(tmp_path):
    path = tmp_path / "results" / "r-seed0.safetensors"
    write_result(path, result(0, drawn(1)))
    again = read_result(path)
    assert again.draws["box_ap"] == pytest.approx(drawn(1), abs=1e-6)
    assert [cell.name for cell in again.cells] == list(CELLS)
    for other in (result(0, drawn(2)[:, :20]), result(0, drawn(2), **REPLICATES)):
        found = difference(columns()["box_ap"], {"a": [again], "b": [other]}, "a", "b")
        assert np.isfinite(found.value)
        assert np.isnan([found.low, found.high]).all()


@pytest.mark.parametrize("told", [3, {}, {"groups": 2}, {"groups": "many", "shifts": {}}, {"groups": 2, "shifts": 7}])
def test_a_result_that_does_not_say_its_groups_is_refused_in_words(tmp_path, told):
    path = tmp_path / "results" / "r-seed0.safetensors"
    write_result(path, result(0, drawn(1), replicates=told))
    with pytest.raises(HoldfastError, match="cannot be read as a result of a study"):
        read_result(path)


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
    assert main(["study", str(folder / "s.yaml"), "--out", str(folder / "out")]) == 0
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
    assert difference(columns["box_ap_c"], results, "AFAT", "baseline").level == 0.95
    assert "jackknife over the images; one seed: images only. Few images: 2." in page


def test_a_run_keeps_the_replicates_of_every_cell_and_says_how_many(finished):
    _, results = finished
    (run,) = results["AFAT"]
    assert run.header["replicates"] == {"groups": 2, "shifts": {"busy": 3}}
    assert run.draws["box_ap"].shape == (47, 4)
    assert "resamples" not in run.header
    found = set_scores(run)
    assert [len(found[name]) for name in ("box_ap", "box_ap_c", "box_ap_busy")] == [3, 3, 4]


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


def test_scores_of_domains_are_means_over_images_like_all_measures():
    rng = np.random.default_rng(0)
    ids = [f"{domain}/{n}.png" for domain, count in (("a", 30), ("b", 10), ("c", 20)) for n in range(count)]
    cell = CellRecord(
        np.array(ids),
        np.zeros(60, np.int64),
        dict(zip(("confidences", "nll", "top5"), np.full((3, 60), 0.5), strict=True))
        | {"predictions": rng.integers(0, 2, 60)},
        header={"cell": "clean", "family": "clean", "domains": ["a", "b", "c"]},
    )
    records = Records.of({"task": "classification", "train_domains": ["b"]}, {"clean": cell})
    found, summary = of_domains(records), records.summary()
    assert set(found) - {f"domain/{name}" for name in "abc"} == {
        "mean_domain_accuracy",
        "unseen_domain_accuracy",
        "domain_gap",
    }
    for name, values in found.items():
        assert values.mean() == pytest.approx(summary[name].value, abs=1e-9)
    assert [len(found[f"domain/{name}"]) for name in "abc"] == [30, 10, 20]
