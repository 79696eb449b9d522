"""Who may ask: a page of our own, in a browser that once opened the link of the terminal.

Any web site can make a browser send requests to this machine. So the Host must be ours (a name that somebody else's
DNS points here is not), the Origin must be our own page, and every request carries a cookie that is given away once,
for the key in the link.
"""

import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
FOREIGN = "This page answers to its own address only."
UNKNOWN = "Open the link that the terminal shows: it holds a key that works once, and then this browser is known."


class Guard:
    """Stands before an application and lets nobody else in.

    Args:
        app: the application.
        host: what is listened on; loopback answers to 127.0.0.1 and localhost alone, any other to addresses, too.
        port: likewise.
        told: is told the new key whenever one is used up.
    """

    def __init__(self, app: App, *, host: str, port: int, told: Callable[[str], None] = lambda key: None) -> None:
        self.app, self.host, self.port, self.told = app, host, port, told
        self.key, self.session = secrets.token_urlsafe(24), secrets.token_urlsafe(32)
        self.cookie = f"holdfast-lab-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let through, exchange the key for a cookie, or refuse."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        if scope["type"] != "http":  # the page opens no sockets, so nobody may
            return await send({"type": "websocket.close", "code": 1008})
        if not self.is_ours(headers, scope["method"]):
            return await _refuse(send, FOREIGN)
        if self.is_known(headers):
            return await self.app(scope, receive, _with_headers(send))
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["method"] == "GET" and scope["path"] == "/" and self._fits(dict(asked).get("key", "")):
            return await self._let_in(send, [(name, value) for name, value in asked if name != "key"])
        return await _refuse(send, UNKNOWN)

    def is_ours(self, headers: list[tuple[str, str]], method: str) -> bool:
        """Whether Host and Origin are our own; what changes or computes something must say its origin."""
        hosts = [value for name, value in headers if name == "host"]
        if len(hosts) != 1 or not self._names_us(hosts[0]):
            return False
        origins = [value for name, value in headers if name == "origin"]
        if not origins:
            return method in ("GET", "HEAD")
        return origins == [f"http://{hosts[0]}"]

    def is_known(self, headers: list[tuple[str, str]]) -> bool:
        """Whether the browser has our cookie."""
        for name, value in headers:
            if name == "cookie":
                try:
                    found = SimpleCookie(value).get(self.cookie)
                except CookieError:
                    continue
                if found is not None and secrets.compare_digest(found.value.encode(), self.session.encode()):
                    return True
        return False

    def _names_us(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        if name in {"127.0.0.1", "localhost", self.host}:
            return True
        return not _loopback(self.host) and _is_address(name.strip("[]"))

    def _fits(self, key: str) -> bool:
        return secrets.compare_digest(key.encode(), self.key.encode())

    async def _let_in(self, send: Send, rest: list[tuple[str, str]]) -> None:
        self.key = secrets.token_urlsafe(24)
        self.told(self.key)
        cookie = f"{self.cookie}={self.session}; Path=/; HttpOnly; SameSite=Strict"
        target = f"/?{urlencode(rest)}" if rest else "/"
        await _answer(send, 303, b"", {"location": target, "set-cookie": cookie})


def _loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def answered(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return answered


async def _refuse(send: Send, sentence: str) -> None:
    await _answer(send, 403, sentence.encode(), {"content-type": "text/plain; charset=utf-8"})


async def _answer(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    raw = [(name.encode(), value.encode()) for name, value in {**headers, **HEADERS}.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
