"""Failures to look at, the printed page and hostile names, in a real browser."""

import io
import re

import numpy as np
import pytest
from PIL import Image

from holdfast.records.examples import Example, write_examples
from holdfast.records.records import load_records
from holdfast.reporting.page import report
from tests.reporting.helpers import make_run, settled
from tests.reporting.test_browser import shown
from tests.reporting.test_page import HOSTILE

KINDS = ("fog", "snow", "contrast")
CELLS = ("clean", *(f"{kind}/{severity}" for kind in KINDS for severity in range(1, 6)))
CLASSES = [HOSTILE, *(f"class {number}" for number in range(1, 10))]


def with_examples(folder):
    """A thumbnail of every third image in three cells, whatever was said of it."""
    (records,) = load_records(folder)
    random = np.random.default_rng(0)
    examples = []
    for kind in KINDS:
        for name in records.cells[f"{kind}/5"].ids[::3]:
            buffer = io.BytesIO()
            Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(buffer, "PNG")
            examples.append(Example(str(name), f"{kind}/5", buffer.getvalue(), {}))
    write_examples(records.folder, examples, fingerprint=records.header["fingerprint"])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    runs = [
        make_run(root / name, hold=hold, cells=CELLS, class_names=CLASSES, data=HOSTILE)
        for name, hold in (("plain", 0.3), ("robust", 0.7))
    ]
    with_examples(runs[0])
    report(runs, out=root / "report.html", names=["plain", HOSTILE], title=HOSTILE)
    return root / "report.html"


@pytest.fixture(scope="module")
def alive(browser, written):
    complaints = []
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="dark")
    page.on("console", lambda message: complaints.append(message.text))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(written.as_uri())
    yield page
    page.close()
    assert complaints == []


def examples(page):
    return [figure for figure in page.locator("figure.example").all() if figure.is_visible()]


def numbers(page, name):
    return [float(figure.get_attribute(f"data-{name}")) for figure in examples(page)]


def test_examples_are_filtered_by_kind_and_put_in_order(alive):
    order, kind = alive.locator("select[aria-label=order]"), alive.locator("select[aria-label=kind]")
    everything = len(examples(alive))
    assert numbers(alive, "hard") == sorted(numbers(alive, "hard"), reverse=True)
    kind.select_option(label="fog")
    assert 0 < len(examples(alive)) < everything
    assert {figure.get_attribute("data-kind") for figure in examples(alive)} == {"fog"}
    assert f"{len(examples(alive))} of {everything}" in alive.locator(".with-examples .tools").inner_text()
    kind.select_option(value="")
    order.select_option(label="where they disagree")
    split = numbers(alive, "split")
    assert split == sorted(split, reverse=True)
    assert 0 < len(split) < everything
    assert min(split) > 0
    for figure in examples(alive):
        verdicts = {item.get_attribute("class") for item in figure.locator("li").all()}
        assert verdicts == {"right", "wrong"}
    order.select_option(value="hard")


def test_an_example_is_enlarged_by_keyboard_and_the_next_is_of_those_shown(alive):
    alive.locator("select[aria-label=kind]").select_option(label="snow")
    first, second = examples(alive)[:2]
    width = first.locator("img").bounding_box()["width"]
    first.locator("button.enlarge").focus()
    alive.keyboard.press("Enter")
    assert alive.locator("dialog h3").inner_text() == first.locator("figcaption").inner_text()
    assert alive.locator("dialog img").bounding_box()["width"] > 2 * width
    alive.keyboard.press("ArrowRight")
    assert alive.locator("dialog h3").inner_text() == second.locator("figcaption").inner_text()
    alive.keyboard.press("Escape")
    assert not alive.locator("dialog").is_visible()
    assert alive.evaluate("document.activeElement.getAttribute('aria-label')").startswith("enlarge snow 5")
    alive.locator("select[aria-label=kind]").select_option(value="")


def test_a_cell_of_the_heat_maps_shows_its_examples(alive):
    everything = len(examples(alive))
    alive.locator('table.heat td[data-cell="snow/5"] button').first.click()
    assert {figure.get_attribute("data-cell") for figure in examples(alive)} == {"snow/5"}
    alive.locator("select[aria-label=kind]").select_option(label="contrast")
    assert {figure.get_attribute("data-kind") for figure in examples(alive)} == {"contrast"}
    alive.locator(".with-examples .tools button", has_text="show all").click()
    assert len(examples(alive)) == everything


