"""Makes the pictures of docs/lab.md in docs/images: four screenshots and a short animated one.

    holdfast lab --demo                                    # once, for the two runs; stop it when it serves
    holdfast train scenes/fan_mini
    python docs/tools/make_lab_pictures.py demo-lab/fan demo-lab/fan_afat runs/scenes-fan_mini

Drives an installed Chromium. The images are scikit-learn's digits, which ship with it, and the scenes made of them.
"""

import io
import json
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from holdfast.lab.auth import Guard
from holdfast.lab.filmstrip import as_recorded
from holdfast.lab.opened_model import open_model
from holdfast.lab.server import bound_socket, lab_app, web_server
from holdfast.lab.session import Session

TARGET = Path(__file__).parents[1] / "images"
WIDE, NARROW, FRAME = ({"width": w, "height": h} for w, h in ((1400, 900), (400, 1200), (1240, 700)))
SMALLER = (930, 525)
DIGIT = "image=3&do=fog/3&at=0.4375,0.5625"


def main() -> None:
    """Two labs: digits through two models, scenes through a segmenter."""
    first, second, segmenter = sys.argv[1:4]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with lab([first, second], "digits:test") as guard:
            shot(visit(browser, guard, DIGIT, viewport=WIDE, color_scheme="light"), "lab-1400.png")
            shot(visit(browser, guard, DIGIT, viewport=NARROW, color_scheme="dark"), "lab-400.png")
            swept(visit(browser, guard, "image=3", viewport=WIDE, color_scheme="dark"))
            animate(visit(browser, guard, "image=3", viewport=FRAME, color_scheme="light"))
        with lab([segmenter], "scenes") as guard:
            shot(visit(browser, guard, "image=3&do=fog/2", viewport=WIDE, color_scheme="dark"), "lab-scenes.png")
        browser.close()


@contextmanager
def lab(models: list[str], data: str) -> Iterator[Guard]:
    """A lab that runs; its guard knows the way in."""
    session = Session(as_recorded([open_model(model, data) for model in models]))
    with bound_socket("127.0.0.1", 0) as listening:
        guard = Guard(lab_app(session), host="127.0.0.1", port=listening.getsockname()[1])
        server = web_server(guard)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield guard
        server.should_exit = True
        thread.join()


def visit(browser: Browser, guard: Guard, link: str, **options: Any) -> Page:
    """A page that has answered."""
    page = browser.new_page(**options)
    page.goto(f"http://127.0.0.1:{guard.port}/?{link}&key={guard.key}")
    page.locator("body[data-inside]").wait_for()
    if "at=" in link:
        page.locator("body[data-token]").wait_for()
    page.locator(".film").first.wait_for()
    return page


def picture(page: Page, **options: Any) -> Image.Image:
    """What the browser shows."""
    return Image.open(io.BytesIO(page.screenshot(**options))).convert("RGB")


def small(image: Image.Image, name: str) -> None:
    """A PNG of few colours."""
    image.quantize(255, dither=Image.Dither.NONE).save(TARGET / name, optimize=True)


def shot(page: Page, name: str) -> None:
    """One screenshot of what is seen first."""
    small(picture(page), name)


def swept(page: Page) -> None:
    """The upper part of a sweep, and which answers flip."""
    page.select_option("#flips", "5")
    page.click("#go-sweep")
    page.locator("body[data-swept]").wait_for(timeout=600_000)
    page.evaluate("() => document.getElementById('sweep').scrollIntoView()")
    small(picture(page), "lab-sweep.png")


def animate(page: Page) -> None:
    """Turn the fog up, let a token look around, then hide patches instead."""
    frames: list[tuple[Image.Image, int]] = []

    def take(milliseconds: int, *, do: str) -> None:
        wanted = json.dumps(do)
        page.locator(f"""body[data-done*='"do":{wanted}']""").wait_for()
        page.locator(f"body[data-inside^='3|{do}|']").wait_for()
        frames.append((picture(page).resize(SMALLER, Image.Resampling.LANCZOS), milliseconds))

    for severity in range(4):
        page.locator("#severity").fill(str(severity))
        take(800 + 700 * (severity == 3), do=f"fog/{severity}" if severity else "")
    after = page.locator("[data-model='0'] [data-part='after'] .frame")

    def to(row: int, column: int) -> None:
        page.evaluate("() => window.scrollTo(0, 0)")
        box = after.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + (column + 0.5) * box["width"] / 8, box["y"] + (row + 0.5) * box["height"] / 8)

    for row, column in ((1, 2), (3, 4), (6, 4)):
        to(row, column)
        page.locator(f"body[data-token='{row},{column} {row},{column}']").wait_for()
        take(900, do="fog/3")
    page.click("#mend")
    page.check("#paint")
    hidden = []
    for row, column in ((1, 4), (2, 4), (3, 4), (4, 3), (4, 4), (5, 4)):
        to(row, column)
        page.mouse.down()
        page.mouse.up()
        hidden.append(8 * row + column)
        take(600, do="hide/8x8:" + ".".join(map(str, sorted(hidden))))
    images, durations = zip(*frames, strict=True)
    options: dict[str, Any] = {"save_all": True, "append_images": images[1:], "duration": [*durations[:-1], 2000]}
    images[0].save(TARGET / "lab.webp", quality=55, method=6, loop=0, **options)


if __name__ == "__main__":
    main()
