"""docs/reproduce.md: every table and figure next to the paper's, from the rows in results alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from invaug.lab.report.drawing import svg
from invaug.lab.report.drawing.style import picture_style
from invaug.lab.report.tables import MARKDOWN, to_markdown
from invaug.lab.reproduce import outcome, plans
from invaug.lab.reproduce.cells import SCALES, Experiment, Scale
from invaug.lab.reproduce.figures import figures
from invaug.lab.reproduce.outcome import Outcome, Verdict
from invaug.lab.reproduce.paper import PUBLISHED

COMMAND = "python -m invaug.lab.reproduce -o docs/reproduce.md"
HEAD = f"""# The paper, reproduced

Generated from `results/` by `{COMMAND}`; do not edit.

```console
$ invaug reproduce --list                      # every experiment: cost, what is done, what the paper found
$ invaug reproduce table-1                     # small scale: subsets, two cores
$ invaug reproduce table-1 --scale full        # as published, presets paper and authors-code
$ invaug reproduce table-1 --dry-run           # every config and the estimate; trains nothing
```

Runs are skipped when done and go on when broken; `--jobs N` trains several at a time. Ours is the mean over seeds ±
half its 95 % interval (Student); the paper's ± is what it says. Runs that failed or were left out are counted. At the
small scale the task is another one than the paper's: the order of the methods compares, the numbers do not.

A claim about two cells is *shown* when the interval of their difference, run by run of the same seed, leaves zero out;
other claims when they hold for the means and for at least half of the seeds by themselves.

## Protocol of the small scale

1. The task was chosen on held-out training images of CIFAR-10, one seed: with 1,000 images and 20 epochs (WRN-10-1)
   plain training was best (44.3 % against 40.7 under λ_c and 35.5 with TrivialAugment), so there was nothing to
   regularise; with 500 images and 40 epochs (ResNet-8) λ_c was (42.1 % against 38.5 and 36.0).
2. `pilot` trains at three levels a dataset and is measured on held-out training images; the best level is the epsilon
   of table-1 and table-2. It was committed before any run of these experiments started. Ablations have a fixed level,
   as in the paper. Two runs of five epochs, made to see how long an epoch takes, had printed test accuracies of
   CIFAR-10 before (25 and 33 %); nothing was chosen by them.
3. Every method has the same images, epochs, batches and learning rate. A seed decides the images, the first weights
   and every draw.
4. Test images are measured once, when a run is done. What was changed after a look: table-synthetic went from 5 epochs
   to 3 for time, after two of its runs at 5; the rule of table-epsilon-rule at this scale was fixed after the gammas of
   table-synthetic, before its own runs.
"""


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def pictures(results: Path) -> dict[str, str]:
    """Return the figures of the page, as SVG by the names of their files."""
    found = {}
    for experiment in plans.experiments().values():
        rows = outcome.read(outcome.path_of(results, experiment.name, "small"))
        for figure in figures(Outcome(experiment, "small", rows)) if rows else ():
            found[f"{figure.key}.svg"] = svg.draw(figure, picture_style()) + "\n"
    return found


def page(results: Path) -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(_section(experiment, results) for experiment in plans.experiments().values())])


def _section(experiment: Experiment, results: Path) -> str:
    published = PUBLISHED[experiment.name]
    lines = [f"## {experiment.name}: {escaped(experiment.title)}", ""]
    said = f"Paper, {escaped(published.place)}: {escaped(experiment.found)}."
    if published.spread:
        said += f" Its ±: {escaped(published.spread)}."
    if published.note:
        said += f" Note: {escaped(published.note)}."
    lines += [said, ""]
    for scale in SCALES[::-1]:
        lines += _scale(experiment, scale, results)
    return "\n".join(lines)


def _behind(verdict: Verdict) -> str:
    numbers = escaped(verdict.said().removeprefix(verdict.word))
    return f" {numbers}" if numbers else ""


def _scale(experiment: Experiment, scale: Scale, results: Path) -> Iterator[str]:
    plan, command = experiment.plans[scale], f"`invaug reproduce {experiment.name} --scale {scale}`"
    rows = outcome.read(outcome.path_of(results, experiment.name, scale))
    if not rows:
        why = f"cannot run yet: {escaped(plan.lacks)}" if plan.lacks else f"to be run: {command}"
        yield from (f"{scale.capitalize()} scale: {why}.", "")
        return
    found = Outcome(experiment, scale, rows)
    yield from (f"{scale.capitalize()} scale, {command}:", "")
    yield to_markdown(found.table())
    for figure in figures(found):
        yield from (f"![{escaped(figure.title)}](reproduce/{figure.key}.svg)", "")
    yield from (f"- {escaped(note)}" for note in plan.notes)
    yield from (f"- {escaped(cell.label)} cannot run yet: {escaped(cell.lacks)}" for cell in plan.cells if cell.lacks)
    yield from (f"- {escaped(verdict.text)}: **{verdict.word}**{_behind(verdict)}" for verdict in found.verdicts())
    failures = [row for row in rows if row.status == outcome.FAILED]
    yield from (
        f"- failed: {escaped(row.cell)}, seed {row.seed}: {escaped(str(row.more.get('reason')))}" for row in failures
    )
    yield ""
