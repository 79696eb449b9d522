"""The page in a real browser: nothing complains, everything is there, nothing runs off the side."""

import shutil
from pathlib import Path

import pytest

from holdfast.reporting.page import report
from tests.reporting.helpers import make_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium): the page is not looked at"
)
WIDTHS = (400, 1400)
LONG = "a_name_without_any_place_to_break_it_" * 2 + "<b>\"&'</b>"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the dev group has it)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    runs = [make_run(root / name, hold=hold) for name, hold in (("plain", 0.4), ("robust", 0.8))]
    runs.append(make_run(root / "other", views=("joint", "acc", "rob"), cells=("clean", "pgd5"), count=20))
    report(runs, out=root / "report.html", names=["plain", LONG, "tora"])
    return root / "report.html"


@pytest.fixture(params=WIDTHS, ids=lambda width: f"{width}px")
def page(request, browser, written):
    complaints = []
    page = browser.new_page(viewport={"width": request.param, "height": 900})
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request", lambda asked: complaints.append(asked.url) if not asked.url.startswith(("file:", "data:")) else 0
    )
    page.goto(written.as_uri())
    yield page
    page.close()
    assert complaints == []


def test_everything_is_there_and_nothing_overflows(page):
    width = page.evaluate("window.innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector, least in {"figure svg": 6, "table.scores": 2, "table.heat": 2, "section": 5, "h1": 1}.items():
        assert page.locator(selector).count() >= least, selector
    boxes = page.evaluate("""() => [...document.querySelectorAll('figure.card, .card')].map(e => {
        const box = e.getBoundingClientRect(); return [box.left, box.right, box.height]; })""")
    assert all(left >= 0 and right <= width and height > 20 for left, right, height in boxes)


def test_text_in_figures_is_large_enough_to_read(page):
    sizes = page.evaluate("""() => [...document.querySelectorAll('figure svg text')].map(e =>
        e.getBoundingClientRect().height)""")
    assert len(sizes) > 50
    assert min(size for size in sizes if size) >= 8  # CSS pixels, the whole line


def test_columns_explain_themselves(page):
    titles = page.eval_on_selector_all("table.scores thead abbr", "all => all.map(e => e.title)")
    assert titles
    assert all(titles)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ink_stands_out_from_the_page_in_both_schemes(browser, written, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto(written.as_uri())
    ink, behind, in_figure = page.evaluate("""() => [
        getComputedStyle(document.body).color,
        getComputedStyle(document.body).backgroundColor,
        getComputedStyle(document.querySelector('figure svg text')).fill]""")
    page.close()
    light = [sum(int(value) for value in colour[4:-1].split(",")) > 382 for colour in (ink, behind, in_figure)]
    assert light == ([False, True, False] if scheme == "light" else [True, False, True])
