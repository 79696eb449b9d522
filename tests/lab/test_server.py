"""The lab in a real browser: drag, paint, click, compare, reload, two tabs, hostile names."""

import json
import re

import pytest

from holdfast.lab import inspect_image, probabilities
from tests.lab.conftest import HOSTILE


def visit(page, lab, link=""):
    page.goto(f"http://127.0.0.1:{lab.port}/{link}")
    page.locator("body[data-done]").wait_for()
    page.locator(".film").first.wait_for()


def wait_for(page, do, *, image="0"):
    """Until the page shows the answer to this and no other wish."""
    wanted = json.dumps({"image": image, "do": do}, separators=(",", ":"))[:-1]
    page.locator(f"body[data-done^='{wanted}']").wait_for()


def source_of(page, part, model=0):
    return page.locator(f"[data-model='{model}'] [data-part='{part}'] .base").get_attribute("src")


def first_answer(page, side, model=0):
    place = page.locator(f"[data-model='{model}'] .side").nth(0 if side == "before" else 1)
    return place.locator(".name").first.inner_text(), place.locator(".value").first.inner_text()


def drag_severity(page, to):
    """With the mouse, from the left end through all severities."""
    page.locator("#severity").scroll_into_view_if_needed()
    slider = page.locator("#severity").bounding_box()
    middle = slider["y"] + slider["height"] / 2
    page.mouse.move(slider["x"] + 8, middle)
    page.mouse.down()
    for share in range(1, to + 1):
        page.mouse.move(slider["x"] + 8 + share * (slider["width"] - 16) / 5, middle)
    page.mouse.up()


def test_dragging_the_severity_changes_picture_and_answer_to_what_the_records_say(page, lab):
    visit(page, lab)
    page.select_option("#kind", "fog")
    clean, said = source_of(page, "after"), first_answer(page, "after")
    drag_severity(page, 4)
    wait_for(page, "fog/4")
    assert source_of(page, "after") != clean
    assert source_of(page, "before") == clean
    assert first_answer(page, "after") != said
    for model, lens in enumerate(lab.session.models):
        seen = inspect_image(lens, 0, "fog/4")
        for side, predicted in (("before", seen.before), ("after", seen.after)):
            chances = probabilities(predicted.answers[""][0])
            expected = (lens.classes[chances.argmax()], f"{100 * chances.max():.1f} %")
            assert first_answer(page, side, model) == expected
        shown = page.locator(f"[data-model='{model}'] .stability")
        page.locator("body[data-inside^='0|fog/4|']").wait_for()
        assert shown.inner_text() == f"{seen.stability:.4f}"


def move_to_patch(page, box, row, column):
    page.mouse.move(box["x"] + (column + 0.5) * box["width"] / 8, box["y"] + (row + 0.5) * box["height"] / 8)


def test_painting_hides_patches_and_the_link_brings_them_back(page, lab):
    visit(page, lab)
    clean = source_of(page, "after")
    page.check("#paint")
    frame = page.locator("[data-model='0'] [data-part='after'] .frame")
    box = frame.bounding_box()
    move_to_patch(page, box, 0, 0)
    page.mouse.down()
    wait_for(page, "hide/8x8:0")  # a slow hand: what is done is told above the picture now, which must not move
    assert frame.bounding_box()["y"] == pytest.approx(box["y"], abs=1)
    move_to_patch(page, box, 0, 1)
    page.mouse.up()
    wait_for(page, "hide/8x8:0.1")
    painted = source_of(page, "after")
    assert painted != clean
    assert page.locator("[data-model='0'] [data-part='after'] rect.hidden").count() == 2
    page.reload()
    wait_for(page, "hide/8x8:0.1")
    assert source_of(page, "after") == painted
    page.click("#show-all")
    wait_for(page, "")
    assert source_of(page, "after") == clean


def test_a_quick_stroke_takes_every_patch_on_its_way(page, lab):
    visit(page, lab)
    page.check("#paint")
    box = page.locator("[data-model='0'] [data-part='after'] .frame").bounding_box()
    move_to_patch(page, box, 2, 1)
    page.mouse.down()
    move_to_patch(page, box, 2, 5)
    page.mouse.up()
    wait_for(page, "hide/8x8:17.18.19.20.21")
    move_to_patch(page, box, 6, 6)  # no button is down
    move_to_patch(page, box, 2, 3)
    page.mouse.down()  # a stroke that begins on a hidden patch shows
    move_to_patch(page, box, 2, 7)
    page.mouse.up()
    wait_for(page, "hide/8x8:17.18")
    assert page.locator("[data-model='0'] [data-part='after'] rect.hidden").count() == 2


