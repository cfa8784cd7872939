"""The verdict of a certificate in words: does the level of the run hold on images that it was not trained on?"""

from typing import Any

from invaug.lab.certify.certificate import Question


def judge(found: dict[str, Any], question: Question) -> dict[str, Any]:
    """Return the answer on the run's level, in a word and in sentences, and how many images an open one needs.

    Args:
        found: The certificate of the transformations that the run was trained on.
    """
    law = found["trained"] or found["uniform"]
    answer, needed = law["verdict"] or "no level", law["images_needed"]
    way_out = _way_out(needed, question.available) if answer == "cannot tell" else ""
    text = f"{_on_level(found, law, question)} {way_out}".rstrip()
    context = [_on_classes(found, question), _scope(found, question)]
    return {"answer": answer, "text": text, "context": context, "images_needed": needed}


def _on_level(found: dict[str, Any], law: dict[str, Any], question: Question) -> str:
    if law["verdict"] is None:
        return "No level to hold: the run was not trained to keep a loss below one."
    (low, high), level = law["loss_interval"], f"the level of the run, ε = {question.epsilon:.3g}"
    mean, reached = f"the mean loss on held-out images under {_draws(question)} is", question.reached
    trained = "" if reached is None else f" (on training images it ended at {reached:.3f})"
    if law["verdict"] == "holds":
        return f"Holds: {mean} at most {high:.3f}, within {level}{trained}."
    if law["verdict"] == "cannot tell":
        return f"Cannot tell: {mean} between {low:.3f} and {high:.3f}, on either side of {level}{trained}."
    clean = found["clean"]["loss_interval"][0]
    already = f" Unchanged they are at {clean:.3f} or more already: it fits its training images better than new ones."
    above = clean > (question.epsilon or 0.0)
    return f"Does not hold: {mean} at least {low:.3f}, above {level}{trained}.{already * above}"


def _draws(question: Question) -> str:
    depth, n = question.transforms.depth, question.n_steps + 1
    kept = {"metropolis_hastings": f"kept by chains of {n} draws", "worst": f"the worst of {n} draws"}[question.sampler]
    what = f"random sequences of {depth} operations" if depth > 1 else "random transformations"
    return f"{what} ({kept}, as in training)" if n > 1 else what


def _way_out(needed: int | None, available: int) -> str:
    if needed is None:
        return "Hardly any number of images would do: the loss is as good as at the level."
    if needed <= available:
        return f"About {needed:,} images would do: --images {needed}."
    return f"About {needed:,} images would do, and {available:,} are held out: give more with --data."


def _on_classes(found: dict[str, Any], question: Question) -> str:
    under, clean = found["uniform"]["accuracy_interval"], found["clean"]["accuracy_interval"]
    depth = question.transforms.depth
    what = f"a random sequence of {depth} operations" if depth > 1 else "a random transformation"
    return (
        f"Under {what} of its set, {under[0]:.1%} to {under[1]:.1%} of such images keep their right class; "
        f"unchanged, {clean[0]:.1%} to {clean[1]:.1%} have it."
    )


def _scope(found: dict[str, Any], question: Question) -> str:
    n, exact = len(question.targets), found["kind"] == "exact"
    each = f"all {found['transformations']:,} transformations" if exact else f"{found['draws_per_image']} draws"
    return (
        f"This is about random draws, not the worst case; {100 * question.confidence:.4g} % confidence each, "
        f"from {n:,} image{'s' * (n > 1)} under {each} each."
    )
