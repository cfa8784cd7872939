"""Fixtures for all tests."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from torch import Tensor

from invaug.kernels import dispatch
from tests.support.browser import Browser, open_browser
from tests.support.images import Apply, MakeImages, by_torch, import_torchvision, random_bytes, real_images


def pytest_configure() -> None:
    """Let Ctrl-C and hang-ups end processes also if the suite runs in the background or under nohup."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="session")
def make_images() -> MakeImages:
    return real_images


@pytest.fixture(scope="session")
def make_bytes() -> Callable[..., Tensor]:
    return random_bytes


@pytest.fixture(scope="session")
def digits() -> Tensor:
    """64 grey digits of 28 × 28."""
    return real_images(64, 28, 28)


@pytest.fixture(scope="session")
def photographs() -> Tensor:
    """64 colour images of 32 × 32."""
    return real_images(64, 32, 32, 3)


@pytest.fixture(scope="session")
def apply_by_torch() -> Apply:
    return by_torch


@pytest.fixture(params=["numba", "torch"])
def both_backends(request, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test on each back end: with numba, and as if it were not installed."""
    if request.param == "torch":
        monkeypatch.setattr(dispatch, "has_numba", lambda: False)
    return request.param


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    if find_spec("torchvision") is None:
        pytest.skip("NOT COMPARED WITH TORCHVISION: it is not installed; `make adapters` installs it (extra `peers`)")
    return import_torchvision()[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium; a test that asks for it is left to `make pages`."""
    yield from open_browser()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a browser."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.pages)