def test_a_token_is_hovered_clicked_and_kept_in_the_link(page, lab):
    visit(page, lab, "?do=fog/3&layer=2")
    wait_for(page, "fog/3")
    heat = page.locator("[data-model='0'] [data-part='attention-after'] .heat")
    received = heat.get_attribute("src")
    box = page.locator("[data-model='0'] [data-part='before'] .frame").bounding_box()
    page.mouse.move(box["x"] + 2.5 * box["width"] / 8, box["y"] + 1.5 * box["height"] / 8)
    page.locator("body[data-token='1,2 1,2']").wait_for()
    row = heat.get_attribute("src")
    assert row != received
    page.mouse.down()
    page.mouse.up()
    page.mouse.move(5, 5)
    page.locator("#release").wait_for()
    page.reload()
    page.locator("body[data-token='1,2 1,2']").wait_for()
    assert heat.get_attribute("src") == row
    page.click("#release")
    page.locator("[data-model='0'] [data-part='attention-after'] figcaption", has_text="received").wait_for()
    assert heat.get_attribute("src") == received


def test_both_models_show_the_same_image_and_their_own_answers(page, lab):
    visit(page, lab, "?image=3&do=gaussian_noise/2")
    wait_for(page, "gaussian_noise/2", image="3")
    assert source_of(page, "after", 0) == source_of(page, "after", 1)
    assert first_answer(page, "after", 0) != first_answer(page, "after", 1)


def test_everything_a_link_holds_comes_back(page, lab):
    visit(page, lab, "?image=5&do=pgd/8,fog/2@7,occlude/0.2&layer=1&head=1")
    wait_for(page, "pgd/8,fog/2@7,occlude/0.2", image="5")
    controls = {"kind": "fog", "severity": "2", "ratio": "0.2", "attack": "pgd", "eps": "8", "layer": "1", "head": "1"}
    assert {name: page.locator(f"#{name}").input_value() for name in controls} == controls
    assert page.locator("#do").input_value() == "pgd/8,fog/2@7,occlude/0.2"
    page.click("#records-draw")
    wait_for(page, "pgd/8,fog/2,occlude/0.2", image="5")
    assert "fog%2F2%2C" in page.url


def test_steps_are_chips_that_can_be_moved_and_taken_back(page, lab):
    visit(page, lab, "?do=fog/3,hide/8x8:1")
    chips = page.locator("#chips li")
    assert [text.splitlines()[0] for text in chips.all_inner_texts()] == ["fog, severity 3", "1 patch hidden"]
    page.get_by_label("move 1 patch hidden forward").click()
    wait_for(page, "hide/8x8:1,fog/3")
    page.get_by_label("remove fog, severity 3").click()
    wait_for(page, "hide/8x8:1")
    assert chips.count() == 1


def test_what_is_kept_is_saved_and_the_lines_are_shown(page, lab):
    visit(page, lab, "?image=2&do=fog/2")
    for form, beginning in (
        ("picture.png", b"\x89PNG"),
        ("card.html", b"<!doctype html>"),
        ("lines.py", b"from holdfast"),
    ):
        with page.expect_download() as saved:
            page.click(f"[data-form='{form}']")
        assert saved.value.suggested_filename == f"holdfast-lab-{form}"
        assert saved.value.path().read_bytes().startswith(beginning)
    page.click("#python summary")
    page.locator("#python pre", has_text="fog/2").wait_for()
    page.fill("#do", "snow/1")
    page.keyboard.press("Enter")
    page.locator("#python pre", has_text="snow/1").wait_for()


def test_what_is_wrong_is_one_sentence_and_the_page_goes_on(page, lab):
    visit(page, lab)
    page.fill("#do", "fgo/3")
    page.keyboard.press("Enter")
    page.locator("#status.bad", has_text="fog").wait_for()
    page.fill("#do", "fog/1")
    page.keyboard.press("Enter")
    wait_for(page, "fog/1")
    assert page.locator("#status").inner_text() == ""


def test_two_tabs_do_not_disturb_each_other(page, lab, visitor):
    other = visitor.new_page()
    visit(page, lab, "?image=1&do=fog/5")
    visit(other, lab, "?image=2&do=snow/1")
    page.locator("#severity").press("ArrowLeft")
    other.locator("#severity").press("ArrowRight")
    wait_for(page, "fog/4", image="1")
    wait_for(other, "snow/2", image="2")
    assert source_of(page, "after") != source_of(other, "after")
    other.close()


def test_hostile_names_stay_text(page, lab):
    visit(page, lab)
    zero = next(n for n in range(30) if lab.session.first.source.targets[n] == 0)
    page.locator(f".film[data-image='{zero}']").click()
    wait_for(page, "", image=str(zero))
    assert HOSTILE in page.locator("#title").inner_text()
    assert page.locator("#label option").nth(1).inner_text() == HOSTILE
    assert page.title().startswith("Holdfast lab")
    assert page.locator("img[onerror]").count() == 0
    page.goto(f"http://127.0.0.1:{lab.port}/?do=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&image=0")
    page.locator("#status.bad", has_text="must look like").wait_for()
    assert page.locator("img[onerror]").count() == 0


