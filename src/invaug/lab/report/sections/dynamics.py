"""The figures over epochs: gamma, losses, accuracy, slack, entropy and acceptance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from invaug.lab.report.drawing.axes import N_COLOURS, N_DASHES
from invaug.lab.report.drawing.figures import Figure, Lines, Rule, Series, table_of, thinned
from invaug.lab.report.groups import Group
from invaug.lab.report.read import Run
from invaug.lab.report.sections.constraints import at, gamma_course, is_ruled, names_of, what_gamma_is

MOST_RULES = 4  # lines that are no data
SHAPES = {
    "settled": "settled",
    "turned": "turned down",
    "rising": "still rising",
    "zero": "stayed at zero",
    "short": "too short to judge",
}


@dataclass(frozen=True)
class Cast:
    """The runs of a page and the colour of each: that of its group, or its own where there is one group."""

    runs: tuple[Run, ...]
    colours: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, groups: Sequence[Group]) -> Cast:
        """Return the runs of the groups in the order they were given."""
        places = {
            i: (run, g) for g, group in enumerate(groups) for i, run in zip(group.indices, group.runs, strict=True)
        }
        order = [places[i] for i in sorted(places)]
        single = len(groups) == 1
        return cls(
            tuple(run for run, _ in order),
            tuple(i if single else groups[g].colour for i, (_, g) in enumerate(order)),
            tuple(run.name if single else groups[g].label for run, g in order),
        )


def figures(cast: Cast) -> list[Figure]:
    """Return every figure over epochs that the runs have numbers for."""
    made = _by_constraint(cast) if is_crowded(cast.runs) else [make(cast) for make in MAKERS]
    return [figure for figure in made if figure is not None]


def is_crowded(runs: Sequence[Run]) -> bool:
    """Whether several runs have more constraints than there are dashes to tell them apart."""
    return len(runs) > 1 and any(run.n_constraints > N_DASHES for run in runs)


def _by_constraint(cast: Cast) -> list[Figure | None]:
    """Return gamma and slack of every constraint in a figure of its own, a line a run."""
    names = dict.fromkeys(name for run in cast.runs for name in names_of(run))
    met = (Rule(0.0, "met below"),)
    kinds: tuple[tuple[str, str, str, tuple[Rule, ...]], ...] = (
        ("gamma", "γ", "γ of {}", ()),
        ("slack", "slack", "Slack of {}", met),
    )
    found: list[Figure | None] = []
    for key, said, title, rules in kinds:
        everything = _of_constraints(cast, key)
        for i, name in enumerate(names, 1):
            lines = [replace(line, kind="", dash=0) for line in everything if line.kind == name]
            reading = _ends_of(_courses(lines), said)
            found.append(_figure(cast, f"{key}-{i}", title.format(name), said, lines, reading, rules))
    return [*found, _accuracy(cast), _loss(cast)]


def _figure(
    cast: Cast, key: str, title: str, y_label: str, series: Sequence[Series], reading: str,
    rules: Sequence[Rule] = (), percent: bool = False,
) -> Figure | None:  # fmt: skip
    """Return the figure, None if it would be empty."""
    there, stride = thinned([line for line in series if any(y is not None for _, y in line.points)])
    if not there:
        return None
    reading += f" One epoch in {stride} is drawn." if stride > 1 else ""
    drawing = Lines(y_label, there, tuple(dict.fromkeys(rules)), percent)
    return Figure(key, title, drawing, reading, table_of(drawing, title))


def _of_constraints(cast: Cast, key: str, worth: Callable[[Run, int], bool] = lambda *_: True) -> list[Series]:
    """Return a line for each constraint of each run; one run alone gives each of its constraints a colour."""
    alone, several = len(cast.runs) == 1, any(run.n_constraints > 1 for run in cast.runs)
    lines = []
    for i, run in enumerate(cast.runs):
        for k, name in enumerate(names_of(run)):
            if not worth(run, k):
                continue
            points = tuple((epoch.number, at(epoch, key, k)) for epoch in run.epochs)
            if alone:  # past the last colour they begin again, dashed
                lines.append(Series(name, points, k, k // N_COLOURS, name, "", i))
            else:
                label, kind = (f"{run.name}: {name}", name) if several else (run.name, "")
                lines.append(Series(label, points, cast.colours[i], k, cast.names[i], kind, i))
    return lines


def _of_splits(cast: Cast, quantity: str) -> list[Series]:
    """Return a line for each split of each run: test drawn through, train dashed."""
    alone = len(cast.runs) == 1
    lines = []
    for i, run in enumerate(cast.runs):
        for dash, split in enumerate(("test", "train", "val")):
            points = tuple((epoch.number, getattr(epoch, f"{split}_{quantity}")) for epoch in run.epochs)
            label = split if alone else f"{run.name}: {split}"
            lines.append(Series(label, points, cast.colours[i], dash, "" if alone else cast.names[i], split, i))
    return lines


def _gamma(cast: Cast) -> Figure | None:
    reading = _gamma_reading(cast.runs)
    return _figure(cast, "gamma", "γ, the weight of each constraint", "γ", _of_constraints(cast, "gamma"), reading)


def _gamma_reading(runs: Sequence[Run]) -> str:
    """Return what gamma did: of one constraint in words, of several how many did what."""
    places = [(run, k) for run in runs for k in range(run.n_constraints)]
    courses = [course for place in places if (course := gamma_course(*place))]
    if len(courses) != 1:
        counts = {name: sum(course.shape == shape for course in courses) for shape, name in SHAPES.items()}
        said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"Of {len(courses)} lines: {said}." if courses else ""
    what = f" {what_gamma_is(runs[0])}." if is_ruled(places[0][0]) else ""
    return f"γ {courses[0].words}.{what}"


def _constraint_loss(cast: Cast) -> Figure | None:
    levels = sorted({round(level, 6) for run in cast.runs for level in _epsilons(run)})
    rules = [Rule(level, f"ε = {level:.4g}") for level in (levels if len(levels) <= MOST_RULES else [])]
    unruled = "" if rules or not levels else f" {len(levels)} levels of ε, too many to draw: see the slack."
    if any(is_ruled(run, k) for run in cast.runs for k in range(run.n_constraints)):
        unruled += " ε moves with the clean loss and γ; drawn is where it ended." if rules else ""
    title = "Loss on transformed images"
    return _figure(cast, "constraint-loss", title, "loss", _of_constraints(cast, "constraint_loss"),
                   _ends(cast, "constraint_loss", "the loss on kept transformations") + unruled, rules)  # fmt: skip


def _epsilons(run: Run) -> list[float]:
    pairs = [(at(run.last, "constraint_loss", k), at(run.last, "slack", k)) for k in range(run.n_constraints)]
    return [loss - slack for loss, slack in pairs if loss is not None and slack is not None]


def _slack(cast: Cast) -> Figure | None:
    said = []
    for run in cast.runs:
        for k in range(run.n_constraints):
            met = [epoch.number for epoch in run.epochs if (s := at(epoch, "slack", k)) is not None and s <= 0]
            said.append((run, k, met[0] if met else None))
    met_at = [epoch for _, _, epoch in said if epoch is not None]
    if said and all(is_ruled(run, k) for run, k, _ in said):
        reading = f"γ rises where it is above zero and falls below. {_ends(cast, 'slack', 'the slack', '+.3f')}"
    elif len(said) == 1:
        reading = f"First met in epoch {met_at[0]}." if met_at else "Above zero is violated: never met so far."
    else:
        reading = f"Above zero is violated: {len(met_at)} of {len(said)} constraints were met in some epoch."
    return _figure(cast, "slack", "Slack: loss minus ε", "slack", _of_constraints(cast, "slack"), reading,
                   [Rule(0.0, "met below")])  # fmt: skip


def _loss(cast: Cast) -> Figure | None:
    reading = _split_reading(cast, "loss", lambda value: f"{value:.3g}")
    return _figure(cast, "loss", "Loss on clean images", "cross-entropy", _of_splits(cast, "loss"), reading)


def _accuracy(cast: Cast) -> Figure | None:
    reading = _split_reading(cast, "accuracy", lambda value: f"{value:.1%}")
    return _figure(cast, "accuracy", "Accuracy", "accuracy", _of_splits(cast, "accuracy"), reading, percent=True)


def _split_reading(cast: Cast, quantity: str, said: Callable[[float], str]) -> str:
    """Return where train and test ended; train means the images as the method shows them to the model."""
    values = {
        split: [v for run in cast.runs if run.epochs and (v := getattr(run.last, f"{split}_{quantity}")) is not None]
        for split in ("train", "test")
    }
    parts = [f"{split} {_range(found, said)}" for split, found in values.items() if found]
    return (
        f"Last epoch: {', '.join(parts)}; train is measured on the images as the method shows them, during the epoch."
    )


def _range(found: Sequence[float], said: Callable[[float], str]) -> str:
    low, high = said(min(found)), said(max(found))
    return low if low == high else f"{low} to {high}"


def _entropy(cast: Cast) -> Figure | None:
    counts = {_choices(run, k) for run in cast.runs if run.epochs for k in range(run.n_constraints)} - {0, 1}
    if not counts:  # one operation alone has no choice to speak of
        return None
    rules = [Rule(math.log(n), f"{n} operations alike") for n in sorted(counts)[:MOST_RULES]]
    lines = _of_constraints(cast, "entropy", lambda run, k: _choices(run, k) > 1)
    alone = len(cast.runs) == cast.runs[0].n_constraints == 1
    reading = f"{_ends_of(_courses(lines), 'entropy')} {_against_uniform(cast.runs)}"
    lines += _uniform_range(cast.runs[0]) if alone else []
    return _figure(cast, "entropy", "Entropy of the kept operations", "nats", lines, reading, rules)


def _uniform_range(run: Run) -> list[Series]:
    """Return the ends of the range that as many uniform draws have, as dashed lines."""
    ends = [(epoch.number, epoch.entropy_uniform[0] if epoch.entropy_uniform else None) for epoch in run.epochs]
    names = ("uniform draws, 2.5 %", "uniform draws, 97.5 %")
    return [
        Series(name, tuple((number, pair[i] if pair else None) for number, pair in ends), 1, 1, name, "", 0)
        for i, name in enumerate(names)
    ]


def _against_uniform(runs: Sequence[Run]) -> str:
    """Return whether the kept operations of the last epoch differ from as many uniform draws."""
    found = [
        (entropy, pair)
        for run in runs
        if run.epochs
        for entropy, pair in zip(run.last.entropy, run.last.entropy_uniform, strict=False)
        if entropy is not None and pair is not None
    ]
    below = [pair for entropy, pair in found if entropy < pair[0]]
    if len(found) == 1:
        ((entropy, (low, high)),) = found
        ends = f"the 95 % range of as many uniform draws ({low:.4f} to {high:.4f})"
        if below:
            return f"{entropy:.4f} is below {ends}: some operations are kept more often than others."
        return f"{entropy:.4f} is not below {ends}: the kept operations cannot be told from uniform draws."
    if found:
        return f"Below the 95 % range of as many uniform draws: {len(below)} of {len(found)} lines."
    return "Lower means that some operations are kept more often than others."


def _choices(run: Run, k: int) -> int:
    """Return among how many operations the k-th constraint chooses."""
    return len(run.last.kept[k]) if run.epochs and k < len(run.last.kept) else 0


def _acceptance(cast: Cast) -> Figure | None:
    reading = _ends(cast, "acceptance", "the share of accepted proposals", ".1%")
    said = f"{reading} Lower means that transformations of the same image differ more in loss; at 100 % they do not."
    return _figure(
        cast,
        "acceptance",
        "Acceptance rate of the chain",
        "accepted",
        _of_constraints(cast, "acceptance"),
        said,
        percent=True,
    )


def _ends(cast: Cast, key: str, name: str, form: str = ".3g") -> str:
    """Return from where to where the lines went."""
    values = [[at(epoch, key, k) for epoch in run.epochs] for run in cast.runs for k in range(run.n_constraints)]
    return _ends_of(list(map(_course_of, values)), name, form)


def _ends_of(courses: Sequence[tuple[float, float] | None], name: str, form: str = ".3g") -> str:
    pairs = [course for course in courses if course is not None]
    if not pairs:
        return ""
    if len(pairs) == 1:
        ((first, last),) = pairs
        return f"From {first:{form}} in the first epoch to {last:{form}} in the last: {name} {_course(first, last)}."
    ends = [last for _, last in pairs]
    fell = sum(last < first for first, last in pairs)
    span = f"between {min(ends):{form}} and {max(ends):{form}}"
    return f"At the end {name} is {span}; it fell in {fell} of {len(pairs)} lines."


def _course(first: float, last: float) -> str:
    if abs(last - first) <= 0.01 * max(abs(first), abs(last)):
        return "hardly moved"
    return "rose" if last > first else "fell"


def _courses(lines: Sequence[Series]) -> list[tuple[float, float] | None]:
    return [_course_of([y for _, y in line.points]) for line in lines]


def _course_of(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the first and the last number there is."""
    known = [value for value in values if value is not None]
    return (known[0], known[-1]) if known else None


MAKERS = (_gamma, _constraint_loss, _accuracy, _loss, _slack, _entropy, _acceptance)
