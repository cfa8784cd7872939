"""`invaug reproduce`: what is printed about an experiment before and after it runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from invaug.lab.errors import RunError, UserError
from invaug.lab.jobs.job import OUTCOME
from invaug.lab.jobs.verbs import write_report
from invaug.lab.report import tables
from invaug.lab.reproduce import claims, rows
from invaug.lab.reproduce.cells import SCALES, Cell
from invaug.lab.reproduce.experiments import all_experiments, find
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.request import Request, check, estimate_seconds, find_scale, read_rows
from invaug.lab.terminal import count, plain

SHOWN = 4  # of the paper's numbers in the list
MACHINES = {"full": "one RTX 3090", "small": "two cores"}
"""What the estimated times are for."""


def run_reproduce(name: str | None, *, listing: bool, dry_run: bool, as_json: bool, scale: str, **given: Any) -> None:
    """Do what the command line asks; `given` are fields of `Request`, None for their defaults."""
    if listing and name:
        raise UserError(f"--list shows every experiment: leave out {name}, or leave out --list")
    given = {key: value for key, value in given.items() if value is not None}
    if listing:
        _print_list([Request(each, **given) for each in all_experiments().values()], as_json)
    elif name:
        request = Request(find(name), find_scale(scale), **given)
        (_print_plan if dry_run else _run)(request, as_json)
    else:
        raise UserError("name an experiment, for example table-1; invaug reproduce --list shows all")


def _duration(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"


def _print_list(requests: Sequence[Request], as_json: bool) -> None:
    entries = [_entry(request) for request in requests]
    if as_json:
        print(json.dumps(entries))
        return
    machines = ", ".join(f"{scale} on {MACHINES[scale]}" for scale in SCALES[::-1])
    print(f"time: {machines}; runs shared with an experiment above are not counted again")
    for entry in entries:
        print(plain(f"{entry['name']:<18}  {entry['found']}"))
        for line in _entry_lines(entry):
            print(plain(f"{'':<18}  {line}"))
    print(f"{'tune':<18}  a command of its own: invaug tune DATA, 3-fold cross-validation over the levels of the paper")


def _entry(request: Request) -> dict[str, Any]:
    """Return what the list says about an experiment."""
    experiment, published = request.experiment, request.experiment.published
    return {
        "name": experiment.name,
        "title": experiment.title,
        "place": published.place,
        "found": experiment.found,
        "paper": {f"{entry}: {measure}": value._asdict() for (entry, measure), value in published.numbers.items()},
        **{scale: _progress(replace(request, scale=scale)) for scale in SCALES},
    }


def _progress(request: Request) -> dict[str, Any]:
    """Return how much there is to run at a scale, and how much of it is done."""
    return {
        "runs": len(request.runs()),
        "hours": round(request.seconds(shared=False) / 3600, 3),
        "done": len(_done(request)),
        "lacks": request.plan.lacks,
    }


def _done(request: Request) -> set[tuple[str, int]]:
    """Return the cells and seeds that are done, here or in the results."""
    here = {(job.label, job.seed) for job in request.runs() if (job.folder / OUTCOME).is_file()}
    return here | {(row.cell, row.seed) for row in read_rows(request) if row.status == rows.DONE}


def _entry_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    numbers = [
        f"{name.rpartition(': ')[0]} {value['mean']:g}" + (f" ± {value['spread']:g}" if value["spread"] else "")
        for name, value in entry["paper"].items()
    ]
    if numbers:
        more = f"; {len(numbers)} numbers in all, with --json" if len(numbers) > SHOWN else ""
        yield f"paper: {', '.join(numbers[:SHOWN])}{more}"
    for scale in SCALES[::-1]:
        at = entry[scale]
        cost = _duration(3600 * at["hours"]) if at["hours"] else "all shared with other experiments"
        if not at["lacks"]:
            yield f"{scale}: {at['runs']} runs, {cost}, {at['done']} done"


def _print_plan(request: Request, as_json: bool) -> None:
    check(request)
    cells = [_planned(request, cell) for cell in request.cells()]
    document = {
        "experiment": request.experiment.name,
        "scale": request.scale,
        "seeds": request.n_seeds,
        "seconds": request.seconds(),
        "own_seconds": request.seconds(shared=False),
        "runs": len(request.runs()),
        "notes": request.plan.notes,
        "cells": cells,
    }
    for line in [json.dumps(document)] if as_json else map(plain, _plan_lines(request, document)):
        print(line)


def _planned(request: Request, cell: Cell) -> dict[str, Any]:
    return {
        "cell": cell.label,
        "settings": cell.settings,
        "shared_with": request.home_of(cell),
        "seconds": round(estimate_seconds(cell.settings, request.scale), 1),
    }


def _plan_lines(request: Request, document: Mapping[str, Any]) -> Iterator[str]:
    yield f"{request.experiment.name}, {request.scale} scale: {request.experiment.title}"
    for cell in document["cells"]:
        shared = f"; the same runs as {cell['shared_with']}" if cell["shared_with"] else ""
        yield f"  {cell['cell']}: about {_duration(cell['seconds'])} per seed{shared}"
        yield "    " + " ".join(f"{key}={json.dumps(value)}" for key, value in cell["settings"].items())
    yield from (f"note: {note}" for note in document["notes"])
    runs = ", ".join(
        count(*each)
        for each in ((len(document["cells"]), "cell"), (request.n_seeds, "seed"), (document["runs"], "run"))
    )
    own = f"{_duration(document['own_seconds'])} without those shared with other experiments"
    yield f"{runs}, about {_duration(document['seconds'])} on {MACHINES[request.scale]}; {own}"


def _run(request: Request, as_json: bool) -> None:
    check(request)
    from invaug.lab.jobs.progress import show
    from invaug.lab.reproduce.runner import run_experiment
    from invaug.lab.train.display import Screen

    console = Screen(quiet=as_json)
    request, left_out = without_missing_policies(request)
    if not as_json:
        for line in (*left_out, _cost_line(request)):
            console.print(line, highlight=False, soft_wrap=True)
    found = run_experiment(request, console)
    finished = [job.folder for job in request.runs() if (job.folder / OUTCOME).is_file()]
    page, counts = write_report(found.table(), finished, request.folder), found.total()
    results = rows.path_of(request.results, request.experiment.name, request.scale)
    lines = (*summary_lines(found), f"results: {results}", *([f"report: {page}"] if page else ()))
    show(console, lines, {**found.as_json(), **counts._asdict(), "results": str(results), "report": page})
    if counts.failed:
        reason = next(row.more.get("reason") for row in found.rows if row.status == rows.FAILED)
        raise RunError(f"{counts.failed} of {sum(counts)} runs failed, the first: {reason}")


def without_missing_policies(request: Request) -> tuple[Request, list[str]]:
    """Return the request without the cells of DeepAA that lack a policy file, and a line that says so.

    If no other cells were asked for, nothing is left out, so that the user is told what is missing.
    """
    from invaug.lab.data.known import data_folders

    roots, cells = data_folders(request.data_dir), request.cells()
    needed = {cell.label: cell.settings["policy"] for cell in cells if "policy" in cell.settings}
    missing = [label for label, file in needed.items() if not any((root / file).is_file() for root in roots)]
    if not missing or len(missing) == len(cells):
        return request, []
    patterns = ["*deepaa"] if len(missing) == len(needed) else missing
    line = f"left out: DeepAA without a policy file ({len(missing)}): put DATASET-SET.npz into {roots[0] / 'deepaa'}"
    return replace(request, without=(*request.without, *patterns)), [line]


def _cost_line(request: Request) -> str:
    """Return how many runs are still to do, and about how long they take."""
    runs, done = request.runs(), _done(request)
    left = [job for job in runs if (job.label, job.seed) not in done]
    seconds = sum(estimate_seconds(job.settings, request.scale) for job in left)
    rest = f"about {_duration(seconds)} on {MACHINES[request.scale]}" if left else "nothing is left to train"
    return f"{len(runs)} runs, {len(runs) - len(left)} of them done: {rest}"


def summary_lines(found: Outcome) -> Iterator[str]:
    """Return the table in columns, the verdicts on the claims, and the counts."""
    yield from tables.in_columns(found.table())
    if verdicts := found.verdicts():
        yield from tables.in_columns(claims.table_of(verdicts))
    yield from found.weak_trials()
    yield "{} runs done, {} failed, {} left out".format(*found.total())
