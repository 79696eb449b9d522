"""Access control of the lab: only our own page, in a browser that has opened the link in the terminal.

Any web site can make a browser send requests to this machine. So the Host header must be ours, which defeats DNS
rebinding; the Origin must be our own page, which defeats cross-site requests; and every request needs a cookie, which
is set once in exchange for the key in the link.
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

# Images and edits come from users, so the page is locked down: scripts only from our own files (no inline code, no
# eval), images also from data: URLs, in which predictions are sent, and no frames, forms or other origins.
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
FOREIGN = "This page can only be reached under its own address."
UNKNOWN = "Open the link shown in the terminal: its key works once and then authorises this browser."


class Guard:
    """ASGI middleware that admits only authorised browsers.

    Args:
        app: the application.
        host: the address to listen on; a loopback address accepts the Hosts 127.0.0.1 and localhost only, any other
            also IP addresses.
        port: the port to listen on.
        on_new_key: called with the new key whenever one has been used.
    """

    def __init__(self, app: App, *, host: str, port: int, on_new_key: Callable[[str], None] = lambda key: None) -> None:
        self.app, self.host, self.port, self.on_new_key = app, host, port, on_new_key
        self.key, self.session = secrets.token_urlsafe(24), secrets.token_urlsafe(32)
        self.cookie = f"holdfast-lab-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, exchange the key for a cookie, or refuse."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        if scope["type"] != "http":  # the page opens no websockets; they would bypass the same-origin policy
            return await send({"type": "websocket.close", "code": 1008})
        if not self.is_ours(headers, scope["method"]):
            return await _refuse(send, FOREIGN)
        if self.is_known(headers):
            return await self.app(scope, receive, _with_headers(send))
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["method"] == "GET" and scope["path"] == "/" and self._fits(dict(query).get("key", "")):
            return await self._let_in(send, [(name, value) for name, value in query if name != "key"])
        return await _refuse(send, UNKNOWN)

    def is_ours(self, headers: list[tuple[str, str]], method: str) -> bool:
        """Whether Host and Origin are ours; requests other than GET and HEAD must have an Origin."""
        hosts = [value for name, value in headers if name == "host"]
        if len(hosts) != 1 or not self._names_us(hosts[0]):
            return False
        origins = [value for name, value in headers if name == "origin"]
        if not origins:
            return method in ("GET", "HEAD")
        return origins == [f"http://{hosts[0]}"]

    def is_known(self, headers: list[tuple[str, str]]) -> bool:
        """Whether the request carries our cookie."""
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
        self.on_new_key(self.key)
        # HttpOnly hides it from scripts; SameSite=Strict keeps other sites from sending it
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
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return send_with_headers


async def _refuse(send: Send, sentence: str) -> None:
    await _answer(send, 403, sentence.encode(), {"content-type": "text/plain; charset=utf-8"})


async def _answer(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    raw = [(name.encode(), value.encode()) for name, value in {**headers, **HEADERS}.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
