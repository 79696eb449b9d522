"""Tables of scores with intervals."""

from holdfast.reporting.leaderboard import places_of
from holdfast.reporting.table import Cell, Column, Row, Table


class Named:
    name = "clean"


def test_ranks_are_part_of_the_table_and_ties_share_one():
    values = {"a": 90.1, "b": 88.02, "c": 87.98, "d": 80.0, "e": None}
    rows = [Row(name, [None if value is None else Cell(value)], entry=name) for name, value in values.items()]
    table = Table("scores", [Column("clean", unit="%", digits=1, score=Named)], rows)
    assert places_of(table, "clean") == {"a": "1", "b": "2", "c": "2", "d": "4", "e": "–"}
    assert set(places_of(table, "mce").values()) == {"–"}
