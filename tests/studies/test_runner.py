"""A whole study through the command line, on digits: trained, measured, kept, continued, and made again from files."""

import csv

import pytest

from holdfast.cli.main import main
from holdfast.evaluation.records import load_records
from holdfast.studies.plan import load_study
from holdfast.studies.results import all_results, result_path
from holdfast.studies.runner import missing_runs

STUDY = """# Two tiny rows
recipe: digits/fan_nano
common:
  data: {train_subset: 40, val_subset: 10, workers: 0}
  model: {kwargs: {embed_dim: 16, depth: 1, num_heads: 2}}
  train: {epochs: 1, batch_size: 20}
rows:
  baseline: {}
  ADL: {objective: {name: robust, options: {adl: {weight: 1.0, variant: paper}}}}
seeds: [0]
test: digits:test
limit: 20
suites: [clean, pgd5]
analyses: [overfocus]
claims:
  - {says: ADL spreads attention, row: ADL, against: baseline, column: top_share, expects: lower}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    file = folder / "tiny.yaml"
    file.write_text(STUDY, encoding="utf-8")
    assert main(["study", str(file), "--out", str(folder / "out")]) == 0
    return file, folder / "out"


def test_every_run_has_one_result_and_the_page_has_the_table(finished):
    file, out = finished
    study = load_study(file)
    results = all_results(out, study)
    assert list(results) == ["baseline", "ADL"]
    assert missing_runs(study, out) == []
    assert set(results["ADL"][0].right) == {"clean", "pgd5"}
    assert len(results["ADL"][0].measures["top_share"]) == 20
    assert results["ADL"][0].header["processor_seconds"]["train"] > 0
    page = (out / "summary.md").read_text(encoding="utf-8")
    assert page.startswith("# Two tiny rows")
    assert "ADL spreads attention" in page


def test_the_result_says_what_the_records_say(finished):
    file, out = finished
    (result,) = all_results(out, load_study(file))["baseline"]
    (records,) = load_records(out / "runs" / "baseline" / "seed0")
    assert result.right["clean"].tolist() == records.cells["clean"].right.tolist()
    with (out / "table.csv").open(encoding="utf-8") as text:
        line = next(csv.DictReader(text))
    assert float(line["pgd5"]) == pytest.approx(100 * records.cells["pgd5"].accuracy, rel=1e-5)


def test_nothing_finished_is_done_again_and_the_page_needs_no_runs(finished, capsys):
    file, out = finished
    page, times = (out / "summary.md").read_bytes(), result_path(out, "ADL", 0).stat().st_mtime_ns
    (out / "summary.md").unlink()
    assert main(["study", str(file), "--out", str(out)]) == 0
    assert "2 of 2 runs are finished" in capsys.readouterr().err
    assert result_path(out, "ADL", 0).stat().st_mtime_ns == times
    (out / "runs").rename(out / "elsewhere")
    try:
        (out / "summary.md").unlink()
        assert main(["study", str(file), "--out", str(out), "--table-only"]) == 0
    finally:
        (out / "elsewhere").rename(out / "runs")
    assert (out / "summary.md").read_bytes() == page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cifar10/mian"], "unknown study 'cifar10/mian'"),
        (["cifar10/main", "--seeds", "a"], "--seeds must be whole numbers"),
        (["cifar10/main", "--rows", "nothing"], "has no row 'nothing'"),
        (["cifar10/main", "--table-only", "--out", "nowhere"], "must hold results of this study, got none"),
        (["cifar10/main", "--processes", "0", "--out", "nowhere"], "processes must be at least 1"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["study", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_run_of_another_recipe_is_not_overwritten(finished, capsys):
    file, out = finished
    assert main(["study", str(file), "--out", str(out), "--train.epochs=2"]) == 2
    assert "is a run of another recipe: train.epochs (1, now 2)" in capsys.readouterr().err
