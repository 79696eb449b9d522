"""HTML tables of notebooks."""

from xml.etree import ElementTree

from holdfast.io.html_table import table


def test_a_table_has_its_caption_head_and_rows_and_escapes_all_text():
    tree = ElementTree.fromstring(table("a < b", ["model", "mCE & co"], [["<b>fan</b>", "1"], ["rvt", "2"]]))
    assert tree.findtext("caption") == "a < b"
    assert [cell.text for cell in tree.iter("th")] == ["model", "mCE & co"]
    assert [[cell.text for cell in row] for row in tree.find("tbody")] == [["<b>fan</b>", "1"], ["rvt", "2"]]
