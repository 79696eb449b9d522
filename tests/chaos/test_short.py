"""The short part of the campaign, in every test run; all of it is ``make chaos MINUTES=60``."""

import random

import pytest

from tests.chaos.campaign import Line, table
from tests.chaos.command_lines import all_lines, finished_run, refused
from tests.chaos.disks import filled, why_not
from tests.chaos.disks import scenarios as disk_scenarios
from tests.chaos.fuzzing import FOREIGN, damage, fuzz_files, fuzz_images
from tests.chaos.kills import disturbed, scenarios, undisturbed
from tests.chaos.processes import said_by
from tests.chaos.shapes import shapes
from tests.chaos.verdicts import cases, numbers, tried, world


@pytest.mark.parametrize("name", [pytest.param("train", marks=pytest.mark.full), "corrupt"])  # e2e kills a training
def test_a_killed_command_goes_on_to_the_same_bytes(name, tmp_path):
    scenario, rng = scenarios()[name], random.Random(0)
    whole = undisturbed(scenario, tmp_path / "whole")
    assert len(whole.digests) > 5
    assert disturbed(scenario, tmp_path / "killed", whole, rng=rng)[1] == ""


def test_damaged_images_are_images_or_sentences(tmp_path):
    found = fuzz_images(tmp_path, tries=600, seed=0)
    assert sum(tries for tries, _ in found.values()) == 600
    assert {"PNG", "TIFF", "GIF"} <= set(found)
    assert set(FOREIGN) & set(found)
    assert [wrong for _, wrong in found.values() if wrong] == []


def test_damaged_files_are_values_or_sentences(tmp_path):
    found = fuzz_files(tmp_path, tries=72, seed=0)
    assert len(found) >= 20
    assert [wrong for _, wrong in found.values() if wrong] == []


def test_bad_command_lines_are_one_sentence_and_leave_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    lines = all_lines(tmp_path / "files", run=finished_run(tmp_path / "run"))
    assert len(lines) >= 900
    for argv in random.Random(0).sample(lines, 60):
        assert refused(argv, folder=tmp_path / "empty") == "", argv


def test_a_full_disk_is_one_sentence_and_with_room_it_goes_on(tmp_path):
    if reason := why_not(tmp_path):
        pytest.skip(f"no small file system can be mounted: {reason}")
    assert filled(disk_scenarios()["corrupt"], tmp_path, rng=random.Random(0)) == ""


def test_the_campaign_finds_what_it_looks_for(tmp_path):
    """A line that is no refusal, and damage that damages."""
    assert refused(["list", "models"], folder=tmp_path).startswith("exit code 0")
    content, rng = bytes(range(256)), random.Random(0)
    assert sum(damage(content, "", rng) != content for _ in range(50)) >= 48
    assert str(table([Line("x", 3, 1, "y")])).endswith("| x | 3 | 2 | y |")


def test_the_campaign_alters_hundreds_of_inputs_and_has_hundreds_of_shapes():
    kinds = [case.kind for case in cases(seed=0)]
    assert sum(kind != "unchanged" for kind in kinds) >= 200
    assert kinds.count("unchanged") >= 50
    assert {"code", "configuration", "data in place", "records", "baseline, changed", "plug-in"} <= set(kinds)
    assert len(shapes(500, seed=0)) >= 500
    assert {(1, 3_000_000), (3_000_000, 1), (20_000, 32)} <= set(shapes(500, seed=0))


def test_the_campaign_reads_the_numbers_of_a_gate():
    head = "rule            baseline    now  difference  95 % interval  verdict"
    row = "clean no worse     36.36  40.91       +4.55  0.00 to 9.00   no worse  ok"
    assert numbers(f"{head}\n{row}") == {"clean no worse": ("36.36", "40.91")}


def test_a_command_that_hangs_is_ended_and_found(tmp_path):
    import time

    said = said_by(lambda: time.sleep(600) or 0, folder=tmp_path, seconds=0.5)
    assert said.code is None


@pytest.mark.full
def test_altered_inputs_are_refused_or_measured_again(tmp_path):
    good = world(tmp_path / "good")
    chosen = [case for case in cases(seed=0) if case.kind in ("baseline, sealed again", "unchanged")]
    for case in random.Random(0).sample(chosen, 16):
        assert tried(case, tmp_path / "try", good=good) == "", f"{case.kind}, {case.name}"
