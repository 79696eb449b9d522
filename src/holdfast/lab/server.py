"""Web server of the lab: routes of a local page in front of a session, which computes in one worker thread."""

import asyncio
import json
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from holdfast.corruptions.severities import EXTRA, kind_of
from holdfast.errors import HoldfastError
from holdfast.lab.auth import Guard
from holdfast.lab.connections import ClientGone, TimedProtocol, Worker, finish_unless_gone
from holdfast.lab.downloads import FORMS
from holdfast.lab.edits import MOST_EPS
from holdfast.lab.session import LARGEST_UPLOAD, BadRequest, Session, ViewState, parse_view_state
from holdfast.lab.templates import asset, fragment
from holdfast.runtime.signals import interrupted, unblock_signals

MEDIA = {"picture.png": "image/png", "card.html": "text/html; charset=utf-8", "lines.py": "text/plain; charset=utf-8"}
SCRIPTS = ("steps.js", "painting.js", "lab.js")
EXTRA_GROUP = "extra"
LARGEST_REQUEST = 64 * 2**10  # bytes of a JSON request
T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


def lab_app(session: Session) -> Starlette:
    """The routes without access control."""
    # one thread: models and caches are not thread-safe, and PyTorch uses all cores for one forward pass anyway
    worker = Worker()

    async def apart(request: Request, work: Callable[[], T]) -> T:
        return await finish_unless_gone(worker.submit(work), request.is_disconnected)

    async def page(request: Request) -> Response:
        return HTMLResponse(await apart(request, lambda: fragment("page.html", **page_values(session))))

    async def inspect(request: Request) -> Response:
        view_state, _ = await _parse_request(request)
        return JSONResponse(await apart(request, lambda: session.inspect(view_state)))

    async def inside(request: Request) -> Response:
        view_state, _ = await _parse_request(request)
        return JSONResponse(await apart(request, lambda: session.inside(view_state)))

    async def token(request: Request) -> Response:
        view_state, values = await _parse_request(request)
        row, column = _share(values, "row"), _share(values, "column")
        return JSONResponse(await apart(request, lambda: session.token(view_state, row=row, column=column)))

    async def strip(request: Request) -> Response:
        _, values = await _parse_request(request)
        label, severity, page = (_number(values, name) for name in ("label", "severity", "page"))
        domain = _number(values, "domain") if "domain" in values else -1
        chosen: dict[str, Any] = {"label": None if label < 0 else label, "domain": None if domain < 0 else domain}
        return JSONResponse(await apart(request, lambda: session.strip(**chosen, severity=severity, page=page)))

    async def sweep(request: Request) -> Response:
        view_state, values = await _parse_request(request)
        return JSONResponse(await apart(request, lambda: session.sweep(view_state, str(values.get("kind", "")))))

    async def drop(request: Request) -> Response:
        content = await _body(request, LARGEST_UPLOAD, "an image")
        return JSONResponse({"image": await apart(request, lambda: session.drop(content))})

    async def download(request: Request) -> Response:
        form = request.path_params["form"]
        if form not in FORMS:
            raise HoldfastError(f"a download must be one of {', '.join(FORMS)}")
        view_state = parse_view_state(request.query_params)
        content = await apart(request, lambda: session.download(view_state, form))
        headers = {"content-disposition": f'attachment; filename="holdfast-lab-{form}"'}
        return Response(content, media_type=MEDIA[form], headers=headers)

    def static(name: str, media: str) -> Handler:
        async def answer(request: Request) -> Response:
            return Response(asset(name), media_type=media)

        return answer

    posts = {"look": inspect, "inside": inside, "token": token, "strip": strip, "sweep": sweep, "drop": drop}
    return Starlette(
        routes=[
            Route("/", page),
            *(Route(f"/{name}", static(name, "text/javascript; charset=utf-8")) for name in SCRIPTS),
            Route("/lab.css", static("lab.css", "text/css; charset=utf-8")),
            Route("/keep/{form}", download),
            *(Route(f"/{name}", handler, methods=["POST"]) for name, handler in posts.items()),
        ],
        exception_handlers={HoldfastError: _sentence, ClientGone: _nobody},
    )


