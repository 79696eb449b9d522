"""Evaluations that stop early: the goal is reached, and going on gives the records of a full evaluation."""

import re
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from holdfast import ComputeConfig, Until, compare, evaluate
from holdfast.cli.main import main
from holdfast.data.source import ArraySource
from holdfast.errors import HoldfastError
from holdfast.records.records import load_records, read_records
from tests.evaluation.toys import Brightest, colours

SUITES = "clean,corruptions-135"
CELLS = 46
QUICK = {"workers": 0, "show": False, "compute": ComputeConfig(shard_size=40)}
MEAN = "mean_corruption_accuracy_partial"


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def full():
    return evaluate(Brightest(), colours(120), SUITES, **QUICK)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    return evaluate(Brightest(), colours(120), SUITES, out=tmp_path_factory.mktemp("stopped"), until=9, **QUICK)


def test_it_stops_when_the_interval_is_narrow_enough(stopped):
    score = stopped.summary()[MEAN]
    assert (score.high - score.low) / 2 <= 9
    assert stopped.passes is not None
    assert stopped.passes.total == 120 * CELLS
    assert stopped.passes.done < 120 * CELLS / 5
    counts = {len(cell) for name, cell in stopped.cells.items() if name != "clean"}
    assert len(counts) == 1
    assert counts.pop() >= 8


def test_every_image_used_is_measured_clean_and_answers_are_those_of_a_full_evaluation(stopped, full):
    used = set(np.concatenate([cell.ids for name, cell in stopped.cells.items() if name != "clean"]))
    assert set(stopped.cells["clean"].ids) == used
    for name, cell in stopped.cells.items():
        all_images = dict(zip(full.cells[name].ids, full.cells[name].predictions, strict=True))
        assert [all_images[each] for each in cell.ids] == cell.predictions.tolist()


def test_it_says_how_many_passes_were_used(stopped, full):
    summary = stopped.summary()
    assert str(summary).count(f"{summary.passes.done:,} of 5,520 passes") == 1
    assert full.passes is None
    assert "passes" not in str(full.summary())


@pytest.mark.parametrize("workers", [0, 2])
def test_going_on_gives_the_files_of_a_full_evaluation(tmp_path, workers):
    options = {**QUICK, "workers": workers, "compute": ComputeConfig(shard_size=20, batch_size=16)}
    source, suites = colours(50), "clean,corruptions"
    for until in (20, "12,fog=16"):
        part = evaluate(Brightest(), source, suites, out=tmp_path / "part", until=until, **options)
        assert part.passes is not None
    assert len(part.cells["fog/1"]) > len(part.cells["snow/1"])
    whole = evaluate(Brightest(), source, suites, out=tmp_path / "part", **options)
    direct = evaluate(Brightest(), source, suites, out=tmp_path / "direct", **options)
    assert files_of(whole.folder) == files_of(direct.folder)


def test_a_goal_that_cannot_be_reached_ends_with_the_files_of_a_full_evaluation(tmp_path):
    source, options = colours(24), {**QUICK, "compute": ComputeConfig(shard_size=10)}
    part = evaluate(Brightest(), source, SUITES, out=tmp_path / "part", until=0.1, **options)
    direct = evaluate(Brightest(), source, SUITES, out=tmp_path / "direct", **options)
    assert part.passes is None
    assert files_of(part.folder) == files_of(direct.folder)


def test_a_finished_evaluation_stays_as_it_is(tmp_path):
    first = evaluate(Brightest(), colours(20), SUITES, out=tmp_path, **QUICK)
    before = files_of(first.folder)
    again = evaluate(Brightest(), colours(20), SUITES, out=tmp_path, until=5, **QUICK)
    assert files_of(again.folder) == before
    assert again.passes is None


def test_models_are_compared_on_the_pairs_that_both_have(stopped, full, tmp_path):
    other = evaluate(Brightest(), colours(120), SUITES, out=tmp_path, until=7, **QUICK)
    found = compare(stopped, other)
    assert found.differences[MEAN].interval.value == 0
    against_full = compare(stopped, full)
    assert against_full.differences[MEAN].interval.value == 0
    assert against_full.images == len(stopped.cells["clean"])


def test_budget_counts_passes_and_is_kept(tmp_path):
    some = evaluate(Brightest(), colours(120), SUITES, out=tmp_path, until=Until(budget=1000), **QUICK)
    assert 736 <= some.passes.done <= 1000
    again = evaluate(Brightest(), colours(120), SUITES, out=tmp_path, until=Until(budget=1000), **QUICK)
    assert again.passes == some.passes


