"""Heat maps show the numbers of the tables."""

import pytest

from holdfast.reporting.comparable import data_sets
from holdfast.reporting.formatting import NOT_MEASURED, number
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.heat_maps import heat_maps
from tests.reporting.helpers import make_run

FOG = tuple(f"fog/{severity}" for severity in range(1, 6))


@pytest.mark.parametrize("images", [7, 13, 37, 59])  # shares whose percentages have no last digit
def test_the_mean_of_a_row_is_the_accuracy_of_its_kind_as_tables_print_it(tmp_path, images):
    runs = [make_run(tmp_path / f"{n}", hold=0.1 * n, cells=("clean", *FOG), count=images) for n in range(1, 10)]
    (data,) = data_sets(read_runs(runs))
    maps = heat_maps(data)
    assert len(maps) == 9
    for each in maps:
        ((row,),) = [group.rows for group in each.groups]
        assert row.mean == number(each.entry.summary["accuracy/fog"].value)
        assert [cell.text for cell in row.cells] == [
            f"{100 * each.entry.records.cells[name].accuracy:.0f}" for name in FOG
        ]


def test_a_kind_without_all_severities_has_no_mean(tmp_path):
    (data,) = data_sets(read_runs([make_run(tmp_path, cells=("clean", *FOG[:4]))]))
    ((row,),) = [group.rows for group in heat_maps(data)[0].groups]
    assert row.mean == NOT_MEASURED
    assert row.cells[4].error is None
