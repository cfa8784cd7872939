"""Figures that compare experiments: error by experiment, against epsilon, against n_steps, against time."""

from collections.abc import Sequence

from invaug.lab.report.document import Figure, Table
from invaug.lab.report.drawing.figures import Bars, Point, Scatter
from invaug.lab.report.groups import Group, Value, mean_of, total_of, total_seconds
from invaug.lab.report.intervals import Estimate
from invaug.lab.report.runs import Run
from invaug.lab.report.sections.compare import share_data

Measured = Sequence[tuple[Group, Estimate]]
SAME = ("n_views", "dual_lr", "set", "model", "epochs", "fraction", "per_class", "ranges", "share")
"""Settings that must agree for an ablation, besides the method, epsilon and n_steps."""


def figures(groups: Sequence[Group]) -> list[Figure]:
    """Return every figure that compares experiments, where these runs vary what it is about."""
    measured = [(group, error) for group in groups if (error := group.estimate(_error))]
    if len(measured) < 2 or not share_data(groups):
        return []
    several = any(run.n_constraints > 1 for group in groups for run in group.runs)
    made = [
        _errors(measured),
        _ablation(measured, "epsilon", "ε", "sum of γ" if several else "γ", total_of("gamma")),
        _ablation(measured, "n_steps", "n_steps", "entropy", mean_of("entropy")),
        _pareto(measured),
    ]
    return [figure for figure in made if figure is not None]


def _error(run: Run) -> float | None:
    return run.test_error


def _ends(found: Estimate) -> tuple[float, float] | None:
    """Return the interval of an error: few seeds make intervals that reach below zero."""
    return None if found.interval is None else (max(found.interval[0], 0.0), found.interval[1])


def _errors(measured: Measured) -> Figure:
    best, error = min(measured, key=lambda pair: pair[1].mean)
    reading = f"Lowest mean error: {best.label}, {error.text('.2f', 100)} %; whiskers are 95 % intervals over seeds."
    title, names = "Test error by experiment", tuple(group.label for group, _ in measured)
    drawing = Bars(
        "test error",
        names,
        (("test error", tuple(error.mean for _, error in measured)),),
        percent=True,
        whiskers=tuple(_ends(error) for _, error in measured),
        colours=tuple(group.colour for group, _ in measured),
    )
    rows = tuple((group.label, error.mean, *(error.interval or (None, None)), error.n) for group, error in measured)
    return Figure(
        "error", title, drawing, reading, Table(title, ("experiment", "test error", "low", "high", "runs"), rows)
    )


def _setting(group: Group, key: str) -> float | None:
    return 0.0 if key == "n_steps" and group.method == "uniform" else group.runs[0].number(key)


def _family(measured: Measured, key: str) -> list[tuple[float, Group, Estimate]]:
    """Return the largest family of experiments with an epsilon that differ in one setting alone, in its order.

    Uniform draws are a chain of no steps.
    """
    families: dict[tuple[object, ...], list[tuple[float, Group, Estimate]]] = {}
    for group, error in measured:
        run, value = group.runs[0], _setting(group, key)
        if run.holds_epsilon and value is not None:
            method = "constrained" if run.method == "uniform" else run.method
            others = [_setting(group, name) for name in ("epsilon", "n_steps") if name != key]
            same = (method, *others, *(str(run.settings.get(name)) for name in SAME))
            families.setdefault(same, []).append((value, group, error))
    largest = max(families.values(), key=len, default=[])
    return sorted(largest, key=lambda entry: entry[0]) if len({entry[0] for entry in largest}) > 1 else []


def _ablation(measured: Measured, key: str, x_label: str, shade: str, value: Value) -> Figure | None:
    points, rows = [], []
    for x, group, error in _family(measured, key):
        found = group.estimate(value)
        colour = found.mean if found else None
        label = f"{group.label}: error {error.text('.2f', 100)} %{'' if colour is None else f', {shade} {colour:.3g}'}"
        points.append(Point(x, error.mean, label, colour, _ends(error)))
        rows.append((x, error.mean, *(error.interval or (None, None)), colour, error.n))
    if not points:
        return None
    best = min(points, key=lambda point: point.y)
    values = [point.value for point in points if point.value is not None]
    trend = f"; with {x_label}, {shade} goes from {values[0]:.3g} to {values[-1]:.3g}" if len(values) > 1 else ""
    title = f"Error against {x_label}, {shade} as colour"
    joined = tuple((point.x, point.y) for point in points)
    return Figure(
        f"error-{key.replace('_', '-')}",
        title,
        Scatter(x_label, "test error", tuple(points), shade, joined),
        f"Lowest error {best.y:.2%} at {x_label} {best.x:g}{trend}.",
        Table(title, (x_label, "test error", "low", "high", shade, "runs"), tuple(rows)),
    )


def _pareto(measured: Measured) -> Figure | None:
    found = [(group, time.mean, error) for group, error in measured if (time := group.estimate(total_seconds))]
    if len(found) < 2:
        return None
    front: dict[str, tuple[float, float]] = {}
    for group, cost, error in sorted(found, key=lambda row: (row[1], row[2].mean)):
        if all(error.mean < best for _, best in front.values()):
            front[group.label] = (cost, error.mean)
    points = tuple(
        Point(cost, error.mean, f"{g.label}: {error.mean:.2%} in {cost:.3g} s", None, _ends(error), g.colour)
        for g, cost, error in found
    )
    rows = tuple((g.label, cost, error.mean, "yes" if g.label in front else "no") for g, cost, error in found)
    legend = tuple((group.label, group.colour) for group, _, _ in found)
    title = "Error and cost"
    return Figure(
        "pareto",
        title,
        Scatter("training seconds", "test error", points, joined=tuple(front.values()), legend=legend),
        f"By their means, no other experiment is both cheaper and better than: {'; '.join(front)}.",
        Table(title, ("experiment", "seconds", "test error", "on the front"), rows),
    )
