"""`invaug reproduce`: what is printed of an experiment before and after it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from invaug.lab.errors import RunError, UserError
from invaug.lab.jobs.job import OUTCOME
from invaug.lab.report import tables
from invaug.lab.report.command import report_runs
from invaug.lab.reproduce import costs, outcome, plans
from invaug.lab.reproduce.cells import SCALES, Cell
from invaug.lab.reproduce.jobs import jobs_of
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.paper import PUBLISHED
from invaug.lab.reproduce.request import RESULTS, RUNS, Asked, check, scale_of
from invaug.lab.terminal import plain, say


def reproduce(
    name: str | None, scale: str, *, listing: bool, dry_run: bool, as_json: bool, seeds: int | None = None,
    out: Path | None = None, results: Path | None = None, data_dir: Path | None = None, only: tuple[str, ...] = (),
    without: tuple[str, ...] = (), at_once: int = 1, on: str = "processes",
) -> None:  # fmt: skip
    """Do what the command line asks."""
    if listing and name:
        raise UserError(f"--list shows every experiment: leave out {name}, or leave out --list")
    if not listing and not name:
        raise UserError("name an experiment, for example table-1; invaug reproduce --list shows all")
    places: dict[str, Any] = {"out": out or RUNS, "results": results or RESULTS, "data_dir": data_dir}
    if listing:
        return _print_list([Asked(each, **places) for each in plans.experiments().values()], as_json)
    asked = Asked(
        plans.find(name or ""), scale_of(scale), seeds, only=only, without=without, at_once=at_once, on=on, **places
    )
    return _print_plan(asked, as_json) if dry_run else _run(asked, as_json)


SHOWN = 4  # of the paper's numbers in the list


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"


def _print_list(every: list[Asked], as_json: bool) -> None:
    rows = [_listed(asked) for asked in every]
    if as_json:
        print(json.dumps(rows))
        return
    print("hours: small on two cores, full on one RTX 3090; runs that an experiment above has are not counted twice")
    for row in rows:
        print(plain(f"{row['name']:<18}  {row['found']}"))
        if row["paper"]:
            print(plain(f"{'':<18}  paper: {_some(row['paper'])}"))
        for scale in SCALES[::-1]:
            there = row[scale]
            cost = _hours(3600 * there["hours"]) if there["hours"] else "all of them runs of others"
            cost = "cannot run yet" if there["lacks"] else cost
            print(plain(f"{'':<18}  {scale}: {there['runs']} runs, {cost}, {there['done']} done"))
    print(f"{'tune':<18}  a command of its own: invaug tune DATA, 3-fold cross-validation over the levels of the paper")


def _some(numbers: Mapping[str, Mapping[str, float | None]]) -> str:
    """Return the first few of the paper's numbers, and how many there are."""
    shown = [
        f"{entry.rpartition(': ')[0]} {value['mean']:g}" + (f" ± {value['spread']:g}" if value["spread"] else "")
        for entry, value in list(numbers.items())[:SHOWN]
    ]
    more = f"; {len(numbers)} numbers in all, with --json" if len(numbers) > SHOWN else ""
    return ", ".join(shown) + more


def _listed(asked: Asked) -> dict[str, Any]:
    """Return what the list says of an experiment."""
    experiment, published = asked.experiment, PUBLISHED[asked.experiment.name]
    row: dict[str, Any] = {
        "name": experiment.name, "title": experiment.title, "place": published.place, "found": experiment.found,
        "paper": {f"{entry}: {number}": value._asdict() for (entry, number), value in published.numbers.items()},
    }  # fmt: skip
    for scale in SCALES:
        at = replace(asked, scale=scale)
        row[scale] = {
            "runs": len(at.cells()) * at.seeds, "hours": round(at.own_seconds() / 3600, 3), "done": _done(at),
            "lacks": at.plan.lacks,
        }  # fmt: skip
    return row


def _done(asked: Asked) -> int:
    """Return how many of the planned runs are done, here or in the results."""
    rows = outcome.read(outcome.path_of(asked.results, asked.experiment.name, asked.scale))
    known = {(row.cell, row.seed) for row in rows if row.status == outcome.DONE}
    here = {(job.label, job.seed) for job in jobs_of(asked) if (job.folder / OUTCOME).is_file()}
    return len(known | here)