def test_an_enlarged_example_has_every_answer_and_the_command_of_the_lab(alive):
    examples(alive)[0].locator("button.enlarge").click()
    answers = alive.locator("dialog li").all_inner_texts()
    assert len(answers) == 2
    assert any("plain" in text for text in answers)
    assert alive.locator("dialog pre").inner_text().startswith("holdfast lab ")
    alive.keyboard.press("Escape")


def test_a_model_that_is_not_chosen_says_nothing_of_them(alive):
    alive.locator(".choose-run summary").click()
    alive.locator(".choose-run label", has_text="plain").click()
    assert {len([li for li in f.locator("li").all() if li.is_visible()]) for f in examples(alive)} == {1}
    alive.locator(".choose-run button", has_text="all").click()
    alive.locator(".choose-run summary").click()


def test_hostile_names_are_text_whatever_the_script_does_with_them(alive):
    """Sorting, choosing, pointing and enlarging take names from the page into buttons, labels, tips and headings."""
    said = '<script>alert("x")</script>'
    assert said in alive.locator("h1").inner_text()
    alive.locator(".choose-run summary").click()
    assert any(said in text for text in shown(alive, ".choose-run label"))
    alive.locator(".choose-run summary").click()
    square = alive.locator('table.heat td[data-cell="fog/3"]').first
    square.scroll_into_view_if_needed()
    settled(alive)
    square.hover()
    assert said in alive.locator(".tip.shown").inner_text()
    truth = next(figure for figure in examples(alive) if said in figure.locator("figcaption").inner_text())
    truth.locator("button.enlarge").click()
    assert said in alive.locator("dialog h3").inner_text()
    alive.keyboard.press("Escape")
    assert alive.locator("script").count() == 1  # the page's own
    assert alive.locator("img[onerror], main script, dialog script").count() == 0


def test_pictures_show_on_a_dark_page(alive):
    card, page = alive.evaluate("""() => [getComputedStyle(document.querySelector('figure.example')).backgroundColor,
        getComputedStyle(document.body).backgroundColor]""")
    assert all(sum(map(int, re.findall(r"\d+", colour)[:3])) < 200 for colour in (card, page))
    sizes = alive.evaluate("[...document.querySelectorAll('figure.example img')].map(e => e.naturalWidth)")
    assert set(sizes) == {32}


def test_without_scripts_all_examples_are_there_in_order(browser, written):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 400, "height": 900})
    page = context.new_page()
    page.goto(written.as_uri())
    hard = numbers(page, "hard")
    assert len(hard) == page.locator("figure.example").count() > 10
    assert hard == sorted(hard, reverse=True)
    assert page.locator("select, button:not([popovertarget])").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    context.close()


def test_on_paper_no_heading_stands_alone_at_the_foot_of_a_page(browser, written):
    """The outline of the printed file says on which page and how far from its foot every heading stands."""
    page = browser.new_page()
    page.goto(written.as_uri())
    papers = [
        page.pdf(width="8in", height=f"{height}in", outline=True, tagged=True) for height in (9, 9.6, 10.2, 10.8, 11.4)
    ]
    page.emulate_media(media="print")
    assert not page.locator("#tools").is_visible()
    assert not page.locator("button.enlarge").first.is_visible()
    assert page.locator('table.heat td[data-cell="fog/3"]').first.inner_text().isdigit()  # though readers press it
    assert page.locator("table.matrix thead").first.inner_text().split()[0] == "plain"
    page.set_viewport_size({"width": 720, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.close()
    for paper in papers:
        headings = re.findall(rb"/Title \((.*?)\).*?/XYZ [\d.]+ ([\d.]+) 0", paper, re.S)
        assert len(headings) > 8
        least = 90  # points: the heading, and a line or a figure's beginning below it
        assert {title: float(height) for title, height in headings if float(height) < least} == {}
        assert paper.count(b"/Subtype /Image") >= 10  # the failures are printed, though nobody has scrolled to them
