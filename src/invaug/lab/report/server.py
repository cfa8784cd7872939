"""A web server for one reader on this machine, with limits: who may ask, for how long, how much, how many at once."""

import hmac
import io
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Lock
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.terminal import say

HOST = "127.0.0.1"
MOST_CLIENTS = 32  # at once, each on a thread; a browser opens about six connections
READING, SENDING = 5.0, 10.0  # seconds for a whole request, and for its whole answer
MOST_HEAD = 16 << 10  # bytes of a request, which is all head
SEND_BUFFER = 64 << 10  # bytes of an answer that the system holds for a slow reader
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Answers = Mapping[str, tuple[str, Callable[[], str]]]


class LocalServer(ThreadingHTTPServer):
    """Answers this machine's own browser, a limited number of clients at once, below an address nobody can guess."""

    daemon_threads = True
    request_queue_size = 128  # connections that wait to be taken; beyond it they are tried again a second later

    def __init__(self, port: int, answers: Answers, policy: str, with_token: bool = True) -> None:
        """Listen on a port, 0 for any.

        Args:
            answers: For each path below the address, its kind and what makes its text, one at a time.
            policy: The content security policy of every answer.
            with_token: Whether the address has a random part, without which nothing is served.
        """
        self.answers = answers
        self.headers = HEADERS | {"Content-Security-Policy": policy}
        self.root = f"/{secrets.token_hex(16)}/" if with_token else "/"
        self.making = Lock()
        self._room = BoundedSemaphore(MOST_CLIENTS)
        super().__init__((HOST, port), Handler)
        ports = (f":{self.server_port}", *([""] if self.server_port == 80 else []))  # browsers leave out 80
        self.hosts = [name + port for name in (HOST, "localhost") for port in ports]

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{HOST}:{self.server_port}{self.root}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own; a client too many is closed at once."""
        if not self._room.acquire(blocking=False):
            return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread to give
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print one line, and nothing about a client that went away or was dropped."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            say(f"invaug: a request could not be answered: {type(error).__name__}: {error}")


class Handler(BaseHTTPRequestHandler):
    """Answers one GET or HEAD request, from this machine's own browser, and no others."""

    server: LocalServer
    default_request_version = "HTTP/1.0"  # HTTP/0.9 has no headers, and every answer must have ours
    command, request_version, requestline = "", default_request_version, ""  # until a request is read

    def handle(self) -> None:
        """Read the whole request within its limits, then answer it."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        head = read_head(self.connection)
        self.connection.settimeout(SENDING)  # for all that one call sends, not for a part of it
        if len(head) > MOST_HEAD:
            return self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self.rfile.close()
        self.rfile = io.BytesIO(head)
        return self.handle_one_request()

    def do_GET(self) -> None:
        """Answer; whatever a page of another site or another user of this machine could send is refused."""
        if self.headers.get_all("Host") not in [[host] for host in self.server.hosts]:  # DNS rebinding
            return self._answer(403, "text/plain", "this page is served to its own machine only\n")
        if not {"none", "same-origin"}.issuperset(self.headers.get_all("Sec-Fetch-Site", [])):
            return self._answer(403, "text/plain", "this page is not served to other sites\n")
        root, path = self.path[: len(self.server.root)], self.path[len(self.server.root) :]
        if not hmac.compare_digest(root.encode(), self.server.root.encode()):
            return self._answer(403, "text/plain", "open the whole address that invaug watch printed\n")
        kind, make = self.server.answers.get(path, ("", None))
        if make is None:
            return self._answer(404, "text/plain", "there is only the page\n")
        try:
            with self.server.making:
                text = make()
        except (UserError, OSError) as error:  # between two writes of the run
            return self._answer(503, "text/plain", f"{error}\n")
        return self._answer(200, kind, text)

    def do_HEAD(self) -> None:
        """Answer as a GET, without the body."""
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with the name of the error alone, which repeats nothing of the request."""
        self._answer(code, "text/plain", f"{HTTPStatus(code).phrase}\n")

    def _answer(self, code: int, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(code)
        about = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (about | self.server.headers).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(b"" if self.command == "HEAD" else body)
        except TimeoutError:  # the system drops the rest too, instead of holding it for this client
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise

    def version_string(self) -> str:
        """Return what the answers say they come from."""
        return "invaug"

    def log_message(self, *_: Any) -> None:
        """Print nothing about requests."""


def read_head(connection: socket.socket) -> bytes:
    """Return a request up to its empty line: nothing if it ends before, more than `MOST_HEAD` if it is too long.

    Raises:
        TimeoutError: It did not come in time, however lively its bytes came.
    """
    head, end = b"", time.monotonic() + READING
    while b"\r\n\r\n" not in head and len(head) <= MOST_HEAD:
        connection.settimeout(max(end - time.monotonic(), 1e-3))
        part = connection.recv(MOST_HEAD)
        if not part:
            return b""
        head += part
        if time.monotonic() > end:
            raise TimeoutError
    return head