def _print_plan(asked: Asked, as_json: bool) -> None:
    if asked.plan.lacks:
        check(asked)
    cells = [_planned(asked, cell) for cell in asked.cells()]
    total = {"seconds": asked.seconds(), "own_seconds": asked.own_seconds(), "runs": len(cells) * asked.seeds}
    if as_json:
        head = {"experiment": asked.experiment.name, "scale": asked.scale, "seeds": asked.seeds}
        print(json.dumps({**head, **total, "notes": asked.plan.notes, "cells": cells}))
        return
    for line in _plan_lines(asked, cells):
        print(plain(line))


def _planned(asked: Asked, cell: Cell) -> dict[str, Any]:
    home = plans.place(asked.experiment, asked.scale, cell) if not cell.lacks else None
    shared = f"{home.home} {home.label}" if home and home.home != asked.experiment.name else None
    return {
        "cell": cell.label, "settings": cell.settings, "unit_inputs": cell.unit_inputs, "lacks": cell.lacks or None,
        "shared_with": shared, "seconds": round(costs.seconds(cell, asked.scale), 1),
    }  # fmt: skip


def _plan_lines(asked: Asked, cells: list[Mapping[str, Any]] | list[dict[str, Any]]) -> Iterator[str]:
    yield f"{asked.experiment.name}, {asked.scale} scale: {asked.experiment.title}"
    for cell in cells:
        settings = " ".join(f"{key}={json.dumps(value)}" for key, value in cell["settings"].items())
        more = [f"the runs of {cell['shared_with']}"] if cell["shared_with"] else []
        more += ["inputs in 0 to 1"] if cell["unit_inputs"] else []
        cost = f"cannot run yet: {cell['lacks']}" if cell["lacks"] else f"about {_hours(cell['seconds'])} a seed"
        yield f"  {cell['cell']}: {'; '.join([cost, *more])}"
        if settings:
            yield f"    {settings}"
    yield from (f"note: {note}" for note in asked.plan.notes)
    runs = f"{len(cells)} cells × {asked.seeds} seeds = {len(cells) * asked.seeds} runs"
    yield f"{runs}, about {_hours(asked.seconds())}; without what other experiments share {_hours(asked.own_seconds())}"


def _run(asked: Asked, as_json: bool) -> None:
    check(asked)
    from invaug.lab.reproduce.runner import run_experiment
    from invaug.lab.train.display import Screen

    console = Screen()
    found = run_experiment(asked, console, quiet=as_json)
    page = _write_page(asked, found)
    done, failed, left_out = found.total()
    if as_json:
        counts = {"done": done, "failed": failed, "left_out": left_out}
        results = str(outcome.path_of(asked.results, asked.experiment.name, asked.scale))
        print(json.dumps({**found.as_json(), **counts, "results": results, "report": page}))
    else:
        for line in lines(found):
            console.print(line, highlight=False, soft_wrap=True)
        console.print(f"results: {outcome.path_of(asked.results, asked.experiment.name, asked.scale)}", soft_wrap=True)
        if page:
            console.print(f"report: {page}", soft_wrap=True, highlight=False)
    if failed:
        reason = next(row.more.get("reason") for row in found.rows if row.status == outcome.FAILED)
        raise RunError(f"{failed} of {done + failed + left_out} runs failed, the first: {reason}")


def lines(found: Outcome) -> Iterator[str]:
    """Return the table in columns, what the small scale shows, and the counts."""
    yield from tables.in_columns(found.table())
    yield from (f"{verdict.text}: {verdict.said()}" for verdict in found.verdicts())
    done, failed, left_out = found.total()
    yield f"{done} runs done, {failed} failed, {left_out} left out"


def _write_page(asked: Asked, found: Outcome) -> str | None:
    """Write the page and the table of the runs that are done; an experiment that is done never fails by it."""
    folders = [job.folder for job in jobs_of(asked) if (job.folder / OUTCOME).is_file()]
    if not folders:
        return None
    try:
        asked.folder.mkdir(parents=True, exist_ok=True)
        tables.write(found.table(), asked.folder, "table")
        return str(report_runs(folders, asked.folder / "report.html")[0])
    except Exception as error:
        say(f"the report could not be written: {error}")
        return None
