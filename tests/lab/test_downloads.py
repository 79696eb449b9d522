"""What people take away: a picture, a page that needs nothing else, Python lines; and what the filmstrip shows."""

import contextlib
import io
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from timm.models import save_for_hf

import holdfast
from holdfast.cli.main import main
from holdfast.data import open_data
from holdfast.data.subsets import Subset
from holdfast.lab import inspect_image, open_model, probabilities
from holdfast.lab.filmstrip import PAGE, as_recorded, fitting_records, hardest
from holdfast.lab.session import Session, ViewState, parse_view_state
from holdfast.models import create_model
from tests.lab.conftest import HOSTILE, Hostile


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run's folder, as training leaves it, with records of a few digits."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    torch.manual_seed(0)
    save_for_hf(create_model("vit_nano", num_classes=10), folder, safe_serialization=True)
    return folder


@pytest.fixture(scope="module")
def session(run):
    return Session([open_model(str(run), "digits:test")])


def test_the_python_lines_reproduce_the_answers(session, run, capsys):
    ask = parse_view_state({"image": 7, "do": "fog/3,hide/8x8:1.2,pgd/8"})
    lines = session.download(ask, "lines.py").decode()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(lines, "lines.py", "exec"), {})
    seen = inspect_image(session.first, 7, "fog/3,hide/8x8:1.2,pgd/8")
    chances = probabilities(seen.after.answers[""][0])
    assert f"after  {session.first.classes[chances.argmax()]} {chances.max()}" in printed.getvalue()
    assert f"stability of attention {seen.stability}" in printed.getvalue()


def test_the_python_lines_find_the_same_image_among_a_few(run):
    session = Session([open_model(str(run), "digits:test", limit=7)])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(session.download(ViewState(5), "lines.py").decode(), "lines.py", "exec"), {})
    chances = probabilities(inspect_image(session.first, 5).before.answers[""][0])
    assert f"before  {session.first.classes[chances.argmax()]} {chances.max()}" in printed.getvalue()


def test_the_card_needs_nothing_else_and_shows_the_same_numbers(session):
    card = session.download(ViewState(3, "snow/2"), "card.html").decode()
    sources = re.findall(r'(?:src|href)="([^"]{0,20})', card)
    assert len(sources) >= 5
    assert all(source.startswith("data:") for source in sources)
    seen = inspect_image(session.first, 3, "snow/2")
    assert f"{seen.stability:.4f}" in card
    assert f"{100 * probabilities(seen.after.answers[''][0]).max():.1f} %" in card
    assert "open_model" in card


def test_hostile_names_stay_text_in_what_is_kept():
    source = Hostile(Subset(open_data("digits:test", split="test"), np.arange(3)))
    session = Session([open_model(create_model("vit_nano", num_classes=10).eval(), source)])
    assert "<img src=x" not in session.download(ViewState(0, "fog/1"), "card.html").decode()
    assert session.download(ViewState(0, "fog/1"), "picture.png")[:4] == b"\x89PNG"
    compile(session.download(ViewState(0, "fog/1"), "lines.py").decode(), "lines.py", "exec")
    assert HOSTILE not in session.strip(label=None, severity=0, page=0)["html"]


def test_the_picture_is_a_picture(session):
    picture = Image.open(io.BytesIO(session.download(ViewState(3, "fog/5"), "picture.png")))
    assert picture.width > 800


def test_a_run_with_records_lists_the_answers_that_flip(run, session):
    holdfast.evaluate(run, "digits:test", "clean,corruptions", limit=6, workers=0, show=False)
    records = fitting_records(session.first)
    assert records is not None
    found = Session(session.models).strip(label=None, severity=5, page=0)
    assert found["html"].count('class="film"') == min(PAGE, len(hardest(records, 5)))


def test_draws_are_those_of_the_records_unless_a_seed_is_given(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("records"))
    assert [lens.seed for lens in as_recorded([open_model(copied, "digits:test")])] == [0]
    records = holdfast.evaluate(copied, "digits:test", "clean,corruptions", limit=4, seed=5, workers=0, show=False)
    (lens,) = as_recorded([open_model(copied, "digits:test")])
    assert lens.seed == 5
    number = next(n for n in range(len(lens.source)) if lens.source.id(n) == records.cells["clean"].ids[1])
    seen = inspect_image(lens, number, "gaussian_noise/5")
    assert seen.after.fields["nll"][0] == pytest.approx(records.cells["gaussian_noise/5"].nll[1], abs=1e-4)


def test_records_of_other_weights_or_steps_are_not_taken_for_this_models(run, session, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("records"))
    torch.manual_seed(1)
    save_for_hf(create_model("vit_nano", num_classes=10), copied, safe_serialization=True)
    holdfast.evaluate(copied, "digits:test", "clean,corruptions", limit=2, workers=0, show=False)
    assert fitting_records(open_model(copied, "digits:test")) is not None
    assert fitting_records(open_model(copied, "digits:test", protocol=holdfast.EvalProtocol(mean=(0, 0, 0)))) is None
    shutil.copy(run / "model.safetensors", copied)
    assert fitting_records(open_model(copied, "digits:test")) is None


def test_the_filmstrip_shows_one_class(session):
    found = session.strip(label=4, severity=0, page=99)
    numbers = [int(number) for number in re.findall(r'data-image="(\d+)"', found["html"])]
    assert numbers
    assert all(session.first.source.targets[number] == 4 for number in numbers)
    assert found["page"] == found["pages"] - 1


def test_a_taken_port_is_told_before_the_demo_is_trained(lab, tmp_path, capsys):
    assert main(["lab", "--demo", "--no-browser", "--port", str(lab.port), "--out", str(tmp_path / "demo")]) == 2
    assert "--port" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "b", "c"], "one model or two"),
        (["--demo", "--data", "digits"], "--demo"),
        (["timm:vit_nano"], "--data"),
        (["RUN", "--data", "scenes"], "224×224"),
        (["RUN", "--data", "digits:test", "--port", "99999"], "65535"),
        (["RUN", "--data", "nothing"], "nothing"),
        (["RUN", "--data", "digits:test", "--seed", "-1"], "--seed"),
        (["RUN", "nowhere", "--data", "digits:test"], "nowhere: "),
    ],
)
def test_what_does_not_fit_is_one_sentence(run, arguments, said, capsys):
    assert main(["lab", "--no-browser", "--port", "0", *[str(run) if a == "RUN" else a for a in arguments]]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("holdfast: error: ")
    assert said in told
