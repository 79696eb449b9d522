"""Records of format 1, which no release ever wrote, are refused in one sentence."""

from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.records.records import load_records

FOLDER = Path(__file__).parent / "format1"


def test_records_of_format_1_are_refused():
    with pytest.raises(HoldfastError, match="are of format 1, which Holdfast no longer reads: evaluate again"):
        load_records(FOLDER)


def test_a_report_of_them_ends_with_that_sentence(capsys):
    assert main(["report", str(FOLDER), "--format", "csv"]) == 2
    assert "which Holdfast no longer reads: evaluate again" in capsys.readouterr().err