def test_a_budget_below_the_first_round_is_one_sentence(tmp_path):
    with pytest.raises(HoldfastError, match="budget must be at least 480 passes, 8 images in every cell, got 479"):
        evaluate(Brightest(), colours(120), SUITES, out=tmp_path / "out", until=Until(budget=479), **QUICK)
    assert not (tmp_path / "out").exists()


def test_a_time_that_ends_in_the_first_round_is_said_and_going_on_completes_it(set_of_colours, tmp_path, capsys):
    words = ("--suite", "clean,corruptions", "--budget", "0.001s")
    assert main(command(set_of_colours, tmp_path / "out", *words)) == 0
    told = capsys.readouterr()
    assert "stopped before every cell had 8 images: run the same command again to go on" in told.err
    assert len(re.findall(r"[\d,]+ of 4,560 passes", told.out)) == 1
    assert main(command(set_of_colours, tmp_path / "out", *words[:2], "--budget", "660")) == 0
    again = capsys.readouterr()
    assert "stopped before" not in again.err
    assert "660 of 4,560 passes" in again.out


def test_read_back_from_the_folder(stopped):
    (loaded,) = load_records(stopped.folder)
    assert loaded.passes == stopped.passes
    assert loaded.summary()[MEAN].low == stopped.summary()[MEAN].low
    assert read_records(stopped.folder, cells=["fog/1"]).passes.total == 120


