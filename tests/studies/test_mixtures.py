"""WiSE-FT's α as an axis of a study: mixtures of its own rows."""

from holdfast.studies.config import load_study
from holdfast.studies.dry_run import dry_run_report
from holdfast.studies.runner import run_study

STUDY = """# Which α?
recipe: digits/vit_nano
common:
  data: {train_subset: 32, val_subset: 10, workers: 0}
  model: {kwargs: {depth: 1}}
  train: {epochs: 1, batch_size: 16, device: cpu}
  schedule: {warmup_epochs: 0}
steps:
  start: {}
  tuned: {model: {init: "run:{start}"}}
rows:
  WiSE-FT: {model: {mix: {parents: ["run:{start}", "run:{tuned}"]}}}
sweep: {model.mix.alpha: [0, 0.5]}
seeds: [0]
test: digits:test
limit: 10
suites: [clean]
"""


def test_alpha_is_an_axis_of_a_study(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    study = load_study(tmp_path / "study.yaml")
    assert study.needs("WiSE-FT mix.alpha=0.5") == ["start", "tuned"]
    assert (
        "assumed to cost as much as the row they start from" in dry_run_report(study, out=tmp_path / "out").remarks[0]
    )
    results = run_study(study, out=tmp_path / "out")
    assert [*results] == ["WiSE-FT mix.alpha=0", "WiSE-FT mix.alpha=0.5"]
    assert all(len(found) == 1 for found in results.values())
