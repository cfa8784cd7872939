"""Commands typed at a pseudo-terminal, and what is left on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass, field
from pathlib import Path

COLUMNS = 160
CONTROL = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|([\r\n])")


@dataclass
class Seen:
    """What one command showed."""

    command: str
    code: int
    raw: str
    """All that was written, bars included."""
    lines: list[str] = field(init=False)
    """What a person reads once the command has ended: bars are gone."""

    def __post_init__(self) -> None:
        self.lines = [line for line in draw(self.raw) if line.strip()]

    def line(self, pattern: str) -> re.Match[str]:
        """Return the only line that has a pattern in it."""
        found = [match for line in self.lines if (match := re.search(pattern, line))]
        assert len(found) == 1, f"{self.command}: {len(found)} lines with {pattern!r} in\n" + "\n".join(self.lines)
        return found[0]

    @property
    def next_command(self) -> str:
        """The command that the last line suggests."""
        match = re.match(r"next: .*?(invaug [^(;]+)", self.lines[-1])
        assert match, f"{self.command}: no next command in the last line, {self.lines[-1]!r}"
        return match[1].strip()


def draw(raw: str) -> list[str]:
    """Return the lines that are left when a terminal has obeyed returns, upward moves and erasures."""
    lines, row, column, at = [""], 0, 0, 0
    for match in [*CONTROL.finditer(raw), None]:
        text = raw[at : match.start() if match else None]
        lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
        column += len(text)
        if match is None:
            return lines
        at = match.end()
        if match[3] == "\r":
            column = 0
        elif match[3] == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif match[2] == "A":
            row = max(row - int(match[1] or 1), 0)
        elif match[2] == "K":
            lines[row] = "" if match[1] == "2" else lines[row][:column]
    raise AssertionError("unreachable")


def type_command(command: str, folder: Path, until: str | None = None) -> Seen:
    """Run `invaug ...` in a folder as if typed at a terminal; if a text is given, interrupt it once it shows that."""
    name, *words = shlex.split(command)
    assert name == "invaug", command
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "invaug", *words],
        cwd=folder,
        env=environment | {"TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    written = bytearray()
    try:
        while chunk := _read(ours):
            written += chunk
            if until and until.encode() in written:
                process.send_signal(signal.SIGINT)
                until = None
        code = process.wait(60)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return Seen(command, code, written.decode())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # on Linux, once nobody has the other end open
        return b""
