"""Runs as files, written by hand, for the tests of pages."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from invaug.lab.config.build import nest
from invaug.lab.report import page, tables
from invaug.lab.report.assemble import document_of
from invaug.lab.report.read import read_runs


class Tags(HTMLParser):
    """Counts what a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def nodes(self) -> list[tuple[str, set[str]]]:
        """Return every node and the names of its attributes; a long name in a figure may take two lines."""
        return [(tag, set(attributes)) for tag, attributes in self.found if tag != "text"]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.found)


OPS = ("Identity", "Rotate", "TranslateX", "Contrast")


HOSTILE = (
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "&lt;b&gt;",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<svg onload=alert(1)>",
    "<iframe src=//evil>",
    "<!--",
    "-->",
    "]]>",
    "<![CDATA[",
    "javascript:alert(1)",
    "{{7*7}}",
    "${7*7}",
    "%3Cscript%3E",
    "</svg><script>",
    "<a href=http://evil>x</a>",
    "<base href=//evil>",
    "<meta http-equiv=refresh content=0>",
    "\x1b[31mred",
    "a\x00b",
    "\u202etxt.exe",
    "\u2028x",
    "\ud800",
    "=1+1",
    "@SUM(A1)",
    "\\input{x}$_^#&%~",
    "| --- | [x](http://evil)",
    "Käfer 日本 🐞",
)


def toml_text(value: object) -> str:
    text = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
    return json.dumps(text, ensure_ascii=False)


