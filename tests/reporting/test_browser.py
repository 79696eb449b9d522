"""The page in a real browser: nothing complains, everything is there, nothing runs off the side."""

from pathlib import Path

import pytest

from holdfast.records.records import load_records
from holdfast.reporting.formatting import clean_name
from holdfast.reporting.page import report
from tests.reporting.helpers import make_run, settled

WIDTHS = (400, 1400)
LONG = "a_name_without_any_place_to_break_it_" * 2 + "<b>\"&'</b>"
SHOWN = clean_name(LONG)


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
    boxes = page.evaluate("""() => [...document.querySelectorAll('.card')].filter(e => e.offsetParent).map(e => {
        const box = e.getBoundingClientRect(); return [box.left, box.right, box.height]; })""")
    assert all(left >= 0 and right <= width and height > 20 for left, right, height in boxes)


def test_text_in_figures_is_large_enough_to_read(page):
    sizes = page.evaluate("""() => [...document.querySelectorAll('figure svg text')].map(e =>
        e.getBoundingClientRect().height)""")
    assert len(sizes) > 50
    assert min(size for size in sizes if size) >= 8  # CSS pixels, the whole line


def test_figures_have_one_size_of_type_and_fill_their_rows(browser, written):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(written.as_uri())
    sizes = page.evaluate("""() => [...document.querySelectorAll('figure.card svg')]
        .filter((e) => e.getClientRects().length)
        .map((e) => e.getBoundingClientRect().width / e.viewBox.baseVal.width)""")
    assert len(sizes) > 5
    assert max(sizes) / min(sizes) < 1.35
    ends = page.evaluate("""() => [...document.querySelectorAll('.grid')]
        .filter((e) => e.offsetParent && e.children.length)
        .map((e) => [e, ...e.children].map((each) => each.getBoundingClientRect().right))""")
    assert all(max(cards) == pytest.approx(right, abs=1) for right, *cards in ends)
    page.close()


def test_columns_explain_themselves(page):
    told = page.eval_on_selector_all("table.scores th[data-better] [popover]", "all => all.map(e => e.textContent)")
    assert told
    assert all(len(text) > 10 for text in told)


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


# what the script adds; one page for all of it, each test leaves it as it was


@pytest.fixture(scope="module")
def alive(browser, written):
    complaints = []
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(written.as_uri())
    yield page
    page.close()
    assert complaints == []


def shown(page, selector: str) -> list[str]:
    return [each.inner_text().strip() for each in page.locator(selector).all() if each.is_visible()]


def test_tables_are_sorted_by_their_headings(alive):
    rows = "#data-1 .headline > .scroll tbody .name"
    head = alive.locator("#data-1 .headline > .scroll th[data-better]").nth(1)  # mCA
    assert shown(alive, rows) == ["plain", SHOWN]
    head.locator("button.sort").focus()
    orders = []
    for _ in range(3):
        alive.keyboard.press("Enter")
        orders.append((head.get_attribute("aria-sort"), shown(alive, rows)[0]))
    assert orders == [("descending", SHOWN), ("ascending", "plain"), (None, "plain")]
    head.click()
    assert shown(alive, rows)[0] == SHOWN
    head.click(click_count=2)


def test_models_and_suites_are_chosen(alive):
    columns = "#data-1 .headline > .scroll th[data-better] .label"
    before = shown(alive, columns)
    alive.locator(".choose-run summary").click()
    alive.locator(".choose-run label", has_text="plain").click()
    assert shown(alive, ".choose-run summary") == ["Models: 2 of 3"]
    assert alive.evaluate("location.hash") == "#run=0"
    assert shown(alive, "#data-1 .headline > .scroll tbody .name") == [SHOWN]
    assert shown(alive, "table.heat caption") == [SHOWN]
    lines = alive.locator("#data-1-severity g[data-label]:has(path)").all()
    assert {line.get_attribute("data-label") for line in lines if line.is_visible()} == {SHOWN}
    alive.locator(".choose-run button", has_text="none").click()
    assert alive.locator("#nothing").is_visible()
    assert alive.locator("#nothing").bounding_box()["x"] == alive.locator("header").bounding_box()["x"]
    alive.locator(".choose-run button", has_text="all").click()
    alive.keyboard.press("Escape")
    assert not alive.locator(".choose-run .panel").is_visible()
    assert shown(alive, "#data-1 .headline > .scroll tbody .name") == ["plain", SHOWN]
    alive.locator(".choose-suite summary").click()
    alive.locator(".choose-suite label", has_text="corruptions").click()
    assert shown(alive, "table.heat caption") == []
    assert "mCA" in before
    assert "mCA" not in shown(alive, columns)
    alive.locator(".choose-suite button", has_text="all").click()
    alive.locator("h1").click()  # outside
    assert not alive.locator(".choose-suite .panel").is_visible()
    assert shown(alive, columns) == before


def test_a_column_of_the_pairs_becomes_the_baseline(alive):
    captions = "#data-1-decision .chips caption"
    assert shown(alive, captions) == ["Against plain, in points on the same images"]
    alive.locator(".matrix button.base").nth(1).focus()
    alive.keyboard.press("Enter")
    assert shown(alive, captions) == [f"Against {SHOWN}, in points on the same images"]
    assert shown(alive, "#data-1 .comparison h3") == [f"Accuracy by kind: differences from {SHOWN}"]
    assert alive.locator(".matrix button.base").nth(1).get_attribute("aria-pressed") == "true"
    alive.locator(".matrix button.base").first.click()
    assert shown(alive, captions) == ["Against plain, in points on the same images"]


