"""What a run says in words: its headline, its verdict, its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from invaug.lab.config.methods import has_fixed_gamma, holds_epsilon
from invaug.lab.report.groups import Group, baseline_of, seconds_per_epoch, test_accuracy, total_seconds
from invaug.lab.report.intervals import estimate, wilson
from invaug.lab.report.read import Run
from invaug.lab.report.sections.constraints import (
    Tile,
    at,
    constraint_name,
    is_ruled,
    is_stuck,
    joint_tiles,
    joint_verdict,
    meaning,
    moving,
    ruled_verdict,
)
from invaug.lab.train.alarm import PATIENCE

MOST_TILES = 4


def headline(run: Run) -> str:
    """Return what was trained on what."""
    images = f"{run.images['train']:,} images of " if run.images.get("train") else ""
    return f"{run.method}: {run.text('model')} on {images}{run.dataset}"


def verdict(run: Run) -> str:
    """Return in one sentence how the run ended."""
    if not run.epochs:
        return "Nothing to judge yet: no epoch has been recorded."
    if not run.n_constraints:
        return f"No constraint: plain training{_by(run)}, {_accuracy(run)}."
    if all(is_ruled(run, k) for k in range(run.n_constraints)):
        return ruled_verdict(run)
    if run.n_constraints > 1 and not has_fixed_gamma(run.text("method")):
        return joint_verdict(run)
    return " ".join(_verdict(run, k) for k in range(run.n_constraints))


def _by(run: Run) -> str:
    return "" if run.text("method") == "none" else f" on images of {run.text('method')}"


def _accuracy(run: Run) -> str:
    found = test_accuracy(run)
    return "no test accuracy recorded" if found is None else f"test accuracy {found:.1%}"


def _verdict(run: Run, k: int) -> str:
    last, which = run.last, constraint_name(run, k) + ": " if run.n_constraints > 1 else ""
    loss, slack, gamma = at(last, "constraint_loss", k), at(last, "slack", k), at(last, "gamma", k)
    if loss is None or slack is None or gamma is None:
        return f"{which}No bound to judge: the record has no finite slack for the last epoch."
    epsilon = loss - slack
    if has_fixed_gamma(run.text("method")):
        return f"{which}Fixed weight γ = {gamma:.3g}: loss on transformed images {loss:.2f}, held to no bound."
    if slack <= 0:
        return f"{which}Feasible: loss on transformed images {loss:.2f} ≤ ε {epsilon:.2f}; {_price(run, k, gamma)}."
    stuck = f"hardly better in {PATIENCE} epochs, so ε looks out of reach"
    outlook = stuck if is_stuck(run, k) else "still violated at the end"
    return (
        f"{which}Not feasible: loss on transformed images {loss:.2f} > ε {epsilon:.2f}, {outlook}; "
        f"γ = {gamma:.3g} is {'still moving and ' if moving(run, k) else ''}not yet a price."
    )


def _price(run: Run, k: int, gamma: float) -> str:
    if gamma == 0:
        return "the constraint is slack and invariance costs nothing (γ = 0)"
    if moving(run, k):
        return f"γ = {gamma:.3g}, still moving"
    return f"invariance costs γ = {gamma:.3g}"


def tiles(run: Run) -> list[Tile]:
    """Return the headline numbers of a run: name, value, what stands behind it."""
    if not run.epochs:
        return []
    found = [_accuracy_tile(run), *(_constraint_tiles(run, 0) if run.n_constraints == 1 else joint_tiles(run))]
    seconds, total = seconds_per_epoch(run), total_seconds(run)
    if seconds is not None and total is not None:
        found.append(("time per epoch", f"{seconds:.3g} s", f"{len(run.epochs)} epochs, {duration(total)} in all"))
    return [tile for tile in found if tile]


def _accuracy_tile(run: Run) -> Tile:
    found, n = test_accuracy(run), run.images.get("test", 0)
    if found is None or not 0 <= found <= 1:
        return ("test accuracy", "–", "not recorded")
    if not n:
        return ("test accuracy", f"{found:.1%}", "after the last epoch")
    low, high = wilson(found, n)
    return ("test accuracy", f"{found:.1%}", f"95 % interval {low:.1%} to {high:.1%} over {n:,} test images")


def _constraint_tiles(run: Run, k: int) -> list[Tile]:
    loss, slack, gamma = (at(run.last, key, k) for key in ("constraint_loss", "slack", "gamma"))
    found = []
    if gamma is not None:
        found.append(("γ", f"{gamma:.3g}", meaning(run, k, gamma)))
    if loss is not None:
        unbound = slack is None or has_fixed_gamma(run.text("method"))
        bound = "no bound" if slack is None or unbound else f"ε {loss - slack:.3g}{', by its rule' * is_ruled(run, k)}"
        found.append(("loss on transformed images", f"{loss:.3g}", f"{bound}, mean of the last epoch"))
    return found


def duration(seconds: float) -> str:
    """Return a time in the unit a person would use."""
    units = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
    size, name = next(((size, name) for size, name in units if seconds >= size), units[-1])
    return f"{seconds / size:.3g} {name}"


def tiles_of(groups: Sequence[Group]) -> list[Tile]:
    """Return the accuracy of the best experiments, each with its interval."""
    found = [(group, mean) for group in groups if (mean := group.estimate(test_accuracy))]
    best = sorted(found, key=lambda pair: -pair[1].mean)[:MOST_TILES]
    behind = {True: "test accuracy, one run: no interval", False: "test accuracy, 95 % interval over {} runs"}
    return [
        (group.label, f"{mean.text('.1f', 100)} %", behind[mean.half is None].format(mean.n)) for group, mean in best
    ]


def headline_of(groups: Sequence[Group]) -> str:
    """Return what several runs are about."""
    runs = [run for group in groups for run in group.runs]
    data = ", ".join(dict.fromkeys(run.dataset for run in runs))
    what = f", {len(groups)} experiments" if len(groups) > 1 else ", one experiment"
    return f"{len(runs)} runs on {data}{what}"


def verdict_of(groups: Sequence[Group]) -> str:
    """Return in one sentence how several experiments compare."""
    found = [(group, mean) for group in groups if (mean := group.estimate(test_accuracy))]
    if not found:
        return "Nothing to judge yet: no run has a test accuracy."
    if len({run.dataset for group in groups for run in group.runs}) > 1:
        return "Runs of different datasets: each stands for itself, their accuracies are not compared."
    best, mean = max(found, key=lambda pair: pair[1].mean)
    seeds = f"{mean.n} seeds" if mean.n > 1 else "one seed"
    said = f"Best mean test accuracy: {mean.text('.1f', 100)} % by {best.label} ({seeds})"
    base = baseline_of(groups)
    if base is best:
        return f"{said}{', the baseline itself' if len(found) > 1 else ''}."
    pairs = paired(best, base)
    if len(pairs) < 2:
        return f"{said}; too few common seeds with {base.label} for an interval of the difference."
    gain = estimate(pairs)
    sure = gain.interval is not None and not gain.interval[0] <= 0 <= gain.interval[1]
    outcome = "more than" if sure else "not separable from"
    return f"{said}, {outcome} {base.label} ({gain.text('+.2f', 100)} points over {gain.n} common seeds)."


def paired(group: Group, base: Group) -> list[float]:
    """Return the differences of test accuracy at the seeds (and folds) both groups have."""
    known = {_repeat(run): test_accuracy(run) for run in base.runs if run.epochs}
    found = [(test_accuracy(run), known.get(_repeat(run))) for run in group.runs if run.epochs]
    return [mine - theirs for mine, theirs in found if mine is not None and theirs is not None]


def _repeat(run: Run) -> tuple[str, str]:
    return run.text("seed"), run.text("val_fold")


def is_constrained(run: Run) -> bool:
    """Whether the run has a constraint with a level to keep."""
    return run.n_constraints > 0 and holds_epsilon(run.text("method"))
