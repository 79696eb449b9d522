"""Frost: the published photographs if they are there, else a stand-in that says so."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from holdfast.corruptions import corrupt, recorded_name, texture_source
from holdfast.corruptions.frost_textures import TEXTURES, procedural
from holdfast.errors import HoldfastError
from tests.corruptions.oracle import photograph

IMAGE = photograph(64, 64)


def test_an_installed_wheel_is_found_without_importing_it():
    assert Path(texture_source()).name == "frost"
    assert recorded_name("frost") == "frost"


def test_a_folder_is_used_by_argument_or_environment(tmp_path, monkeypatch):
    for name in TEXTURES:
        shutil.copy(Path(texture_source()) / name, tmp_path)
    expected = corrupt(IMAGE, "frost", severity=3, rng=1)
    np.testing.assert_array_equal(corrupt(IMAGE, "frost", severity=3, rng=1, textures=str(tmp_path)), expected)
    monkeypatch.setenv("HOLDFAST_FROST", str(tmp_path))
    assert texture_source() == str(tmp_path)


def test_other_files_under_the_same_names_are_refused(tmp_path):
    for name in TEXTURES:
        (tmp_path / name).write_bytes(b"not a photograph of frost")
    with pytest.raises(
        HoldfastError, match=r"frost textures: expected the published frost1.png, .* found none or other"
    ):
        corrupt(IMAGE, "frost", severity=3, rng=1, textures=str(tmp_path))


def test_the_stand_in_is_recorded_under_its_own_name(monkeypatch):
    monkeypatch.setenv("HOLDFAST_FROST", "procedural")
    assert recorded_name("frost") == "frost(procedural)"
    assert recorded_name("fog") == "fog"
    icy = corrupt(IMAGE, "frost", severity=3, rng=1)
    assert (icy != corrupt(IMAGE, "frost", severity=3, rng=1, textures=None)).sum() == 0
    monkeypatch.delenv("HOLDFAST_FROST")
    assert (icy != corrupt(IMAGE, "frost", severity=3, rng=1)).any()


def test_the_stand_in_is_bright_detailed_and_always_the_same():
    ice = procedural(2)
    assert ice.shape == (600, 900, 3)
    assert 60 < ice.mean() < 220
    assert ice.std() > 20
    np.testing.assert_array_equal(ice, procedural(2))
    assert (ice != procedural(3)).any()
