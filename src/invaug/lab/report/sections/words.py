"""One run in words: its headline, its verdict, its headline numbers."""

from collections.abc import Sequence

from invaug.lab.report.document import Tile
from invaug.lab.report.groups import seconds_per_epoch, total_seconds
from invaug.lab.report.intervals import wilson
from invaug.lab.report.measure import measure_of
from invaug.lab.report.runs import Run
from invaug.lab.report.sections.constraints import NOT_SETTLED, Outcome, by_gamma, gap_left, outcomes, what_gamma_is
from invaug.lab.train.course import PATIENCE

GAMMA = (
    "γ is the weight of transformed images in training: it rises while the loss on them is above ε, and falls while it "
    "is below."
)
EPSILON = "ε is the loss that is allowed on transformed images."


def headline(run: Run) -> str:
    """Return what was trained on what."""
    images = f"{run.images['train']:,} images of " if run.images.get("train") else ""
    return f"{run.label}: {run.text('model')} on {images}{run.dataset}"


def verdict(run: Run) -> str:
    """Return in one sentence how the constraints of the run ended."""
    if not run.epochs:
        return "Nothing to judge yet: no epoch has been recorded."
    found = outcomes(run)
    if not found:
        return _plain_verdict(run)
    if all(outcome.rule for outcome in found):
        return _ruled_verdict(found)
    if all(outcome.slack is None or outcome.gamma is None for outcome in found):
        return "No constraint to judge: the record has no finite slack for the last epoch."
    return _bounded_verdict(found) if run.holds_epsilon else _weighted_verdict(found)


def _plain_verdict(run: Run) -> str:
    return f"No constraint: {run.label}."


def _weighted_verdict(found: Sequence[Outcome]) -> str:
    which = "; ".join(f"{outcome.name}, γ = {gamma:.3g}" for outcome, gamma in by_gamma(found))
    return f"Loss on transformed images added with a fixed weight ({which}): no ε to stay below."


def _ruled_verdict(found: Sequence[Outcome]) -> str:
    """Return how a run ended whose epsilons a rule sets: what gamma did, and which gap is left."""
    first, ranked = found[0], by_gamma(found)
    if not ranked or first.rule is None or first.course is None:
        return "No γ to judge: the record has no finite one."
    moving = [outcome.name for outcome in found if not outcome.is_settled]
    if len(found) > 1 and moving:
        return f"Not settled yet: γ of {', '.join(moving)} still moves."
    if len(found) > 1:
        (most, large), (least, small) = ranked[0], ranked[-1]
        learned = f"Smallest γ: {least.name}, {small:.3g}, the symmetry the network has learned most fully"
        return f"{learned}; largest: {most.name}, {large:.3g}."
    if first.course.shape == "zero":
        return f"γ {first.course.words}: on training images the network is as good on transformed as on clean images."
    if not first.is_settled:
        return f"Not settled yet: γ {first.course.words}."
    return f"γ {first.course.words}, {gap_left(first.course.last, first.rule)}."


def _bounded_verdict(found: Sequence[Outcome]) -> str:
    """Return which constraints are violated, by name; where none is, the largest gamma."""
    violated = [outcome for outcome in found if outcome.is_violated]
    unknown = [outcome.name for outcome in found if outcome.slack is None]
    unjudged = f"; no finite slack is recorded for {', '.join(unknown)}" if unknown else ""
    if len(found) == 1:
        status = "Constraint violated: " if violated else "Constraint met: "
        return f"{status}{_losses(found[0])}; {_weights(found)}."
    if violated:
        which = "; ".join(f"{outcome.name} ({_losses(outcome)})" for outcome in violated)
        return f"{len(violated)} of {len(found)} constraints are violated: {which}{unjudged}."
    met = f"{len(found) - len(unknown)} of {len(found)}" if unknown else f"All {len(found)}"
    return f"{met} constraints are met{unjudged}; {_weights(found)}."


def _losses(outcome: Outcome) -> str:
    loss, epsilon = outcome.loss or 0.0, outcome.epsilon or 0.0
    outlook = f", hardly better in {PATIENCE} epochs, so ε looks out of reach" if outcome.is_stuck else ""
    sign = ">" if outcome.is_violated else "≤"
    return f"loss on transformed images {loss:.2f} {sign} ε {epsilon:.2f}{outlook * outcome.is_violated}"


