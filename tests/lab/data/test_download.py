"""Downloads against a real server on this machine that drops, lies, refuses and resumes."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from invaug.lab.data import download
from invaug.lab.errors import UserError

CONTENT = np.random.default_rng(0).integers(0, 256, 700_000, np.uint8).tobytes()
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT; what it does wrong is set by its attributes, what it was asked is in `asked`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.asked: list[str | None] = []
        self.ranges = True
        self.lengths = True
        self.cuts: list[int] = []
        """Bytes after which each coming answer is cut off."""
        self.statuses: list[int] = []
        """Statuses of the coming answers, before it starts to serve."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wish = self.headers.get("Range")
        self.server.asked.append(wish)
        if self.server.statuses:
            self.send_error(self.server.statuses.pop(0))
            return
        content = self.server.content
        first = int(wish.removeprefix("bytes=").removesuffix("-")) if wish and self.server.ranges else 0
        if first and first >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        if self.server.lengths:
            self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else None
        self.wfile.write(content[first:][:cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_whole_and_nothing_else_is_left(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.bin"
    assert download.fetch([server.url], target, MD5) == target
    assert target.read_bytes() == CONTENT
    assert names(target.parent) == ["file.bin"]
    assert server.asked == [None]


def test_a_stopped_download_is_resumed_where_it_stopped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:300_000])
    download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert server.asked == ["bytes=300000-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]


def test_dropped_connections_are_taken_up_again(server: Server, tmp_path: Path) -> None:
    server.cuts = [200_000, 200_000]
    download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert server.asked == [None, "bytes=200000-", "bytes=400000-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_what_was_received_is_kept_when_the_server_goes_on_dropping(server: Server, tmp_path: Path) -> None:
    server.cuts = [1000] * download.ATTEMPTS
    with pytest.raises(UserError, match=r"connection closed after 4,000 of 700,000 bytes"):
        download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert names(tmp_path) == ["file.bin.part"]
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:4000]
    download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert server.asked[-1] == "bytes=4000-"
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_that_knows_no_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:300_000])
    download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_that_tells_no_length_is_understood(server: Server, tmp_path: Path) -> None:
    server.lengths = False
    server.cuts = [500_000]
    with pytest.raises(UserError, match=r"it sent md5 \w{32}, published is"):
        download.fetch([server.url], tmp_path / "file.bin", MD5)
    download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("old", [b"x" * 1000, CONTENT[:-1] + b"x", CONTENT + b"x" * 10], ids=["start", "end", "longer"])
def test_a_spoilt_part_is_thrown_away_and_the_file_downloaded_anew(server: Server, tmp_path: Path, old: bytes) -> None:
    (tmp_path / "file.bin.part").write_bytes(old)
    download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked[-1] is None


def test_a_whole_part_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    download.fetch(["http://127.0.0.1:9/file.bin"], tmp_path / "file.bin", MD5)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_file_that_is_not_the_published_one_never_gets_its_name(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:350_000] + bytes([CONTENT[350_000] ^ 1]) + CONTENT[350_001:]
    with pytest.raises(UserError, match=rf"cannot download http.*it sent md5 \w{{32}}, published is {MD5}"):
        download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert names(tmp_path) == []


def test_the_next_address_is_asked_when_one_refuses(server: Server, tmp_path: Path) -> None:
    server.statuses = [404]
    download.fetch([server.url, server.url], tmp_path / "file.bin", MD5)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_busy_server_is_asked_again_and_a_refusal_is_final(server: Server, tmp_path: Path) -> None:
    server.statuses = [503, 500]
    download.fetch([server.url], tmp_path / "file.bin", MD5)
    server.statuses = [403]
    with pytest.raises(UserError, match=r"file\.bin \(HTTP status 403\): put other\.bin in .* by hand"):
        download.fetch([server.url], tmp_path / "other.bin", MD5)
    assert len(server.asked) == 4


def test_offline_the_error_names_address_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file.bin"
        with pytest.raises(UserError) as caught:
            download.fetch([url], tmp_path / "file.bin", MD5)
    message = str(caught.value)
    assert message.startswith(f"cannot download {url} (")
    assert f"put file.bin in {tmp_path} by hand" in message
    assert "INVAUG_DATA" in message
    assert "\n" not in message
    assert names(tmp_path) == []


def test_only_web_addresses_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE", 0.0)
    (tmp_path / "secret").write_bytes(CONTENT)
    with pytest.raises(UserError, match="only http and https addresses are fetched"):
        download.fetch([(tmp_path / "secret").as_uri()], tmp_path / "file.bin", MD5)


def test_a_server_that_never_stops_does_not_fill_the_disk(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MAX_BYTES", 400_000)
    server.lengths = False
    with pytest.raises(UserError, match="more than 400,000 bytes"):
        download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert (tmp_path / "file.bin.part").stat().st_size <= 400_000


def test_several_at_once_download_once(server: Server, tmp_path: Path) -> None:
    paths: list[Path] = []

    def fetch() -> None:
        paths.append(download.fetch([server.url], tmp_path / "file.bin", MD5))

    threads = [threading.Thread(target=fetch) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [tmp_path / "file.bin"] * 6
    assert server.asked == [None]
    assert names(tmp_path) == ["file.bin"]


def test_a_folder_that_cannot_be_written_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*file/file\.bin: .*choose another folder"):
        download.fetch([server.url], tmp_path / "file" / "file.bin", MD5)


def test_no_room_on_the_disk_is_the_users_to_mend_and_what_came_is_resumed(server: Server, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        with pytest.raises(UserError, match=r"cannot write .*file\.bin: File too large; choose another folder"):
            download.fetch([server.url], tmp_path / "file.bin", MD5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["file.bin.part"]
    download.fetch([server.url], tmp_path / "file.bin", MD5)
    assert server.asked[-1] == "bytes=300000-"
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_every_changed_byte_of_a_file_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    download.verify(path, MD5)
    for place in np.random.default_rng(1).integers(0, len(CONTENT), 25):
        changed = bytearray(CONTENT)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(UserError, match=rf"file\.bin is not the official file \(md5 \w{{32}}, published {MD5}\)"):
            download.verify(path, MD5)
    with pytest.raises(UserError, match=r"cannot read .*gone\.bin: No such file"):
        download.verify(tmp_path / "gone.bin", MD5)
