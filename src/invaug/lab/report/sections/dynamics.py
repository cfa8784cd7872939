"""The figures over epochs: gamma, losses, accuracy, slack, entropy and acceptance."""

import math
from collections.abc import Sequence
from dataclasses import replace

from invaug.lab.report.document import Figure, Lines, Rule, Series, Table
from invaug.lab.report.drawing.axes import N_COLOURS
from invaug.lab.report.groups import Member
from invaug.lab.report.runs import Run
from invaug.lab.report.sections.constraints import names_of, outcomes
from invaug.lab.train.course import course_of

MOST_RULES = 4  # lines that are no data
MOST_POINTS, FEWEST_POINTS = 400, 50  # of a line: more than a screen shows, and enough for its shape
MOST_IN_ALL = 8000  # points of a figure, so that a page of twenty runs stays under five megabytes
MET = Rule(0.0, "met below")
SPLITS = {"test": "test", "train": "train", "val": "held-out"}
"""What a record calls the images, and what a page calls them; test is drawn solid."""
SHAPES = {
    "settled": "settled",
    "turned": "turned down",
    "rising": "still rising",
    "moving": "still moving",
    "zero": "stayed at zero",
    "short": "too short to judge",
}


def figures(cast: Sequence[Member]) -> list[Figure]:
    """Return every figure over epochs that the runs have numbers for."""
    accuracy = _by_split(cast, "accuracy", "Accuracy", "accuracy", ".1%")
    loss = _by_split(cast, "loss", "Loss on clean images", "cross-entropy", ".3g")
    if is_crowded([member.run for member in cast]):
        made = [*_by_constraint(cast), accuracy, loss]
    else:
        made = [_gamma(cast), _constraint_loss(cast), accuracy, loss, _slack(cast), _entropy(cast), _acceptance(cast)]
    return [figure for figure in made if figure is not None]


def is_crowded(runs: Sequence[Run]) -> bool:
    """Whether several runs have several constraints each: too many lines for one figure."""
    return len(runs) > 1 and any(run.n_constraints > 1 for run in runs)


def _by_constraint(cast: Sequence[Member]) -> list[Figure | None]:
    """Return gamma and slack of every constraint in a figure of its own, with a line per run."""
    names = list(dict.fromkeys(name for member in cast for name in names_of(member.run)))
    return [
        _figure(f"{field}-{i}", f"{title} of {name}", Lines(label, lines, rules), _span(lines, label))
        for field, title, label, rules in (("gamma", "γ", "γ", ()), ("slack", "Slack", "slack", (MET,)))
        for i, name in enumerate(names, 1)
        if (lines := _of_constraints(cast, field, name))
    ]


