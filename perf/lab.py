"""How long the lab takes, as the browser sees it, beside the bare work that no page can save.

    python perf/lab.py [--rounds 30]

From a new severity to the decoded picture, the answers and the attention of one layer on the page; from a new token to
its two decoded maps. Bare work: the same corruption, forward pass and maps in Python, in turn with the browser. Needs
Chromium; on a busy machine `chrt -r 1` in front tells what an idle one does. Writes
perf/results/lab.json and .md.
"""

import argparse
import json
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from environment import as_line, describe
from holdfast.analysis.query_maps import received_map
from holdfast.attention import watch
from holdfast.lab.auth import Guard
from holdfast.lab.edits import apply_edits, parse_edits
from holdfast.lab.inspect import picture_of
from holdfast.lab.opened_model import OpenedModel, open_model
from holdfast.lab.server import bound_socket, lab_app, web_server
from holdfast.lab.session import Session
from holdfast.models import create_model

RESULTS = Path(__file__).parent / "results"
MODELS = {"fan_nano": 100, "fan_tiny_12_p16_224": 300}  # and how many milliseconds a new severity may take
TOKEN_LIMIT, BARE_LIMIT = 60, 4
IMAGE = 3
# in the page: wait for the answer to this very wish, and until its pictures are decoded
WAIT = """
const settled = (ready, frames) => new Promise((done) => {
  const look = async () => {
    if (!ready()) { requestAnimationFrame(look); return; }
    const images = [...document.querySelectorAll(frames)].filter((image) => image.src);
    await Promise.all(images.map((image) => image.decode()));
    done(performance.now());
  };
  look();
});"""
SEVERITY = (
    "async ([severity, seed]) => {"
    + WAIT
    + """
  state.do = `fog/1@${seed}`; // a draw that was never seen: the lab remembers its last looks
  const slider = document.getElementById("severity"), start = performance.now();
  slider.value = severity;
  slider.dispatchEvent(new Event("input"));
  const wanted = `fog/${severity}@${seed}`;
  return await settled(() => JSON.parse(document.body.dataset.done || "{}").do === wanted, ".pictures img") - start;
}"""
)
TOKEN = (
    "async ([row, column]) => {"
    + WAIT
    + """
  const frame = document.querySelector("[data-part='before'] .frame"), box = frame.getBoundingClientRect();
  const [rows, columns] = shown.panels[0].attention.grid, start = performance.now();
  const clientX = box.left + (column + 0.5) * box.width / columns;
  const clientY = box.top + (row + 0.5) * box.height / rows;
  frame.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }));
  return await settled(() => document.body.dataset.token === `${row},${column}`, ".heat") - start;
}"""
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    load, results = os.getloadavg()[0], {}
    for name in MODELS:
        torch.manual_seed(0)
        lens = open_model(create_model(name, num_classes=10).eval(), "digits:test")
        with running(lens) as link:
            results[name] = measure(lens, link, rounds=arguments.rounds)
        print(name, results[name], flush=True)
    about = {"load": round(load, 1), "priority": priority(), "threads": torch.get_num_threads()}
    environment = describe("torch", "timm", "starlette", "uvicorn", "playwright")
    found = {"environment": environment, "rounds": arguments.rounds, **about, "milliseconds": results}
    (RESULTS / "lab.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "lab.md").write_text(page(found))


def priority() -> str:
    """How this process is scheduled."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return f"at nice {nice}" if os.sched_getscheduler(0) == os.SCHED_OTHER else "before all others (real time)"


@contextmanager
def running(lens: OpenedModel) -> Iterator[str]:
    """A lab; its link."""
    with bound_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        guard = Guard(lab_app(Session([lens])), host="127.0.0.1", port=port)
        server = web_server(guard)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{port}/?image={IMAGE}&do=fog/1&key={guard.key}"
        server.should_exit = True
        thread.join()


def measure(lens: OpenedModel, link: str, *, rounds: int) -> dict[str, Any]:
    """Milliseconds, medians; the browser and the bare work in turn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900}, bypass_csp=True)
        page.goto(link)
        page.select_option("#kind", "fog")
        page.locator(".film").first.wait_for()
        seen: dict[str, list[float]] = {"severity": [], "bare": [], "dragged": [], "token": []}
        for turn in range(-2, rounds):  # the first two do not count
            severity = (turn % 4) + 2
            page.locator("body[data-inside]").wait_for()
            time.sleep(0.4)  # until all layers are read
            one = page.evaluate(SEVERITY, [severity, turn + 100])
            two = bare(lens, severity)
            if turn >= 0:
                seen["severity"].append(one)
                seen["bare"].append(two)
        for turn in range(rounds):  # without a pause, as a hand drags
            seen["dragged"].append(page.evaluate(SEVERITY, [(turn % 4) + 2, turn + 1000]))
        time.sleep(1)
        for turn in range(rounds):
            seen["token"].append(page.evaluate(TOKEN, [turn % 7, (3 * turn + 1) % 8]))
        browser.close()
    found: dict[str, Any] = {name: round(statistics.median(values), 1) for name, values in seen.items()}
    return {**found, "ratio": round(found["severity"] / found["bare"], 2)}


@torch.no_grad()
def bare(lens: OpenedModel, severity: int) -> float:
    """Corruption, forward pass and the maps of one layer, in milliseconds."""
    picture, start = picture_of(lens, IMAGE), time.perf_counter()
    pixels = apply_edits(lens, picture.image, parse_edits(f"fog/{severity}"), name=picture.name, target=picture.target)
    with watch(lens.inner) as seen:
        lens.judge.predict(pixels)
    received_map(seen.attention[-1])
    return 1000 * (time.perf_counter() - start)


def page(found: dict[str, Any]) -> str:
    """The results as a page."""
    rows = [
        f"| {name} | {one['severity']:.0f} (≤ {MODELS[name]}) | {one['bare']:.0f} | {one['ratio']:.1f} "
        f"(≤ {BARE_LIMIT}) | {one['dragged']:.0f} | {one['token']:.0f} (≤ {TOKEN_LIMIT}) |"
        for name, one in found["milliseconds"].items()
    ]
    return f"""# The lab

{as_line(found["environment"])}

Milliseconds in headless Chromium, medians of {found["rounds"]}, {found["threads"]} threads. The load of the machine was
{found["load"]} when it began; this process ran {found["priority"]}.

New severity: from the slider to the decoded picture, the answers and one layer's maps. Bare: the same corruption,
forward pass and maps in Python, in turn with it. Dragged: the next severity at once, as a hand drags. Token: from a
new token to its two maps, without a forward pass. In brackets what is wanted on 2 idle cores.

| model | new severity | bare | ratio | dragged | token |
|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    main()