def _weights(found: Sequence[Outcome]) -> str:
    ranked = by_gamma(found)
    largest, gamma = ranked[0]
    state = ", still changing" if largest.is_moving else "" if largest.is_violated else f": {largest.meaning}"
    if len(found) == 1:
        return f"γ = {gamma:.3g}{state}"
    inactive = [outcome.name for outcome, weight in ranked if weight == 0]
    if len(inactive) == len(ranked):
        return "all are inactive (γ = 0)"
    rest = f"; inactive (γ = 0): {', '.join(inactive)}" if inactive else ""
    return f"largest γ: {largest.name}, {gamma:.3g}{state}{rest}"


def meanings(runs: Sequence[Run]) -> list[str]:
    """Return what gamma and epsilon are, in a line each, where some run adapts its gamma."""
    bounded = [run for run in runs if run.epochs and run.holds_epsilon]
    if not bounded:
        return []
    ruled = any(outcome.rule for run in bounded for outcome in outcomes(run))
    who = "Its rule sets it during training, from the clean loss and γ." if ruled else "It was given."
    measured = dict.fromkeys(what_gamma_is(run, each.rule) for run in bounded for each in outcomes(run) if each.rule)
    return [" ".join([GAMMA, *(f"{text}." for text in measured)]), f"{EPSILON} {who}"]


def tiles(run: Run) -> list[Tile]:
    """Return the headline numbers of a run."""
    if not run.epochs:
        return []
    found = outcomes(run)
    tiles = [_accuracy_tile(run), *(_constraint_tiles(found[0]) if len(found) == 1 else _joint_tiles(found))]
    seconds, total = seconds_per_epoch(run), total_seconds(run)
    if seconds is not None and total is not None:
        tiles.append(Tile("time per epoch", f"{seconds:.3g} s", f"{len(run.epochs)} epochs, {duration(total)} in all"))
    return tiles


def _accuracy_tile(run: Run) -> Tile:
    measure, accuracy, n = measure_of([run]), run.test_accuracy, run.n_measured
    if accuracy is None or not 0 <= accuracy <= 1:
        return Tile(measure.accuracy, "–", "not recorded")
    if not n:
        return Tile(measure.accuracy, f"{accuracy:.1%}", "after the last epoch")
    low, high = wilson(accuracy, n)
    behind = f"95 % interval {low:.1%} to {high:.1%} over {n:,} {measure.split} images"
    return Tile(measure.accuracy, f"{accuracy:.1%}", behind)


def _constraint_tiles(outcome: Outcome) -> list[Tile]:
    tiles = []
    if outcome.gamma is not None:
        tiles.append(Tile("γ", f"{outcome.gamma:.3g}", outcome.meaning))
    if outcome.loss is not None:
        is_bounded = outcome.epsilon is not None and (outcome.has_bound or outcome.rule)
        bound = f"ε {outcome.epsilon:.3g}{', set by its rule' * bool(outcome.rule)}" if is_bounded else "no ε"
        bound = f"ε {NOT_SETTLED}" if outcome.rule and not outcome.is_settled else bound
        tiles.append(Tile("loss on transformed images", f"{outcome.loss:.3g}", f"{bound}, mean of the last epoch"))
    return tiles


def _joint_tiles(found: Sequence[Outcome]) -> list[Tile]:
    tiles, bounded = [], [outcome for outcome in found if outcome.has_bound and outcome.slack is not None]
    if bounded:
        met = sum(not outcome.is_violated for outcome in bounded)
        tiles.append(Tile("constraints met", f"{met} of {len(found)}", "in the last epoch"))
    for outcome, gamma in by_gamma(found)[:1]:
        tiles.append(Tile("largest γ", f"{gamma:.3g}", f"{outcome.name}: {outcome.meaning}"))
    return tiles


def duration(seconds: float) -> str:
    """Return a time in the unit a person would use."""
    size, unit = (3600, "h") if seconds >= 3600 else (60, "min") if seconds >= 60 else (1, "s")
    return f"{seconds / size:.3g} {unit}"
