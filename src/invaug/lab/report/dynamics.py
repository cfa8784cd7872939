"""The figures over epochs: gamma, losses, accuracy, slack, entropy and acceptance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from invaug.lab.report.figures import Figure, Lines, Rule, Series, table_of, thinned
from invaug.lab.report.groups import Group
from invaug.lab.report.reading import Epoch, Run
from invaug.lab.report.words import at, constraint_name

Reading = Callable[[Sequence[Run]], str]


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
    return [figure for figure in (make(cast) for make in MAKERS) if figure is not None]


def _figure(
    cast: Cast, key: str, title: str, y_label: str, series: Sequence[Series], reading: str,
    rules: Sequence[Rule] = (), percent: bool = False,
) -> Figure | None:  # fmt: skip
    """Return the figure, None if it would be empty."""
    there = tuple(line for line in series if any(y is not None for _, y in line.points))
    if not there:
        return None
    drawing = Lines(y_label, there, tuple(dict.fromkeys(rules)), percent)
    return Figure(key, title, drawing, reading, table_of(drawing, title))


def _of_constraints(cast: Cast, key: str) -> list[Series]:
    """Return a line for each constraint of each run; one run alone gives each of its constraints a colour."""
    alone = len(cast.runs) == 1
    lines = []
    for i, run in enumerate(cast.runs):
        for k in range(run.n_constraints):
            name = constraint_name(run, k)
            label = name if alone else f"{run.name}: {name}" if run.n_constraints > 1 else run.name
            points = thinned([(epoch.number, at(epoch, key, k)) for epoch in run.epochs])
            colour, dash = (k, 0) if alone else (cast.colours[i], k)
            group = name if alone else cast.names[i]
            lines.append(
                Series(
                    label,
                    points,
                    colour,
                    dash,
                    group,
                    f"constraint {k + 1}" if not alone and run.n_constraints > 1 else "",
                    i,
                )
            )
    return lines


def _of_splits(cast: Cast, quantity: str) -> list[Series]:
    """Return a line for each split of each run: test drawn through, train dashed."""
    alone = len(cast.runs) == 1
    lines = []
    for i, run in enumerate(cast.runs):
        for dash, split in enumerate(("test", "train", "val")):
            points = thinned([(epoch.number, getattr(epoch, f"{split}_{quantity}")) for epoch in run.epochs])
            label = split if alone else f"{run.name}: {split}"
            lines.append(Series(label, points, cast.colours[i], dash, "" if alone else cast.names[i], split, i))
    return lines


def _gamma(cast: Cast) -> Figure | None:
    return _figure(cast, "gamma", "γ, the price of each invariance", "γ", _of_constraints(cast, "gamma"),
                   _ends(cast, "gamma", "γ"))  # fmt: skip


def _constraint_loss(cast: Cast) -> Figure | None:
    levels = sorted({round(level, 6) for run in cast.runs for level in _epsilons(run)})
    rules = [Rule(level, f"ε = {level:g}") for level in levels[:4]]
    title = "Loss on transformed images"
    return _figure(cast, "constraint-loss", title, "loss", _of_constraints(cast, "constraint_loss"),
                   _ends(cast, "constraint_loss", "the loss on kept transformations"), rules)  # fmt: skip


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
    if len(said) == 1:
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
    counts = {len(kept) for run in cast.runs if run.epochs for kept in run.last.kept if len(kept) > 1}
    rules = [Rule(math.log(n), f"{n} operations alike") for n in sorted(counts)[:1]]
    if not counts:  # one operation alone has no choice to speak of
        return None
    return _figure(cast, "entropy", "Entropy of the kept operations", "nats", _of_constraints(cast, "entropy"),
                   _ends(cast, "entropy", "entropy") + " Lower means fewer operations are kept more often.",
                   rules)  # fmt: skip


def _acceptance(cast: Cast) -> Figure | None:
    return _figure(cast, "acceptance", "Acceptance rate of the chain", "accepted",
                   _of_constraints(cast, "acceptance"), _ends(cast, "acceptance", "the share of accepted proposals"),
                   percent=True)  # fmt: skip


def _ends(cast: Cast, key: str, name: str) -> str:
    """Return from where to where the lines went."""
    pairs = [
        pair for run in cast.runs for k in range(run.n_constraints) if (pair := _first_and_last(run.epochs, key, k))
    ]
    if not pairs:
        return ""
    if len(pairs) == 1:
        ((first, last),) = pairs
        return f"From {first:.3g} in the first epoch to {last:.3g} in the last: {name} {_course(first, last)}."
    ends = [last for _, last in pairs]
    fell = sum(last < first for first, last in pairs)
    return f"At the end {name} is between {min(ends):.3g} and {max(ends):.3g}; it fell in {fell} of {len(pairs)} lines."


def _course(first: float, last: float) -> str:
    if abs(last - first) <= 0.01 * max(abs(first), abs(last)):
        return "hardly moved"
    return "rose" if last > first else "fell"


def _first_and_last(epochs: Sequence[Epoch], key: str, k: int) -> tuple[float, float] | None:
    values = [value for epoch in epochs if (value := at(epoch, key, k)) is not None]
    return (values[0], values[-1]) if values else None


MAKERS = (_gamma, _constraint_loss, _accuracy, _loss, _slack, _entropy, _acceptance)
