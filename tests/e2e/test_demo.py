"""``holdfast demo --quick`` as people run it: what it leaves, what it prints, and that it is not done twice."""

import re

import numpy as np
import pytest

from holdfast.cli.demo_settings import CLASSIFICATION
from holdfast.cli.main import main
from holdfast.corruptions.severities import SEVERITIES, STANDARD
from holdfast.records.records import load_records

CORRUPTIONS = [f"{kind}/{severity}" for kind in STANDARD for severity in SEVERITIES]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Its folder, filled by the first tests; the others go on with it."""
    return tmp_path_factory.mktemp("demo")


def test_stopped_by_ctrl_c_it_says_how_to_go_on(demo, capsys, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.evaluation.evaluate.run_units", interrupt)
    assert main(["demo", "--quick", "--out", str(demo)]) == 130
    assert "stopped by SIGINT; run the same command again to resume" in capsys.readouterr().out
    assert (demo / "baseline" / "model.safetensors").exists()
    assert not (demo / "report.html").exists()


def test_the_demo_from_the_beginning_to_the_report(demo, capsys):
    assert main(["demo", "--quick", "--out", str(demo)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("already trained") == 1  # what was done before the interruption
    for name in CLASSIFICATION.models:
        folder = demo / name
        for file in ("recipe.yaml", "log.jsonl", "model.safetensors", "config.json"):
            assert (folder / file).is_file(), file
        assert list((folder / "analysis").rglob("stability.safetensors"))
        (records,) = load_records(folder)
        assert {"clean", *CORRUPTIONS, "pgd5-rspc", "occlusion-random"} == set(records.cells)
        assert np.bincount(records.cells["clean"].targets).tolist() == [2] * 10  # every class in its share
        assert_table_row(printed, name, expected_scores(records))
    page = (demo / "report.html").read_text()
    assert len(page) < 5e6
    assert re.sub(r"\s", "", str(demo / "report.html")) in re.sub(r"\s", "", printed)
    for part in ("data-1-severity", "data-1-heat", "training-loss", "analysis-stability-0", "analysis-maps-0"):
        assert f'id="{part}"' in page, part


def expected_scores(records) -> list[float]:
    """The table's numbers, recomputed from the files by hand."""
    accuracy = {name: 100 * float(np.mean(cell.right)) for name, cell in records.cells.items()}
    corrupted = np.mean([accuracy[name] for name in CORRUPTIONS])
    kept = 100 * corrupted / accuracy["clean"]
    return [accuracy["clean"], corrupted, kept, accuracy["pgd5-rspc"], accuracy["occlusion-random"]]


def assert_table_row(printed: str, name: str, expected: list[float]) -> None:
    (row,) = re.findall(rf"^ *{name} +(\d.*\))", printed, re.MULTILINE)
    shown = [float(value) for value in re.findall(r"([\d.]+) \(", row)]
    assert len(shown) == len(CLASSIFICATION.columns)
    assert shown == pytest.approx(expected, abs=0.051)


def test_finished_work_is_reused(demo, capsys):
    files = {path: path.stat().st_mtime_ns for path in demo.rglob("*.safetensors")}
    examples = {path: path.read_bytes() for path in demo.rglob("examples.safetensors")}
    assert len(files) > 200
    assert main(["demo", "--quick", "--out", str(demo)]) == 0
    kept = {path: path.stat().st_mtime_ns for path in demo.rglob("*.safetensors")}
    changed = [path.name for path in kept if kept[path] != files.get(path)]
    assert [name for name in changed if name not in ("images.safetensors", "examples.safetensors")] == []
    assert all(path.read_bytes() == held for path, held in examples.items())  # drawn again, the same
    assert capsys.readouterr().out.count("already trained") == len(CLASSIFICATION.models)


def test_another_effort_in_the_same_folder_is_refused(demo, capsys):
    assert main(["demo", "--out", str(demo)]) == 2
    assert "is a run of another recipe" in capsys.readouterr().err
