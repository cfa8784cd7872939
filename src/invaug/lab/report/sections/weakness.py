"""Where a model is weak: under which transformations and for which classes, from what `invaug evaluate` measured."""

from collections.abc import Iterator
from shlex import quote

from invaug.lab.evaluate.weak import is_weak
from invaug.lab.report import values
from invaug.lab.report.document import Answer
from invaug.lab.report.runs import Run
from invaug.lab.report.sections import gallery
from invaug.lab.report.sections.evaluation import accuracy_by_level
from invaug.lab.report.values import short, table_in, tables_in, whole

MOST_NAMED = 3
N_PICTURES = 3


def answers(run: Run, name: str, page: str) -> Iterator[Answer]:
    """Return the transformations and the classes a run is weak at; what to run where nobody measured it.

    Args:
        name: Whose weak spots these are, if the page is about several.
        page: What a command names to make the page again.
    """
    if not run.evaluation:
        missing = "Accuracy by transformation and by class is not measured yet:"
        yield Answer("Weak spots", missing, f"invaug evaluate {quote(run.place)} && invaug report {page}")
        return
    who, (text, weak) = f"{name}: " if name else "", _transformations(run)
    if text:
        yield Answer("Under transformations", who + text, strips=gallery.mistakes(run, weak)[:N_PICTURES])
    if text := _classes(run):
        yield Answer("By class", who + text)


def _transformations(run: Run) -> tuple[str, list[str]]:
    """Return in words how far transformations lower the accuracy, and the names of the operations that do most."""
    found = table_in(run.evaluation)
    uniform, clean = table_in(table_in(found.get("transformed")).get("uniform")), table_in(found.get("clean"))
    share, usual = values.share(uniform.get("accuracy")), values.share(clean.get("accuracy"))
    text, weak = _operations(run, usual)
    if share is not None and usual is not None:
        drawn = f"random transformations of the {short(found.get('set', '?'), 40)} set"
        text = f"Under {drawn} {share:.1%} of the test images are right, {usual:.1%} unchanged. {text}".rstrip()
    return text, weak


def _operations(run: Run, clean: float | None) -> tuple[str, list[str]]:
    """Return in words which operations lower the accuracy beyond chance at their worst level, and their names."""
    found = table_in(run.evaluation)
    lowest = {name: min(levels.values()) for name, levels in accuracy_by_level(found).items()}
    usual, n = lowest.get("Identity", clean), whole(found.get("level_images"))
    order = sorted(lowest, key=lambda name: lowest[name])
    if not order or usual is None:
        return "", []
    weak = [name for name in order if not n or is_weak(lowest[name], n, usual)][:MOST_NAMED]
    if not weak:
        low = f"the lowest is {order[0]}, {lowest[order[0]]:.1%} against {usual:.1%}"
        return f"No operation alone lowers the accuracy by more than chance explains: {low}.", []
    named = ", ".join(f"{name} ({lowest[name]:.1%})" for name in weak)
    return f"Weakest at the worst level of {named}; of the same images unchanged {usual:.1%} are right.", weak


def _classes(run: Run) -> str:
    """Return in words which classes are below the accuracy of all images."""
    rows = tables_in(table_in(run.evaluation).get("classes")).items()
    found = {name: (values.share(row.get("accuracy")), whole(row.get("images"))) for name, row in rows}
    known = {name: (share, n) for name, (share, n) in found.items() if share is not None}
    total = sum(n for _, n in known.values())
    if not total or len(known) < 2:
        return ""
    usual = sum(share * n for share, n in known.values()) / total
    order = sorted(known, key=lambda name: known[name][0])
    weak = [name for name in order if known[name][1] and is_weak(*known[name], usual)]
    named = ", ".join(
        f"{name} ({known[name][0]:.1%} of {known[name][1]:,} images)" for name in (weak or order)[:MOST_NAMED]
    )
    more = f" and {len(weak) - MOST_NAMED} more" if len(weak) > MOST_NAMED else ""
    if weak:
        return f"Weaker than the others: {named}{more}; {usual:.1%} over all classes."
    return f"None is weaker than the others by more than chance explains; the lowest: {named}."
