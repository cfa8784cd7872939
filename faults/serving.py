"""Attacks on `invaug watch`, a real process: slow clients, many, gone ones, and requests that must not be served."""

from __future__ import annotations

import base64
import io
import json
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from faults.harness import case
from faults.small import arguments, invaug, write_data
from invaug.lab.report.server import HEADERS, MOST_CLIENTS, MOST_HEAD

PATIENCE = 60  # seconds; the server's own limits are far below
MOST_GROWTH = 64 << 20  # bytes
GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


@dataclass(frozen=True)
class Watch:
    """A running `invaug watch`, and how to talk to it."""

    process: subprocess.Popen[str]
    port: int
    root: str
    errors: Path

    def request(self, path: str = "", *, host: str = "", more: str = "", method: str = "GET") -> bytes:
        """Return a request for a path below the address, as a browser sends it unless something is said."""
        host = host or f"Host: 127.0.0.1:{self.port}\r\n"
        return f"{method} {path if path.startswith('/') else self.root + path} HTTP/1.1\r\n{host}{more}\r\n".encode()

    def connect(self, buffer: int = 0) -> socket.socket:
        """Return a new connection; with a small buffer the server cannot send far ahead."""
        client = socket.socket()
        if buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", self.port))
        return client

    def ask(self, request: bytes) -> bytes:
        """Send a request and nothing after it; return all that comes back."""
        with self.connect() as client:
            with suppress(ConnectionError, OSError):  # an answer may come before all is sent
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
            return read_all(client)

    def state(self) -> tuple[int, int, int]:
        """Return the threads, open files and memory of the process."""
        place = Path("/proc", str(self.process.pid))
        fields = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        return int(fields["Threads"]), len(list((place / "fd").iterdir())), 1024 * int(fields["VmRSS"].split()[0])

    def trouble(self, before: tuple[int, int, int]) -> str:
        """Return what is wrong after an attack, once the server had time to let go of it; empty if nothing is."""
        if self.process.poll() is not None:
            return f"it ended with {self.process.returncode}"
        if not holds(lambda: self.state()[:2] == before[:2]):
            return f"{self.state()[:2]} threads and open files instead of {before[:2]}"
        if self.state()[2] > before[2] + MOST_GROWTH:
            return f"it grew by {self.state()[2] - before[2] >> 20} MB"
        if fault(self.ask(self.request()), {200}):
            return "a good request is no longer answered"
        return self.errors.read_text()[-300:]


@contextmanager
def watching(folder: Path) -> Iterator[tuple[Watch, tuple[int, int, int]]]:
    """Yield a server of a run whose page has some megabytes, and its state after a few answers."""
    run, errors = write_run(folder), folder / "errors"
    command = [sys.executable, "-m", "invaug", "watch", str(run)]
    with errors.open("w") as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True) as process:
        try:
            assert process.stdout is not None
            address = urlsplit(process.stdout.readline().split()[2])
            watch = Watch(process, address.port or 0, address.path, errors)
            answers = [watch.ask(watch.request()) for _ in range(3)]
            assert not any(fault(answer, {200}) for answer in answers), answers[0][:300]
            assert holds(lambda: watch.state()[0] == 1)
            yield watch, watch.state()
        finally:
            process.kill()


