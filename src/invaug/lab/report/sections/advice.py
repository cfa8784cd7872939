"""What to do next: the first thing that is missing, with the command that does it."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from invaug.lab.report.document import Answer
from invaug.lab.report.groups import Group
from invaug.lab.report.runs import Run
from invaug.lab.report.sections import winner
from invaug.lab.report.sections.constraints import outcomes
from invaug.lab.report.values import short, whole


def next_step(groups: Sequence[Group]) -> Answer | None:
    """Return what to do next about some runs; None for several datasets, and for the folds of another command."""
    runs = [run for group in groups for run in group.runs]
    if len({run.dataset for run in runs}) > 1 or any(run.is_held_out for run in runs):
        return None
    text, command = next(_steps(groups, runs), ("", ""))
    return Answer("Next", text, command) if text else None


def _steps(groups: Sequence[Group], runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield everything that is missing, the most urgent first."""
    for run in runs:
        if len(run.epochs) < whole(run.settings.get("epochs")):
            yield "Finish the training, if nothing is at it:", f"invaug train --resume --out {shlex.quote(run.place)}"
    order = winner.ranked(groups)
    if not order:
        return
    best = order[0].runs[0]
    if not all(is_settled(run) for run in order[0].runs):
        longer = f"--epochs {2 * len(best.epochs)}"
        yield "Train longer, with the flags of this run; γ has not settled yet:", f"invaug train {data(best)} {longer}"
    if len(order) == 1:
        yield "Compare with plain training and TrivialAugment:", f"invaug train {data(best)} --compare"
    elif not winner.gain_over(*order[:2]).is_clear:
        flags = "--compare " if {run.method for run in runs} & {"none", "trivial"} else ""
        seed = 1 + max(whole(run.settings.get("seed")) for run in runs)
        again = f"invaug train {data(best)} {flags}--seed {seed}"
        yield "Train more seeds with the flags of these runs, until the intervals tell the first ones apart:", again
    yield "Export the model:", f"invaug export {shlex.quote(best.place)}"


def page_of(runs: Sequence[Run]) -> str:
    """Return what `invaug report` is given for these runs: the folder they are all in, if it holds several."""
    places = [run.place for run in runs]
    parents = {Path(place).parent.as_posix() for place in places}
    together = len(places) > 1 and len(parents) == 1 and parents != {"."}
    return shlex.join(sorted(parents) if together else places)


def is_settled(run: Run) -> bool:
    """Whether every gamma of a run that adapts has settled."""
    return not run.holds_epsilon or all(outcome.is_settled for outcome in outcomes(run))


def data(run: Run) -> str:
    """Return the dataset as a command names it; of a path of the machine the last part alone."""
    name = str(run.settings.get("data", run.dataset))
    return shlex.quote(run.dataset if Path(name).is_absolute() else short(name))
