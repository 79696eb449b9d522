"""Who may ask: nobody but our own page, in a browser that has used the link of the terminal."""

import http.client
import io
import json
import struct
import zlib

import pytest
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.lab.auth import Guard
from holdfast.lab.server import LARGEST_REQUEST, bound_socket
from holdfast.lab.session import LARGEST_UPLOAD


def ask(lab, method, path, *, headers=None, body=None):
    """A plain request with exactly these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in (headers or {}).items():
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    try:
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    except ConnectionError:  # hung up on before the body was read: without a Host it is no request at all
        assert "Host" not in (headers or {})
        return 400, {}, b""
    finally:
        connection.close()


@pytest.fixture
def known(lab):
    """The headers of our own page."""
    host = f"127.0.0.1:{lab.port}"
    return {
        "Host": host,
        "Origin": f"http://{host}",
        "Cookie": f"{lab.guard.cookie}={lab.guard.session}",
    }


LOOK = json.dumps({"image": 0, "do": "fog/1"}).encode()


def test_our_own_page_is_answered(lab, known):
    status, headers, content = ask(lab, "POST", "/look", headers=known, body=LOOK)
    assert status == 200
    assert len(json.loads(content)["panels"]) == 2
    assert "script-src 'self'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    "change",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "127.0.0.1.evil.example:{port}"},
        {"Host": None},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "null"},
        {"Origin": None},
        {"Cookie": None},
        {"Cookie": "holdfast-lab-{port}=guess"},
        {"Cookie": "other={session}"},
    ],
    ids=str,
)
def test_foreign_hosts_foreign_origins_and_strangers_are_refused(lab, known, change):
    name, value = next(iter(change.items()))
    headers = {key: held for key, held in known.items() if key != name}
    if value is not None:
        headers[name] = value.format(port=lab.port, session=lab.guard.session)
    for method, path, body in (("POST", "/look", LOOK), ("POST", "/drop", b"x")):
        status, _, content = ask(lab, method, path, headers=headers, body=body)
        assert status == 403 or (value is None and name == "Host" and status == 400)
        assert b"panels" not in content


def test_without_a_cookie_not_even_the_page_is_there(lab, known):
    host = {"Host": known["Host"]}
    for path in ("/", "/?key=guess", "/lab.js", "/keep/lines.py", f"/look?key={lab.guard.key}"):
        assert ask(lab, "GET", path, headers=host)[0] == 403, path


def test_a_key_works_once_and_is_gone_from_the_address(lab, known):
    host, key = {"Host": known["Host"]}, lab.guard.key
    status, headers, _ = ask(lab, "GET", f"/?key={key}&do=fog%2F3", headers=host)
    assert (status, headers["location"]) == (303, "/?do=fog%2F3")
    assert {"HttpOnly", "SameSite=Strict"} <= set(headers["set-cookie"].split("; "))
    assert ask(lab, "GET", f"/?key={key}", headers=host)[0] == 403
    cookie = headers["set-cookie"].split(";")[0]
    assert ask(lab, "GET", "/", headers={**host, "Cookie": cookie})[0] == 200


def test_sockets_are_refused(lab, known):
    upgrade = {
        **known,
        "Origin": "http://evil.example",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    assert ask(lab, "GET", "/", headers=upgrade)[0] == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5"])
def test_a_wider_host_answers_to_addresses_but_not_to_names(host):
    guard = Guard(None, host=host, port=8420)
    for good in ("192.168.1.5:8420", "localhost:8420", f"{host}:8420"):
        assert guard.is_ours([("host", good)], "GET"), good
    for bad in ("evil.example:8420", "192.168.1.5:80", "192.168.1.5"):
        assert not guard.is_ours([("host", bad)], "GET"), bad


def test_loopback_answers_to_itself_alone():
    guard = Guard(None, host="127.0.0.1", port=8420)
    assert not guard.is_ours([("host", "192.168.1.5:8420")], "GET")
    assert not guard.is_ours([("host", "127.0.0.1:8420"), ("host", "evil.example:8420")], "GET")


def bomb(side):
    """A PNG that says it is huge."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    packed = [struct.pack(">I", len(c)) + n + c + struct.pack(">I", zlib.crc32(n + c)) for n, c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


@pytest.mark.parametrize(
    ("content", "expected_status", "said"),
    [
        (b"not an image", 422, "not an image"),
        (b"%!PS-Adobe-3.0\n(run) print", 422, "not an image"),
        (bomb(20_000), 422, "pixels"),
        (b"x" * (LARGEST_UPLOAD + 1), 400, "an image must have at most 16 MiB"),
    ],
    ids=["text", "postscript", "bomb", "large"],
)
def test_uploads_are_limited_and_decoded_by_our_decoder(lab, known, content, expected_status, said):
    status, _, answer = ask(lab, "POST", "/drop", headers=known, body=content)
    assert status == expected_status
    assert said in json.loads(answer)["error"]


@pytest.mark.parametrize("path", ["/look", "/inside", "/strip", "/sweep"])
def test_requests_are_limited(lab, known, path):
    body = b'{"do": "' + b"x" * LARGEST_REQUEST + b'"}'
    status, _, answer = ask(lab, "POST", path, headers=known, body=body)
    assert (status, json.loads(answer)["error"]) == (400, "a request must have at most 64 KiB")


def test_only_the_last_few_dropped_pictures_are_kept(lab, known):
    names = []
    for shade in range(6):
        file = io.BytesIO()
        Image.new("RGB", (40, 40), (shade, 0, 0)).save(file, format="PNG")
        names.append(json.loads(ask(lab, "POST", "/drop", headers=known, body=file.getvalue())[2])["image"])
    first, last = (json.dumps({"image": name}).encode() for name in (names[0], names[-1]))
    assert ask(lab, "POST", "/look", headers=known, body=last)[0] == 200
    status, _, answer = ask(lab, "POST", "/look", headers=known, body=first)
    assert status == 422
    assert "upload it again" in json.loads(answer)["error"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"image": "../../etc/passwd"}',
        b'{"image": 1e99}',
        b'{"image": 30}',
        b'{"do": "fog/9"}',
        b'{"image": null, "layer": "x"}',
        b'{"image": "dropped-../../etc"}',
    ],
)
def test_whatever_else_is_sent_is_one_sentence(lab, known, body):
    status, _, answer = ask(lab, "POST", "/look", headers=known, body=body)
    assert status == 422
    assert "Traceback" not in json.loads(answer)["error"]


def test_a_port_that_is_taken_is_one_sentence(lab):
    with pytest.raises(HoldfastError, match="--port"):
        bound_socket("127.0.0.1", lab.port)
    with pytest.raises(HoldfastError, match="65535"):
        bound_socket("127.0.0.1", 70_000)