def _figure(key: str, title: str, drawing: Lines, reading: str) -> Figure | None:
    """Return the figure with every n-th point and the last one of long lines; None if it would say nothing."""
    lines = [line for line in drawing.series if _known(line)]
    if not lines or all(_is_constant(line) for line in lines):
        return None
    most = max(min(MOST_POINTS, MOST_IN_ALL // len(lines)), FEWEST_POINTS)
    stride = -(-max(len(line.points) for line in lines) // most)
    drawn = tuple(replace(line, points=(*line.points[:-1:stride], line.points[-1])) for line in lines)
    reading += f" One epoch in {stride} is drawn." if stride > 1 else ""
    return Figure(key, title, replace(drawing, series=drawn), reading, _table(drawn, title, drawing.percent))


def _is_constant(line: Series) -> bool:
    return len(line.points) > 1 and len(set(_known(line))) == 1


def _table(lines: Sequence[Series], title: str, percent: bool) -> Table:
    """Return the numbers of the lines: one row per epoch, one column per line."""
    rows: dict[float, list[float | None]] = {}
    for i, line in enumerate(lines):
        for x, y in line.points:
            rows.setdefault(x, [None] * len(lines))[i] = y
    columns = ("epoch", *(line.label for line in lines))
    rows_ = tuple((int(x), *rows[x]) for x in sorted(rows))
    return Table(title, columns, rows_, percent=columns[1:] if percent else ())


def _known(line: Series) -> list[float]:
    return [y for _, y in line.points if y is not None]


def _of_constraints(cast: Sequence[Member], field: str, only: str | None = None) -> list[Series]:
    """Return a line for each run that has something to say, of one run alone a line for each of its constraints."""
    alone = len(cast) == 1
    lines = []
    for i, (run, colour, group) in enumerate(cast):
        for k, name in enumerate(names_of(run) if _says(run, field) else []):
            points = tuple((epoch.number, epoch.at(field, k)) for epoch in run.epochs)
            if alone:  # past the last colour they begin again, dashed
                lines.append(Series(name, points, k, k // N_COLOURS, name, "", i))
            elif only in (None, name):
                lines.append(Series(run.name, points, colour, 0, group, "", i))
    return lines


def _says(run: Run, field: str) -> bool:
    """Whether a number of the constraints says something: a fixed γ and the choice among one draw do not."""
    if field in ("gamma", "slack"):
        return run.holds_epsilon
    return run.has_chains if field in ("entropy", "acceptance") else True


def _gamma(cast: Sequence[Member]) -> Figure | None:
    lines = _of_constraints(cast, "gamma")
    courses = [course for line in lines if (course := course_of(_known(line)))]
    counts = {name: sum(course.shape == shape for course in courses) for shape, name in SHAPES.items()}
    reading = f"Of {len(courses)} lines: {', '.join(f'{count} {name}' for name, count in counts.items() if count)}."
    if len(courses) == 1:
        reading = f"γ {courses[0].words}."
    return _figure("gamma", "γ, the weight of each constraint", Lines("γ", lines), reading)


def _constraint_loss(cast: Sequence[Member]) -> Figure | None:
    lines = _of_constraints(cast, "constraint_loss")
    ends = [
        outcome
        for member in cast
        for outcome in outcomes(member.run)
        if outcome.epsilon is not None and member.run.holds_epsilon
    ]
    levels = sorted({round(outcome.epsilon or 0.0, 6) for outcome in ends})
    reading = _span(lines, "the loss on kept transformations")
    if len(levels) > MOST_RULES:
        reading += f" {len(levels)} values of ε, too many to draw: see the slack."
    elif any(outcome.rule for outcome in ends):
        reading += " ε moves with the clean loss and γ; the dashed line is where it ended."
    rules = tuple(Rule(level, f"ε = {level:.4g}") for level in levels if len(levels) <= MOST_RULES)
    return _figure("constraint-loss", "Loss on transformed images", Lines("loss", lines, rules), reading)


def _slack(cast: Sequence[Member]) -> Figure | None:
    lines = _of_constraints(cast, "slack")
    met = [epoch for line in lines if (epoch := next((int(x) for x, y in line.points if y is not None and y <= 0), 0))]
    if all(outcome.rule for member in cast for outcome in outcomes(member.run)):
        reading = f"γ rises where it is above zero and falls below. {_span(lines, 'the slack', '+.3f')}"
    elif len(lines) == 1:
        reading = f"First met in epoch {met[0]}." if met else "Above zero is violated: never met so far."
    else:
        reading = f"Above zero is violated: {len(met)} of {len(lines)} constraints were met in some epoch."
    return _figure("slack", "Slack: loss minus ε", Lines("slack", lines, (MET,)), reading)


def _by_split(cast: Sequence[Member], quantity: str, title: str, label: str, form: str) -> Figure | None:
    """Return a line for each split of each run, test solid, and where train and test ended."""
    alone = len(cast) == 1
    lines = []
    for i, (run, colour, group) in enumerate(cast):
        for dash, (key, split) in enumerate(SPLITS.items()):
            points = tuple((epoch.number, epoch.measured[f"{key}_{quantity}"]) for epoch in run.epochs)
            name = split if alone else f"{run.name}: {split}"
            lines.append(Series(name, points, colour, dash, "" if alone else group, split, i))
    parts = []
    for split in ("train", "held-out", "test"):
        ends = sorted(_known(line)[-1] for line in lines if line.kind == split and _known(line))
        texts = list(dict.fromkeys(format(end, form) for end in (*ends[:1], *ends[-1:])))
        parts += [f"{split} {' to '.join(texts)}"] if texts else []
    how = "train is measured during the epoch, on images as the method shows them"
    reading = f"Last epoch: {', '.join(parts)}; {how}."
    return _figure(quantity, title, Lines(label, lines, percent="%" in form), reading)


def _entropy(cast: Sequence[Member]) -> Figure | None:
    lines = [line for line in _of_constraints(cast, "entropy") if any(_known(line))]  # one operation has no entropy
    counts = {len(kept) for member in cast if member.run.epochs for kept in member.run.last.kept} - {0, 1}
    rules = tuple(Rule(math.log(n), f"{n} operations alike") for n in sorted(counts)[:MOST_RULES])
    reading = f"{_span(lines, 'entropy')} {_against_uniform(cast)}"
    lines += _uniform_range(cast[0].run) if len(cast) == len(lines) == 1 else []
    return _figure("entropy", "Entropy of the kept operations", Lines("nats", lines, rules), reading)


def _uniform_range(run: Run) -> list[Series]:
    """Return the ends of the range that as many uniform draws have, as dashed lines."""
    ranges = [(epoch.number, epoch.entropy_uniform[0] if epoch.entropy_uniform else None) for epoch in run.epochs]
    return [
        Series(name, tuple((number, ends[i] if ends else None) for number, ends in ranges), 1, 1, name, "", 0)
        for i, name in enumerate(("uniform draws, 2.5 %", "uniform draws, 97.5 %"))
    ]


def _against_uniform(cast: Sequence[Member]) -> str:
    """Return whether the kept operations of the last epoch differ from as many uniform draws."""
    epochs = [member.run.last for member in cast if member.run.epochs]
    pairs = [pair for last in epochs for pair in zip(last.by_constraint["entropy"], last.entropy_uniform, strict=False)]
    found = [(entropy, ends) for entropy, ends in pairs if entropy is not None and ends is not None]
    if not found:
        return "Lower means that some operations are kept more often than others."
    if len(found) == 1:
        ((entropy, (low, high)),) = found
        outcome = "is below" if entropy < low else "is not below"
        return f"{entropy:.4f} {outcome} the 95 % range of as many uniform draws ({low:.4f} to {high:.4f})."
    below = sum(entropy < low for entropy, (low, _) in found)
    return f"Below the 95 % range of as many uniform draws: {below} of {len(found)} lines."


def _acceptance(cast: Sequence[Member]) -> Figure | None:
    lines = _of_constraints(cast, "acceptance")
    what = "Lower means that transformations of the same image differ more in loss; at 100 % they do not."
    reading = f"{_span(lines, 'the share of accepted proposals', '.1%')} {what}"
    return _figure("acceptance", "Acceptance rate of the chain", Lines("accepted", lines, percent=True), reading)


def _span(lines: Sequence[Series], name: str, form: str = ".3g") -> str:
    """Return from where to where the lines went."""
    pairs = [(known[0], known[-1]) for known in map(_known, lines) if known]
    if not pairs:
        return ""
    if len(pairs) == 1:
        ((first, last),) = pairs
        is_flat = abs(last - first) <= 0.01 * max(abs(first), abs(last))
        course = "hardly changed" if is_flat else "rose" if last > first else "fell"
        return f"From {first:{form}} in the first epoch to {last:{form}} in the last: {name} {course}."
    ends = [last for _, last in pairs]
    fell = sum(last < first for first, last in pairs)
    span = f"between {min(ends):{form}} and {max(ends):{form}}"
    return f"At the end {name} is {span}; it fell in {fell} of {len(pairs)} lines."
