"""Filmstrip of the lab: thumbnails by class, or of images whose predictions flip according to the records."""

import numpy as np
import pytest

import holdfast
from holdfast.lab.filmstrip import hardest
from tests.reporting.helpers import make_run


def test_flips_come_from_the_records_hardest_first(tmp_path):
    records = holdfast.records.load_records(make_run(tmp_path / "run", hold=0.3, trained=False))[0]
    clean = records.cells["clean"]
    for severity in (1, 5):
        listed = hardest(records, severity)
        shares = [share for _, share in listed]
        assert shares == sorted(shares, reverse=True)
        cells = [cell for cell in records.cells.values() if 0 < cell.spec.severity <= severity]
        expected = {
            name: np.mean([cell.predictions[row] != clean.predictions[row] for cell in cells])
            for row, name in enumerate(clean.ids.tolist())
        }
        assert dict(listed) == pytest.approx({name: share for name, share in expected.items() if share > 0})
