"""An analysis is one object in one dictionary: command line, files, report and studies find it there."""

import numpy as np
import pytest

import holdfast
from holdfast.analysis.base import Analysis, FigureSpec, StudyColumn
from holdfast.analysis.registry import ANALYSES
from holdfast.analysis.results import load_results
from holdfast.analysis.settings import Setting, Settings, at_least
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.plotting.style import new_figure
from holdfast.studies.columns import available, columns, scores
from holdfast.studies.config import Study
from holdfast.studies.measure_run import measure
from holdfast.studies.results import RunResult
from tests.cli.test_analyze import make_run

FACTOR = Setting("brightness_factor", 1, "what brightness is multiplied by", int, at_least(1))


def run(subject, settings, tick):
    values = []
    for batch in subject.batches():
        values.append(settings.brightness_factor * subject.clean(batch).mean(dim=(1, 2, 3)).numpy())
        tick(len(batch.ids))
    return {}, {"brightness": np.concatenate(values)}


def draw(results):
    figure = new_figure(3, 2)
    axis = figure.subplots()
    for result in results:
        axis.plot(result.arrays["brightness"], label=result.label)
    return figure


@pytest.fixture
def brightness(monkeypatch):
    """A toy analysis, through the public dictionary alone."""
    toy = Analysis(
        "brightness",
        "how bright the images are",
        run,
        settings=(FACTOR,),
        headline=lambda result: {"mean brightness": float(result.arrays["brightness"].mean())},
        pages=lambda results: iter([("brightness", lambda: draw(results))]),
        shown=FigureSpec("How bright are the images?", "Of no use.", draw),
        columns=(
            StudyColumn("brightness", "bright", lambda result: result.arrays["brightness"], "higher", "mean pixel"),
        ),
    )
    monkeypatch.setitem(ANALYSES, "brightness", toy)
    return toy


def test_a_toy_analysis_reaches_the_command_line_the_files_and_the_report(brightness, tmp_path, capsys):
    folder = make_run(tmp_path / "run", "fan_nano")
    assert main(["analyze", "--help"]) == 0
    help_text = " ".join(capsys.readouterr().out.split())
    assert "brightness: how bright the images are" in help_text
    assert "--brightness-factor" in help_text

    assert main(["analyze", str(folder), "--only=brightness", "--brightness-factor=3", "--limit=4"]) == 0
    assert "mean brightness" in capsys.readouterr().out
    (stored,) = load_results(folder)
    assert (stored.kind, stored.header["settings"]) == ("brightness", {"brightness_factor": 3})
    assert len(list(folder.glob("analysis/*/figures/brightness.png"))) == 1

    page = holdfast.report(folder)
    assert "How bright are the images?" in page
    assert "brightness factor 3" in page
    assert "--brightness-factor 3" in page  # the command that makes it again

    assert main(["analyze", str(folder), "--only=brightness", "--brightness-factor=0"]) == 2
    assert "brightness_factor must be at least 1, got 0" in capsys.readouterr().err


def test_a_toy_analysis_reaches_a_studys_table(brightness, tmp_path):
    folder = make_run(tmp_path / "run", "fan_nano")
    options = {"test": "digits:test", "limit": 4, "suites": ("clean",), "analyses": ("brightness",)}
    study = Study("toy", "Toy", "digits/fan_nano", {"row": {}}, **options)
    measured = measure(study, folder, study.recipe_of("row", 0))
    result = RunResult("row", 0, measured.right, measured.measures, {})
    assert "brightness" in available({"row": [result]})
    assert scores(columns()["brightness"], [result]).mean == pytest.approx(measured.measures["brightness"].mean())


def test_settings_are_those_of_the_analyses(brightness):
    settings = Settings(brightness_factor=2)
    assert (settings.brightness_factor, settings.masks) == (2, 100)
    assert settings.changed(masks=3).brightness_factor == 2
    with pytest.raises(HoldfastError, match="unknown setting 'brightnes_factor'; did you mean 'brightness_factor'"):
        Settings(brightnes_factor=2)
