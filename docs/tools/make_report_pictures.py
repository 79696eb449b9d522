"""Makes the pictures of README.md and docs/report.md in docs/images: the demo's report, its failures, a leaderboard.

    holdfast demo --out demo
    for run in baseline tap_adl afat; do holdfast evaluate demo/$run --data digits:test --limit 100 \\
        --suite clean,corruptions,pgd5-rspc,occlusion-random --keep-examples 60; done
    python docs/tools/make_report_pictures.py demo

Drives an installed Chromium. The images are scikit-learn's digits, which ship with it.
"""

import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from holdfast.reporting.page import report

MODELS, TITLE = ("baseline", "tap_adl", "afat"), "Holdfast demo: three ways to train FAN-nano"
TARGET = Path(__file__).parents[1] / "images"


def main() -> None:
    """Two pages, four pictures."""
    os.chdir(sys.argv[1])  # so that the page names runs as a reader would
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        report(MODELS, out=Path(place) / "report.html", title=TITLE)
        report(MODELS, out=Path(place) / "board", format="site", title="Who holds?")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def visit(file: str, width: int, height: int, scheme: str = "light") -> Any:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto((Path(place) / file).as_uri())
            return page

        keep(visit("report.html", 1400, 1750), "report-1400")
        keep(visit("report.html", 400, 1700), "report-400")
        failures = visit("report.html", 1400, 950, "dark")
        failures.locator("select[aria-label=order]").select_option(label="where they disagree")
        failures.locator("#data-1-examples").evaluate("e => window.scrollTo(0, e.offsetTop - 70)")
        keep(failures, "report-examples")
        keep(visit("board/index.html", 1400, 950), "leaderboard")
        browser.close()


def keep(page: Any, name: str) -> None:
    """What is to be seen."""
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(TARGET / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
