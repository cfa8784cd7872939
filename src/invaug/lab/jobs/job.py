"""A job: one training with a folder of its own and an outcome in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """What to train, and where its files go."""

    label: str
    settings: Mapping[str, Any]
    """A config without its seed, by the short names of the flags."""
    seed: int
    folder: Path
    under_families: bool = False
    """Whether the outcome has loss and accuracy on new images under each family."""
    summary: bool = False
    """Whether it is measured after every epoch and summarised at its end, as `invaug train` does."""
    places: Mapping[str, Any] = field(default_factory=dict)
    """Settings that say where files are on this machine: data_dir, policy."""
    part: str = ""
    """What tells it from others of its label, if not the seed: fold 1 of 3."""

    @property
    def name(self) -> str:
        """What it is called while it runs."""
        return f"{self.label}, {self.part}" if self.part else f"{self.label} seed {self.seed}"

    def config(self) -> Config:
        """Return the config of the run."""
        return build({**self.settings, **self.places, "seed": self.seed})

    @property
    def digest(self) -> str:
        """The identity of the training, in 64 letters."""
        return hashlib.sha256(f"{identity(self.settings)} {self.seed}".encode()).hexdigest()

    def found(self) -> dict[str, Any] | None:
        """Return the outcome if the job is done."""
        outcome = atomic.read_json(self.folder / OUTCOME)
        if outcome is not None and outcome.get("digest") != self.digest:
            raise UserError(f"{self.folder} holds a run with other settings: choose another --out, or remove it")
        return outcome

    def failure(self) -> str | None:
        """Return why the job failed, if it did."""
        failed = atomic.read_json(self.folder / FAILURE)
        return str(failed.get("reason")) if failed and failed.get("digest") == self.digest else None

    def keep(self, outcome: Mapping[str, Any]) -> None:
        """Write the outcome."""
        self._write(OUTCOME, outcome)
        (self.folder / FAILURE).unlink(missing_ok=True)

    def fail(self, reason: str) -> None:
        """Write why there is no outcome."""
        self._write(FAILURE, {"reason": reason})

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic.write_text(self.folder / name, json.dumps({"digest": self.digest, **content}))

    def as_json(self) -> str:
        """Return the job on one line, for another process."""
        return json.dumps({**asdict(self), "folder": self.folder.resolve()}, default=str)

    @classmethod
    def of_json(cls, text: str) -> Job:
        """Return the job that another process wrote."""
        content = json.loads(text)
        return cls(**{**content, "folder": Path(content["folder"])})


def identity(settings: Mapping[str, Any]) -> str:
    """Return what makes two jobs the same training: every setting, given or by default."""
    return json.dumps(build(settings).flat("json"), sort_keys=True)


def unfinished(jobs: Iterable[Job], skip: Callable[[Job], None]) -> Iterator[Job]:
    """Yield the jobs that are not done yet; `skip` gets the others."""
    for job in jobs:
        if job.found() is None:
            yield job
        else:
            skip(job)
