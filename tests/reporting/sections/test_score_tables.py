"""Tables of scores with intervals, and of differences between models."""

from holdfast.reporting.leaderboard import places_of
from holdfast.reporting.sections.score_tables import ScoreCell, ScoreRow


def test_ranks_are_part_of_the_table_and_ties_share_one():
    def row(name, *texts):
        return ScoreRow(name, [ScoreCell("clean", text) for text in texts])

    rows = [row("a", "90.1"), row("b", "88.0"), row("c", "88.0"), row("d", "80.0"), row("e", "–")]
    assert places_of(rows, "clean") == {"a": "1", "b": "2", "c": "2", "d": "4", "e": "–"}
