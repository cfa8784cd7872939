"""What there is to show of some runs, as one document."""

from collections.abc import Callable, Iterator, Sequence

from invaug.lab.config import methods
from invaug.lab.report.document import Answer, Document, Part, Section, Table
from invaug.lab.report.groups import OF_THE_MACHINE, Group, group_runs, members
from invaug.lab.report.measure import measure_of
from invaug.lab.report.runs import Run
from invaug.lab.report.sections import (
    advice,
    certificate,
    compare,
    constraints,
    dynamics,
    evaluation,
    gallery,
    kept,
    weakness,
    winner,
    words,
)

MOST_SETTINGS = 80  # rows of their table; a config has fewer
FIRST_SCREEN = ("gamma", "constraint-loss")  # figures of the first section
BY_RUN: tuple[tuple[Callable[[Run, str, str], list[Section]], int, str], ...] = (
    (evaluation.sections, 6, "runs with an evaluation that is not shown: {}; report them alone to see it"),
    (certificate.sections, 6, "runs with a certificate that is not shown: {}; report them alone to see it"),
    (gallery.sections, 3, "pictures of the first 3 evaluated runs are shown; report the other {} alone"),
)
"""Sections of one run, of how many runs they are shown, and what is noted where there are more.

They are told an ending for the files of figures and tables, and a name for headings, both empty for a single run.
"""


def document_of(runs: Sequence[Run], next_step: Answer | None = None) -> Document:
    """Return what there is to show of some runs.

    Args:
        next_step: What to do next, where whoever asks for the page knows better than the runs.
    """
    groups = group_runs(runs)
    trained = [group for group in groups if any(run.epochs for run in group.runs)]
    alone = len(runs) == 1
    return Document(
        title=words.headline(runs[0]) if alone else compare.headline(groups),
        verdict=winner.verdict(groups),
        answers=tuple(_answers(groups, next_step or advice.next_step(groups))),
        notes=tuple(_notes(runs, trained)),
        tiles=tuple(words.tiles(runs[0]) if alone else compare.tiles(groups)),
        sections=tuple(section for section in _sections(runs, groups, trained) if section.parts),
        switches=() if alone else tuple((run.name, colour) for run, colour, _ in members(runs, groups)),
    )


def _answers(groups: Sequence[Group], next_step: Answer | None) -> Iterator[Answer]:
    """Return where the best experiment is weak, and what to do next."""
    every = [run for group in groups for run in group.runs]
    for best in winner.ranked(groups)[:1]:
        run = next((run for run in best.runs if run.evaluation), best.runs[0])
        if run.evaluation or not run.is_held_out:
            yield from weakness.answers(run, best.label if len(groups) > 1 else "", advice.page_of(every))
    if next_step:
        yield next_step


def _sections(runs: Sequence[Run], groups: Sequence[Group], trained: Sequence[Group]) -> Iterator[Section]:
    over_time = dynamics.figures(members(runs, groups))
    first = tuple(figure for figure in over_time if figure.key.startswith(FIRST_SCREEN))
    ended = [words.verdict(run) for run in runs if len(runs) == 1 and run.n_constraints]
    yield Section("γ and ε: how much augmentation was used", (*ended, *words.meanings(runs), *first))
    yield Section("Experiments compared", tuple(compare.figures(trained)))
    yield Section("Over the epochs", tuple(figure for figure in over_time if figure not in first))
    yield Section("Which transformations were kept", tuple(kept.figures(trained)))
    for describe, most, _ in BY_RUN:
        shown = [run for run in runs if describe(run, "", "")][:most]
        for i, run in enumerate(shown, 1):
            yield from describe(run, f"-{i}", f": {run.name}") if len(runs) > 1 else describe(run, "", "")
    yield Section("Tables", tuple(_tables(runs, trained)))


def _notes(runs: Sequence[Run], groups: Sequence[Group]) -> Iterator[str]:
    for run in runs:
        yield from (f"{run.name}: {note}" if len(runs) > 1 else note for note in run.notes)
    if held_out := sum(run.is_held_out for run in runs):
        yield f"{held_out} of {len(runs)} runs read no test image: their accuracy is on held-out training images"
    datasets = sorted({run.dataset for run in runs})
    if len(datasets) > 1:
        yield f"runs of different datasets ({', '.join(datasets[:5])}): no figure compares their errors"
    if hidden := kept.left_out(groups):
        yield f"what was kept under {hidden} further constraints is not shown; report these runs alone to see it"
    for describe, most, note in BY_RUN:
        if (hidden := sum(bool(describe(run, "", "")) for run in runs) - most) > 0:
            yield note.format(hidden)
    if dynamics.is_crowded(runs):
        yield "several runs of several constraints: loss, entropy and acceptance by constraint are on a run's own page"


def _tables(runs: Sequence[Run], groups: Sequence[Group]) -> Iterator[Part]:
    if len(runs) > 1:
        yield _runs(runs)
    elif runs[0].n_constraints > 1:
        yield constraints.table(runs[0])
    if len(groups) > 1 or any(len(group.runs) > 1 for group in groups):
        yield compare.experiments(groups)
    if len(groups) > 1 and compare.share_data(groups):
        yield from compare.differences(groups)
    yield _settings(runs)


def _runs(runs: Sequence[Run]) -> Table:
    rows, measure = [], measure_of(runs)
    for run in runs:
        gammas = ", ".join(f"{gamma:.3g}" for _, gamma in constraints.by_gamma(constraints.outcomes(run))) or None
        settings = (run.label, run.text("preset"), run.text(measure.key))
        rows.append((run.name, *settings, len(run.epochs), run.test_accuracy, gammas, words.verdict(run)))
    columns = ("run", "method", "preset", measure.repeat, "epochs", measure.accuracy, "γ", "constraints")
    return Table("Runs, after their last epoch", columns, tuple(rows), "runs", (measure.accuracy,))


def _settings(runs: Sequence[Run]) -> Table:
    """Return the settings a run's method uses but those of the machine, which are the ones that name places."""
    used = [{key for key in run.settings if methods.is_used(run.method, key)} for run in runs]
    known = dict.fromkeys(key for run, own in zip(runs, used, strict=True) for key in run.settings if key in own)
    keys = [key for key in known if key not in (*OF_THE_MACHINE, "data")][:MOST_SETTINGS]
    rows = [
        (key, *(run.text(key) if key in own else None for run, own in zip(runs, used, strict=True))) for key in keys
    ]
    names = dict.fromkeys(name for run in runs for name in run.versions)
    rows += [(f"version of {name}", *(run.versions.get(name) for run in runs)) for name in names]
    return Table("Settings and versions", ("setting", *(run.name for run in runs)), tuple(rows), "settings")
