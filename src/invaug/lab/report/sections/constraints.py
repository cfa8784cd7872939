"""The constraints of a run: what each is called, whether it is met, what it costs; several of them in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from invaug.lab.config.methods import has_fixed_gamma, holds_epsilon
from invaug.lab.report.drawing.figures import Bars, Figure
from invaug.lab.report.read import Epoch, Run
from invaug.lab.report.sections.course import Course, course_of
from invaug.lab.report.tables import Table
from invaug.lab.train.alarm import PATIENCE
from invaug.levels import Resilient

MOVING = 0.02  # share by which gamma may still move within the last epochs and count as settled
AT_CAP = 0.98  # share of its cap from which on gamma is at it
KEPT = {"uniform": "uniformly drawn transformations", "worst": "the worst of the proposed transformations"}
CHAIN = "the transformations the chain keeps"
Tile = tuple[str, str, str]


def at(epoch: Epoch, key: str, k: int) -> float | None:
    """Return a number of the k-th constraint."""
    values = getattr(epoch, key)
    return values[k] if k < len(values) else None


def constraint_name(run: Run, k: int) -> str:
    """Return what the k-th constraint is about: its family, its one operation, or the run's set."""
    if len(run.families) == run.n_constraints and k < len(run.families):
        return run.families[k]
    kept = run.last.kept[k] if k < len(run.last.kept) else {}
    what = next(iter(kept)) if len(kept) == 1 else f"{run.text('set')} set"
    return what if run.n_constraints == 1 else f"constraint {k + 1} ({what})"


def names_of(run: Run) -> list[str]:
    """Return the names of all constraints of a run."""
    return [constraint_name(run, k) for k in range(run.n_constraints)]


def moving(run: Run, k: int) -> bool:
    """Whether gamma moved by more than a little within the last epochs."""
    values = [value for epoch in run.epochs[-PATIENCE:] if (value := at(epoch, "gamma", k)) is not None]
    return len(values) > 1 and abs(values[-1] - values[0]) > MOVING * max(abs(values[-1]), 1e-12)


def is_ruled(run: Run, k: int = 0) -> bool:
    """Whether a rule set the level of the k-th constraint while training."""
    own = k < len(run.families) and run.families[k] in run.bounded
    return run.rule is not None and not own and holds_epsilon(run.text("method"))


def gamma_course(run: Run, k: int) -> Course | None:
    """Return what the k-th gamma did over the training."""
    return course_of([value for epoch in run.epochs if (value := at(epoch, "gamma", k)) is not None])


def what_gamma_is(run: Run) -> str:
    """Return what gamma measures under the rule of a run."""
    rule, kept = run.rule or Resilient(), KEPT.get(run.text("method"), CHAIN)
    above = "the clean loss" if rule.base == "clean" else f"{rule.base:g}"
    return (
        f"γ is {rule.alpha:g} × the gap between the loss on {kept} and {above}, on training images, as a share of "
        "the loss of a guess: the invariance gap that is left"
    )


def gap_left(run: Run, gamma: float) -> str:
    """Return the gap a gamma stands for."""
    rule = run.rule or Resilient()
    if gamma >= AT_CAP * rule.cap:
        return f"at its cap: a gap of at least {rule.cap / rule.alpha:.1%} of the loss of a guess"
    return f"a gap of {gamma / rule.alpha:.1%} of the loss of a guess"


def ruled_verdict(run: Run) -> str:
    """Return how a run ended whose levels a rule sets: what gamma did, and which gap is left."""
    if run.n_constraints > 1:
        return f"{_most_and_least(run)}. {what_gamma_is(run)}."
    course = gamma_course(run, 0)
    if course is None:
        return "No gamma to judge: the record has no finite one."
    if course.shape == "zero":
        return f"γ {course.words}: on training images the network is as good on transformed images as on clean ones."
    return f"γ {course.words}, {gap_left(run, course.last)}. {what_gamma_is(run)}."


def _most_and_least(run: Run) -> str:
    """Return which symmetry is learned most fully, and which least."""
    ranked = sorted(gammas(run).items(), key=lambda pair: pair[1])
    if not ranked:
        return "No gamma to judge: the record has no finite one"
    (least, small), (most, large) = ranked[0], ranked[-1]
    return (
        f"Smallest γ: {constraint_name(run, least)}, {small:.3g}, the symmetry the network has learned most fully; "
        f"largest: {constraint_name(run, most)}, {large:.3g}"
    )


def is_stuck(run: Run, k: int) -> bool:
    """Whether the run itself said that the level looks out of reach."""
    return k < len(run.last.out_of_reach) and run.last.out_of_reach[k]


def meaning(run: Run, k: int, gamma: float) -> str:
    """Return what gamma says: a price only once the constraint is met and gamma has settled."""
    slack = at(run.last, "slack", k)
    if has_fixed_gamma(run.text("method")):
        return "a fixed weight"
    if is_ruled(run, k):
        return gap_left(run, gamma)
    if slack is None or slack > 0 or moving(run, k):
        return "not yet a price: the constraint is violated or γ still moves"
    return f"an ε larger by 0.1 would save about {0.1 * gamma:.2g} of clean loss" if gamma else "nothing to pay"


