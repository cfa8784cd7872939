"""Several runs: the headline, the table of experiments, paired differences."""

from collections.abc import Sequence

from invaug.lab.report.document import Cell, Table, Tile
from invaug.lab.report.groups import Group, Value, baseline_of, mean_of, paired_differences, seconds_per_epoch
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.report.runs import Run
from invaug.lab.report.sections.constraints import names_of

MOST_TILES = 4


def headline(groups: Sequence[Group]) -> str:
    """Return what several runs are about."""
    runs = [run for group in groups for run in group.runs]
    data = ", ".join(dict.fromkeys(run.dataset for run in runs))
    count = f"{len(groups)} experiments" if len(groups) > 1 else "one experiment"
    return f"{len(runs)} runs on {data}, {count}"


def share_data(groups: Sequence[Group]) -> bool:
    """Whether all runs are on the same dataset."""
    return len({run.dataset for group in groups for run in group.runs}) == 1


def _ranked(groups: Sequence[Group]) -> list[tuple[Group, Estimate]]:
    """Return the experiments and their accuracy, the best first."""
    found = [(group, mean) for group in groups if (mean := group.estimate(lambda run: run.test_accuracy))]
    return sorted(found, key=lambda pair: -pair[1].mean)


def tiles(groups: Sequence[Group]) -> list[Tile]:
    """Return the accuracy of the best experiments, each with its interval."""
    tiles = []
    for group, mean in _ranked(groups)[:MOST_TILES]:
        interval = "one run: no interval" if mean.n == 1 else f"95 % interval over {mean.n} runs"
        tiles.append(Tile(group.label, f"{mean.text('.1f', 100)} %", f"test accuracy, {interval}"))
    return tiles


def verdict(groups: Sequence[Group]) -> str:
    """Return in one sentence how several experiments compare."""
    ranked = _ranked(groups)
    if not ranked:
        return "Nothing to judge yet: no run has a test accuracy."
    if not share_data(groups):
        return "Runs of different datasets: their accuracies are not compared."
    best, mean = ranked[0]
    seeds = f"{mean.n} seeds" if mean.n > 1 else "one seed"
    leader = f"Best mean test accuracy: {mean.text('.1f', 100)} % by {best.label} ({seeds})"
    base = baseline_of(groups)
    if base is best:
        return f"{leader}{', the baseline itself' if len(ranked) > 1 else ''}."
    gain = estimate(paired_differences(best, base) or [0.0])
    if gain.interval is None:
        return f"{leader}; too few common seeds with {base.label} for an interval of the difference."
    outcome = "not separable from" if gain.interval[0] <= 0 <= gain.interval[1] else "more than"
    return f"{leader}, {outcome} {base.label} ({gain.text('+.2f', 100)} points over {gain.n} common seeds)."


def experiments(groups: Sequence[Group]) -> Table:
    """Return a row for each experiment: mean and 95 % interval over its seeds."""
    columns: tuple[tuple[str, Value, str, float], ...] = (
        ("test accuracy (%)", lambda run: run.test_accuracy, ".2f", 100.0),
        *((name, value, form, 1.0) for name, value, form in _of_constraints(groups)),
        ("s per epoch", seconds_per_epoch, ".3g", 1.0),
    )
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (group.label, len(group.runs), *(_text(group.estimate(value), form, by) for _, value, form, by in columns))
        for group in groups
    )
    title = "Experiments: mean ± 95 % interval over seeds (Student)"
    return Table(title, ("experiment", "runs", *(name for name, *_ in columns)), rows, "experiments")


def _of_constraints(groups: Sequence[Group]) -> list[tuple[str, Value, str]]:
    """Return the columns of the constraints; of several, γ and the loss of each by its name."""
    runs = [run for group in groups for run in group.runs]
    names = dict.fromkeys(name for run in runs for name in names_of(run))
    if all(run.n_constraints <= 1 for run in runs):
        losses = ("loss on transformed", mean_of("constraint_loss"), ".3f")
        return [("γ", mean_of("gamma"), ".3g"), losses, ("entropy (nats)", mean_of("entropy"), ".3f")]
    kinds = (("gamma", "γ", ".3g"), ("constraint_loss", "loss", ".3f"))
    return [(f"{said}, {name}", _named(key, name), form) for key, said, form in kinds for name in names]


def _named(key: str, name: str) -> Value:
    """Return a function that reads the number of the constraint of this name, whatever its place in the run."""

    def read(run: Run) -> float | None:
        names = names_of(run)
        return run.last.at(key, names.index(name)) if name in names else None

    return read


def _text(found: Estimate | None, form: str, factor: float) -> str:
    return "–" if found is None else found.text(form, factor)


def differences(groups: Sequence[Group]) -> list[Table]:
    """Return the table of differences of accuracy to the baseline at common seeds; none where nothing can be paired."""
    base = baseline_of(groups)
    rows = []
    for group in groups:
        pairs = paired_differences(group, base) if group is not base else []
        if pairs:
            gain = estimate(pairs)
            ends = gain.interval and " to ".join(f"{100 * end:+.2f}" for end in gain.interval)
            rows.append((group.label, gain.n, f"{100 * gain.mean:+.2f}", ends or "one common seed: no interval"))
    title = f"Test accuracy minus that of {base.label}, paired by seed (points)"
    columns = ("experiment", "pairs", "mean difference", "95 % interval")
    return [Table(title, columns, tuple(rows), "differences")] if rows else []
