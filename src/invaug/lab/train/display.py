"""What a person sees during a run: a live line on a terminal, one line per epoch elsewhere, a table at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from invaug.lab.terminal import Forgiving, plain
from invaug.lab.train.course import advice


class Screen(Console):
    """A console that shows text as it is, and falls silent when its reader has left, because training must not end."""

    def __init__(self, **options: Any) -> None:
        file = cast(TextIO, Forgiving(sys.stdout)) if sys.stdout else None  # None where there is no console at all
        super().__init__(file=file, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; texts lose their control codes, tables were made by us."""
        super().print(*(plain(each) if isinstance(each, str) else each for each in objects), **options)


class Display:
    """Progress of one run. Use as a context; `batch` and `epoch` are what the loop calls."""

    def __init__(self, epochs: int, done: int = 0, *, console: Console) -> None:
        self.console, self.epochs, self.epoch_now = console, epochs, done
        self.next_alarm = 0
        epoch, line = (TextColumn(f"{{task.fields[{name}]}}") for name in ("epoch", "line"))
        columns = (epoch, BarColumn(), MofNCompleteColumn(), line, TimeRemainingColumn())
        hidden = console.quiet or not console.is_terminal
        self.progress = Progress(*columns, console=console, refresh_per_second=4, transient=True, disable=hidden)
        self.task = self.progress.add_task("train", total=None, epoch="", line="")
        self.shown = 0.0

    def __enter__(self) -> Display:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def batch(self, n: int, row: Mapping[str, Any]) -> None:
        """Show one batch, a few times a second: reading the loss waits for the device."""
        now = time.perf_counter()
        if self.progress.disable or now - self.shown < 0.25:
            return
        self.shown = now
        line = one_line({"train_loss": float(row["loss"]), **{k: row[k].tolist() for k in ("slack", "gamma")}})
        done, total = self.epoch_now * row["batches"] + n, row["batches"] * self.epochs
        epoch = f"epoch {self.epoch_now + 1}/{self.epochs}"
        self.progress.update(self.task, completed=done, total=total, epoch=epoch, line=line)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Show one epoch, as a line that stays."""
        self.epoch_now = int(row["epoch"])
        line = f"epoch {row['epoch']:>3}/{self.epochs}  {one_line(row)}"
        self.console.print(line, highlight=False, soft_wrap=True)
        self._alarm(row)

    def _alarm(self, row: Mapping[str, Any]) -> None:
        """Warn of a constraint out of reach, when it first is and again every ten epochs."""
        stuck = [k for k, out in enumerate(row.get("out_of_reach", [])) if out]
        if stuck and self.epoch_now >= self.next_alarm:
            self.next_alarm = self.epoch_now + 10
            for k in stuck:
                self.console.print(f"warning: {advice(row, k)}", style="bold red", highlight=False, soft_wrap=True)


COLUMNS = {
    "train_loss": ("loss", ".3f"),
    "train_accuracy": ("train", ".1%"),
    "val_accuracy": ("val", ".1%"),
    "test_accuracy": ("test", ".1%"),
    "slack": ("slack", "+.3f"),
    "gamma": ("gamma", ".3f"),
    "images_per_second": ("images/s", ",.0f"),
    "seconds": ("s", ".1f"),
}
"""What a line shows of an epoch: the name in the record, the name in the line, the format."""


def one_line(row: Mapping[str, Any]) -> str:
    """Return the numbers of a row in words."""
    parts = []
    for key, (name, form) in COLUMNS.items():
        values = row.get(key)
        if values is None or values == []:
            continue
        numbers = [v for v in (values if isinstance(values, list) else [values]) if v is not None]
        parts.append(f"{name} " + " ".join(format(number, form) for number in numbers))
    return "  ".join(parts)


def summary_table(rows: Sequence[Mapping[str, str]]) -> Table:
    """Return the table a run ends with: one row per method."""
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, justify="left" if name in ("method", "constraint") else "right")
    for row in rows:
        table.add_row(*row.values())
    return table
