"""The package of the same name on PyPI is recognised."""

from holdfast._name_clash import foreign_distribution, foreign_sentence


def test_only_the_other_package_is_meant(tmp_path):
    (tmp_path / "holdfast_vision-0.1.0.dist-info").mkdir()
    assert foreign_distribution(tmp_path) is None
    assert foreign_sentence(tmp_path) is None
    (tmp_path / "holdfast-2.3.dist-info").mkdir()
    assert foreign_distribution(tmp_path) == "holdfast-2.3.dist-info"
    said = foreign_sentence(tmp_path)
    assert said.startswith("holdfast 2.3 from PyPI, an unrelated package, is installed over holdfast-vision")
    assert "`pip uninstall holdfast`" in said


def test_a_folder_that_cannot_be_read_has_no_clash(tmp_path):
    assert foreign_distribution(tmp_path / "archive.zip") is None
