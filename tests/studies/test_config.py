"""A study's file: rows, sweeps, inheritance, and what is said about mistakes."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.studies.config import load_study, study_names
from holdfast.studies.results import fingerprint


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", study_names())
def test_every_shipped_study_has_a_title_and_complete_recipes(name):
    study = load_study(name)
    assert study.title
    assert study.suites[0] == "clean"
    for row in study.rows:
        recipe = study.recipe_of(row, 7)
        assert recipe.seed == 7
        assert recipe.data.train.startswith("cifar10-train:[0:") or not name.startswith("cifar10")


def test_the_main_study_has_the_rows_that_the_papers_compare():
    study = load_study("cifar10/main")
    assert list(study.rows) == ["baseline", "AFAT", "AFAT random", "TAP", "ADL", "TAP+ADL"]
    assert study.seeds == (0, 1, 2)
    assert study.limit >= 1000
    options = study.recipe_of("AFAT random", 0).objective.options
    assert options["afat"]["selection"] == "random"
    assert study.recipe_of("TAP", 0).model.kwargs["tap"] == "tap"


def test_training_test_and_held_out_images_never_overlap():
    main, select = load_study("cifar10/main"), load_study("cifar10/select")
    assert main.common["data"]["train"] == "cifar10-train:[0:45000]"
    assert main.test == "cifar10:"
    assert select.test == main.common["data"]["val"] == "cifar10-train:[45000:50000]"
    assert not set(select.seeds) & set(main.seeds)


def test_a_sweep_makes_the_grid_of_its_values_for_every_row(tmp_path):
    file = write(
        tmp_path / "grid.yaml",
        "recipe: digits/fan_nano\ntest: digits:test\nrows: {a: {}, b: {train: {epochs: 2}}}\n"
        "sweep: {optimizer.lr: [0.1, 0.2], model.kwargs.num_heads: [1, 2]}\n",
    )
    study = load_study(file)
    assert len(study.rows) == 8
    recipe = study.recipe_of("b optimizer.lr=0.2 kwargs.num_heads=1", 0)
    assert (recipe.optimizer.lr, recipe.model.kwargs["num_heads"], recipe.train.epochs) == (0.2, 1, 2)


def test_leave_one_domain_out_is_an_axis_of_a_sweep(tmp_path):
    file = write(
        tmp_path / "grid.yaml",
        "recipe: digits/fan_nano\ntest: 'domains:pacs,-cartoon,split=test'\n"
        "rows: {plain: {}, long: {train: {epochs: 2}}}\nsweep: {leave_out: [photo, sketch]}\n",
    )
    study = load_study(file)
    assert list(study.rows) == [
        f"{row} without {domain}" for row in ("plain", "long") for domain in ("photo", "sketch")
    ]
    recipe = study.recipe_of("long without sketch", 0)
    assert recipe.data.train == recipe.data.val == "domains:pacs,-cartoon,-sketch"
    assert recipe.train.epochs == 2
    other = load_study(file, test="domains:elsewhere")
    assert other.recipe_of("plain without photo", 0).data.train == "domains:elsewhere,-photo"


def test_a_study_takes_from_another_what_it_does_not_say_itself():
    main, weights = load_study("cifar10/main"), load_study("cifar10/adl_weight")
    assert weights.recipe == main.recipe
    assert weights.common["train"] == main.common["train"]
    assert "baseline" not in weights.rows
    trained, otherwise = load_study("imagenette/pretrained"), load_study("imagenette/patch_fool")
    assert otherwise.rows == trained.rows
    assert otherwise.suites == ("clean", "patch-fool", "patch-fool:steps=50,bound=linf,eps=16/255")
    assert not set(otherwise.claims) & set(trained.claims)


def test_the_command_line_changes_recipe_values_rows_seeds_and_test_data():
    study = load_study(
        "cifar10/main",
        overrides={"train": {"epochs": 2}},
        rows=["TAP", "baseline"],
        seeds=[5],
        test="npz:other.npz",
        limit=10,
    )
    assert list(study.rows) == ["TAP", "baseline"]
    assert (study.seeds, study.test, study.limit) == ((5,), "npz:other.npz", 10)
    assert study.recipe_of("TAP", 5).train.epochs == 2
    assert study.recipe_of("TAP", 5).train.batch_size == load_study("cifar10/main").recipe_of("TAP", 5).train.batch_size


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a list", "must hold keys such as recipe and rows, got list"),
        ("recipe: [", "must be YAML"),
        ("recipe: digits/fan_nano\nrows: {a: {}}", "must name test"),
        ("recipe: digits/fan_nano\ntest: digits", "must name rows or a sweep"),
        ("recipe: digits/fan_nano\ntest: digits\nrow: {a: {}}", "unknown study key 'row'"),
        ("recipe: digits/fan_nano\ntest: digits\nrows: {a: 3}", "must hold recipe values"),
        ("recipe: digits/fan_nano\ntest: digits\nrows: {a: {train: {epoch: 3}}}", "unknown recipe key 'train.epoch'"),
        ("recipe: digits/fan_nanu\ntest: digits\nrows: {a: {}}", "unknown recipe 'digits/fan_nanu'"),
        (
            "recipe: digits/fan_nano\ntest: digits\nrows: {a: {}}\nsteps: {b: 3}",
            "row and step .* must hold",
        ),
        (
            "recipe: digits/fan_nano\ntest: digits\nrows: {ab: {}, c: {model: {init: 'run:{aa}'}}}",
            "no row or step 'aa'.*'ab'",
        ),
        (
            "recipe: digits/fan_nano\ntest: digits\nrows: {a: {model: {init: '{b}'}}, b: {model: {init: '{a}'}}}",
            "start from each other in a cycle: (a from b from a|b from a from b)",
        ),
        ("extends: cifar10/mian\nrows: {a: {}}", "unknown study 'cifar10/mian'"),
    ],
)
def test_a_bad_study_gets_one_sentence(tmp_path, text, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        load_study(write(tmp_path / "bad.yaml", text))


def test_an_unknown_row_is_answered_with_the_nearest():
    with pytest.raises(HoldfastError, match=r"has no row 'TAP\+ADl'.*TAP\+ADL"):
        load_study("cifar10/main", rows=["TAP+ADl"])


STEPS = """
recipe: digits/fan_nano
test: digits:test
steps: {second: {model: {init: "run:{first}"}}}
rows: {first: {}, third: {model: {init: "run:{second}"}}, fourth: {train: {epochs: 2}}}
"""


def test_a_row_starts_from_the_run_of_another(tmp_path):
    study = load_study(write(tmp_path / "steps.yaml", STEPS))
    assert [study.needs(name) for name in ("first", "second", "third")] == [[], ["first"], ["second"]]
    assert study.recipe_of("third", 0).model.init == "run:{second}"
    assert study.recipe_of("third", 0, folders={"second": tmp_path}).model.init == f"run:{tmp_path}"


def test_a_row_that_is_not_chosen_is_there_to_start_from(tmp_path):
    study = load_study(write(tmp_path / "steps.yaml", STEPS), rows=["third"])
    assert list(study.rows) == ["third"]
    assert list(study.steps) == ["second", "first", "fourth"]
    assert study.recipe_of("first", 0).model.init is None


def test_what_a_run_starts_from_is_part_of_its_fingerprint(tmp_path):
    study = load_study(write(tmp_path / "steps.yaml", STEPS))
    other = load_study(write(tmp_path / "other.yaml", STEPS.replace("first: {}", "first: {train: {epochs: 7}}")))
    assert fingerprint(study, "fourth", 0) == fingerprint(other, "fourth", 0)
    assert fingerprint(study, "third", 0) != fingerprint(other, "third", 0)


BASE = "recipe: digits/fan_nano\ntest: digits:test\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rows: {a: {}}\nseeds: [0, 0]", "must differ, got [0, 0]"),
        ("rows: {a: {}}\nseeds: []", "must be whole numbers from 0, got []"),
        ("rows: {a: {}}\nseeds: [-1]", "must be whole numbers from 0, got [-1]"),
        ("rows: {a: {}}\nseeds: [0.5]", "must be whole numbers from 0, got [0.5]"),
        ("rows: {a: {}}\nseeds: [true]", "must be whole numbers from 0, got [True]"),
        ("rows: {a: {}}\nseeds: 3", "seeds of study"),
        ("rows: {a: {}}\nlimit: .nan", "must be a whole number, got nan"),
        ("rows: {a: {}}\nlimit: true", "must be at least 1 test image, got True"),
        ("rows: {a: {}}\nclaims: 3", "must be a list of claims, got 3"),
        ("rows: {a: {}}\nclaims: [3]", "must hold texts such as says and row, got 3"),
        ("rows: {a: {}}\nclaims: [{says: x}]", "must hold says, row, against and column"),
        ("rows: {a: {}}\nclaims: [{says: x, row: a, against: b, column: clean}]", "names no row of it: 'b'"),
        ("rows: {a/b: {}, a-b: {}}", "'a/b' and 'a-b' of study"),
        ("rows: {A: {}, a: {}}", "would share the folder"),
        ("rows: {..: {}, '...': {}}", "would share the folder 'run'"),
        ("rows: {1: {}}", "must have texts as names, got 1"),
        ("rows: [a]", "must be recipe values by name, got ['a']"),
        ("rows: {a: 3}", "must hold recipe values"),
        ("rows: {a: {}}\nsuites: clean", "must be a list of names, got 'clean'"),
        ("rows: {a: {}}\nsuites: [3]", "must be a list of names, got [3]"),
        ("sweep: {train.epochs: 3}", "must be a list of choices"),
        ("sweep: {leave_out: [sketch]}", "must list domains of test data domains:DIR, got 'sketch' of 'digits:test'"),
        ("rows: &a {a: *a}", "more through aliases"),
        ("rows: {a: {}}\ncommon: 3", "must be recipe values, got 3"),
        ("rows: {a: !!python/object/apply:os.getcwd []}", "must be YAML"),
        ("rows: " + "[" * 5000, "must be YAML"),
    ],
)
def test_a_file_that_no_study_can_have_gets_one_sentence(tmp_path, text, sentence):
    with pytest.raises(HoldfastError) as refused:
        load_study(write(tmp_path / "study.yaml", f"{BASE}{text}\n"))
    assert sentence in str(refused.value)


def test_studies_that_extend_each_other_or_are_not_text_get_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.yaml", "extends: b.yaml\n")
    write(tmp_path / "b.yaml", "extends: a.yaml\n")
    with pytest.raises(HoldfastError, match="extends itself through"):
        load_study("a.yaml")
    (tmp_path / "c.yaml").write_bytes(b"recipe: \xff")
    with pytest.raises(HoldfastError, match="cannot be read"):
        load_study("c.yaml")


@pytest.mark.parametrize("name", study_names())
def test_shipped_studies_do_not_change_with_the_recipe_that_they_name(name, tmp_path):
    from dataclasses import replace

    study, empty = load_study(name), write(tmp_path / "empty.yaml", "seed: 0\n")
    for run in (*study.steps, *study.rows):
        assert replace(study, recipe=str(empty)).recipe_of(run, 0) == study.recipe_of(run, 0)


def test_names_that_no_file_system_takes_are_a_sentence(tmp_path):
    endless = "a" * 10_000
    with pytest.raises(HoldfastError, match="unknown study"):
        load_study(endless)
    with pytest.raises(HoldfastError, match="unknown recipe 'aaa"):
        load_study(write(tmp_path / "study.yaml", f"recipe: {endless}\ntest: digits:test\nrows: {{a: {{}}}}\n"))
