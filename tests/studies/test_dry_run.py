"""Dry runs of studies: every row at the size of its recipe."""

from holdfast.cli.main import main


def test_a_study_is_forecast_row_by_row(tmp_path, capsys):
    (tmp_path / "study.yaml").write_text(
        "recipe: digits/fan_nano\ntest: digits:test\nlimit: 4\nseeds: [0, 1]\nsuites: [clean]\n"
        "common: {data: {train_subset: 16, val_subset: 8, workers: 0}, train: {epochs: 1, batch_size: 8}, "
        "model: {kwargs: {depth: 1}}}\nrows: {plain: {}, again: {model: {init: 'run:{plain}'}}}\n"
    )
    out = tmp_path / "studies" / "out"
    assert main(["study", str(tmp_path / "study.yaml"), "--out", str(out), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "2 rows, 2 seeds, 4 runs, 4 runs to do" in told
    assert "not timed, assumed to cost as much as" in told
    assert not out.exists()


def test_a_row_is_forecast_at_the_size_of_its_recipe(tmp_path, capsys):
    (tmp_path / "study.yaml").write_text(
        "recipe: digits/fan_nano\ntest: digits:test\nlimit: 4\nseeds: [0]\nsuites: [clean]\n"
        "common: {data: {train_subset: 16, val_subset: 8, workers: 0, size: 28}, train: {epochs: 1, batch_size: 8}}\n"
        "rows: {plain: {model: {name: vit_small_patch14_dinov2, kwargs: {depth: 1, embed_dim: 48}}}}\n"  # of 518 px
    )
    assert main(["study", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "1 runs to do" in capsys.readouterr().out
