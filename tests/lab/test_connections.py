"""Connections of the lab: nobody can hold them open, work without a reader is dropped, and Ctrl-C ends it at once."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.lab import connections
from holdfast.lab.connections import ClientGone, Worker, finish_unless_gone
from tests.lab.test_auth import ask, known  # noqa: F401 (a fixture)


def run(scenario):
    """In a thread of its own: a browser that other tests of this process use holds the loop of the main thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, scenario).result(timeout=60)


def test_work_of_a_closed_connection_is_dropped():
    worker, begun, done, blocked = Worker(), threading.Event(), [], threading.Event()

    def first():
        begun.set()
        blocked.wait(10)
        done.append("first")

    async def scenario():
        async def open_():
            return False

        async def gone():
            return True

        running = asyncio.create_task(finish_unless_gone(worker.submit(first), open_))
        await asyncio.to_thread(begun.wait, 10)
        with pytest.raises(ClientGone):
            await finish_unless_gone(worker.submit(lambda: done.append("dropped")), gone)
        last = asyncio.create_task(finish_unless_gone(worker.submit(lambda: done.append("last")), open_))
        blocked.set()
        await asyncio.gather(running, last)

    run(scenario())
    assert done == ["first", "last"]


def test_errors_of_the_work_reach_those_who_wait():
    async def open_():
        return False

    with pytest.raises(ZeroDivisionError):
        run(finish_unless_gone(Worker().submit(lambda: 1 / 0), open_))


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: 127", b"whole"])
def test_headers_that_do_not_arrive_end_the_connection(lab, monkeypatch, begun):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    if begun == b"whole":  # a whole request, then half of the next one
        begun = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{lab.port}\r\n\r\nGET / HT".encode()
    with socket.create_connection(("127.0.0.1", lab.port), timeout=20) as connection:
        connection.sendall(begun)
        while connection.recv(65536):
            pass
        assert (
            connection.recv(1) == b""
        )  # reached only when the lab closes the connection; otherwise the time-out of this socket is an error


@pytest.mark.parametrize("body", [b"[" * 30_000, b'{"do": ' * 5_000, b"no json", b"[]"])
def test_nested_and_other_wrong_json_is_a_bad_request(lab, known, body):  # noqa: F811
    status, _, answer = ask(lab, "POST", "/look", headers=known, body=body)
    assert status == 400
    assert "a request must be" in json.loads(answer)["error"]


@pytest.mark.parametrize("size", [(1, 1), (3000, 1), (1, 400), (7, 300), (400, 19)])
def test_thin_uploads_are_bad_requests(lab, known, size):  # noqa: F811
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", size).save(file, format="PNG")
    status, _, answer = ask(lab, "POST", "/drop", headers=known, body=file.getvalue())
    assert status == 400
    assert f"got {size[0]}×{size[1]}" in json.loads(answer)["error"]


def test_without_arguments_the_lab_opens_and_ctrl_c_ends_it(tmp_path):
    """The link comes within 10 s on a machine that does nothing else; here its seconds of the processor are counted."""
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # background jobs ignore it
    code = f"{listen}; from holdfast.cli.main import entry_point; entry_point()"
    command = [sys.executable, "-c", code, "lab", "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stderr is not None
    link = next(line for line in process.stderr if line.startswith("lab: "))
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    assert (int(fields[11]) + int(fields[12])) / 100 < 10
    assert re.search(r"http://127.0.0.1:\d+/\?key=\S+", link)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert time.monotonic() - began < 3
    assert list(tmp_path.iterdir()) == []
