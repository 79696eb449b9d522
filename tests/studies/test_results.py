"""Results of a study: kept exactly, found again, never mixed with those of another study."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from holdfast.errors import HoldfastError
from holdfast.studies.config import Study, load_study
from holdfast.studies.results import (
    RunResult,
    all_results,
    changed_values,
    fingerprint,
    measured_alike,
    read_result,
    result_of,
    result_path,
    row_file_name,
    write_result,
)
from holdfast.training.recipe import PhasesRecipe, Recipe, TrainRecipe

TRACES = {"grad_norm": np.array([[20, 0.5], [40, 0.25]])}


def result(row="baseline", seed=0, *, images=9, header=None):
    rng = np.random.default_rng(seed)
    right = {cell: rng.integers(0, 2, images).astype(float) for cell in ("clean", "fog/3", "pgd5")}
    right["occlusion-random"] = rng.integers(0, 11, images) / 10
    return RunResult(row, seed, right, {"stability": rng.random(images)}, header or {}, TRACES)


def test_what_was_right_comes_back_exactly_and_takes_a_bit_per_image(tmp_path):
    before = result(images=1003)
    write_result(tmp_path / "one.safetensors", before)
    after = read_result(tmp_path / "one.safetensors")
    for cell in ("clean", "fog/3", "pgd5"):
        assert np.array_equal(after.right[cell], before.right[cell])
    assert np.allclose(after.right["occlusion-random"], before.right["occlusion-random"], atol=1e-7)
    assert np.allclose(after.measures["stability"], before.measures["stability"], atol=1e-7)
    assert after.traces["grad_norm"].tolist() == [[20, 0.5], [40, 0.25]]
    assert (tmp_path / "one.safetensors").stat().st_size < 12_000


def test_a_result_belongs_to_its_study_only(tmp_path):
    study = load_study("cifar10/main")
    other = load_study("cifar10/main", overrides={"train": {"epochs": 99}})
    header = {"fingerprint": fingerprint(study, "TAP", 1)}
    write_result(result_path(tmp_path, "TAP", 1), result("TAP", 1, header=header))
    assert result_of(tmp_path, study, "TAP", 1) is not None
    assert result_of(tmp_path, other, "TAP", 1) is None
    assert result_of(tmp_path, study, "TAP", 0) is None
    assert list(all_results(tmp_path, study)) == ["TAP"]


def test_a_cell_that_was_corrected_between_two_runs_is_in_no_score():
    def measured(seed, revisions):
        cells = {"cell_order": ["clean", "fog/3", "pgd5"], "revisions": revisions}
        draws = {"miou": np.arange(6.0).reshape(3, 2)}
        return replace(result(seed=seed, header=cells), draws=draws, figures={"class_iou": np.eye(3)})

    old, new = measured(0, {"pgd5": 2}), measured(1, {"pgd5": 2, "fog/3": 2})
    alike = measured_alike({"a": [old], "b": [new]})
    for run in (alike["a"][0], alike["b"][0]):
        assert list(run.right) == ["clean", "pgd5", "occlusion-random"]
        assert [cell.name for cell in run.cells] == ["clean", "pgd5"]
        assert run.draws["miou"].tolist() == [[0, 1], [4, 5]]
        assert run.figures["class_iou"].tolist() == [[1, 0, 0], [0, 0, 1]]
        assert run.header["left_out"] == ["fog"]
    assert measured_alike({"a": [new], "b": [new]}) == {"a": [new], "b": [new]}


def test_what_cannot_change_a_result_is_not_in_its_fingerprint():
    study = load_study("cifar10/main")
    assert fingerprint(study, "TAP", 0) == fingerprint(
        load_study("cifar10/main", overrides={"data": {"workers": 7, "download": True}}), "TAP", 0
    )
    others = [
        load_study("cifar10/main", limit=5),
        load_study("cifar10/main", test="digits"),
        load_study("cifar10/main", overrides={"optimizer": {"lr": 0.5}}),
    ]
    assert len({fingerprint(s, "TAP", 0) for s in (study, *others)} | {fingerprint(study, "TAP", 1)}) == 5


@dataclass(frozen=True)
class LaterTrainRecipe(TrainRecipe):
    """Training of a later version, which knows one value more."""

    lookahead: int = 5


def with_later_values(study, **values):
    """The study, read by a version whose recipes know ``train.lookahead``."""

    class Later(Study):
        def recipe_of(self, name, seed, *, folders=None):
            recipe = super().recipe_of(name, seed, folders=folders)
            return replace(recipe, train=LaterTrainRecipe(**vars(recipe.train), **values))

    return Later(**vars(study))


def test_a_value_that_recipes_learn_later_leaves_every_key_as_it_is_at_its_default():
    study = load_study("cifar10/tora_lambda")
    for row in study.rows:
        assert fingerprint(with_later_values(study), row, 0) == fingerprint(study, row, 0)
        assert fingerprint(with_later_values(study, lookahead=6), row, 0) != fingerprint(study, row, 0)


def test_a_default_that_means_something_else_gives_every_result_another_key(monkeypatch):
    study = load_study("cifar10/main")
    before = fingerprint(study, "TAP", 0)
    monkeypatch.setattr("holdfast.studies.results.DEFAULTS", 2)
    assert fingerprint(study, "TAP", 0) != before


def test_an_optional_section_counts_even_where_all_its_values_are_defaults():
    assert changed_values(Recipe()) == {}
    assert changed_values(Recipe(train=TrainRecipe(phases=PhasesRecipe()))) == {"train": {"phases": {}}}
    weighted = Recipe(seed=3, train=TrainRecipe(phases=PhasesRecipe(weights=[0.5])))
    assert changed_values(weighted) == {"seed": 3, "train": {"phases": {"weights": [0.5]}}}


def test_a_result_that_cannot_be_written_gets_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HoldfastError, match=r"out must be a writable folder, got .*file"):
        write_result(result_path(tmp_path / "file", "TAP", 0), result())


def test_a_damaged_result_gets_one_sentence(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"nothing")
    with pytest.raises(HoldfastError, match="cannot be read as a result of a study; delete it"):
        read_result(path)


@pytest.mark.parametrize("images", [2, 10**6, 10**30, -1, "3"])
def test_a_header_that_counts_other_images_than_the_bits_gets_one_sentence(images, tmp_path):
    """A damaged count would ask for any amount of memory."""
    path = tmp_path / "x.safetensors"
    arrays = {"bits/clean": np.packbits(np.ones(17, dtype=bool))}
    save_file(arrays, path, metadata={"holdfast": json.dumps({"row": "a", "seed": 0, "images": images})})
    with pytest.raises(HoldfastError, match="cannot be read as a result of a study; delete it"):
        read_result(path)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_any_row_name_gives_a_file_name_without_a_folder(name):
    assert row_file_name(name)
    assert "/" not in row_file_name(name)
    assert "\0" not in row_file_name(name)


def test_how_clean_images_are_prepared_enters_the_key():
    shipped = [load_study(name) for name in ("cifar10/main", "cifar10/select", "imagenette/tora", "camvid/main")]
    assert {study.preparation for study in shipped} == {"benchmark"}
    study = shipped[0]
    row, seed = next(iter(study.rows)), study.seeds[0]
    assert fingerprint(study, row, seed) != fingerprint(replace(study, preparation="model"), row, seed)


def test_a_study_of_ones_own_prepares_clean_images_as_the_model_does(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("recipe: digits/fan_nano\ntest: digits\nrows: {plain: {}}\n")
    assert load_study(path).preparation == "model"
    path.write_text(path.read_text() + "preparation: mine\n")
    with pytest.raises(HoldfastError, match=r"preparation of study .* must be one of model, benchmark, got 'mine'"):
        load_study(path)
