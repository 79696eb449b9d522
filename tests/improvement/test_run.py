"""A frozen plan is run to the same decision, also if it is killed on the way; commands make its winner again."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.improvement.costs import MeasuringCost
from holdfast.improvement.decide import read_decision
from holdfast.improvement.improve import make_request, write_report
from holdfast.improvement.plan import Rung, Step, read_plan
from holdfast.improvement.run import Improvement, run_request
from holdfast.improvement.select import Entry
from holdfast.improvement.trainings import stopped_early
from holdfast.models.checkpoints import read_weights
from holdfast.models.factory import load_torch_model
from holdfast.training.recipe_files import load_recipe
from tests.improvement.plans import short_plan

TINY = {
    "data": {"train_subset": 40, "val_subset": 30, "workers": 0},
    "train": {"batch_size": 20, "device": "cpu"},
    "model": {"name": "vit_nano", "kwargs": {"depth": 1}},
}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    out = tmp_path_factory.mktemp("start") / "run"
    holdfast.train("digits/vit_nano", out=out, overrides={**TINY, "train": {**TINY["train"], "epochs": 1}}, show=False)
    return out


def planned(start) -> tuple:
    """A request, and a plan for it whose lengths are given, so that nothing depends on the machine."""
    overrides = {"data": TINY["data"], "train": TINY["train"]}
    request = make_request(
        f"run:{start}", budget="1h", data={}, test="digits:test", recipe="digits/vit_nano", overrides=overrides, seeds=2
    )
    names = {"plain": {}, "low-lr": {"optimizer": {"lr": 1e-4}}, "sam": {"optimizer": {"sam": {}}}}
    plan = short_plan(
        request,
        names,
        start=f"run:{start}",
        rungs=(Rung(3, 3.0), Rung(2, 4.0)),
        choosing=Step("digits[1::2]", ("clean", "selection"), 30),
        alphas=(0.5, 1.0),
        soups=True,
        seeds=2,
        lengths={rung: {name: {"epochs": 1 + int(rung)} for name in names} for rung in "01"},
    )
    return request, plan


def decided(folder) -> dict:
    """A decision without the time it took and the folder that it is in."""
    values = json.loads((folder / "decision.json").read_text().replace(str(folder), "OUT"))
    return {name: value for name, value in values.items() if name != "spent"}


@pytest.fixture(scope="module")
def finished(start, tmp_path_factory):
    out = tmp_path_factory.mktemp("improve") / "out"
    request, plan = planned(start)
    plan.write(out)
    run_request(request, out=out)
    return out


def test_the_same_plan_decides_the_same_also_after_it_was_killed(start, finished, tmp_path):
    request, plan = planned(start)
    plan.write(tmp_path / "out")

    def kill_at(stage: str) -> Callable[[str], None]:
        def tell(line: str) -> None:
            if line.startswith(stage):
                raise KeyboardInterrupt

        return tell

    for stage in ("rung1/", "mixed", "test images"):
        with pytest.raises(KeyboardInterrupt):
            run_request(request, out=tmp_path / "out", tell=kill_at(stage))
    run_request(request, out=tmp_path / "out")
    assert decided(tmp_path / "out") == decided(finished)
    assert read_plan(tmp_path / "out" / "plan.json") == plan


def test_a_start_that_is_kept_is_the_winner(start, finished):
    decision = read_decision(finished)
    assert decision.verdict == "start"
    assert decision.model == str(finished / "winner")
    assert decision.commands == ()
    assert load_recipe(finished / "winner" / "recipe.yaml")
    one, other = (read_weights(folder / "model.safetensors") for folder in (finished / "winner", start))
    assert all((one[key] == other[key]).all() for key in other)
    (records,) = holdfast.load_records(finished / "winner")
    assert len(records.cells["clean"].predictions) == decision.images


@pytest.mark.parametrize(
    ("name", "alpha", "members"),
    [("plain", 1.0, ("plain",)), ("plain", 0.5, ("plain",)), ("uniform soup", 1.0, ("plain", "low-lr"))],
)
def test_the_commands_of_a_winner_make_its_weights_again(finished, tmp_path, monkeypatch, name, alpha, members):
    improvement = Improvement(read_plan(finished / "plan.json"), finished, tell=lambda line: None, show=False)
    improvement.trained = {each: finished / "runs" / "rung1" / each for each in ("plain", "low-lr")}
    alone = alpha == 1 and len(members) == 1
    folder = improvement.trained[name] if alone else finished / "mixed" / f"{name.replace(' ', '-')}-{alpha:g}"
    monkeypatch.chdir(tmp_path)
    for command in improvement._commands(Entry(name, alpha, members, None), "use", folder):
        assert main(shlex.split(command, comments=True)[1:]) == 0
    made = f"run:again{'@best' * stopped_early(folder)}" if alone else "run:again/winner"
    one, other = (load_torch_model(each, what="").model.state_dict() for each in (made, f"run:{folder}"))
    assert all((one[key] == other[key]).all() for key in other)


def test_a_winner_of_several_phases_is_made_again_by_the_recipe_of_all_of_them(finished, tmp_path):
    run = tmp_path / "runs" / "rung0" / "tora" / "lambda-0.5"
    run.mkdir(parents=True)
    (run.parent / "recipe.yaml").touch()
    improvement = Improvement(read_plan(finished / "plan.json"), finished, tell=lambda line: None, show=False)
    improvement.trained = {"tora": run}
    commands = improvement._commands(Entry("tora", 1.0, ("tora",), None), "use", tmp_path / "winner")
    assert commands == (f"holdfast train {run.parent}/recipe.yaml --out again # then again/lambda-0.5",)


def test_no_kind_of_corruption_both_chooses_and_is_reported(finished):
    decision = read_decision(finished)
    (chosen,) = holdfast.load_records(finished / "choosing" / "rung0-plain")
    (reported,) = holdfast.load_records(decision.folders["plain"])
    first, second = (
        {cell.spec.kind for cell in found.cells.values() if cell.spec.family != "clean"} for found in (chosen, reported)
    )
    assert (len(first), len(second)) == (10, 15)
    assert not first & second


def test_what_is_left_behind_tells_everything(finished):
    decision = read_decision(finished)
    assert decision.images == 30
    assert decision.candidates == 3
    assert decision.seeds == 2
    assert all(len(holdfast.load_records(folder)) == 1 for folder in decision.folders.values())  # that of its own seed
    assert set(decision.scores) == {"plain", "challenger", "start"}
    table = (finished / "candidates.csv").read_text().splitlines()
    assert len([line for line in table if line.startswith("rung 0")]) == 3
    assert len([line for line in table if line.startswith("final")]) == decision.tried >= 4
    assert sum(line.endswith("yes") for line in table) == 1
    page = write_report(decision, finished).read_text()
    assert "digits:test" in page


def test_a_plan_of_another_request_is_refused_and_a_finished_one_is_not_run_again(start, finished):
    request, _ = planned(start)
    assert run_request(request, out=finished) == read_decision(finished)
    with pytest.raises(holdfast.HoldfastError, match=r"holds the plan of another request \(budget differ\)"):
        run_request(replace(request, budget=60.0), out=finished)


def test_training_on_what_chooses_is_refused(start, tmp_path, capsys):
    words = [
        "improve",
        "digits/vit_nano",
        "--data.test",
        "digits:test",
        "--budget",
        "1h",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main([*words, "--augment.corruption={kinds: [fog]}"]) == 2
    assert "augment.corruption must be null" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [["--class-map", "imagenet-16"], ["--classes=all"]])
def test_class_maps_are_refused(words, tmp_path, capsys):
    assert main(["improve", "digits/vit_nano", "--budget", "1h", "--out", str(tmp_path / "out"), *words]) == 2
    assert "--class-map and --classes do not apply to improve" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def slow_plan(start, **other):
    """A plan for ten seconds: three trainings of 1.2 s by their forecasts, 100 images for choice and report."""
    _, plan = planned(start)
    values = {
        "request": {**plan.request, "budget": 10.0},
        "rungs": (Rung(3, 3.0),),
        "alphas": (1.0,),
        "soups": False,
        "choice": MeasuringCost(0.0, 0.01),
        "report": MeasuringCost(0.0, 0.015),
        "choosing": replace(plan.choosing, images=100),
        "testing": replace(plan.testing, images=100),
        "lengths": {"0": plan.lengths["0"]},
    }
    return replace(plan, **values | other)


def test_a_slower_machine_chooses_and_reports_on_fewer_images(start, tmp_path):
    """Trainings took twice their forecast: what is left of the budget is shared out among what is left to do."""
    plan = slow_plan(start)
    forecast = sum(0.2 + 1.0 for _ in plan.candidates)
    (tmp_path / "clock.json").write_text(json.dumps({f"train rung0/{name}": 2.4 for name in plan.candidates}))
    improvement = Improvement(plan, tmp_path, tell=lambda line: None, show=False)
    assert improvement.clock.elapsed == pytest.approx(2 * forecast)
    improvement._fit_choosing()
    # 3 choices of 2 s each, and 5 reports of 1.5 times that: 21 s do not fit the 2.8 s that are left
    kept = read_plan(tmp_path / "plan.json")
    assert kept.choosing.images == 30
    assert kept.remarks[0] == "chosen by 30 validation images instead of 100: the machine was slower than forecast"


def test_the_report_gets_what_choices_and_further_seeds_leave(start, tmp_path):
    """A choice took as long as forecast: a report of all images takes 5 · 1.5 s."""

    def reported(*, seeds: int, elapsed: float) -> int:
        plan = slow_plan(start, seeds=seeds, choosing=Step("digits[1::2]", ("clean", "selection"), 100))
        clock = {"choose rung0-plain": 1.0, "mix something": elapsed - 1.0}
        (tmp_path / "clock.json").write_text(json.dumps(clock))
        improvement = Improvement(plan, tmp_path, tell=lambda line: None, show=False)
        improvement.rung_of = {"plain": 0, "low-lr": 0}
        improvement._fit_testing(("low-lr",))
        return improvement.plan.testing.images

    assert reported(seeds=1, elapsed=5.4) == 100  # 4.5 s fit the 4.6 s that are left
    assert reported(seeds=1, elapsed=5.6) == 71  # they do not: 8.8 s is the aim, of which 3.2 s are left
    assert reported(seeds=2, elapsed=1.0) == 72  # two trainings of 1.2 s come first: 5.4 s of 7.5 s
    assert reported(seeds=2, elapsed=9.0) == 50


def test_what_is_reported_already_is_no_longer_to_come(start, tmp_path):
    clock = {"choose rung0-plain": 2.0, "test start": 3.0, "test runs/rung0/plain": 3.0}
    (tmp_path / "clock.json").write_text(json.dumps(clock))
    improvement = Improvement(slow_plan(start), tmp_path, tell=lambda line: None, show=False)
    assert improvement._testing_time() == pytest.approx(3 * 2 * 1.5)  # of five models, twice as slow as forecast


@pytest.mark.parametrize(
    ("clock", "slower"),
    [
        ({}, 1.0),
        ({"train rung0/plain": 1.8, "train rung0/low-lr": 1.8, "train rung1/sam/seed1": 3.3}, 6.9 / 4.6),
        # on Ray three trainings of 1.2 s in two slots take 2.4 s, and what it trained is only looked up afterwards
        ({"rung0 on Ray": 4.8, "train rung0/plain": 0.0, "train rung0/low-lr": 0.0}, 2.0),
        ({"rung0 on Ray": 4.8, "train rung0/plain": 0.0, "train rung0/plain/seed1": 0.6}, 5.4 / 3.6),
    ],
)
def test_trainings_are_compared_with_their_forecasts(start, tmp_path, clock, slower):
    (tmp_path / "clock.json").write_text(json.dumps(clock))
    _, plan = planned(start)
    improvement = Improvement(replace(plan, slots=2), tmp_path, tell=lambda line: None, show=False)
    assert improvement._slower() == pytest.approx(slower)


def test_values_of_the_model_stand_beside_the_start(tmp_path, capsys):
    words = ["improve", "finetune", "--budget", "1h", "--out", str(tmp_path / "out"), "--model", "run:nothing"]
    assert main([*words, "--data.train=digits", "--data.val=digits", "--model.head=new", "--model.kwargs.depth=1"]) == 2
    assert "init run:nothing must be a finished run" in capsys.readouterr().err
    assert main([*words, "--model.heat=new"]) == 2
    assert "unknown recipe key 'model.heat'; did you mean 'head'?" in capsys.readouterr().err


def test_a_candidate_that_only_overfits_what_chooses_does_not_win(tmp_path):
    """It is planted: trained on the very images that choose, until it knows them by heart."""
    seen = "digits:val[1::2][0:30]"
    overrides = {
        **TINY,
        "data": {"workers": 0, "train_subset": 30},
        "optimizer": {"lr": 3e-3},
        "augment": {"crop": "none"},
    }
    request = make_request(
        None, budget="1h", data={}, test="digits:test", recipe="digits/vit_nano", overrides=overrides
    )
    names = {"plain": {}, "planted": {"data": {"train": seen, "val": seen}}}
    plan = short_plan(
        request,
        names,
        choosing=Step(seen, ("clean", "selection"), 30),
        testing=Step("digits:test", ("quick",), 60),
        lengths={"0": {name: {"steps": 120, "whole": 60.0} for name in names}},
    )
    plan.write(tmp_path / "out")
    decision = run_request(request, out=tmp_path / "out")
    table = (tmp_path / "out" / "candidates.csv").read_text().splitlines()
    assert next(line for line in table if line.endswith("yes")).startswith("final,planted,"), table
    assert decision.challenger == "planted"
    assert decision.verdict == "plain"
    assert load_recipe(tmp_path / "out" / "winner" / "recipe.yaml").data.train == "digits"


@pytest.mark.full
def test_candidates_that_ray_trains_at_once_decide_the_same(start, finished, tmp_path):
    pytest.importorskip("ray")
    from holdfast.runtime.ray import Cluster

    request, plan = planned(start)
    plan.write(tmp_path / "out")
    run_request(request, out=tmp_path / "out", cluster=Cluster())
    assert decided(tmp_path / "out") == decided(finished)
