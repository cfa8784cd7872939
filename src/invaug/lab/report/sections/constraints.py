"""The constraints of a run: what each is called, how it ended, what its gamma means."""

from collections.abc import Sequence
from dataclasses import dataclass

from invaug.lab.report.document import Table
from invaug.lab.report.runs import Run
from invaug.lab.train.course import AT_CAP, Course, course_of, is_moving
from invaug.levels import Resilient

KEPT = {"uniform": "uniformly drawn transformations", "worst": "the worst of the proposed transformations"}
NOT_SETTLED = "not settled yet"
CHAIN = "the transformations the chain keeps"


@dataclass(frozen=True)
class Outcome:
    """How one constraint of a run ended; numbers are None where the record has no finite one."""

    name: str
    loss: float | None
    slack: float | None
    gamma: float | None
    course: Course | None
    rule: Resilient | None
    """What set its epsilon while training, if a rule did."""
    has_bound: bool
    """Whether it is held to an epsilon that was given."""
    is_moving: bool
    is_stuck: bool
    """Whether the run itself said that epsilon looks out of reach."""

    @property
    def epsilon(self) -> float | None:
        """Epsilon in the last epoch."""
        return None if self.loss is None or self.slack is None else self.loss - self.slack

    @property
    def is_settled(self) -> bool:
        """Whether gamma, and an epsilon that a rule sets, no longer move."""
        return self.course is not None and self.course.is_settled

    @property
    def is_violated(self) -> bool:
        """Whether the loss was above epsilon in the last epoch."""
        return self.slack is not None and self.slack > 0

    @property
    def status(self) -> str:
        """Met or violated, a dash where there is nothing to keep."""
        return "–" if self.slack is None or not self.has_bound else "violated" if self.is_violated else "met"

    @property
    def meaning(self) -> str:
        """What gamma says; with a fixed epsilon it is a derivative once the constraint is met and gamma has settled."""
        if self.gamma is None:
            return "–"
        if self.rule:
            return gap_left(self.gamma, self.rule) if self.is_settled else NOT_SETTLED
        if not self.has_bound:
            return "a fixed weight"
        if self.slack is None or self.is_violated or self.is_moving:
            return "not settled: the constraint is violated or γ is still changing"
        if not self.gamma:
            return "the constraint is inactive"
        return f"raising ε by 0.1 would lower the clean loss by about {0.1 * self.gamma:.2g}"


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


def outcomes(run: Run) -> list[Outcome]:
    """Return how each constraint of a run ended."""
    return [_outcome(run, k, name) for k, name in enumerate(names_of(run))]


def _outcome(run: Run, k: int, name: str) -> Outcome:
    gammas = [gamma for epoch in run.epochs if (gamma := epoch.at("gamma", k)) is not None]
    rule = None if name in run.bounded or not run.holds_epsilon else run.rule
    loss, slack, gamma = (run.last.at(key, k) for key in ("constraint_loss", "slack", "gamma"))
    has_bound, is_stuck = run.holds_epsilon and not rule, any(run.last.out_of_reach[k : k + 1])
    return Outcome(name, loss, slack, gamma, course_of(gammas), rule, has_bound, is_moving(gammas), is_stuck)


def what_gamma_is(run: Run, rule: Resilient) -> str:
    """Return what gamma measures under the rule of a run."""
    above = "the clean loss" if rule.base == "clean" else f"{rule.base:g}"
    return (
        f"At its end it is {rule.alpha:g} × the gap between the loss on {KEPT.get(run.method, CHAIN)} and {above}, on "
        "training images, as a share of the loss of a guess: the invariance gap that is left"
    )


def gap_left(gamma: float, rule: Resilient) -> str:
    """Return the gap a gamma stands for."""
    if gamma >= AT_CAP * rule.cap:
        return f"at its cap: a gap of at least {rule.cap / rule.alpha:.1%} of the loss of a guess"
    return f"a gap of {gamma / rule.alpha:.1%} of the loss of a guess"


def by_gamma(found: Sequence[Outcome]) -> list[tuple[Outcome, float]]:
    """Return the constraints whose gamma is recorded with it, the largest first."""
    known = [(outcome, outcome.gamma) for outcome in found if outcome.gamma is not None]
    return sorted(known, key=lambda pair: -pair[1])


def table(run: Run) -> Table:
    """Return a row for each constraint of a run after its last epoch."""
    rows = tuple((o.name, o.loss, o.epsilon, o.slack, o.status, o.gamma, o.meaning) for o in outcomes(run))
    columns = ("constraint", "loss on transformed", "ε", "slack", "last epoch", "γ", "what γ says")
    return Table("Constraints, after the last epoch", columns, rows, "constraints")
