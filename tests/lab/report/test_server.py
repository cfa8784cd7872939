"""The limits of the server behind `invaug watch`; `faults/serving.py` attacks a real process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest

from invaug.lab.errors import UserError
from invaug.lab.report import page, server
from invaug.lab.report.document import Document
from invaug.lab.report.server import LocalServer
from invaug.lab.report.watch import Server
from tests.support.pages import Tags

SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def refuse() -> str:
    raise UserError("the record is being written")


def fail() -> str:
    raise ValueError("a bug\nof two lines")


ANSWERS = {
    "": ("text/html", lambda: "<h1>page</h1>"),
    "large": ("text/plain", lambda: "x" * 10**7),
    "later": ("text/plain", refuse),
    "bug": ("text/plain", fail),
}


@contextmanager
def serving(with_token: bool = True) -> Iterator[LocalServer]:
    with LocalServer(0, ANSWERS, "default-src 'none'", with_token) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def local() -> Iterator[LocalServer]:
    with serving() as found:
        yield found


def ask(local: LocalServer, path: str = "", method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", local.server_port, timeout=30)
    target = path if path.startswith("/") else local.root + path
    connection.request(method, target, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def connect(local: LocalServer) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(30)
    client.connect(("127.0.0.1", local.server_port))
    return client


def good(local: LocalServer, path: str) -> bytes:
    return f"GET {local.root}{path} HTTP/1.0\r\nHost: 127.0.0.1:{local.server_port}\r\n\r\n".encode()


def rest_of(client: socket.socket) -> bytes:
    """Return what comes before the server closes or resets."""
    parts = []
    with suppress(ConnectionError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def wait_for_clients(number: int) -> None:
    """Wait until the server has so many clients, each on a thread."""
    while sum("process_request_thread" in thread.name for thread in threading.enumerate()) != number:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("path", "method", "code"),
    [
        ("", "GET", 200),
        ("", "HEAD", 200),
        ("x", "GET", 404),
        ("/", "GET", 403),
        ("later", "GET", 503),
        ("", "POST", 501),
        pytest.param("a" * server.MOST_HEAD, "GET", 431, id="long"),
    ],
)
def test_every_answer_has_every_header(local: LocalServer, path: str, method: str, code: int) -> None:
    answer, body = ask(local, path, method)
    assert answer.status == code
    assert {name: answer.getheader(name) for name in SAFE} == SAFE
    assert answer.getheader("Server") == "invaug"
    assert bool(body) == (method != "HEAD")


def test_the_policy_is_that_of_the_page_and_forbids_frames() -> None:
    tags = Tags(page.html(Document(title="", verdict=""), live=True)).found
    meta = next(found["content"] for name, found in tags if found.get("http-equiv") == "Content-Security-Policy")
    with Server([], 0) as found:
        assert found.headers["Content-Security-Policy"] == f"{meta}; frame-ancestors 'none'"
    assert "connect-src 'self'" in str(meta)
    assert "connect-src" not in page.policy()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("site", [{}, {"Sec_Fetch_Site": "none"}, {"Sec_Fetch_Site": "same-origin"}], ids=str)
def test_the_browser_of_this_machine_is_answered(local: LocalServer, host: str, site: dict[str, str]) -> None:
    answer, body = ask(local, Host=f"{host}:{local.server_port}", **site)
    assert (answer.status, body) == (200, b"<h1>page</h1>")


@pytest.mark.parametrize("site", ["cross-site", "same-site", ""])
def test_other_sites_are_refused(local: LocalServer, site: str) -> None:
    assert ask(local, Sec_Fetch_Site=site)[0].status == 403


@pytest.mark.parametrize("host", ["evil.example:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", "0.0.0.0:{port}"])
def test_other_hosts_are_refused(local: LocalServer, host: str) -> None:
    assert ask(local, Host=host.format(port=local.server_port))[0].status == 403


def test_only_the_whole_token_opens_the_page(local: LocalServer) -> None:
    token = urlsplit(local.address).path
    for path in ("/", f"/?token={token}", token[:-1], f"/x{token}", token.replace(token[1], "g"), f"/%{token[1:]}"):
        answer, body = ask(local, path)
        assert (answer.status, body) == (403, b"open the whole address that invaug watch printed\n")


def test_without_a_token_paths_begin_at_the_root() -> None:
    with serving(with_token=False) as local:
        assert local.address == f"http://127.0.0.1:{local.server_port}/"
        assert ask(local, "/")[0].status == 200
        assert ask(local, "/x")[0].status == 404


def test_a_request_that_never_ends_is_dropped_however_lively(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "READING", 0.3)
    with connect(local) as client:
        client.settimeout(0.01)  # between two bytes
        for _ in range(2000):
            with suppress(TimeoutError):
                client.send(b"G")
                assert client.recv(1) == b""
                break
        else:
            pytest.fail("it still listens")


def test_an_answer_that_is_not_read_is_dropped(local: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SENDING", 0.3)
    with connect(local) as client:
        client.sendall(good(local, "large"))
        assert client.recv(1) == b"H"  # it has begun
        wait_for_clients(0)
        assert len(rest_of(client)) < 10**7


def test_a_client_too_many_is_closed_and_room_is_made_again(local: LocalServer) -> None:
    with ExitStack() as stack:
        for _ in range(server.MOST_CLIENTS):
            stack.enter_context(connect(local))
        wait_for_clients(server.MOST_CLIENTS)
        assert rest_of(stack.enter_context(connect(local))) == b""
        wait_for_clients(server.MOST_CLIENTS)
    wait_for_clients(0)
    assert ask(local)[0].status == 200


def test_a_client_that_goes_is_not_mentioned_and_a_bug_is_one_line(
    local: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for request in (b"", b"GET", good(local, "large")):
        with connect(local) as client:
            client.sendall(request)
    with connect(local) as client:
        client.sendall(good(local, "bug"))
        assert rest_of(client) == b""
    wait_for_clients(0)
    wanted = "invaug: a request could not be answered: ValueError: a bug?of two lines\n"
    assert capsys.readouterr().err == wanted
