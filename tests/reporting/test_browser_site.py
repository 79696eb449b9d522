"""The leaderboard in a real browser: sorted, searched, with the columns that are ticked, wide and narrow."""

import pytest

from holdfast.reporting.page import report
from tests.reporting.helpers import make_run
from tests.reporting.test_browser import shown
from tests.reporting.test_page import HOSTILE

CELLS = ("clean", *(f"fog/{severity}" for severity in range(1, 6)), "pgd5")
NAMES = ["plain", HOSTILE, *(f"model {number:02d}" for number in range(12))]
RANKING = "#ranking-1 table"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    runs = [
        make_run(root / f"{number}", cells=CELLS, hold=0.3 + 0.04 * number, trained=False, count=10, data="cifar10:x")
        for number in range(len(NAMES))
    ]
    report(runs, format="site", out=root / "board", names=NAMES)
    return root / "board" / "index.html"


@pytest.fixture(params=(400, 1400), ids=lambda width: f"{width}px")
def page(request, browser, site):
    complaints = []
    page = browser.new_page(viewport={"width": request.param, "height": 900}, color_scheme="dark")
    for event in ("console", "pageerror", "dialog"):
        page.on(event, lambda said: complaints.append(str(said)))
    page.goto(site.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= request.param
    yield page
    page.close()
    assert complaints == []


def test_rankings_are_sorted_searched_and_show_the_columns_that_are_ticked(page):
    names, heads = f"{RANKING} tbody .name", f"{RANKING} th[data-column] .label"
    values = f"{RANKING} td[data-column=clean]"
    assert len(shown(page, names)) == len(NAMES)
    page.locator(f"{RANKING} th[data-column=clean] button.sort").focus()
    page.keyboard.press("Enter")
    ordered = page.eval_on_selector_all(values, "all => all.map(e => Number(e.dataset.value))")
    assert ordered == sorted(ordered, reverse=True)
    page.locator("#ranking-1 input[type=search]").fill("03 model")
    assert shown(page, names) == ["model 03"]
    page.locator("#ranking-1 input[type=search]").fill("")
    before = shown(page, heads)
    assert "NLL" not in before  # beside the headline, one ticks what one wants
    page.locator(".choose-column summary").click()
    page.locator(".choose-column label", has_text="NLL").click()
    page.locator(".choose-column label", has_text="clean").click()
    assert set(shown(page, heads)) == {*before, "NLL"} - {"clean"}


def test_papers_can_be_sorted_but_look_different_and_rank_nobody(page):
    styles = """selector => { const e = getComputedStyle(document.querySelector(selector));
        return [e.fontStyle, e.color]; }"""
    assert page.evaluate(styles, ".printed tbody td") != page.evaluate(styles, f"{RANKING} tbody td")
    table = page.locator(".printed table").first
    first = table.locator("tbody tr").first.inner_text()
    table.locator("th[data-better] button.sort").first.focus()
    page.keyboard.press("Enter")
    assert table.locator("tbody tr").first.inner_text() != first
    assert page.locator(".printed .ranking").count() == 0


def test_a_models_page_is_reached_and_leads_back(page):
    page.locator(f"{RANKING} tbody a").filter(has_text="<script>").click()
    assert "<script>alert" in page.locator("h1").inner_text()
    assert page.locator("table.heat").first.is_visible()
    page.locator('a[href="../index.html"]').first.click()
    assert page.locator(".printed").count() == 1


def test_without_scripts_the_whole_table_is_there(browser, site):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 400, "height": 900})
    page = context.new_page()
    page.goto(site.as_uri())
    assert len(shown(page, f"{RANKING} tbody .name")) == len(NAMES)
    assert "NLL" in shown(page, f"{RANKING} th[data-column] .label")
    assert page.locator("button:not([popovertarget]), input").count() == 0
    context.close()
