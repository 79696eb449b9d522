"""The robust methods in our loop: alive, resumed exactly, the same on every process."""

import pytest
import torch
from safetensors.torch import load_file

from holdfast.methods import AfatSettings, AttentionDiversification, FeatureAlignment, RobustObjective
from holdfast.models.corruption_model import Corruptor, load_corruptor
from holdfast.training.loop import train
from holdfast.training.recipe_files import load_recipe, to_yaml
from tests.chaos.processes import run_group
from tests.training.helpers import assert_same_run, log_of, run, tiny
from tests.training.test_loop import StopsAt

ROBUST = {"name": "robust", "options": {"afat": {"weight": 0.1, "lr": 0.01}, "adl": {"variant": "paper"}}}
ALIVE = {
    "afat": ({"afat": {"lr": 0.05}}, ("alignment", "corruptor_grad_norm")),
    "adl": ({"adl": {"variant": "paper", "tau": 1.05}}, ("adl", "adl_active_rows")),
    "patches": ({"patches": {"patch_size": 4}}, ("patch_cross_entropy",)),
    "adversarial": ({"adversarial": {"eps": 0.03, "alpha": 0.02, "steps": 2}}, ("adversarial_cross_entropy",)),
}


@pytest.mark.parametrize("method", ALIVE)
def test_the_log_shows_that_a_method_is_alive(method, tmp_path):
    options, figures = ALIVE[method]
    recipe = tiny(model={"name": "fan_nano"}, objective={"name": "robust", "options": options})
    train(recipe, out=tmp_path / "run", show=False)
    last = log_of(tmp_path / "run", "step")[-1]
    assert all(last[figure] > 0 for figure in figures)


def test_the_log_shows_every_blocks_alignment_and_changes_of_selection(tmp_path):
    model = {"name": "fan_nano", "kwargs": {"depth": 3}}
    result = run(tmp_path / "run", objective=objective(lr=0.05), model=model, train={"epochs": 3})
    lines = log_of(result.folder, "step")
    assert {f"alignment_{block}" for block in range(3)} <= lines[-1].keys()
    assert max(line["selection_change"] for line in lines) > 0
    assert load_corruptor(result.folder / "corruptor.safetensors").grid == (8, 8)


def objective(lr: float = 0.01) -> RobustObjective:
    torch.manual_seed(0)
    corruptor = Corruptor((8, 8), patch_size=4)
    settings = AfatSettings(weight=0.1, lr=lr)
    return RobustObjective([FeatureAlignment(corruptor, settings), AttentionDiversification(variant="paper")])


def test_a_stopped_run_with_both_players_resumes_to_the_same_bits(tmp_path):
    run(tmp_path / "whole", objective=objective(), model={"name": "fan_nano", "kwargs": {"depth": 1}})
    stopped = run(
        tmp_path / "parts", objective=StopsAt(5, objective()), model={"name": "fan_nano", "kwargs": {"depth": 1}}
    )
    assert stopped.stopped_by
    run(tmp_path / "parts", resume=True, objective=objective(), model={"name": "fan_nano", "kwargs": {"depth": 1}})
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    corruptors = [load_file(tmp_path / name / "corruptor.safetensors") for name in ("whole", "parts")]
    assert all(torch.equal(corruptors[0][key], corruptors[1][key]) for key in corruptors[0])


def test_two_processes_hold_the_same_players(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(load_recipe(tiny(objective=ROBUST, train={"epochs": 1}))))
    command = ["train", str(recipe), "--out", str(tmp_path / "two"), "--train.batch_size=8"]
    ends = run_group(command, folder=tmp_path)
    assert [code for code, _ in ends] == [0, 0], ends
    (end,) = log_of(tmp_path / "two", "end")
    assert (end["processes"], end["processes_agree"]) == (2, True)
    assert log_of(tmp_path / "two", "step")[-1]["corruptor_grad_norm"] > 0