def test_keys_alone_suffice(page, lab):
    visit(page, lab)
    page.locator("#severity").focus()
    page.keyboard.press("ArrowRight")
    page.locator("body[data-done*='/1']").wait_for()
    frame = page.locator("[data-model='0'] [data-part='before'] .frame")
    frame.focus()
    page.keyboard.press("ArrowDown")
    page.locator("body[data-token='5,4 5,4']").wait_for()
    page.keyboard.press("Enter")
    assert "at=" in page.url
    page.locator(".film").nth(2).focus()
    page.keyboard.press("Enter")
    page.locator("""body[data-done^='{"image":"2"']""").wait_for()


def test_a_sweep_fills_the_table_and_leads_to_a_cell(page, lab):
    visit(page, lab)
    page.click("#go-sweep")
    page.locator("#swept tbody tr").nth(3).wait_for()
    page.locator("#swept .swept").nth(2).click()
    page.locator("body[data-done*='gaussian_noise/3']").wait_for()
    assert page.locator("#swept td").nth(0).get_attribute("class") in ("good", "bad")


def test_on_a_narrow_page_the_slider_stays_in_sight_of_the_pictures(page, lab):
    page.set_viewport_size({"width": 400, "height": 800})
    visit(page, lab, "?do=fog/1")
    page.locator("[data-model='1'] .answers").scroll_into_view_if_needed()
    slider = page.locator("#severity").bounding_box()
    assert 0 <= slider["y"] <= 800 - slider["height"]
    page.locator("#severity").press("ArrowRight")
    wait_for(page, "fog/2")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1024, 1400])
def test_nothing_runs_off_the_side_in_both_schemes(page, lab, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    visit(page, lab, "?do=fog/3")
    page.locator("body[data-inside]").wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    ink, behind = page.evaluate("() => ['color', 'backgroundColor'].map(k => getComputedStyle(document.body)[k])")
    light = [sum(map(int, re.findall(r"\d+", colour)[:3])) > 382 for colour in (ink, behind)]
    assert light == ([False, True] if scheme == "light" else [True, False])


def test_a_dropped_file_is_looked_at_and_a_broken_one_is_a_sentence(page, lab, tmp_path):
    from PIL import Image

    Image.new("RGB", (50, 40), (200, 30, 30)).save(tmp_path / "red.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    visit(page, lab, "?do=fog/2")
    page.set_input_files("#file", tmp_path / "red.png")
    page.locator("#title", has_text="dropped-").wait_for()
    assert page.locator(".side h4 .good, .side h4 .bad").count() == 0  # nobody knows what is right
    page.set_input_files("#file", tmp_path / "broken.png")
    page.locator("#status.bad", has_text="not an image").wait_for()


def test_two_models_share_the_input_and_a_strip_with_both_verdicts(page, lab):
    visit(page, lab, "?do=contrast/3")
    wait_for(page, "contrast/3")
    shown = page.locator("[data-part='before']:visible")
    assert shown.count() == 1  # the input once
    assert page.locator("[data-part='attention-before']:visible").count() == 2
    strip = page.locator("#verdicts")
    assert strip.locator(".verdict:visible").count() == 2
    assert page.locator("#panels .verdict:visible").count() == 0
    page.locator("#sweep").scroll_into_view_if_needed()
    box = strip.bounding_box()
    assert -1 <= box["y"] <= 900 - box["height"]
    page.locator("body[data-inside*='contrast/3']").wait_for()
    starts = page.locator(".inside .hint").all_inner_texts()
    assert len({re.search(r"Bars start at ([\d.]+)", text)[1].rstrip(".") for text in starts}) == 1


def test_an_unknown_kind_stays_out_of_the_controls_and_its_error_goes_with_the_next_success(page, lab):
    page.goto(f"http://127.0.0.1:{lab.port}/?do=fgo/3")
    page.locator("#status.bad", has_text="fgo").wait_for()
    assert page.locator("#kind").input_value() in lab.session.first.kinds
    assert page.locator("#severity").input_value() == "0"
    assert page.locator("#do").input_value() == "fgo/3"
    page.click("#mend")
    wait_for(page, "")
    assert page.locator("#status").inner_text() == ""
    page.set_input_files("#file", files=[{"name": "x.png", "mimeType": "image/png", "buffer": b"no image"}])
    page.locator("#status.bad").wait_for()
    drag_severity(page, 2)
    page.locator("body[data-done*='/2']").wait_for()
    assert page.locator("#status.bad").count() == 0
