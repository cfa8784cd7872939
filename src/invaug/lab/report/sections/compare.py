"""Several runs: the headline, the table of experiments, paired differences, and the figures that compare them."""

from collections.abc import Sequence

from invaug.lab.report.document import Bars, Cell, Figure, Point, Scatter, Table, Tile
from invaug.lab.report.groups import Group, Value, baseline_of, combined, seconds_per_epoch, total_seconds
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.report.measure import Measure, measure_of
from invaug.lab.report.runs import Run
from invaug.lab.report.sections.constraints import names_of
from invaug.lab.report.values import number

MOST_TILES = 4
Measured = Sequence[tuple[Group, Estimate]]
SAME = ("n_views", "dual_lr", "set", "model", "epochs", "fraction", "per_class", "ranges", "share")
"""Settings that must agree for an ablation, besides the method, epsilon and n_steps."""


def headline(groups: Sequence[Group]) -> str:
    """Return what several runs are about."""
    runs = [run for group in groups for run in group.runs]
    data = ", ".join(dict.fromkeys(run.dataset for run in runs))
    count = f"{len(groups)} experiments" if len(groups) > 1 else "one experiment"
    return f"{len(runs)} runs on {data}, {count}"


def _measure(groups: Sequence[Group]) -> Measure:
    return measure_of([run for group in groups for run in group.runs])


def share_data(groups: Sequence[Group]) -> bool:
    """Whether all runs are on the same dataset."""
    return len({run.dataset for group in groups for run in group.runs}) == 1


def _percent(run: Run) -> float | None:
    return None if run.test_accuracy is None else 100 * run.test_accuracy


def _ranked(groups: Sequence[Group]) -> list[tuple[Group, Estimate]]:
    """Return the experiments and their accuracy in percent, the best first."""
    found = [(group, mean) for group in groups if (mean := group.estimate(_percent))]
    return sorted(found, key=lambda pair: -pair[1].mean)


def tiles(groups: Sequence[Group]) -> list[Tile]:
    """Return the accuracy of the best experiments, each with its interval."""
    tiles, measure = [], _measure(groups)
    for group, mean in _ranked(groups)[:MOST_TILES]:
        interval = f"one {measure.repeat}" if mean.n == 1 else f"95 % interval over {measure.repeats(mean.n)}"
        tiles.append(Tile(group.label, f"{mean.text('.1f')} %", f"{measure.accuracy}, {interval}"))
    return tiles


def experiments(groups: Sequence[Group]) -> Table:
    """Return a row for each experiment: mean and 95 % interval over its seeds."""
    measure = _measure(groups)
    accuracy, seconds = (f"{measure.accuracy} (%)", _percent, ".2f"), ("s per epoch", seconds_per_epoch, ".3g")
    names, values, forms = zip(accuracy, *_of_constraints(groups), seconds, strict=True)
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        found = zip(map(group.estimate, values), forms, strict=True)
        rows.append((group.label, len(group.runs), *(mean.text(form) if mean else "–" for mean, form in found)))
    title = f"Experiments: mean ± 95 % interval over {measure.repeat}s (Student)"
    return Table(title, ("experiment", "runs", *names), tuple(rows), "experiments")


def _of_constraints(groups: Sequence[Group]) -> list[tuple[str, Value, str]]:
    """Return the columns of the constraints; of several, γ and the loss of each by its name."""
    runs = [run for group in groups for run in group.runs]
    names = dict.fromkeys(name for run in runs for name in names_of(run))
    if all(run.n_constraints <= 1 for run in runs):
        losses = ("loss on transformed", combined("constraint_loss"), ".3f")
        return [("γ", combined("gamma"), ".3g"), losses, ("entropy (nats)", combined("entropy"), ".3f")]
    kinds = (("gamma", "γ", ".3g"), ("constraint_loss", "loss", ".3f"))
    return [(f"{said}, {name}", _named(key, name), form) for key, said, form in kinds for name in names]


def _named(key: str, name: str) -> Value:
    """Return a function that reads the number of the constraint of this name, whatever its place in the run."""
    return lambda run: dict(zip(names_of(run), run.last.by_constraint[key], strict=False)).get(name)


