"""docs/reproduce.md: every table and figure next to the paper's, from the rows in `results/` alone."""

from collections.abc import Iterator
from pathlib import Path

from invaug.lab.report.drawing import svg
from invaug.lab.report.tables import MARKDOWN, to_markdown
from invaug.lab.reproduce import rows
from invaug.lab.reproduce.cells import SCALES, Experiment, Scale
from invaug.lab.reproduce.experiments import all_experiments
from invaug.lab.reproduce.figures import figures
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.paper import PUBLISHED

COMMAND = "python -m invaug.lab.reproduce -o docs/reproduce.md"
HEAD = f"""# The paper, reproduced

Generated from `results/` by `{COMMAND}`; do not edit.

```console
$ invaug reproduce --list                      # every experiment: its cost, what is done, what the paper found
$ invaug reproduce table-1                     # small scale: subsets of the data, on two cores
$ invaug reproduce table-1 --scale full        # as published, with the presets paper and authors-code
$ invaug reproduce table-1 --dry-run           # print every config and the estimated cost; train nothing
```

Finished runs are skipped and interrupted ones resume; `--jobs N` trains several at a time. Our numbers are means over
seeds ± half of the 95 % confidence interval (Student's t); what the paper's ± means is stated with each table. Runs
that failed or were left out are counted. The small scale is a different task from the paper's: compare the order of
the methods, not the numbers.

A claim about two cells is *shown* when the confidence interval of their difference, paired by seed, excludes zero. Any
other claim is *shown* when it holds for the means and for at least half of the individual seeds.

## Protocol of the small scale

1. The task was chosen on held-out training images of CIFAR-10, with one seed. With 1,000 images and 20 epochs
   (WRN-10-1) plain training was best (44.3 %, against 40.7 % under λ_c and 35.5 % with TrivialAugment), so there was
   nothing to regularise. With 500 images and 40 epochs (ResNet-8) λ_c was best (42.1 %, against 38.5 and 36.0 %).
2. `pilot` trains at three levels per dataset and is measured on held-out training images; the best level is the epsilon
   of table-1 and table-2. It was committed before any run of these experiments started. Ablations have a fixed level,
   as in the paper. Before that, two runs of five epochs, made to time an epoch, had printed test accuracies on CIFAR-10
   (25 and 33 %); nothing was chosen by them.
3. Every method has the same images, epochs, batches and learning rate. The seed determines the images, the initial
   weights and every draw.
4. Test images are measured once, when a run has finished. Two things were changed after seeing results:
   table-synthetic went from 5 epochs to 3 to save time, after two of its runs at 5; and the rule of table-epsilon-rule
   at this scale was fixed after the gammas of table-synthetic were known, before its own runs.
"""


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def draw_figures(results: Path) -> dict[str, str]:
    """Return the figures of the page, as SVG by the names of their files."""
    outcomes = [_outcome(experiment, "small", results) for experiment in all_experiments().values()]
    drawn = [figure for found in outcomes for figure in figures(found)]
    return {f"{figure.key}.svg": svg.picture(figure) + "\n" for figure in drawn}


def write_page(results: Path) -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *("\n".join(_section(each, results)) for each in all_experiments().values())])


def _outcome(experiment: Experiment, scale: Scale, results: Path) -> Outcome:
    return Outcome(experiment, scale, rows.read(rows.path_of(results, experiment.name, scale)))


def _section(experiment: Experiment, results: Path) -> Iterator[str]:
    published = PUBLISHED[experiment.name]
    yield from (f"## {experiment.name}: {escaped(experiment.title)}", "")
    spread = f" Its ±: {escaped(published.spread)}." if published.spread else ""
    note = f" Note: {escaped(published.note)}." if published.note else ""
    yield f"Paper, {escaped(published.place)}: {escaped(experiment.found)}.{spread}{note}"
    yield ""
    for scale in SCALES[::-1]:
        yield from _scale(_outcome(experiment, scale, results))


def _scale(found: Outcome) -> Iterator[str]:
    scale, command = found.scale.capitalize(), f"`invaug reproduce {found.experiment.name} --scale {found.scale}`"
    if not found.rows:
        lacks = found.plan.lacks
        yield f"{scale} scale: {f'cannot run yet: {escaped(lacks)}' if lacks else f'not run yet: {command}'}."
    else:
        yield from (f"{scale} scale, {command}:", "", to_markdown(found.table()))
        for figure in figures(found):
            yield from (f"![{escaped(figure.title)}](reproduce/{figure.key}.svg)", "")
        yield from (f"- {escaped(note)}" for note in found.plan.notes)
        for verdict in found.verdicts():
            yield f"- {escaped(verdict.claim)}: **{verdict.conclusion}**{verdict.evidence}"
        for row in found.rows:
            if row.status == rows.FAILED:
                yield f"- failed: {escaped(row.cell)}, seed {row.seed}: {escaped(str(row.more.get('reason')))}"
    yield ""
