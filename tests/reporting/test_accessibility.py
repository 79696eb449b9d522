"""axe-core finds nothing on the pages: wide and narrow, light and dark, closed and with everything opened."""

from importlib import resources

import pytest

from holdfast.reporting.page import report
from tests.reporting.helpers import make_run
from tests.reporting.test_browser_examples import CELLS, with_examples

OPEN = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"


@pytest.fixture(scope="module")
def axe() -> str:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed (the dev group has it)")
    return resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    runs = [
        make_run(root / name, hold=hold, cells=(*CELLS, "pgd5")) for name, hold in (("plain", 0.3), ("robust", 0.7))
    ]
    with_examples(runs[0])
    report([*runs, make_run(root / "other", cells=("clean", "fog/1"), count=20)], out=root / "report.html")
    report(runs, out=root / "board", format="site")
    return {"report": root / "report.html", "leaderboard": root / "board" / "index.html"}


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("report", 1400, "light"),
        pytest.param("report", 400, "dark", marks=pytest.mark.full),
        pytest.param("leaderboard", 1400, "light", marks=pytest.mark.full),
        ("leaderboard", 400, "dark"),
    ],
)
def test_axe_finds_nothing(name, width, scheme, pages, axe, browser):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(pages[name].as_uri())
    page.evaluate(axe)
    for opened in (False, True):
        if opened:
            page.evaluate(OPEN)
        found = page.evaluate("axe.run(document, { resultTypes: ['violations', 'passes'] })")
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found["violations"]] == []
        assert {"color-contrast", "scrollable-region-focusable", "button-name"} & {p["id"] for p in found["passes"]}
    context.close()
