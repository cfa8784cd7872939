"""What was kept: how often each operation, and at which levels, in the first epoch and in the last."""

import math
from collections.abc import Sequence

from invaug.lab.report.document import Bars, Figure, Histograms, Rule, Table
from invaug.lab.report.groups import Group
from invaug.lab.report.sections.constraints import names_of

MOST_SHOWN = 16  # constraints of experiments that get two figures each: a page is read, not searched
SURE = 3.0  # standard deviations; of 14 operations one alone would be beyond them by chance once in 27 epochs
MOST_NAMED = 4  # operations a reading names on each side
WITHOUT_LEVELS = ("Identity", "AutoContrast", "Equalize")  # they ignore their level
Totals = dict[str, tuple[int, ...]]


def figures(groups: Sequence[Group]) -> list[Figure]:
    """Return the figures of every constraint of every experiment, counts summed over its seeds."""
    found = []
    for group, k, name in _constraints(groups)[:MOST_SHOWN]:
        n = len(_names(group))
        where = (f", {name}" if n > 1 else "") + (f": {group.label}" if len(groups) > 1 else "")
        key = (f"-{groups.index(group) + 1}" if len(groups) > 1 else "") + (f"-constraint-{k + 1}" if n > 1 else "")
        first, last = _totals(group, k, 0), _totals(group, k, -1)
        found += [_operations(first, last, key, where), _levels(last, key, where)]
    return [figure for figure in found if figure is not None]


def left_out(groups: Sequence[Group]) -> int:
    """Return how many constraints of experiments have no figures here."""
    return max(len(_constraints(groups)) - MOST_SHOWN, 0)


def _constraints(groups: Sequence[Group]) -> list[tuple[Group, int, str]]:
    """Return the constraints of experiments that choose what they keep: of uniform draws all are kept alike."""
    chosen = [group for group in groups if group.runs[0].has_chains]
    return [(group, k, name) for group in chosen for k, name in enumerate(_names(group)) if _totals(group, k, -1)]


def _names(group: Group) -> list[str]:
    """Return the constraints of an experiment, as its run with most of them calls them."""
    return max((names_of(run) for run in group.runs), key=len)


def _totals(group: Group, k: int, place: int) -> Totals:
    """Return the counts of one epoch, the first or the last, summed over the seeds."""
    found: Totals = {}
    for kept in (run.epochs[place].kept for run in group.runs if run.epochs):
        for name, counts in (kept[k] if k < len(kept) else {}).items():
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
    names = tuple(sorted(after, key=lambda name: -after[name]))
    shares = tuple(map(before.get, names)), tuple(map(after.get, names))
    columns, rule = tuple(zip(("first epoch", "last epoch"), shares, strict=True)), Rule(1 / len(names), "uniform")
    drawing = Bars("share of kept draws (dashed: uniform)", names, columns, rule, percent=True)
    title = f"How often each operation was kept{where}"
    headings = ("operation", "first epoch", "last epoch")
    table = Table(title, headings, tuple(zip(names, *shares, strict=True)), percent=headings[1:])
    return Figure(f"operations{ending}", title, drawing, against_uniform(last), table)


def against_uniform(kept: Totals) -> str:
    """Return which operations were kept more and less often than uniform draws would, beyond chance.

    An operation stands out where its count is more than `SURE` standard deviations of a binomial from its mean.
    """
    counts = {name: sum(levels) for name, levels in kept.items()}
    n, even = sum(counts.values()), 1 / len(counts)
    chance = SURE * math.sqrt(n * even * (1 - even))
    rise = {name: count / (n * even) - 1 for name, count in counts.items() if abs(count - n * even) > chance}
    if not rise:
        return f"Each of {len(counts)} operations was kept about as often as uniform draws would keep it ({even:.1%})."
    order = sorted(rise, key=lambda name: -rise[name])
    more, less = [name for name in order if rise[name] > 0], [name for name in order[::-1] if rise[name] < 0]
    parts = []
    for word, names in (("more", more), ("less", less)):
        listed = ", ".join(f"{name} ({rise[name]:+.0%})" for name in names[:MOST_NAMED])
        others = " and others" if len(names) > MOST_NAMED else ""
        parts += [f"{word} often than uniform draws: {listed}{others}"] if names else []
    return f"Last epoch. Kept {'; '.join(parts)}. Uniform draws would give {even:.1%} each."


def _levels(last: Totals, ending: str, where: str) -> Figure | None:
    panels = tuple((name, counts) for name, counts in last.items() if name not in WITHOUT_LEVELS and any(counts))
    if not panels:
        return None
    centres = {name: sum(i * n for i, n in enumerate(counts)) / sum(counts) for name, counts in panels}
    middle = (max(len(counts) for _, counts in panels) - 1) / 2
    far = max(centres, key=lambda name: abs(centres[name] - middle))
    side = "high" if centres[far] > middle else "low"
    reading = (
        f"Last epoch, low levels left, high right; dashed is what uniform draws give. Most one-sided: {far}, kept at "
        f"{side} levels (mean {centres[far]:.1f}, uniform {middle:g})."
    )
    title = f"Levels kept, by operation{where}"
    width = max(map(len, last.values()))
    rows = tuple((name, *counts, *(None,) * (width - len(counts))) for name, counts in last.items())
    columns = ("operation", *(f"level {i}" for i in range(width)))
    return Figure(f"levels{ending}", title, Histograms(panels), reading, Table(title, columns, rows))
