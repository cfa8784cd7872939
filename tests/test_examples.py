"""The examples run, and the lines they mark are all that a script must change."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.problems import same_bits

FOLDER = Path(__file__).parent.parent / "examples"
WAS = re.compile(r"^( *).*  # was: (.*)$")
ACCELERATE = pytest.param(
    "with_accelerate.py",
    5,
    marks=[
        pytest.mark.integrations,
        pytest.mark.skipif(not find_spec("accelerate"), reason="NOT RUN: `make integrations` installs accelerate"),
    ],
)


@pytest.fixture(autouse=True)
def _beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)


def names_in(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(source, "example", "exec"), names)  # noqa: S102 - the examples are ours
    return names


def without_us(source: str) -> str:
    """Return the script as it was: without the lines that were added, and with those that were replaced."""
    lines = [line for line in source.splitlines() if not line.endswith("# added")]
    return "\n".join(WAS.sub(r"\1\2", line) for line in lines)


@pytest.mark.parametrize(("name", "n_changed"), [("plain_torch.py", 4), ACCELERATE])
def test_the_marked_lines_are_all_that_changes(name, n_changed):
    """The script without them runs as well, and with a constraint that cannot bind learns the same weights."""
    source = (FOLDER / name).read_text(encoding="utf-8")
    before = without_us(source)
    assert source.count("# added") + source.count("# was: ") - 2 == n_changed  # the docstring names both
    assert "problem" not in before
    cannot_bind = source.replace("Constraint(sets.mild())", 'Constraint(sets.mild(), float("inf"))')
    rows, found = names_in(source)["digits"](256), []
    binds = source.replace("finish=normalise)", "finish=normalise, gamma_init=1.0)")
    for script in (before, cannot_bind, binds):
        train = names_in(script)["train"]
        torch.manual_seed(0)
        model = train(rows, n_epochs=1)
        found.append(model.state_dict())
    assert same_bits(found[0], found[1])
    assert not same_bits(found[0], found[2])
