"""The answer in words: a table, a sentence per family, the suggestion."""

from collections.abc import Iterator

from invaug.lab.insights.families import in_words, is_graded
from invaug.lab.insights.thresholds import NOT, UNDECIDED, WAYS_OUT
from invaug.lab.insights.verdicts import Answer, Finding, as_code
from invaug.lab.report.intervals import Estimate, estimate

ONE_SEED = "one seed: there are no intervals over seeds (--seeds 3 gives them)"


def counted(n: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{n} {noun}{'s' * (n != 1)}"


def points(found: Estimate) -> str:
    """Return a difference of accuracies in percentage points."""
    return found.text("+.1f", 100)


def verdict_in_words(found: Finding) -> str:
    """Return the verdict, with what helps where there is none."""
    verdict, why = found.judgement
    return f"{verdict}: {WAYS_OUT[why]}" if why else verdict


def explain(found: Finding) -> str:
    """Return in one sentence what held-out images say about a family."""
    clean, under, without = (
        f"{estimate(each).text('.0f', 100)} %" for each in (found.clean, found.under, found.held_out.accuracies)
    )
    held_out = f"held-out accuracy {clean}, under {in_words(found.ranges)} {under}"
    numbers = f"{held_out}; trained without it {without}; gamma {found.gamma.text('.2f')}"
    verdict, why = found.judgement
    if verdict == UNDECIDED:
        return f"{found.name} is undecided, {why}: {WAYS_OUT[why]} ({numbers})."
    rest = ""
    if verdict == NOT:
        rest = "; no range that was tried is learned" if is_graded(found.ranges) else "; leave it out"
        rest = f"; it is learned up to {in_words(found.learned)}" if found.learned else rest
    return f"{found.name} is {verdict}{'' if verdict == NOT else ' as far as tried'}: {numbers}{rest}."


def summary_lines(answer: Answer) -> Iterator[str]:
    """Yield the answer for people: table, sentences, suggestion."""
    held_out, n = answer.held_out, len(answer.held_out.accuracies)
    right = f"{answer.accuracy:.1%} right without any family (a guess: {held_out.majority:.1%})"
    yield f"{answer.data}: {answer.model}, {counted(n, 'seed')}, {held_out.images:,} held-out images, {right}"
    if n == 1:
        yield ONE_SEED
    yield ""
    yield from _table(answer)
    yield ""
    yield "gap: points of held-out accuracy lost under the family; cost: points of clean held-out accuracy lost by"
    yield "training with it; gamma: the gap in loss left on training images, as a share of the loss of a guess"
    yield ""
    yield from map(explain, answer.ranking)
    yield ""
    nothing = "No family has a verdict yet" if len(answer.undecided) == len(answer.families) else "No family is learned"
    yield from as_code(answer).splitlines() or [f"{nothing}: nothing to suggest."]


def _table(answer: Answer) -> Iterator[str]:
    width = max(20, *(len(found.name) for found in answer.families))
    yield f"{'family':{width}}  {'gap':>12}  {'cost':>12}  {'gamma':>12}  {'verdict':31}  learned up to"
    for found in answer.ranking:
        numbers = (points(found.gap), points(found.cost), found.gamma.text(".2f"))
        far = in_words(found.learned) if found.learned else "-" if found.verdict == UNDECIDED else "none"
        shown = "  ".join(f"{each:>12}" for each in numbers)
        yield f"{found.name:{width}}  {shown}  {verdict_in_words(found):31}  {far}"
    for name in answer.unchanged:
        yield f"{name:{width}}  {'-':>12}  {'-':>12}  {'-':>12}  {'-':31}  changes none of the images"
