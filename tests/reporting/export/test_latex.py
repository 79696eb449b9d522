"""LaTeX tables: sound, as wide as they say, the best in bold."""

import re

import numpy as np

from holdfast.metrics.summary import summarise
from holdfast.reporting.export.tables import export
from tests.reporting.export.helpers import HOSTILE, benchmark, columns_of, latex_rows, markdown_tables, tabulars


def test_latex_is_sound_and_its_rows_are_as_wide_as_they_say():
    text = export([benchmark(), benchmark(HOSTILE[3], seed=1)], "latex", paper=True)
    found = tabulars(text)
    assert len(found) == 3
    for specification, body in found:
        assert body.count(r"\toprule") == body.count(r"\midrule") == body.count(r"\bottomrule") == 1
        assert {columns_of(row) for row in latex_rows(body)} == {len(specification)}
        plain = re.sub(r"\\[{}]", "", body)
        assert plain.count("{") == plain.count("}")
    assert r"\multicolumn{3}{c}{noise} & \multicolumn{4}{c}{blur}" in found[1][1]
    assert r"\cmidrule(lr){2-4} \cmidrule(lr){5-8} \cmidrule(lr){9-12} \cmidrule(lr){13-16}" in found[1][1]


def test_intervals_stay_with_several_rows_and_the_best_is_bold_in_latex():
    models = [benchmark("a"), benchmark("b", seed=1)]
    assert re.search(r"^a .*\d+\.\d \(\d+\.\d to \d+(\.\d)?\)", export(models, width=120), re.MULTILINE)
    text = export(models, "latex")
    assert r"\caption{Scores; in \%" in text
    assert "95 \\% intervals in brackets; best in bold." in text
    _, headline = tabulars(text)[0]
    rows = latex_rows(headline)
    assert any(r"{\scriptsize (" in text for text in rows[1])
    for column in range(1, len(rows[0])):
        bold = [found[1] for row in rows[1:] if (found := re.search(r"\\textbf\{([\d.]+)\}", row[column]))]
        assert len(set(bold)) <= 1  # ties are bold together
    summaries = [summarise(model, intervals=False)["mce"].value for model in models]
    place = [text.strip() for text in rows[0]].index("mCE")
    assert r"\textbf" in rows[1 + int(np.argmin(summaries))][place]  # low is good


def test_ties_are_bold_alike_in_markdown_and_latex():
    models = [benchmark("a"), benchmark("b"), benchmark("c", seed=1)]
    headline, *_ = markdown_tables(export(models, "md"))
    _, body = tabulars(export(models, "latex"))[0]
    printed = latex_rows(body)
    for row, other in zip(headline[2:], printed[1:], strict=True):
        assert [text.startswith("**") for text in row[1:]] == [r"\textbf" in text for text in other[1:]]
    assert [row[1].startswith("**") for row in headline[2:4]] == [headline[2][1].startswith("**")] * 2  # a and b tie
    assert any(text.startswith("**") for text in headline[2][1:])
