"""The first sentence of a page: which experiment is best and by how much, with its interval; or what one reaches."""

from collections.abc import Sequence
from typing import NamedTuple

from invaug.lab.report.groups import Group
from invaug.lab.report.intervals import difference_of_shares, estimate, wilson
from invaug.lab.report.measure import Measure, measure_of
from invaug.lab.report.runs import Run

NO_SPREAD = 1e-9  # differences that agree to this are equal, and say nothing about luck
MOST_NAMED = 3  # experiments the sentence names beside the best


class Gain(NamedTuple):
    """By how much the best experiment is above another, as shares."""

    over: Group
    mean: float
    interval: tuple[float, float] | None

    @property
    def is_clear(self) -> bool:
        """Whether the interval is above zero."""
        return self.interval is not None and self.interval[0] > 0

    @property
    def words(self) -> str:
        """The other experiment, and the difference to it in points with its interval."""
        ends = "no interval" if self.interval is None else " to ".join(f"{100 * end:+.1f}" for end in self.interval)
        return f"{self.over.label} ({100 * self.mean:+.1f} points, {ends})"


def ranked(groups: Sequence[Group]) -> list[Group]:
    """Return the experiments that have an accuracy, the best mean first."""
    found = [(group, mean) for group in groups if (mean := group.estimate(_accuracy))]
    return [group for group, _ in sorted(found, key=lambda pair: -pair[1].mean)]


def verdict(groups: Sequence[Group]) -> str:
    """Return in a few sentences how good the best experiment is, and whether it is better than the others."""
    order, runs = ranked(groups), [run for group in groups for run in group.runs]
    measure = measure_of(runs)
    if not order:
        missing = measure.accuracy if any(run.epochs for run in runs) else "epoch"
        return f"Nothing to judge yet: no {missing} has been recorded."
    if len({run.dataset for run in runs}) > 1:
        return "Runs of different datasets: their accuracies are not compared."
    best, others = order[0], order[1:]
    if not others:
        return f"{_reached(best, best.runs[0].label, measure)} There is no other method here to compare it with."
    gains = [gain_over(best, other) for other in others]
    level, behind = [gain for gain in gains if not gain.is_clear], [gain for gain in gains if gain.is_clear]
    start = "No clear winner. " if level else f"{best.label} is the best of {len(order)}. "
    parts = [f"{word} {_listed(some)}" for word, some in (("level with", level), ("ahead of", behind)) if some]
    return f"{start}{_reached(best, best.label, measure)} It is {' and '.join(parts)}. {_how(best, others[0], measure)}"


def gain_over(best: Group, other: Group) -> Gain:
    """Return the difference of two experiments: paired by seed, of single runs by their test images."""
    pairs = best.differences_to(other)
    if len(pairs) > 1:
        found = estimate(pairs)
        has_spread = (found.half or 0.0) > NO_SPREAD  # two folds that differ by one image each are no proof
        return Gain(other, found.mean, found.interval if has_spread else None)
    mine, theirs = best.estimate(_accuracy), other.estimate(_accuracy)
    mean = mine.mean - theirs.mean if mine and theirs else 0.0
    counts = [_share_and_count(group.runs) for group in (best, other)]
    known = [count for count in counts if count is not None]
    return Gain(other, mean, difference_of_shares(*known[0], *known[1]) if len(known) == 2 else None)


def _how(best: Group, other: Group, measure: Measure) -> str:
    """Return what the intervals of the differences are made from."""
    n = len(best.differences_to(other))
    over = f"paired over {n} {measure.repeat}s" if n > 1 else f"over the {measure.split} images of one run each"
    return f"In brackets: the difference and its 95 % interval, {over}."


def _listed(gains: Sequence[Gain]) -> str:
    more = f" and {len(gains) - MOST_NAMED} more" if len(gains) > MOST_NAMED else ""
    return f"{', '.join(gain.words for gain in gains[:MOST_NAMED])}{more}"


def _reached(group: Group, name: str, measure: Measure) -> str:
    """Return the accuracy of an experiment, with an interval over its repeats, or over the images of its one run."""
    mean = group.estimate(_accuracy)
    if mean is None:
        return ""
    if mean.n > 1:
        how = f"95 % interval over {measure.repeats(mean.n)}"
        return f"{name} classifies {mean.text('.1f', 100)} % of the {measure.split} images correctly ({how})."
    how, count = "after the last epoch", _share_and_count(group.runs)
    if count:
        low, high = wilson(*count)
        how = f"95 % interval {low:.1%} to {high:.1%}"
    n = f"{count[1]:,}" if count else "the"
    return f"{name} classifies {mean.mean:.1%} of {n} {measure.split} images correctly ({how})."


def _accuracy(run: Run) -> float | None:
    return run.test_accuracy


def _share_and_count(runs: Sequence[Run]) -> tuple[float, int] | None:
    """Return the accuracy of the one run that has one, and the number of its images."""
    found = [(share, run.n_measured) for run in runs if (share := run.test_accuracy) is not None]
    return found[0] if len(found) == 1 and 0 <= found[0][0] <= 1 and found[0][1] else None
