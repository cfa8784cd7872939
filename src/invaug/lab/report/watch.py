"""`invaug watch`: the page of a run, served to this machine alone and renewed while the run is training."""

from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.report import page
from invaug.lab.report.assemble import document_of
from invaug.lab.report.read import RUN_FILES, read_runs, run_folders

HOST = "127.0.0.1"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


class Server(ThreadingHTTPServer):
    """Serves the page of some runs, and a stamp that changes with their files."""

    daemon_threads = True

    def __init__(self, folders: Sequence[Path], port: int) -> None:
        self.folders = folders
        super().__init__((HOST, port), Handler)

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{HOST}:{self.server_port}/"

    def stamp(self) -> str:
        """Return a text that differs whenever a file of the runs has changed."""
        paths = [run / name for folder in self.folders for run in run_folders(folder) for name in RUN_FILES]
        found = [path.stat() for path in paths if path.exists()]
        return ";".join(f"{each.st_mtime_ns},{each.st_size}" for each in found)

    def page(self) -> str:
        """Return the page as it is now."""
        return page.html(document_of(read_runs(self.folders)), live=True)


class Handler(BaseHTTPRequestHandler):
    """Answers GET requests for the page and for the stamp, from this machine's own browser, and no others."""

    server: Server
    timeout = 10

    def do_GET(self) -> None:
        """Answer; a host name that leads here from elsewhere (DNS rebinding) is refused."""
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            return self._answer(403, "text/plain", "this page is served to its own machine only\n")
        answers = {"/": ("text/html", self.server.page), "/stamp": ("text/plain", self.server.stamp)}
        kind, make = answers.get(self.path, ("", None))
        if make is None:
            return self._answer(404, "text/plain", "there is only the page, at /\n")
        try:
            return self._answer(200, kind, make())
        except (UserError, OSError) as error:  # between two writes of the run
            return self._answer(503, "text/plain", f"{error}\n")

    def _answer(self, code: int, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(code)
        about = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (about | HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing about requests."""


def watch_runs(runs: Sequence[Path], port: int = 0) -> None:
    """Serve the page of some runs until Ctrl-C."""
    read_runs(runs)  # refuses a wrong folder before anything is served
    try:
        server = Server(runs, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot serve on port {port}: {reason}; choose another --port, 0 for any") from None
    with server:
        print(f"watching at {server.address} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
