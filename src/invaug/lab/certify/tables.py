"""A certificate on the terminal: its sentences, then tables by law, operation and class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from invaug.lab.evaluate.command import plain_table, safe
from invaug.lab.report.sections.certificate import LAWS, Found, ends_of, percent, sentences

N_CLASSES = 10  # classes shown, the worst first


def show(run: Path, report: Found, console: Console) -> None:
    """Print a certificate."""
    images = f"{report['images']:,} of {report['of']:,} held-out images of {report['data']}"
    how = f"{report['confidence']:.4g} confidence each, {report['loss_function']}"
    _say(console, f"[bold]{safe(str(run))}[/bold]: {safe(images)}, intervals of {how}")
    for entry in report["constraints"]:
        console.print()
        _say(console, f"[bold]{safe(_headline(entry))}[/bold]")
        for sentence in sentences(entry, report):
            _say(console, safe(sentence))
        for table in (_laws(entry), _operations(entry), _classes(entry)):
            console.print()
            console.print(table)
    console.print()
    for note in report["notes"]:
        _say(console, f"note: {safe(note)}")
    for name in ("shares", "means", *(["stopping"] if _any_sampled(report) else [])):
        _say(console, f"{name}: {safe(report['theorems'][name])}")


def _any_sampled(report: Found) -> bool:
    return any(entry["kind"] == "sampled" for entry in report["constraints"])


def _headline(entry: Found) -> str:
    if entry["kind"] == "exact":
        return f"{entry['name']}: every image under every transformation, {entry['transformations']:,} of them"
    return f"{entry['name']}: {entry['draws']:,} draws, until each image was decided"


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)


def _laws(entry: Found) -> Table:
    table = plain_table("under", "accuracy", "interval", "loss", "interval", "loss ≤ ε")
    for row, name in ((entry.get(key), name) for key, name in LAWS.items()):
        if row is None:
            continue
        table.add_row(
            name, percent(row["accuracy"]), _shares(row["accuracy_interval"]), _number(row["loss"]),
            _numbers(row["loss_interval"]), row["verdict"] or "–",
        )  # fmt: skip
    return table


def _operations(entry: Found) -> Table:
    if entry["kind"] == "sampled":
        table = plain_table("operation", "draws", "accuracy")
        for name, row in entry["operations"].items():
            table.add_row(safe(name), f"{row['draws']:,}", percent(row["accuracy"]))
        return table
    table = plain_table("operation", "transformations", "accuracy", "right under all", "interval", "R_inv")
    for name, row in entry["operations"].items():
        ends, risk = _shares(row["interval"]), _number(row["invariance_risk"])
        table.add_row(
            safe(name), str(row["transformations"]), percent(row["accuracy"]), percent(row["share"]), ends, risk
        )
    return table


def _classes(entry: Found) -> Table:
    right = "right under all" if entry["kind"] == "exact" else "right under nearly all"
    ranked = sorted(entry["classes"].items(), key=lambda item: (item[1]["share"], item[1]["clean"]))
    more = f", {N_CLASSES} of {len(ranked)}" if len(ranked) > N_CLASSES else ""
    table = plain_table(f"class, worst first{more}", "clean", right, "interval", "images")
    for name, row in ranked[:N_CLASSES]:
        ends = _shares(row["interval"])
        table.add_row(safe(name), percent(row["clean"]), percent(row["share"]), ends, f"{row['images']:,}")
    return table


def _shares(ends: Any) -> str:
    low, high = ends_of(ends)
    return "–" if low is None or high is None else f"{low:.1%} to {high:.1%}"


def _numbers(ends: Any) -> str:
    low, high = ends_of(ends)
    if low is None:
        return "–"
    return f"at least {low:.3f}" if high is None else f"{low:.3f} to {high:.3f}"


def _number(value: Any) -> str:
    return "not finite" if value is None else f"{value:.3f}"
