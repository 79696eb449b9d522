"""The table of every surface."""

from math import nan

import pytest

from holdfast.reporting.table import Cell, Column, Row, Table, as_fixed, table_of_words


def column_of(*values, better="high", **row_options):
    rows = [Row(str(place), [value], **row_options) for place, value in enumerate(values)]
    return Table("t", [Column("clean", unit="%", better=better)], rows)


def best_of(table):
    return [row.name for row in table.rows if table.is_best(row, 0)]


def test_numbers_that_are_printed_alike_are_best_together():
    assert best_of(column_of(Cell(90.12), Cell(90.14), Cell(89.9))) == ["0", "1"]
    assert best_of(column_of(Cell(3.0), Cell(2.0), better="low")) == ["1"]
    assert best_of(column_of(Cell(3.0), Cell(2.0), better="")) == []


@pytest.mark.parametrize("other", [None, Cell(nan), Cell(99.0, ranked=False), "words"])
def test_one_number_alone_is_not_best(other):
    assert best_of(column_of(Cell(3.0), other)) == []


def test_published_scores_and_other_data_are_not_compared():
    assert best_of(column_of(Cell(3.0), Cell(2.0), paper=True)) == []
    rows = [Row(str(value), [Cell(value)], measured_on=data) for value, data in [(1, "a"), (2, "a"), (3, "b")]]
    assert best_of(Table("t", [Column("clean", better="high")], rows)) == ["2"]


def test_a_cell_is_printed_with_the_digits_of_its_column():
    cell = Cell(-71.23, -80, 74.18)
    assert (Column("", digits=1).text(cell), Column("", digits=1).interval(cell)) == ("−71.2", "−80.0 to 74.2")
    assert (Column("").text(Cell(0.523)), Column("", unit="%").text(Cell(99.96))) == ("0.52", "100")
    assert Column("").interval(Cell(1.0)) == Column("").interval("words") == Column("").interval(None) == ""
    assert (Column("").text(None), Column("").text("words")) == ("–", "words")
    assert [as_fixed(value, "%") for value in (7.25, 98.61, 99.96)] == ["7.2", "98.6", "100"]


def test_rows_are_grouped_in_the_order_of_their_first_row():
    table = Table("t", [], [Row("a", (), group="x"), Row("b", ()), Row("c", (), group="x")])
    assert [(group, [row.name for row in rows]) for group, rows in table.groups] == [("x", ["a", "c"]), ("", ["b"])]


def test_a_table_of_words_has_the_first_of_each_line_as_the_name_of_its_row():
    table = table_of_words("t", ["kind", "a"], [["fog", "1"]], aside=True)
    assert (table.head, table.columns[0].label, table.rows[0].name, table.rows[0].cells) == ("kind", "a", "fog", ["1"])
    assert table.aside
