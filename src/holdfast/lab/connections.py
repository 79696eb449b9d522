"""Connections of the lab: one worker thread, work that is dropped with its connection, and a time-out for headers."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from uvicorn.protocols.http.h11_impl import H11Protocol

T = TypeVar("T")
LOOK_EVERY = 0.25  # seconds between two looks whether somebody still waits for an answer
HEADER_SECONDS = 10.0  # a connection that has not sent its headers by then is closed


class ClientGone(Exception):
    """The connection was closed before its work was done."""


class Worker:
    """A thread that does one piece of work after the other; unlike a pool's, it does not keep a process from ending."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="lab", daemon=True).start()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Add work, which may be cancelled until it begins."""
        future: Future[T] = Future()
        self._waiting.put((future, work))
        return future

    def _run(self) -> None:
        while True:
            future, work = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:  # raised again where the result is awaited
                future.set_exception(error)


async def finish_unless_gone(future: "Future[T]", is_gone: Callable[[], Awaitable[bool]]) -> T:
    """Await work; if its connection is closed before it begins, it is dropped."""
    waiting = asyncio.wrap_future(future)
    while True:
        done, _ = await asyncio.wait({waiting}, timeout=LOOK_EVERY)
        if done:
            return waiting.result()
        if await is_gone():
            future.cancel()
            waiting.cancel()
            raise ClientGone


class TimedProtocol(H11Protocol):
    """uvicorn's protocol, which closes connections whose headers do not arrive in time."""

    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the clock of the first request."""
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Stop the clock when a request has begun; start it with the first bytes of the next one."""
        super().data_received(data)
        if self._answering():
            self._stop()
        elif self.timer is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop()
        super().connection_lost(exc)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start(self) -> None:
        self.timer = self.loop.call_later(HEADER_SECONDS, self._close)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _close(self) -> None:
        self.timer = None
        if not self._answering() and not self.transport.is_closing():
            self.transport.close()