def differences(groups: Sequence[Group]) -> list[Table]:
    """Return the table of differences of accuracy to the baseline at common seeds; none where nothing can be paired."""
    base, measure, rows = baseline_of(groups), _measure(groups), []
    for group in groups:
        if group is not base and (pairs := group.differences_to(base)):
            gain = estimate(pairs)
            ends = gain.interval and " to ".join(f"{100 * end:+.2f}" for end in gain.interval)
            rows.append((group.label, gain.n, f"{100 * gain.mean:+.2f}", ends or f"one {measure.repeat}: no interval"))
    title = f"{measure.accuracy.capitalize()} minus that of {base.label}, paired by {measure.repeat} (points)"
    columns = ("experiment", "pairs", "mean difference", "95 % interval")
    return [Table(title, columns, tuple(rows), "differences")] if rows else []


def figures(groups: Sequence[Group]) -> list[Figure]:
    """Return every figure that compares experiments, where these runs vary what it is about."""
    measured = [(group, error) for group in groups if (error := group.estimate(_error))]
    if len(measured) < 2 or not share_data(groups):
        return []
    several = any(run.n_constraints > 1 for group in groups for run in group.runs)
    measure = _measure(groups)
    made = [
        _errors(measured, measure),
        _ablation(measured, measure, "epsilon", "ε", "sum of γ" if several else "γ", combined("gamma", sum)),
        _ablation(measured, measure, "n_steps", "n_steps", "entropy", combined("entropy")),
        _pareto(measured, measure),
    ]
    return [figure for figure in made if figure is not None]


def _error(run: Run) -> float | None:
    return None if run.test_accuracy is None else 1 - run.test_accuracy


def _ends(found: Estimate) -> tuple[float, float] | None:
    """Return the interval of an error: few seeds make intervals that reach below zero."""
    return None if found.interval is None else (max(found.interval[0], 0.0), found.interval[1])


def _errors(measured: Measured, measure: Measure) -> Figure:
    best, error = min(measured, key=lambda pair: pair[1].mean)
    reading = f"Lowest mean error: {best.label}, {error.text('.2f', 100)} %; whiskers are 95 % intervals."
    if not any(error.interval for _, error in measured):
        reading = f"Lowest error: {best.label}, {error.mean:.2%}; one {measure.repeat} each: no intervals."
    title, names = f"{measure.error.capitalize()} by experiment", tuple(group.label for group, _ in measured)
    bars = ((measure.error, tuple(error.mean for _, error in measured)),)
    whiskers, colours = tuple(_ends(error) for _, error in measured), tuple(group.colour for group, _ in measured)
    drawing = Bars(measure.error, names, bars, percent=True, whiskers=whiskers, colours=colours)
    rows = tuple((group.label, error.mean, *(error.interval or (None, None)), error.n) for group, error in measured)
    columns = ("experiment", measure.error, "low", "high", "runs")
    return Figure("error", title, drawing, reading, Table(title, columns, rows, percent=columns[1:4]))


def _setting(group: Group, key: str) -> float | None:
    run = group.runs[0]
    return 0.0 if key == "n_steps" and run.method == "uniform" else number(run.settings.get(key))


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


def _ablation(measured: Measured, measure: Measure, key: str, x_label: str, shade: str, value: Value) -> Figure | None:
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
    drawing = Scatter(x_label, measure.error, tuple(points), shade, tuple((point.x, point.y) for point in points))
    reading = f"Lowest error {best.y:.2%} at {x_label} {best.x:g}{trend}."
    columns = (x_label, measure.error, "low", "high", shade, "runs")
    table = Table(title, columns, tuple(rows), percent=columns[1:4])
    return Figure(f"error-{key.replace('_', '-')}", title, drawing, reading, table)


def _pareto(measured: Measured, measure: Measure) -> Figure | None:
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
    drawing = Scatter("training seconds", measure.error, points, joined=tuple(front.values()), legend=legend)
    reading = f"By their means, no other experiment is both cheaper and better than: {'; '.join(front)}."
    columns = ("experiment", "seconds", measure.error, "on the front")
    table = Table("Error and cost", columns, rows, percent=(measure.error,))
    return Figure("pareto", table.title, drawing, reading, table)
