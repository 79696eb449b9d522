"""Makes the pictures of docs/lab.md in docs/images: two screenshots and a short animated one.

    holdfast lab --demo                                    # once, for the two runs; stop it when it serves
    python docs/make_lab_pictures.py demo-lab/fan demo-lab/fan_afat

Drives an installed Chromium. The images are scikit-learn's digits, which ship with it.
"""

import io
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from holdfast.lab.desk import Desk
from holdfast.lab.guard import Guard
from holdfast.lab.lens import open_lens
from holdfast.lab.server import bound_socket, lab_app, web_server

TARGET = Path(__file__).parent / "images"
DATA, KIND, IMAGE = "digits:test", "fog", 3
FRAME, SMALLER = {"width": 1200, "height": 800}, (900, 600)


def main() -> None:
    """One lab, three visits."""
    models = sys.argv[1:3]
    desk = Desk([open_lens(model, DATA) for model in models])
    with bound_socket("127.0.0.1", 0) as listening, sync_playwright() as playwright:
        port = listening.getsockname()[1]
        guard = Guard(lab_app(desk), host="127.0.0.1", port=port)
        server = web_server(guard)
        threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def visit(**options: Any) -> Any:
            page = browser.new_page(**options)
            page.goto(f"http://127.0.0.1:{port}/?image={IMAGE}&do={KIND}/3&at=0.4375,0.5625&key={guard.key}")
            page.locator(f"body[data-inside*='{KIND}/3']").wait_for()
            page.locator("body[data-token]").wait_for()
            page.locator(".film").first.wait_for()
            return page

        shot(visit(viewport={"width": 1400, "height": 900}, color_scheme="light"), "lab-1400.png", full=True)
        shot(visit(viewport={"width": 400, "height": 1500}, color_scheme="dark"), "lab-400.png", full=False)
        animate(visit(viewport=FRAME, color_scheme="light"))
        browser.close()
        server.should_exit = True


def shot(page: Any, name: str, *, full: bool) -> None:
    """One screenshot; of the narrow page the part that shows something."""
    if not full:
        page.evaluate("() => document.getElementById('see').scrollIntoView()")
    picture = Image.open(io.BytesIO(page.screenshot(full_page=full))).convert("RGB")
    picture.save(TARGET / name, optimize=True)


def animate(page: Any) -> None:
    """Turn the fog up, then let a token look around."""
    page.click("#release")
    frames = []

    def take(milliseconds: int) -> None:
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        frames.append((image.resize(SMALLER, Image.Resampling.LANCZOS), milliseconds))

    for severity in (0, 1, 2, 3, 4, 5, 3):
        page.locator("#severity").fill(str(severity))
        wanted = f"{KIND}/{severity}" if severity else ""
        page.locator(f"""body[data-done*='"do":"{wanted}"']""").wait_for()
        page.locator(f"body[data-inside^='{IMAGE}|{wanted}|']").wait_for()
        take(700)
    box = page.locator("[data-model='0'] [data-part='after'] .frame").bounding_box()
    for row, column in ((2, 2), (3, 3), (4, 4), (5, 4)):
        page.mouse.move(box["x"] + (column + 0.5) * box["width"] / 8, box["y"] + (row + 0.5) * box["height"] / 8)
        page.locator(f"body[data-token='{row},{column} {row},{column}']").wait_for()
        take(900)
    images, durations = zip(*frames, strict=True)
    options: dict[str, Any] = {"save_all": True, "append_images": images[1:], "duration": list(durations), "loop": 0}
    images[0].save(TARGET / "lab.webp", quality=60, method=6, **options)


if __name__ == "__main__":
    main()
