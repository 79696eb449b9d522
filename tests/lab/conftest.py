"""A lab that runs: its server in a thread, a browser before it."""

import asyncio
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from holdfast.data import open_data
from holdfast.data.subsets import Subset
from holdfast.lab.auth import Guard
from holdfast.lab.opened_model import open_model
from holdfast.lab.session import Session
from holdfast.models import create_model

HOSTILE = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>'\"&"


class Hostile:
    """Digits whose names would run, if somebody took them for markup."""

    def __init__(self, source):
        self.source, self.targets = source, source.targets
        self.classes = (HOSTILE, *source.classes[1:])
        self.name = HOSTILE

    def __len__(self):
        return len(self.source)

    def id(self, index):
        return f"{HOSTILE}{index}"

    def image(self, index):
        return self.source.image(index)


@dataclass
class Running:
    """A server and how to reach it."""

    session: Session
    guard: Guard
    port: int

    @property
    def link(self):
        return f"http://127.0.0.1:{self.port}/?key={self.guard.key}"


@pytest.fixture(scope="session")
def lab():
    """Two small models on hostile digits."""
    pytest.importorskip("uvicorn", reason="the extra lab is not installed")
    from holdfast.lab.server import bound_socket, lab_app, web_server

    torch.manual_seed(0)
    source = Hostile(Subset(open_data("digits:test", split="test"), np.arange(30)))
    models = [create_model(name, num_classes=10).eval() for name in ("fan_nano", "vit_nano")]
    session = Session([open_model(model, source) for model in models])
    listening = bound_socket("127.0.0.1", 0)
    port = listening.getsockname()[1]
    guard = Guard(lab_app(session), host="127.0.0.1", port=port)
    server = web_server(guard)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield Running(session, guard, port)
    server.should_exit = True
    thread.join(timeout=10)
    listening.close()


@pytest.fixture(scope="session")
def visitor(lab, browser):
    """A browser that has used the link of the terminal."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(lab.link)
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(lab, visitor):
    """A fresh tab; whatever complains fails the test, and so does any request to elsewhere."""
    complaints = []
    page = visitor.new_page()
    # a sentence comes with status 422, of which Chromium says so itself
    page.on("console", lambda said: None if "status of 422" in said.text else complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    home = (f"http://127.0.0.1:{lab.port}/", "data:")
    page.on("request", lambda asked: complaints.append(asked.url) if not asked.url.startswith(home) else None)
    page.set_default_timeout(30_000)
    yield page
    page.close()
    assert complaints == []