@pytest.mark.parametrize(
    ("until", "sentence"),
    [
        (0, "until must give points above 0, as 0.5 or mce=1,fog=2, got 0"),
        (-1, "until must give points above 0"),
        ("nan", "until must give points above 0"),
        ("fog=", "until must give points above 0"),
        ("=2", "until must be points, or scores with points"),
        ("fog=1,fog=2", "until must be points, or scores with points"),
        ({}, "until must be points, or scores with points"),
        ("rain=1", "until must name scores of these suites and data, got 'rain'"),
        ("mce=1", "until must name scores of these suites and data, got 'mce': mCE divides by a baseline's errors"),
        ("pgd5=1", "pgd5 is measured in whole batches of images"),
    ],
)
def test_goals_that_cannot_be_are_one_sentence(tmp_path, until, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        evaluate(Brightest(), colours(9), f"{SUITES},pgd5", out=tmp_path / "out", until=until, **QUICK)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("budget", [0, -5, "0", "m", "10x", "", True, "1e3", "-3m"])
def test_budgets_that_cannot_be_are_one_sentence(budget):
    with pytest.raises(HoldfastError, match="budget must be a time such as 10m or 1h30m, or a number of passes"):
        Until(budget=budget)


def test_budgets():
    assert Until(budget="10m").seconds == 600
    assert Until(budget="1h30m").seconds == 5400
    assert Until(budget="1.5h").seconds == 5400
    assert Until(budget="50,000").passes == 50_000
    assert Until(budget=50_000).passes == 50_000


def test_everything_that_prints_says_how_many_passes_were_used_once(stopped, full, tmp_path):
    from holdfast.reporting.export.tables import export
    from holdfast.reporting.page import report

    said = str(stopped.passes)
    for form in ("terminal", "markdown"):
        assert export([stopped], form).count(said) == 1
    assert f",{said}," in export([stopped], "csv").replace('"', "")
    assert said not in export([full])
    both = compare(stopped, full)
    assert str(both).count(said) == 1
    assert report(stopped.folder.parents[1], out=tmp_path / "page.html").count(said) == 1


@pytest.fixture(scope="module")
def set_of_colours(tmp_path_factory):
    path, source = tmp_path_factory.mktemp("data") / "colours.npz", colours(60)
    np.savez(path, x=source.images, y=source.targets)
    return path


def command(data, out, *words):
    model = ("--model", "python:tests.evaluation.toys:brightest")
    return ["evaluate", *model, "--data", f"npz:{data}", "--workers", "0", "--out", str(out), *words]


def test_the_command_prints_the_estimate_and_the_passes_once(set_of_colours, tmp_path, capsys):
    words = ("--suite", "clean,corruptions-135,pgd5", "--until", "12")
    assert main(command(set_of_colours, tmp_path / "out", *words)) == 0
    told = capsys.readouterr()
    assert re.search(r"mCA .* ± \d+\.\d\d \(goal 12\)", told.out)
    assert len(re.findall(r"[\d,]+ of 2,760 passes", told.out)) == 1
    assert told.err.count("not measured, because no goal names them: pgd5; evaluate without --until for these") == 1


def test_a_goal_out_of_reach_is_said_before_the_start(set_of_colours, tmp_path, capsys):
    words = ("--suite", "clean", "--until", "2", "--limit", "20")
    assert main(command(set_of_colours, tmp_path / "out", *words)) == 0
    said = capsys.readouterr().err
    assert "20 images: for a typical model clean is at best about ±17.5; if ±2 is out of reach, all passes are" in said


def test_the_score_of_these_images_is_known_when_all_passes_are_done(set_of_colours, tmp_path, capsys):
    words = ("--suite", "clean,corruptions-135", "--until", "3", "--of-these-images", "--limit", "30")
    assert main(command(set_of_colours, tmp_path / "out", *words)) == 0
    told = capsys.readouterr()
    estimate, half = re.search(r"mCA .* (\S+) ± (\S+) \(goal 3\)", told.out).groups()
    assert float(half) <= 3
    assert "at best" not in told.err
    full = evaluate(Brightest(), colours(60), "clean,corruptions-135", limit=30, **QUICK).summary()[MEAN].value
    assert abs(float(estimate) - full) <= 5


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--until", "0"), "until must give points above 0"),
        (("--until", "-1"), "until must give points above 0"),
        (("--until", "mce=1"), "mCE divides by a baseline's errors"),
        (("--until", "fog=1", "--suite", "clean"), "until must name scores of these suites and data, got 'fog'"),
        (("--budget", "soon"), "budget must be a time such as 10m or 1h30m, or a number of passes above 0, got 'soon'"),
        (("--of-these-images",), "--of-these-images needs --until, got none"),
        (("--of-these-images", "--budget", "1m"), "of_these_images needs a precision"),
        (("--until", "1", "--predictions", "maps"), "--predictions writes the label maps of all images: omit --until"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(set_of_colours, tmp_path, capsys, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(command(set_of_colours, tmp_path / "out", *words)) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_the_clean_suite_there_are_no_clean_passes():
    some = evaluate(Brightest(), colours(60), "corruptions-135", until=13, **QUICK)
    assert some.passes.total == 60 * 45
    assert "clean" not in some.cells
    assert MEAN in some.summary()


def test_unreadable_images_are_left_out_of_every_cell_and_end_the_same(tmp_path):
    source = colours(40)
    for number, image in enumerate(source.images):
        path = tmp_path / "images" / source.classes[number % 3] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path, quality=95)
    for name in ("red/3.jpg", "green/4.jpg"):
        (tmp_path / "images" / name).write_bytes((tmp_path / "images" / name).read_bytes()[:300])
    words = (f"folder:{tmp_path / 'images'}", "clean,corruptions-135")
    some = evaluate(Brightest(), *words, out=tmp_path / "part", until=15, **QUICK)
    assert some.passes is not None
    assert set(some.excluded) <= {"red/3.jpg", "green/4.jpg"}
    assert all(not set(cell.ids) & set(some.excluded) for cell in some.cells.values())
    whole = evaluate(Brightest(), *words, out=tmp_path / "part", **QUICK)
    direct = evaluate(Brightest(), *words, out=tmp_path / "direct", **QUICK)
    assert set(whole.excluded) == {"red/3.jpg", "green/4.jpg"}
    assert files_of(whole.folder) == files_of(direct.folder)


class CountsReads(ArraySource):
    """Counts how often an image is read."""

    reads: ClassVar[list[int]] = []

    def image(self, index):
        self.reads.append(index)
        return super().image(index)


def test_an_image_is_read_once_for_its_cell_and_clean_although_the_model_prepares_clean_ones_its_own_way(tmp_path):
    model, source = Brightest(), CountsReads(**vars(colours(400)))
    model.pretrained_cfg = {"input_size": (3, 32, 32), "crop_pct": 0.8, "interpolation": "bicubic"}
    some = evaluate(model, source, SUITES, out=tmp_path, until=Until(budget=720), **QUICK)
    assert some.passes.done == 720  # 360 images, each in a corrupted cell and clean
    assert 360 <= len(source.reads) < 450  # some are looked at before the start
    clean = evaluate(model, colours(400), "clean", **QUICK).cells["clean"]
    known = dict(zip(clean.ids, clean.predictions, strict=True))
    assert [known[each] for each in some.cells["clean"].ids] == some.cells["clean"].predictions.tolist()


def test_damaged_rounds_are_set_aside_and_measured_again(tmp_path, caplog):
    words = (colours(60), "clean,corruptions-135")
    some = evaluate(Brightest(), *words, out=tmp_path, until=13, **QUICK)
    (path,) = (some.folder / "rounds").glob("*.safetensors")
    content = path.read_bytes()
    path.write_bytes(content[:-9] + b"x" * 9)
    again = evaluate(Brightest(), *words, out=tmp_path, until=13, **QUICK)
    assert "kept as" in caplog.text
    assert path.read_bytes() == content
    assert again.passes == some.passes
