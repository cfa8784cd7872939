"""Several runs: the table of experiments, paired differences, and the ablations that the runs support."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from invaug.lab.report.drawing.figures import Bars, Figure, Point, Scatter
from invaug.lab.report.groups import (  # fmt: skip
    Group,
    baseline_of,
    mean_of,
    seconds_per_epoch,
    test_accuracy,
    total_of,
    total_seconds,
)
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.report.read import Run
from invaug.lab.report.sections.constraints import at, constraint_name, names_of
from invaug.lab.report.sections.words import is_constrained, paired
from invaug.lab.report.tables import Cell, Table

Value = Callable[[Run], float | None]
COLOURED: dict[str, Value] = {"gamma": total_of("gamma"), "entropy": mean_of("entropy")}
"""What colours the ablations: of several constraints, the sum of their γ."""


def experiments(groups: Sequence[Group]) -> Table:
    """Return a row for each experiment: mean and 95 % interval over its seeds."""
    columns: tuple[tuple[str, Value, str, float], ...] = (
        ("test accuracy (%)", test_accuracy, ".2f", 100.0),
        *_of_constraints(groups),
        ("s per epoch", seconds_per_epoch, ".3g", 1.0),
    )
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            group.label,
            len(group.runs),
            *(_text(group.estimate(value), form, factor) for _, value, form, factor in columns),
        )
        for group in groups
    )
    return Table("Experiments: mean ± 95 % interval over seeds (Student)",
                 ("experiment", "runs", *(name for name, *_ in columns)), rows, "experiments")  # fmt: skip


def _of_constraints(groups: Sequence[Group]) -> list[tuple[str, Value, str, float]]:
    """Return the columns of the constraints; of several, γ and the loss of each by its name."""
    runs = [run for group in groups for run in group.runs if run.epochs]
    if all(run.n_constraints <= 1 for run in runs):
        return [
            ("γ", mean_of("gamma"), ".3g", 1.0),
            ("loss on transformed", mean_of("constraint_loss"), ".3f", 1.0),
            ("entropy (nats)", mean_of("entropy"), ".3f", 1.0),
        ]
    names = dict.fromkeys(name for run in runs for name in names_of(run))
    kinds = (("gamma", "γ", ".3g"), ("constraint_loss", "loss", ".3f"))
    return [(f"{said}, {name}", _named(key, name), form, 1.0) for key, said, form in kinds for name in names]


def _named(key: str, name: str) -> Value:
    """Return what reads the number of the constraint of this name, whatever its place in the run."""

    def read(run: Run) -> float | None:
        found = [at(run.last, key, k) for k in range(run.n_constraints) if constraint_name(run, k) == name]
        return found[0] if found else None

    return read


def _text(found: Estimate | None, form: str, factor: float) -> str:
    return "–" if found is None else found.text(form, factor)


def differences(groups: Sequence[Group]) -> Table | None:
    """Return the differences of accuracy to the baseline at common seeds; None where there is nothing to pair."""
    base = baseline_of(groups)
    rows = []
    for group in groups:
        pairs = paired(group, base) if group is not base else []
        if pairs:
            gain = estimate(pairs)
            ends = "one common seed: no interval" if gain.interval is None else "{:+.2f} to {:+.2f}".format(
                *(100 * end for end in gain.interval))  # fmt: skip
            rows.append((group.label, gain.n, f"{100 * gain.mean:+.2f}", ends))
    title = f"Test accuracy minus that of {base.label}, paired by seed (points)"
    columns = ("experiment", "pairs", "mean difference", "95 % interval")
    return Table(title, columns, tuple(rows), "differences") if rows else None


def figures(groups: Sequence[Group]) -> list[Figure]:
    """Return every figure that compares experiments, where these runs vary what it is about."""
    if len({run.dataset for group in groups for run in group.runs}) > 1 or len(groups) < 2:
        return []
    made = (_accuracies(groups), _epsilons(groups), _steps(groups), _laws(groups), _times(groups), _pareto(groups))
    return [figure for figure in made if figure is not None]


def _measured(groups: Sequence[Group], value: Value) -> list[tuple[Group, Estimate]]:
    return [(group, found) for group in groups if (found := group.estimate(value))]


def _accuracies(groups: Sequence[Group]) -> Figure | None:
    found = _measured(groups, _error)
    if len(found) < 2:
        return None
    best = min(found, key=lambda pair: pair[1].mean)
    reading = (
        f"Lowest mean error: {best[0].label}, {best[1].text('.2f', 100)} %; whiskers are 95 % intervals over seeds."
    )
    return _bars("error", "Test error by experiment", "test error", found, reading, percent=True)


def _times(groups: Sequence[Group]) -> Figure | None:
    found = _measured(groups, seconds_per_epoch)
    if len(found) < 2:
        return None
    fast, slow = (pick(found, key=lambda pair: pair[1].mean) for pick in (min, max))
    ratio = slow[1].mean / fast[1].mean if fast[1].mean else 0
    reading = f"An epoch of {slow[0].label} takes {ratio:.2g} times as long as one of {fast[0].label}."
    return _bars("time", "Time per epoch", "seconds per epoch", found, reading)


def _bars(
    key: str, title: str, x_label: str, found: Sequence[tuple[Group, Estimate]], reading: str, percent: bool = False
) -> Figure:
    names, means = tuple(group.label for group, _ in found), tuple(mean.mean for _, mean in found)
    drawing = Bars(
        x_label, names, ((x_label, means),), percent=percent, whiskers=tuple(_not_negative(mean) for _, mean in found),
        colours=tuple(group.colour for group, _ in found),
    )  # fmt: skip
    return Figure(key, title, drawing, reading, _estimates(title, x_label, found))


def _estimates(title: str, quantity: str, found: Sequence[tuple[Group, Estimate]]) -> Table:
    rows = tuple((group.label, mean.mean, *(mean.interval or (None, None)), mean.n) for group, mean in found)
    return Table(title, ("experiment", quantity, "low", "high", "runs"), rows)


def _not_negative(found: Estimate) -> tuple[float, float] | None:
    """Return the interval of what cannot be below zero: few seeds make intervals that are."""
    return None if found.interval is None else (max(found.interval[0], 0.0), found.interval[1])


def _error(run: Run) -> float | None:
    accuracy = test_accuracy(run)
    return None if accuracy is None else 1 - accuracy


def _setting(group: Group, key: str) -> float | None:
    return 0.0 if key == "n_steps" and group.method == "uniform" else group.runs[0].number(key)


def _families(groups: Sequence[Group], key: str) -> list[Group]:
    """Return the largest family of constrained experiments that differ in one setting alone."""
    families: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        if any(map(is_constrained, group.runs)) and _setting(group, key) is not None:
            families.setdefault(_others(group, key), []).append(group)
    largest = max(families.values(), key=len, default=[])
    varied = len({_setting(group, key) for group in largest}) > 1
    return sorted(largest, key=lambda group: _setting(group, key) or 0.0) if varied else []


def _others(group: Group, key: str) -> tuple[str, ...]:
    """Return what must be the same: the settings but this one; uniform sampling is a chain of no steps."""
    same = (
        "method", "epsilon", "n_steps", "n_views", "dual_lr", "set", "model", "epochs", "fraction", "per_class",
        "ranges", "share",
    )  # fmt: skip
    method = "constrained" if group.method == "uniform" else group.method
    return tuple(method if name == "method" else str(_setting(group, name) if name in ("epsilon", "n_steps")
                 else group.runs[0].settings.get(name)) for name in same if name != key)  # fmt: skip


def _ablation(groups: Sequence[Group], key: str, title: str, x_label: str, colour: tuple[str, str]) -> Figure | None:
    found = _measured(_families(groups, key), _error)
    if len(found) < 2:
        return None
    points, rows = [], []
    for group, error in found:
        x, value = _setting(group, key) or 0.0, group.estimate(COLOURED[colour[0]])
        shade = value.mean if value else None
        label = f"{group.label}: error {error.text('.2f', 100)} %" + (
            f", {colour[1]} {shade:.3g}" if shade is not None else ""
        )
        points.append(Point(x, error.mean, label, shade, _not_negative(error)))
        rows.append((x, error.mean, *(error.interval or (None, None)), shade, error.n))
    best = min(points, key=lambda point: point.y)
    gammas = [point.value for point in points if point.value is not None]
    trend = f"; with {x_label}, {colour[1]} goes from {gammas[0]:.3g} to {gammas[-1]:.3g}" if len(gammas) > 1 else ""
    reading = f"Lowest error {best.y:.2%} at {x_label} {best.x:g}{trend}."
    joined = tuple((point.x, point.y) for point in points)
    table = Table(title, (x_label, "test error", "low", "high", colour[1], "runs"), tuple(rows))
    drawing = Scatter(x_label, "test error", tuple(points), colour[1], joined)
    return Figure(f"error-{key.replace('_', '-')}", title, drawing, reading, table)


def _epsilons(groups: Sequence[Group]) -> Figure | None:
    several = any(run.n_constraints > 1 for group in groups for run in group.runs)
    shade = "sum of γ" if several else "γ"
    return _ablation(groups, "epsilon", f"Error against ε, {shade} as colour", "ε", ("gamma", shade))


def _steps(groups: Sequence[Group]) -> Figure | None:
    return _ablation(groups, "n_steps", "Error against n_steps, entropy as colour", "n_steps", ("entropy", "entropy"))


def _laws(groups: Sequence[Group]) -> Figure | None:
    """Return uniform draws against λ_c where both were trained under the same ε."""
    family = _families(groups, "n_steps")
    pair = [group for group in family if _setting(group, "n_steps") == 0][:1]
    pair += [group for group in family if (_setting(group, "n_steps") or 0) > 0][:1]
    found = _measured(pair, _error)
    if len(found) < 2:
        return None
    pairs = paired(pair[1], pair[0])
    gain = estimate(pairs).text("+.2f", 100) if pairs else "no common seed"
    reading = f"Accuracy of λ_c minus that of uniform draws, paired by seed: {gain} points over {len(pairs)} seeds."
    return _bars("uniform-against-chain", "Uniform draws against λ_c", "test error", found, reading, percent=True)


def _pareto(groups: Sequence[Group]) -> Figure | None:
    found = [(group, cost, error) for group in groups
             if (cost := group.estimate(total_seconds)) and (error := group.estimate(_error))]  # fmt: skip
    if len(found) < 2:
        return None
    front: list[tuple[float, float]] = []
    names = []
    for group, cost, error in sorted(found, key=lambda row: (row[1].mean, row[2].mean)):
        if not front or error.mean < front[-1][1]:
            front.append((cost.mean, error.mean))
            names.append(group.label)
    reading = f"By their means, no other experiment is both cheaper and better than: {'; '.join(names)}."
    points = tuple(Point(cost.mean, error.mean, f"{group.label}: {error.mean:.2%} in {cost.mean:.3g} s",
                         None, _not_negative(error), group.colour) for group, cost, error in found)  # fmt: skip
    title = "Error and cost"
    rows = tuple(
        (group.label, cost.mean, error.mean, "yes" if group.label in names else "no") for group, cost, error in found
    )
    table = Table(title, ("experiment", "seconds", "test error", "on the front"), rows)
    legend = tuple((group.label, group.colour) for group, _, _ in found)
    drawing = Scatter("training seconds", "test error", points, joined=tuple(front), legend=legend)
    return Figure("pareto", title, drawing, reading, table)