def test_bold_is_the_best_of_what_is_shown_and_the_address_brings_it_back(alive, browser, written):
    bold = "#data-1 .headline > .scroll tr:not(.unchosen) td[data-score=mean_corruption_accuracy] .best"
    best = shown(alive, bold)
    three = browser.new_page()
    report([written.parent / name for name in ("plain", "robust")] * 2, out=written.parent / "four.html")
    three.goto((written.parent / "four.html").as_uri() + "#run=1,3&base=data-1:2")
    assert shown(three, bold) != best
    assert len(shown(three, bold)) == 2  # a tie
    assert shown(three, "#data-1-decision .chips caption")[0].startswith("Against plain (2)")
    three.close()


def test_definitions_open_by_keyboard_and_do_not_sort(alive):
    head = alive.locator("#data-1 .headline > .scroll th[data-better]").first
    head.locator(".info").focus()
    alive.keyboard.press("Enter")
    assert "top-1 accuracy on the clean images" in shown(alive, ".definition:popover-open")[0]
    assert head.get_attribute("aria-sort") is None
    alive.keyboard.press("Escape")
    assert shown(alive, ".definition:popover-open") == []


def test_heat_maps_switch_to_differences_from_the_baseline(alive):
    cells = alive.locator('#data-1 table.heat.cells td[data-cell="fog/5"]')
    before = cells.all_inner_texts()
    assert shown(alive, "#data-1 .heat-tools button") == ["score", "difference from plain"]
    alive.locator(".heat-tools button", has_text="difference").first.click()
    cards = alive.locator("#data-1 .card:has(> table.heat.cells)").all()
    assert all(card.evaluate("e => e.scrollWidth <= e.clientWidth") for card in cards)
    apart = round(float(before[1]) - float(before[0]))
    assert cells.first.inner_text() == "0"
    assert abs(int(cells.nth(1).inner_text().replace("−", "-")) - apart) <= 1
    alive.locator(".heat-tools button", has_text="score").first.click()
    assert cells.all_inner_texts() == before


def test_charts_are_read_by_arrow_keys(alive):
    chart = alive.locator("#data-1-severity svg")
    chart.scroll_into_view_if_needed()
    chart.focus()
    settled(alive)  # a scroll hides the values
    texts = []
    for _ in range(2):
        alive.keyboard.press("ArrowRight")
        texts.append(alive.locator(".tip.shown").inner_text().split("\n")[1])
    assert texts[0].startswith("clean:")
    assert texts[1].startswith("severity 1:")
    alive.keyboard.press("Escape")
    assert alive.locator(".tip.shown").count() == 0


def test_curves_and_heat_maps_say_their_values(alive, written):
    (records,) = load_records(written.parent / "plain")
    dot = alive.locator("#data-1-severity .value").first
    dot.scroll_into_view_if_needed()
    settled(alive)
    box = dot.bounding_box()
    alive.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + 3)
    assert (
        alive.locator(".tip.shown")
        .inner_text()
        .startswith(f"plain\nclean: {100 * records.cells['clean'].accuracy:.1f} %")
    )
    square = alive.locator('table.heat td[data-cell="fog/3"]').first
    square.scroll_into_view_if_needed()
    settled(alive)
    square.hover()
    text = alive.locator(".tip.shown").inner_text().split("\n")
    assert text[:2] == ["fog, severity 3", f"plain: {100 * records.cells['fog/3'].accuracy:.1f} %"]
    assert text[2].startswith(SHOWN)
    alive.locator("h1").hover()
    assert alive.locator(".tip.shown").count() == 0


def test_pictures_are_enlarged_by_keyboard_and_mouse(alive):
    small = alive.locator("#data-1-severity svg").bounding_box()["width"]
    alive.locator("#data-1-severity .enlarge").focus()
    alive.keyboard.press("Enter")
    assert alive.locator("dialog h3").inner_text() == "Accuracy by severity"
    assert alive.locator("dialog svg").bounding_box()["width"] > 2 * small
    alive.keyboard.press("ArrowRight")
    assert alive.locator("dialog h3").inner_text() == "Accuracy by kind: differences from plain"
    alive.keyboard.press("Escape")
    assert not alive.locator("dialog").is_visible()
    alive.locator("#data-1-by-accuracy-1 svg").wait_for()  # closing is an event of its own
    assert alive.locator("#data-1-severity svg").count() == alive.locator("#data-1-by-accuracy-1 svg").count() == 1
    assert alive.evaluate("document.activeElement.closest('figure').id") == "data-1-by-accuracy-1"
    alive.locator("#data-1-severity svg").click()
    assert alive.locator("dialog").is_visible()
    alive.locator("dialog button[aria-label=close]").click()


def test_without_scripts_nothing_is_missing_and_nothing_promises_more(browser, written):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(written.as_uri())
    assert page.locator("table.heat").first.is_visible()
    assert page.locator("#data-1-severity svg").is_visible()
    assert page.locator("button:not([popovertarget]), select, input").count() == 0
    assert not page.locator("#tools").is_visible()
    context.close()


def test_a_single_figure_keeps_its_size(browser, written):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    report(written.parent / "plain", out=written.parent / "one.html")
    page.goto((written.parent / "one.html").as_uri())
    one = page.locator("#data-1-severity svg").bounding_box()["width"]
    page.goto(written.as_uri())
    assert 350 < one < 700
    assert one == pytest.approx(page.locator("#data-1-severity svg").bounding_box()["width"], rel=0.1)
    page.close()