def page_values(session: Session) -> dict[str, Any]:
    """Values of the page's template."""
    first = session.first
    flips = session.records is not None
    named = list(zip(session.names, session.models, strict=True))
    settings = {"models": session.names, "grid": list(first.grid), "seed": first.seed, "kinds": list(first.kinds)}
    return {
        "told": json.dumps(settings),
        "scripts": SCRIPTS,
        "names": session.names,
        "data": first.data.spec,
        "classes": first.classes if first.task.scoring.one_class and not first.without_labels else (),
        "domains": first.domains,
        "notes": [
            *(
                f"{name} is shown without labels: {opened.without_labels}"
                for name, opened in named
                if opened.without_labels
            ),
            *(f"{name}: {opened.answers}" for name, opened in named if opened.answers),
        ],
        "flips": flips,
        "groups": kind_groups(first.kinds),
        "sized": all(opened.steps.size is not None for opened in session.models),
        "learned": all(opened.corruptor is not None for opened in session.models),
        "attacked": all(opened.differentiable for opened in session.models),
        "most_eps": min(16, MOST_EPS),
        "attention": any(opened.has_attention for opened in session.models),
    }


def kind_groups(kinds: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Corruptions by group, for the menu."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        found.setdefault(EXTRA_GROUP if kind in EXTRA else kind_of(kind).group, []).append(kind)
    return list(found.items())


async def _sentence(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=400 if isinstance(error, BadRequest) else 422)


async def _nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nginx's number for a client that closed the connection; nobody reads it


async def _parse_request(request: Request) -> tuple[ViewState, dict[str, Any]]:
    try:
        values = json.loads(await _body(request, LARGEST_REQUEST, "a request"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, HoldfastError):
            raise
        raise BadRequest("a request must be JSON of a few levels") from error
    if not isinstance(values, dict):
        raise BadRequest("a request must be a JSON object")
    return parse_view_state(values), values


async def _body(request: Request, most: int, what: str) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            size_text = f"{most >> 20} MiB" if most >= 2**20 else f"{most >> 10} KiB"
            raise BadRequest(f"{what} must have at most {size_text}")
        parts.append(part)
    return b"".join(parts)


def _number(values: dict[str, Any], name: str) -> int:
    value = values.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 10**9:
        raise HoldfastError(f"{name} must be a whole number")
    return value


def _share(values: dict[str, Any], name: str) -> float:
    value = values.get(name)
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise HoldfastError(f"{name} must lie in [0, 1]")
    return float(value)


def bound_socket(host: str, port: int) -> socket.socket:
    """Bind a socket; raises an error if the address is not available."""
    if not 0 <= port < 2**16:
        raise HoldfastError(f"--port must lie in 0…65535, got {port}")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # the protocol must be given: asyncio sets TCP_NODELAY only if it is TCP, and with Nagle's algorithm small
        # responses wait up to 40 ms for an acknowledgement
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        raise HoldfastError(
            f"the lab cannot listen on {host}:{port} ({error.strerror}); choose another with --port, 0 picks a free one"
        ) from error
    return listening


def serve(session: Session, *, host: str, port: int, browser: bool, say: Callable[[str], None]) -> None:
    """Serve until interrupted; ``say`` is called with the links."""
    with bound_socket(host, port) as listening:
        port = listening.getsockname()[1]
        name = f"[{host}]" if ":" in host else host  # IPv6 addresses need brackets in URLs

        def link(key: str) -> str:
            return f"http://{name}:{port}/?key={key}"

        guard = Guard(
            lab_app(session), host=name, port=port, on_new_key=lambda key: say(f"for another browser: {link(key)}")
        )
        say(f"lab: {link(guard.key)}")
        if browser:
            threading.Thread(target=_open, args=(link(guard.key), say), daemon=True).start()
        with suppress(asyncio.CancelledError):
            web_server(guard).run(sockets=[listening])
        unblock_signals()


class _Server(uvicorn.Server):
    """uvicorn's server, which also ends if an interrupt was swallowed before its own handlers were installed."""

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or interrupted()


def web_server(guard: Guard) -> uvicorn.Server:
    """Configure uvicorn explicitly, so that optional packages (uvloop, httptools) change nothing."""
    options: dict[str, Any] = {"loop": "asyncio", "http": TimedProtocol, "ws": "none", "lifespan": "off"}
    config = uvicorn.Config(guard, log_level="error", server_header=False, timeout_graceful_shutdown=1, **options)
    return _Server(config)


def _open(link: str, say: Callable[[str], None]) -> None:
    try:
        found = webbrowser.open(link)
    except webbrowser.Error:
        found = False
    if not found:
        say("no browser found: open the link yourself")