def write_run(folder: Path) -> Path:
    """Train a small run and give it pictures of noise, 5 MB as text."""
    run = folder / "run"
    code, said = invaug(*arguments(write_data(folder), run, epochs=1, method="none", model="mlp"))
    assert code == 0, said
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(256, size=(200, 200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "PNG")
    picture = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    row = {"class": "0", "original": picture, "proposals": [{"image": picture, "op": "Rotate", "magnitude": 30.0}]}
    (run / "evaluation.json").write_text(json.dumps({"gallery": [row] * 16}))
    return run


def holds(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def read_all(client: socket.socket) -> bytes:
    """Return what comes until the other side closes, or resets."""
    parts = []
    with suppress(ConnectionError):
        while part := client.recv(1 << 20):
            parts.append(part)
    return b"".join(parts)


def fault(answer: bytes, codes: set[int]) -> str:
    """Return what is wrong with an answer, which must be whole, with every header and one of these codes; 0: none."""
    if not answer:
        return "" if 0 in codes else "no answer"
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    if not first.startswith("HTTP/1.0 ") or int(first.split()[1]) not in codes:
        return f"{first[:80]!r} instead of {sorted(codes)}"
    wanted = {**HEADERS, "Content-Length": str(len(body))}
    missing = [name for name, value in wanted.items() if headers.get(name) != value]
    if "default-src 'none'" not in (policy := headers.get("Content-Security-Policy", "")) or "frame-anc" not in policy:
        missing.append("Content-Security-Policy")
    return f"{first}: wrong {', '.join(missing)}" if missing else ""


def is_gone(client: socket.socket) -> bool:
    """Whether the server has closed a connection."""
    poll = select.poll()
    poll.register(client, GONE)
    return bool(poll.poll(0))


SLOW: dict[str, Callable[[Watch, socket.socket, int], object]] = {  # what a client does each second
    "sends a byte": lambda watch, client, second: client.send(watch.request(more="X: y\r\n" * 99)[second : second + 1]),
    "reads a byte": lambda watch, client, second: client.recv(1) if second else client.send(watch.request()),
    "sends nothing": lambda watch, client, second: None,
    "reads nothing": lambda watch, client, second: None if second else client.send(watch.request()),
}


@case(
    "slow clients of `invaug watch` (a byte per second or nothing, sending or reading): each is dropped, others are "
    "answered meanwhile, stderr is empty",
    full=24,
    fast=4,
)
def slow_clients(tries: int, folder: Path) -> Iterator[str]:
    """Clients of the four kinds at once."""
    with watching(folder) as (watch, before), ExitStack() as stack:
        held = {i: stack.enter_context(watch.connect(4096)) for i in range(tries)}
        names = [list(SLOW)[i % len(SLOW)] for i in range(tries)]
        for second in range(PATIENCE):
            for i, client in list(held.items()):
                with suppress(ConnectionError):
                    SLOW[names[i]](watch, client, second)
                if is_gone(client):
                    held.pop(i).close()
            if second == 2 and (wrong := fault(watch.ask(watch.request()), {200})):
                yield f"a good client meanwhile: {wrong}"
            if not held:
                break
            time.sleep(1)
        yield from (f"a client that {names[i]} is not dropped" for i in held)
        if not held and (wrong := watch.trouble(before)):
            yield wrong


@case(
    f"connections at once to `invaug watch`: at most {MOST_CLIENTS} threads, each gets the whole page or is closed, a "
    "good request is answered afterwards",
    full=200,
    fast=200,
)
def many_clients(tries: int, folder: Path) -> Iterator[str]:
    """Half a request from each, then a whole one."""
    with watching(folder) as (watch, before):
        with ExitStack() as stack:
            clients = [stack.enter_context(watch.connect()) for _ in range(tries)]
            for client in clients:
                with suppress(ConnectionError):
                    client.send(watch.request()[:20])
            seen = [watch.state()[0]]
            holds(lambda: seen.append(watch.state()[0]) or sum(map(is_gone, clients)) >= tries - MOST_CLIENTS)
        yield from ("a thread too many" for _ in range(MOST_CLIENTS, max(seen) - before[0]))
        if wrong := watch.trouble(before):
            yield wrong
        with ExitStack() as stack:
            clients = [stack.enter_context(watch.connect()) for _ in range(tries)]
            for client in clients:
                with suppress(ConnectionError):
                    client.sendall(watch.request())
            answers = list(stack.enter_context(ThreadPoolExecutor(tries)).map(read_all, clients))
        yield from filter(None, (fault(answer, {0, 200}) for answer in answers))
        if not any(answers):
            yield "nobody was answered"
        if wrong := watch.trouble(before):
            yield wrong


def hostile(watch: Watch) -> dict[str, tuple[bytes, set[int]]]:
    """Return requests that must not be served, and what may come back: 0 is nothing, before all could be sent."""
    port, root, ask = watch.port, watch.root, watch.request
    below = (
        "../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "..\\..\\etc\\passwd",
        "config.toml",
    )
    below += ("record.jsonl", "./", "stamp/", "stamp%00", "?page", "index.html")
    outside = ("/../../etc/passwd", "//etc/passwd", "/etc/passwd", "/%2e%2e/etc/passwd", "/", "/stamp", "/?token=")
    outside += (
        f"/{root[2:]}",
        root[:-1],
        root.swapcase(),
        f"/{root[-2:0:-1]}/",
        f"/é{root}",
        f"/{'0' * 32}/",
        f"/a{root}",
    )
    hosts = ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"localhost.:{port}", " ")
    hosts += (f"127.0.0.1:{port}.evil.example", f"0.0.0.0:{port}", f"[::1]:{port}", f"localhost:{port}@evil.example")
    twice = f"Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n"
    methods = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "__class__")
    lines = {
        b"GET\r\n\r\n": 400,
        b"GET / HTTP/x\r\n\r\n": 400,
        b"PRI * HTTP/2.0\r\n\r\n": 505,
        b"\xff\x00\r\n\r\n": 400,
    }
    lines |= {b"GET " + root.encode() + b"\r\n\r\n": 403, b"GET / / / HTTP/1.1\r\n\r\n": 400}
    return (
        {f"path {path}": (ask(path), {404}) for path in below}
        | {f"path {path}": (ask(path), {403}) for path in outside}
        | {f"host {host}": (ask(host=f"Host: {host}\r\n"), {403}) for host in hosts}
        | {"no host": (ask(host="X: y\r\n"), {403}), "two hosts": (ask(host=twice), {403})}
        | {
            f"site {site}": (ask(more=f"Sec-Fetch-Site: {site}\r\n"), {403})
            for site in ("cross-site", "same-site", "x")
        }
        | {f"method {method}": (ask(method=method), {501}) for method in methods}
        | {f"line {line!r}": (line, {code}) for line, code in lines.items()}
        | {"TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), {0}), "half": (ask()[:-2], {0})}
        | {"a line of 1 MB": (ask("a" * 2**20), {0, 431}), "a header of 1 MB": (ask(more="X" * 2**20), {0, 431})}
        | {
            "10,000 headers": (ask(more="X: y\r\n" * 10_000), {0, 431}),
            "200 headers": (ask(more="X: y\r\n" * 200), {431}),
        }
        | {"a byte too many": (ask(more=f"X: {'y' * MOST_HEAD}\r\n"), {0, 431})}
    )


N_HOSTILE = len(hostile(Watch(None, 1, f"/{'0f' * 16}/", Path())))  # type: ignore[arg-type]


@case(
    "requests `invaug watch` must not serve (traversal, no or a wrong token, foreign hosts and sites, methods, huge "
    "heads): refused under every header, stderr is empty",
    full=N_HOSTILE,
    fast=N_HOSTILE,
)
def hostile_requests(tries: int, folder: Path) -> Iterator[str]:
    """Each once."""
    with watching(folder) as (watch, before):
        for name, (request, codes) in list(hostile(watch).items())[:tries]:
            if wrong := fault(watch.ask(request), codes):
                yield f"{name}: {wrong}"
        if wrong := watch.trouble(before):
            yield wrong


@case(
    "requests to `invaug watch` with random bytes changed, cut or added: an answer has every header, stderr is empty",
    full=2000,
    fast=100,
)
def mutated_requests(tries: int, folder: Path) -> Iterator[str]:
    """One to eight changes each."""
    chance, codes = random.Random(0), {0, 200, 400, 403, 404, 431, 501, 505}
    with watching(folder) as (watch, before):
        for number in range(tries):
            request = bytearray(watch.request("stamp", more="Sec-Fetch-Site: none\r\nAccept: */*\r\n"))
            for _ in range(chance.randint(1, 8)):
                at = chance.randrange(len(request))
                request[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
            if wrong := fault(watch.ask(bytes(request)), codes):
                yield f"{number}: {bytes(request)!r}: {wrong}"
        if wrong := watch.trouble(before):
            yield wrong


@case(
    "clients of `invaug watch` that go in the middle of their request or of the answer: stderr is empty, threads, open "
    "files and memory as before, it still answers",
    full=400,
    fast=16,
)
def gone_clients(tries: int, folder: Path) -> Iterator[str]:
    """Closed or reset, before, while or after reading a part."""
    chance = random.Random(0)
    with watching(folder) as (watch, before):
        for number in range(tries):
            said = len(watch.errors.read_text())
            with watch.connect(4096) as client:
                request = watch.request()
                client.sendall(request[: chance.choice([0, 20, len(request)])] if number % 2 else request)
                if number % 4 == 0:
                    client.recv(chance.randint(1, 5000))
                if chance.random() < 0.5:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if not holds(lambda: watch.state()[0] == before[0]) or len(watch.errors.read_text()) > said:
                yield f"{number}: {watch.errors.read_text()[said:][-300:] or 'its thread is still there'}"
        if wrong := watch.trouble(before):
            yield wrong
