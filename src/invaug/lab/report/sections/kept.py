"""What was kept: how often each operation, and at which levels, in the first epoch and in the last."""

from __future__ import annotations

import math
from collections.abc import Sequence

from invaug.lab.report.drawing.figures import Bars, Figure, Histograms, Rule
from invaug.lab.report.groups import Group
from invaug.lab.report.read import Counts
from invaug.lab.report.sections.constraints import names_of
from invaug.lab.report.tables import Table

MOST_GROUPS = 6  # experiments that get these two figures each: a page is read, not searched
MOST_PAIRS = 16  # of experiment and constraint
SURE = 3.0  # standard deviations; of 14 operations one alone would be beyond them by chance once in 27 epochs
SHOWN = 4  # operations a reading names on each side
Totals = dict[str, tuple[int, ...]]


def figures(groups: Sequence[Group]) -> list[Figure]:
    """Return the figures of every constrained experiment, counts summed over its seeds."""
    found = []
    drawn = _drawn(groups)
    for i, group in enumerate(drawn, 1):
        where = f": {group.label}" if len(groups) > 1 else ""
        ending = f"-{i}" if len(drawn) > 1 else ""
        names = _names(group)
        for k, name in enumerate(names):
            which = f", {name}" if len(names) > 1 else ""
            key = ending + (f"-constraint-{k + 1}" if len(names) > 1 else "")
            first, last = _totals(group, k, 0), _totals(group, k, -1)
            found += [_operations(first, last, key, which + where), _levels(last, key, which + where)]
    return [figure for figure in found if figure is not None]


def _keeping(groups: Sequence[Group]) -> list[Group]:
    return [group for group in groups if any(epoch.kept for run in group.runs for epoch in run.epochs)]


def _names(group: Group) -> list[str]:
    """Return the constraints of an experiment, as its run with most of them calls them."""
    return names_of(max((run for run in group.runs if run.epochs), key=lambda run: run.n_constraints))


def _drawn(groups: Sequence[Group]) -> list[Group]:
    """Return the experiments that get figures: the first few, fewer if each has many constraints."""
    found: list[Group] = []
    for group in _keeping(groups)[:MOST_GROUPS]:
        if found and sum(len(_names(one)) for one in [*found, group]) > MOST_PAIRS:
            break
        found.append(group)
    return found


def left_out(groups: Sequence[Group]) -> int:
    """Return how many experiments have no figure of their own here."""
    return len(_keeping(groups)) - len(_drawn(groups))


def _totals(group: Group, k: int, place: int) -> Totals:
    """Return the counts of one epoch, the first or the last, summed over the seeds."""
    found: Totals = {}
    for run in group.runs:
        kept: Counts = run.epochs[place].kept[k] if run.epochs and k < len(run.epochs[place].kept) else {}
        for name, counts in kept.items():
            before = found.get(name, (0,) * len(counts))
            if len(before) == len(counts):  # another number of levels is another experiment
                found[name] = tuple(a + b for a, b in zip(before, counts, strict=True))
    return found


def _shares(totals: Totals) -> dict[str, float]:
    everything = sum(map(sum, totals.values()))
    return {name: sum(counts) / everything for name, counts in totals.items()} if everything else {}


def _operations(first: Totals, last: Totals, ending: str, where: str) -> Figure | None:
    before, after = _shares(first), _shares(last)
    if len(after) < 2:  # one operation alone is always the one
        return None
    names = sorted(after, key=lambda name: -after[name])
    even = 1 / len(names)
    reading = against_uniform(last)
    columns = tuple((name, tuple(shares.get(op) for op in names))
                    for name, shares in (("first epoch", before), ("last epoch", after)))  # fmt: skip
    title = f"How often each operation was kept{where}"
    rows = tuple((name, before.get(name), after[name]) for name in names)
    drawing = Bars("share of kept draws (dashed: uniform)", tuple(names), columns, Rule(even, "uniform"), percent=True)
    return Figure(f"operations{ending}", title, drawing, reading, Table(title, ("operation", *dict(columns)), rows))


def against_uniform(kept: Totals) -> str:
    """Return which operations were kept more and less often than uniform draws would, beyond chance.

    An operation stands out where its count is more than `SURE` standard deviations of a binomial from its mean.
    """
    counts = {name: sum(levels) for name, levels in kept.items()}
    n, even = sum(counts.values()), 1 / len(counts)
    spread = math.sqrt(n * even * (1 - even))
    rise = {
        name: (count - n * even) / (n * even) for name, count in counts.items() if abs(count - n * even) > SURE * spread
    }
    more, less = ([f"{name} ({rise[name]:+.0%})" for name in names] for names in _ranked(rise))
    if not rise:
        return f"Each of {len(counts)} operations was kept about as often as uniform draws would keep it ({even:.1%})."
    parts = [
        f"{word} often than uniform draws: {', '.join(names[:SHOWN])}{' and others' * (len(names) > SHOWN)}"
        for word, names in (("more", more), ("less", less))
        if names
    ]
    return f"Last epoch. Kept {'; '.join(parts)}. Uniform draws would give {even:.1%} each."


def _ranked(rise: dict[str, float]) -> tuple[list[str], list[str]]:
    order = sorted(rise, key=lambda name: -rise[name])
    return [name for name in order if rise[name] > 0], [name for name in order[::-1] if rise[name] < 0]


def _levels(last: Totals, ending: str, where: str) -> Figure | None:
    centres = {name: _mean_level(counts) for name, counts in last.items() if sum(counts) and _has_levels(name)}
    if not centres:
        return None
    n_levels = max(len(last[name]) for name in centres)
    middle = (n_levels - 1) / 2
    far = max(centres, key=lambda name: abs(centres[name] - middle))
    side = "high" if centres[far] > middle else "low"
    reading = (
        f"Last epoch, low levels left, high right; dashed is what uniform draws give. Most one-sided: {far}, kept at "
        f"{side} levels (mean {centres[far]:.1f}, uniform {middle:g})."
    )
    panels = tuple((name, counts) for name, counts in last.items() if _has_levels(name))
    title = f"Levels kept, by operation{where}"
    width = max(map(len, last.values()))
    rows = tuple((name, *counts, *(None,) * (width - len(counts))) for name, counts in last.items())
    columns = ("operation", *(f"level {i}" for i in range(width)))
    return Figure(f"levels{ending}", title, Histograms(panels), reading, Table(title, columns, rows))


def _mean_level(counts: Sequence[int]) -> float:
    return sum(i * count for i, count in enumerate(counts)) / sum(counts)


def _has_levels(name: str) -> bool:
    return name not in ("Identity", "AutoContrast", "Equalize")  # they ignore their level
