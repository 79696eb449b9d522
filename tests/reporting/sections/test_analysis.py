"""Analysis section of the report: the figures of ``holdfast analyze`` from stored results."""

from holdfast.reporting.runs import Run
from holdfast.reporting.sections.analysis import analysis_pictures
from tests.analysis.test_unlike import overfocus_of


def test_a_report_never_draws_other_settings_under_one_label():
    runs = [Run(f"m{top}-{n}", n, results=(overfocus_of("x", top),)) for n, top in enumerate((5, 5, 9))]
    pictures, problems = analysis_pictures(runs)
    assert problems == []
    assert [picture.caption.partition("Settings: ")[2] for picture in pictures] == ["top 5.", "top 9."]
    assert "share of the top 9 tokens" in str(pictures[1].svg)
    assert "share of the top 9 tokens" not in str(pictures[0].svg)
    assert "m5-1" in str(pictures[0].svg)
    assert "m5-1" not in str(pictures[1].svg)
