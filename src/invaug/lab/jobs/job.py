"""A job: one training with a folder of its own and an outcome in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from invaug.lab.config.build import build
from invaug.lab.config.schema import Config
from invaug.lab.errors import UserError
from invaug.lab.run import atomic

OUTCOME, FAILURE = "outcome.json", "failed.json"


@dataclass(frozen=True)
class Job:
    """What is trained, and where its files lie."""

    label: str
    settings: Mapping[str, Any]
    """A config without its seed."""
    seed: int
    folder: Path
    unit_inputs: bool = False
    """Whether the network sees pixels in 0 to 1, not normalised."""
    places: Mapping[str, Any] = field(default_factory=dict)
    """Settings that say where files lie on this machine: data_dir, policy."""

    @property
    def name(self) -> str:
        """What it is called while it runs."""
        return f"{self.label} seed {self.seed}"

    def config(self) -> Config:
        """Return the config of the run."""
        return build({**self.settings, **self.places, "seed": self.seed})

    @property
    def digest(self) -> str:
        """What the run is, in 64 letters."""
        return hashlib.sha256(f"{identity(self.settings, self.unit_inputs)} {self.seed}".encode()).hexdigest()

    def found(self) -> dict[str, Any] | None:
        """Return the outcome of the run if it is done."""
        there = atomic.read_json(self.folder / OUTCOME)
        if there is not None and there.get("digest") != self.digest:
            raise UserError(f"{self.folder} holds a run with other settings: choose another --out, or remove it")
        return there

    def failure(self) -> str | None:
        """Return why the run failed, if it did."""
        there = atomic.read_json(self.folder / FAILURE)
        return str(there.get("reason")) if there and there.get("digest") == self.digest else None

    def keep(self, found: Mapping[str, Any]) -> None:
        """Write the outcome."""
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic.write_text(self.folder / OUTCOME, json.dumps({"digest": self.digest, **found}))
        (self.folder / FAILURE).unlink(missing_ok=True)

    def fail(self, reason: str) -> None:
        """Write why there is no outcome."""
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic.write_text(self.folder / FAILURE, json.dumps({"digest": self.digest, "reason": reason}))

    def as_json(self) -> str:
        """Return the job on one line, for another process."""
        return json.dumps({**asdict(self), "folder": self.folder.resolve()}, default=str)

    @classmethod
    def of_json(cls, text: str) -> Job:
        """Return the job that another process wrote."""
        content = json.loads(text)
        return cls(**{**content, "folder": Path(content["folder"])})


def identity(settings: Mapping[str, Any], unit_inputs: bool = False) -> str:
    """Return what makes two jobs the same training: every setting, given or by default."""
    config = build(settings).flat("json")
    return json.dumps([config, unit_inputs], sort_keys=True)
