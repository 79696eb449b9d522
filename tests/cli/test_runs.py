"""What ``holdfast runs`` shows of folders."""

import json
import re

import pytest

from holdfast.cli.main import main
from tests.reporting.helpers import make_records, make_run


def shown(folder, capsys):
    assert main(["runs", str(folder)]) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    return {row.split()[0]: row for row in rows}


def test_trainings_and_records_without_a_training_are_listed(tmp_path, capsys):
    make_run(tmp_path / "trained", cells=())
    make_run(tmp_path / "measured", trained=False, cells=("clean", "fog/1"))
    rows = shown(tmp_path, capsys)
    assert "unfinished, step 120" in rows["trained"]
    assert "evaluated only" in rows["measured"]
    assert "clean " in rows["measured"]
    assert "(2 cells)" in rows["measured"]


def test_records_of_an_official_set_alone_have_its_score(tmp_path, capsys):
    make_run(tmp_path / "measured", trained=False, cells=("imagenet-a",))
    (row,) = shown(tmp_path, capsys).values()
    assert re.search(r"ImageNet-A \d+\.\d\d ", row)


def test_two_record_sets_of_the_same_data_have_their_folder_names(tmp_path, capsys):
    folder = make_run(tmp_path / "a", trained=False, cells=("clean", "fog/1"))
    make_records(folder, hold=0.5, cells=("clean",), count=20)
    (row,) = shown(tmp_path, capsys).values()
    assert "digits-digits-40 (2 cells)" in row
    assert "digits-digits-20 (1 cell)" in row


@pytest.mark.parametrize("task", ["segmentation", "counting"])
def test_records_of_other_tasks_also_of_a_plug_in_have_no_score_here(tmp_path, capsys, task):
    make_run(tmp_path / "measured", trained=False, cells=("clean",))
    (header,) = tmp_path.rglob("evaluation.json")
    header.write_text(json.dumps({**json.loads(header.read_text()), "task": task}))
    (row,) = shown(tmp_path, capsys).values()
    assert "evaluated only" in row
    assert "clean " not in row
