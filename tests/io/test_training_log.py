"""Is it alive? What the log tells of parts that did nothing."""

from holdfast.io.training_log import idle_parts
from holdfast.reporting.page import report
from holdfast.training.loop import train
from tests.training.helpers import log_of, tiny

ADL = {"name": "robust", "options": {"adl": {"weight": 1.0, "tau": 50.0}}}  # nothing is ever above 50/16
AFAT = {"name": "robust", "options": {"afat": {"weight": 0.01, "lr": 0.01}}}
STILL = {"name": "robust", "options": {"afat": {"weight": 0.01, "lr": 0.0}}}


def step(**figures):
    return {"event": "step", "step": 1, "epoch": 0, "loss": 2.0, "lr": 0.0, **figures}


def test_a_part_is_idle_if_it_is_0_in_every_line():
    log = [step(adl=0.0, alignment=0.0), step(adl=0, alignment=0.1), {"event": "epoch", "step": 1, "top1": 0.0}]
    assert idle_parts(log) == ["adl was 0 in all 2 lines of the log: this term had no effect"]
    assert idle_parts([step(alignment=0.1)]) == idle_parts([]) == []


def test_a_module_is_idle_if_it_did_not_move():
    def end(**moved):
        return [{"event": "end", "step": 1, "moved": moved}]

    assert idle_parts(end(corruptor=0.2)) == idle_parts([{"event": "end", "step": 1, "moved": 3}]) == []
    (sentence,) = idle_parts(end(corruptor=2e-5))
    assert sentence.startswith("the weights of corruptor changed by only 0.002 % over the whole run")


def test_training_and_report_say_which_part_did_nothing(tmp_path, capsys):
    train(tiny(objective=ADL), out=tmp_path / "adl")
    assert "adl_active_rows was 0 in all 4 lines of the log" in " ".join(capsys.readouterr().err.split())
    assert "adl: adl_active_rows was 0 in all 4 lines of the log" in report(tmp_path / "adl")


def test_a_corruption_model_that_moves_is_told_from_one_that_does_not(tmp_path):
    for name, objective in (("moves", AFAT), ("still", STILL)):
        train(tiny(objective=objective), out=tmp_path / name, show=False)
    moves, still = (log_of(tmp_path / name) for name in ("moves", "still"))
    assert idle_parts(moves) == []
    assert any(sentence.startswith("the weights of corruptor changed by only 0 %") for sentence in idle_parts(still))
