"""A headless Chromium, driven over the WebDriver protocol: no further dependency than Chromium itself."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]


class Browser:
    """A headless Chromium."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        options = {"binary": CHROMIUM, "args": FLAGS}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        found = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.root += f"/session/{found['sessionId']}"

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.root + path, data, kind, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.loads(answer.read())["value"]

    def tell(self, command: str, **parameters: Any) -> Any:
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url: str, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tell("Emulation.setEmulatedMedia", media="screen", features=media)
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        for address in ("about:blank", url):  # a page that is opened twice could be asked while it is still read
            self.ask("POST", "/url", {"url": address})
        while not self.run("return location.href !== 'about:blank' && document.readyState === 'complete'"):
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        return self.ask("POST", "/execute/sync", {"script": script, "args": []})

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def picture(self, path: Path, whole: bool = True) -> None:
        found = self.tell("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


def start_driver() -> tuple[subprocess.Popen[bytes], int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command, quiet = [str(DRIVER), f"--port={port}"], subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet)  # noqa: S603
    for _ in range(100):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    return process, port


def open_browser() -> Iterator[Browser]:
    if not CHROMIUM or not DRIVER:
        pytest.skip("THE PAGE WAS NOT LOOKED AT: no chromium and chromedriver here (apt-get install chromium-driver)")
    process, port = start_driver()
    opened: list[Browser] = []
    try:
        opened.append(Browser(port))
        yield opened[0]
    finally:
        for one in opened:
            one.ask("DELETE", "")
        process.terminate()
        process.wait(20)