def write_run(
    folder: Path,
    *,
    epochs: int = 6,
    method: str = "constrained",
    epsilon: float | None = 0.8,
    seed: int = 0,
    accuracy: float = 0.9,
    slack: float = -0.1,
    gamma: float = 0.12,
    data: str = "digits",
    n_constraints: int = 1,
    seconds: float = 1.0,
    n_steps: int = 1,
    planned: int | None = None,
    n_levels: int = 31,
) -> Path:
    """Write the folder of a run that ends with these numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = method in ("none", "trivial")
    settings_ = {
        "data": f"/home/somebody/{data}",
        "data_dir": "/home/somebody",
        "model": "cnn-small",
        "method": method,
        "preset": "default",
        "set": "wide",
        "n_steps": n_steps,
        "epochs": planned or epochs,
        "seed": seed,
    }
    settings_ |= {} if plain or epsilon is None else {"epsilon": epsilon}
    parts = {
        "versions": {"invaug": "0.1.0"},
        "dataset": {"name": data, "classes": ["a", "b"]},
        "dataset.images": {"train": 4000, "test": 1000},
    }
    lines = []
    for name, table in {**nest(settings_), **parts}.items():
        lines += [f"[{name}]", *(f"{key} = {toml_text(value)}" for key, value in table.items())]
    (folder / "config.toml").write_text("\n".join(lines), encoding="utf-8")
    n = 0 if plain else n_constraints
    rows = []
    for i in range(1, epochs + 1):
        share = i / epochs
        rows.append(
            {
                "epoch": i,
                "train_loss": 2 - share,
                "train_accuracy": 0.5 + 0.4 * share,
                "test_loss": 1 - 0.5 * share,
                "test_accuracy": accuracy - 0.2 * (1 - share),
                "slack": [slack + 1 - share] * n,
                "seconds": seconds,
                "constraint_loss": [slack + 1 - share + (epsilon or 0.0)] * n,
                "gamma": [gamma * min(2 * share, 1)] * n,
                "acceptance": [0.8 - 0.1 * share] * n,
                "entropy": [1.3 - 0.1 * share] * n,
                "out_of_reach": [False] * n,
                "kept": [{op: [1 + k * (op == "Rotate") for k in range(n_levels)] for op in OPS}] * n,
                "skipped_batches": 0,
            }
        )
    write_rows(folder, rows)
    return folder


def write_ruled_run(folder: Path, gammas: list[float], method: str = "constrained", **rule: object) -> Path:
    """Write a run whose level the resilient rule set and whose gamma went like this."""
    write_run(folder, epochs=len(gammas), method=method, epsilon=None)
    with (folder / "config.toml").open("a") as file:
        table = {"rule": "resilient", **rule}
        file.write("\n[method.epsilon]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    rows = [
        row | {"gamma": [gamma], "entropy_uniform": [[1.25, 1.31]]}
        for row, gamma in zip(rows_of(folder), gammas, strict=True)
    ]
    write_rows(folder, rows)
    return folder


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "record.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]


def sweep(folder: Path) -> list[Path]:
    """Write three seeds of TrivialAugment, of three epsilons, of uniform draws and of a longer chain."""
    gains = {0: 0.0, 1: 0.01, 2: -0.01}
    runs = []
    for seed, luck in gains.items():
        common = {"seed": seed, "epochs": 4}
        runs.append(write_run(folder / f"ta{seed}", method="trivial", accuracy=0.8 + luck, seconds=1.0, **common))
        for eps, accuracy, gamma in ((0.6, 0.84, 0.3), (1.0, 0.86, 0.2), (1.6, 0.83, 0.1)):
            runs.append(
                write_run(
                    folder / f"e{eps}-{seed}", epsilon=eps, accuracy=accuracy + luck, gamma=gamma, seconds=2.5, **common
                )
            )
        runs.append(
            write_run(folder / f"u{seed}", method="uniform", epsilon=1.0, accuracy=0.82 + luck, seconds=2, **common)
        )
        runs.append(write_run(folder / f"s{seed}", epsilon=1.0, n_steps=4, accuracy=0.85 + luck, seconds=4, **common))
    return runs


def with_families(run: Path, *names: str, size: float = 0.5) -> Path:
    """Give the constraints of a run names, as [families.NAME] tables do."""
    said = "".join(f"\n[families.{json.dumps(name)}]\nRotate = {size}\nShearX = [0.1, 0.3]" for name in names)
    with (run / "config.toml").open("a") as file:
        file.write(said)
    return run


def change_last(run: Path, **changes: list[Any]) -> None:
    *rows, last = rows_of(run)
    write_rows(run, [*rows, last | changes])


def hostile_page(folder: Path, name: str) -> str:
    """Return the page of two runs that carry a name in every place a name can be."""
    on_disk = re.sub(r"[/\x00\ud800]", "_", name)[:50]
    runs = [write_run(folder / on_disk), write_run(folder / "other", data=name)]
    rows = rows_of(runs[0])
    for row in rows:
        row["kept"] = [{name: [3, 2, 1], "Rotate": [1, 2, 3]}]
    write_rows(runs[0], rows)
    config = (runs[0] / "config.toml").read_text(encoding="utf-8")
    (runs[0] / "config.toml").write_text(config.replace('"cnn-small"', toml_text(name)), encoding="utf-8")
    evaluation = {
        "classes": {name: {"accuracy": 0.5, "images": 3}},
        "levels": {name: [{"level": 1, "accuracy": 0.5}]},
        "clean": {"accuracy": 0.9, "loss": 0.1},
        "calibration": [{"confidence": 0.5, "accuracy": 0.5, "images": 3}],
        "gallery": [
            {
                "class": name,
                "original": "data:image/png;base64,AAAA",
                "proposals": [
                    {"image": name, "op": name, "loss": 1.0},
                    {"image": "data:image/png;base64,AAAA", "op": name, "loss": 1.0, "kept": True},
                ],
            }
        ],
        "hardest": [
            {
                "class": name,
                "original": "data:image/png;base64,AAAA",
                "op": name,
                "seen": name,
                "loss": 2.0,
                "image": "data:image/png;base64,AAAA",
            }
        ],
    }
    (runs[0] / "evaluation.json").write_text(json.dumps(evaluation))
    found = document_of(read_runs(runs))
    for table in found.tables:
        tables.to_csv(table, folder / f"{table.key}.csv")
    return page.html(found)


def html_of(*folders: Path) -> str:
    """Return the page of some runs."""
    return page.html(document_of(read_runs(folders)))


def keys_of(*folders: Path) -> list[str]:
    """Return the keys of the figures on the page of some runs."""
    return [figure.key for figure in document_of(read_runs(folders)).figures]