def joint_verdict(run: Run) -> str:
    """Return one sentence on several constraints: those that are not met by name, else the dearest."""
    slacks = [at(run.last, "slack", k) for k in range(run.n_constraints)]
    unknown = [k for k, slack in enumerate(slacks) if slack is None]
    violated = [k for k, slack in enumerate(slacks) if slack is not None and slack > 0]
    if len(unknown) == len(slacks):
        return "No bound to judge: the record has no finite slack for the last epoch."
    unjudged = f"; no finite slack is recorded for {_listed(run, unknown)}" if unknown else ""
    if violated:
        which = "; ".join(_violation(run, k) for k in violated)
        count = f"{len(violated)} of {len(slacks)} constraints are violated at the end"
        return f"Not feasible: {count}: {which}{unjudged}. Their γ is not yet a price."
    met = f"{len(slacks) - len(unknown)} of {len(slacks)}" if unknown else f"all {len(slacks)}"
    return f"Feasible: {met} constraints are met{unjudged}; {_dearest(run)}."


def _listed(run: Run, which: Sequence[int]) -> str:
    return ", ".join(constraint_name(run, k) for k in which)


def _violation(run: Run, k: int) -> str:
    loss, slack = at(run.last, "constraint_loss", k), at(run.last, "slack", k)
    if loss is None or slack is None:
        return constraint_name(run, k)
    outlook = ", which looks out of reach" if is_stuck(run, k) else ""
    return f"{constraint_name(run, k)} (loss {loss:.2f} > ε {loss - slack:.2f}{outlook})"


def gammas(run: Run) -> dict[int, float]:
    """Return the gamma of each constraint at the end, where it is recorded."""
    return {k: gamma for k in range(run.n_constraints) if (gamma := at(run.last, "gamma", k)) is not None}


def _dearest(run: Run) -> str:
    prices = gammas(run)
    if not any(prices.values()):
        return "all are slack and invariance costs nothing (γ = 0)"
    dearest = max(prices, key=lambda k: prices[k])
    free = [k for k, gamma in prices.items() if gamma == 0]
    settled = ", still moving" if moving(run, dearest) else ""
    nothing = f"; at no cost: {_listed(run, free)}" if free else ""
    return f"the dearest is {constraint_name(run, dearest)}, γ = {prices[dearest]:.3g}{settled}{nothing}"


def joint_tiles(run: Run) -> list[Tile]:
    """Return what several constraints come to; each by itself is a row of their table."""
    slacks = [slack for k in range(run.n_constraints) if (slack := at(run.last, "slack", k)) is not None]
    prices, found = gammas(run), []
    if slacks and not has_fixed_gamma(run.text("method")) and not is_ruled(run):
        met = sum(slack <= 0 for slack in slacks)
        found.append(("constraints met", f"{met} of {run.n_constraints}", "in the last epoch"))
    if prices:
        k = max(prices, key=lambda k: prices[k])
        found.append(("highest γ", f"{prices[k]:.3g}", f"{constraint_name(run, k)}: {meaning(run, k, prices[k])}"))
    return found


def table(run: Run) -> Table:
    """Return a row for each constraint of a run after its last epoch."""
    rows = []
    for k, name in enumerate(names_of(run)):
        loss, slack, gamma = (at(run.last, key, k) for key in ("constraint_loss", "slack", "gamma"))
        epsilon = None if loss is None or slack is None else loss - slack
        unbound = has_fixed_gamma(run.text("method")) or is_ruled(run, k)
        met = "–" if slack is None or unbound else "met" if slack <= 0 else "violated"
        rows.append((name, loss, epsilon, slack, met, gamma, "–" if gamma is None else meaning(run, k, gamma)))
    columns = ("constraint", "loss on transformed", "ε", "slack", "last epoch", "γ", "what γ says")
    return Table("Constraints, after the last epoch", columns, tuple(rows))


def prices(run: Run) -> Figure | None:
    """Return gamma of each of several constraints at the end, the largest first."""
    ranked = sorted(gammas(run).items(), key=lambda pair: -pair[1])
    if len(ranked) < 2:
        return None
    names = tuple(constraint_name(run, k) for k, _ in ranked)
    values = tuple(gamma for _, gamma in ranked)
    ends = f"{names[0]}, γ = {values[0]:.3g}; {{}}: {names[-1]}, γ = {values[-1]:.3g}"
    least = "smallest, the symmetry learned most fully"
    reading = f"Largest: {ends.format(least)}." if is_ruled(run) else f"Dearest: {ends.format('cheapest')}."
    title = "γ at the end, by constraint"
    drawing = Bars("γ", names, (("γ", values),), colours=tuple(k for k, _ in ranked))
    rows = tuple(zip(names, values, strict=True))
    return Figure("prices", title, drawing, reading, Table(title, ("constraint", "γ"), rows))
