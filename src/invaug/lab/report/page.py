"""The page: one HTML text from runs, with everything in it, every name escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import invaug
from invaug.lab.report.drawing import style, svg, svg_maps
from invaug.lab.report.drawing.figures import Figure, Lines
from invaug.lab.report.groups import Group, grouped, is_held_out, test_accuracy
from invaug.lab.report.read import Run
from invaug.lab.report.sections import certificate, compare, constraints, dynamics, evaluation, gallery, kept, words
from invaug.lab.report.sections.dynamics import Cast
from invaug.lab.report.tables import Cell, Table, shown, to_html

DRAWN = svg_maps.ACROSS  # importing it is what teaches svg the drawings of that module
SETTINGS = (
    "preset", "method", "model", "set", "depth", "families", "ranges", "share", "epsilon", "n_steps", "views",
    "n_views", "n_levels", "dual_lr", "gamma_init", "scoring", "cutout", "epochs",
    "batch_size", "optimizer", "lr", "weight_decay", "schedule",
    "fraction", "per_class", "subset", "val_fraction", "val_fold", "seed", "precision",
)  # fmt: skip
"""Settings a reader wants; those that name places on a disk are not among them."""


ABOUT = (
    "Made from the record alone. γ is the weight of a constraint: it rises while the loss on transformed images is "
    "above its level ε, and falls while it is below."
)
PRICE = ("gamma", "constraint-loss", "prices")  # figures of the first screen
MOST_EVALUATED, MOST_GALLERIES = 6, 3  # runs whose evaluation, and whose pictures, are shown


@dataclass(frozen=True)
class Content:
    """Everything a page shows, before it is HTML; what `--figures` and `--tables` write."""

    groups: tuple[Group, ...]
    title: str
    verdict: str
    notes: tuple[str, ...]
    sections: tuple[tuple[str, tuple[Figure, ...]], ...]
    tables: tuple[tuple[str, Table], ...]
    tiles: tuple[tuple[str, str, str], ...] = ()
    """Headline numbers: name, value, what stands behind it; those of the runs where none are given."""
    lead: tuple[str, ...] = ()
    """Sentences that stand after the figures of the first section."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order given."""
        return Cast.of(self.groups).runs

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, in the order of the page."""
        return tuple(figure for _, figures in self.sections for figure in figures)


def content(runs: Sequence[Run]) -> Content:
    """Return what there is to show of some runs."""
    groups = grouped(runs)
    trained = [group for group in groups if any(run.epochs for run in group.runs)]
    over_time = dynamics.figures(Cast.of(groups)) if trained else []
    if len(runs) == 1 and trained and (prices := constraints.prices(runs[0])):
        over_time.append(prices)
    evaluated_runs = [run for run in runs if run.evaluation][:MOST_EVALUATED]
    endings = [f"-{i}" if len(runs) > 1 else "" for i in range(1, len(evaluated_runs) + 1)]
    measured = [f for run, end in zip(evaluated_runs, endings, strict=True) for f in evaluation.figures(run, end)]
    sections = {
        "γ, and the loss it answers to": [figure for figure in over_time if figure.key.startswith(PRICE)],
        "Experiments compared": compare.figures(trained),
        "Over the epochs": [figure for figure in over_time if not figure.key.startswith(PRICE)],
        "What was kept": kept.figures(trained),
        "What the model can and cannot do": measured,
        "How invariant the model is, with confidence": certificate.figures_of(runs),
    }
    return Content(
        groups=tuple(groups),
        title=words.headline(runs[0]) if len(runs) == 1 else words.headline_of(groups),
        verdict=words.verdict(runs[0]) if len(runs) == 1 else words.verdict_of(groups),
        notes=tuple(_notes(runs, trained)),
        sections=tuple((name, tuple(figures)) for name, figures in sections.items() if figures),
        tables=tuple(_tables(runs, trained, evaluated_runs, endings)),
    )


def _notes(runs: Sequence[Run], trained: Sequence[Group]) -> Iterable[str]:
    for run in runs:
        yield from (f"{run.name}: {note}" if len(runs) > 1 else note for note in run.notes)
    if held_out := sum(is_held_out(run) for run in runs if run.epochs):
        said = "their test accuracy is that of held-out training images"
        yield f"{held_out} of {len(runs)} runs read no test image: {said}"
    datasets = sorted({run.dataset for run in runs})
    if len(datasets) > 1:
        yield f"runs of different datasets ({', '.join(datasets[:5])}): no figure compares their errors"
    if hidden := kept.left_out(trained):
        yield f"experiments without figures of what was kept: {hidden}; report them alone to see these"
    if (hidden := sum(run.evaluation is not None for run in runs) - MOST_EVALUATED) > 0:
        yield f"runs with an evaluation that is not shown: {hidden}; report them alone to see it"
    if (hidden := len([run for run in runs if gallery.sections(run)]) - MOST_GALLERIES) > 0:
        yield f"pictures of the first {MOST_GALLERIES} evaluated runs are shown; report the other {hidden} alone"
    if (hidden := len(trained) - words.MOST_TILES) > 0 and len(runs) > 1:
        yield f"the {words.MOST_TILES} best experiments stand at the top; the table has the other {hidden} too"
    if dynamics.is_crowded(runs):
        yield "runs of many constraints together: losses, entropy and acceptance by constraint are on a run's own page"


def _tables(
    runs: Sequence[Run], groups: Sequence[Group], evaluated_runs: Sequence[Run], endings: Sequence[str]
) -> Iterable[tuple[str, Table]]:
    if len(runs) > 1:
        yield "runs", _runs(runs)
    elif runs[0].n_constraints > 1:
        yield "constraints", constraints.table(runs[0])
    if len(groups) > 1 or any(len(group.runs) > 1 for group in groups):
        yield "experiments", compare.experiments(groups)
    same_data = len({run.dataset for run in runs}) == 1
    if len(groups) > 1 and same_data and (found := compare.differences(groups)):
        yield "differences", found
    for run, ending in zip(evaluated_runs, endings, strict=True):
        for i, table in enumerate(evaluation.tables(run), 1):
            name = f"{run.name}: {table.title}" if ending else table.title
            yield f"evaluation{ending}-{i}", Table(name, table.columns, table.rows)
    yield from certificate.tables_of(runs)
    yield "settings", _settings(runs)


def _runs(runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        gammas = [gamma for gamma in run.last.gamma if gamma is not None] if run.epochs else []
        said: Cell = gammas[0] if len(gammas) == 1 else ", ".join(f"{gamma:.3g}" for gamma in gammas) or None
        ends: list[Cell] = [test_accuracy(run) if run.epochs else None, said]
        rows.append((run.name, run.method, run.text("preset"), run.text("seed"), len(run.epochs), *ends,
                     words.verdict(run)))  # fmt: skip
    columns = ("run", "method", "preset", "seed", "epochs", "test accuracy", "γ", "verdict")
    return Table("Runs, after their last epoch", columns, tuple(rows))


def _settings(runs: Sequence[Run]) -> Table:
    keys = [key for key in SETTINGS if any(key in run.settings for run in runs)]
    rows = [(key, *(run.text(key) if key in run.settings else None for run in runs)) for key in keys]
    names = dict.fromkeys(name for run in runs for name in run.versions)
    rows += [(f"version of {name}", *(run.versions.get(name) for run in runs)) for name in names]
    return Table("Settings and versions", ("setting", *(run.name for run in runs)), tuple(rows))


def html(found: Content, live: bool = False) -> str:
    """Return the page; a live one asks its server for news."""
    watching = ' data-watch="1"' if live else ""
    main = "".join([_switches(found), *_sections(found), _table_section(found)])
    return (
        f'<!doctype html><html lang="en"{watching}><head>{_head(found.title, live)}</head><body>'
        f'<a class="skip" href="#figures">skip to the figures</a>{_header(found)}<main>{main}</main>'
        f"<footer>invaug {escape(invaug.__version__)}. {ABOUT}</footer>"
        f"<script>{style.text_of('page.js')}</script></body></html>"
    )


def _head(title: str, live: bool) -> str:
    sheet = style.page_style()
    policy = style.policy(sheet, style.text_of("page.js"), live)
    return (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{sheet}</style>"
    )


def _header(found: Content) -> str:
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in found.notes)
    tiles = found.tiles or (words.tiles(found.runs[0]) if len(found.runs) == 1 else words.tiles_of(found.groups))
    numbers = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(behind)}</dd></div>"
        for name, value, behind in tiles
    )
    shown_tiles = f'<dl class="tiles">{numbers}</dl>' if numbers else ""
    verdict = f'<p class="verdict">{escape(found.verdict)}</p>'
    return f"<header><h1>{escape(found.title)}</h1>{verdict}{notes}{shown_tiles}</header>"


def _switches(found: Content) -> str:
    """Return one box a run, which shows and hides its lines; none for a run alone."""
    cast = Cast.of(found.groups)
    if len(cast.runs) < 2:
        return ""
    boxes = "".join(
        f'<label><input type="checkbox" checked data-toggle="{i}"><svg viewBox="0 0 16 10" aria-hidden="true">'
        f'<rect class="f{colour % svg.N_COLOURS}" width="16" height="10" rx="2"/></svg>{escape(run.name)}</label>'
        for i, (run, colour) in enumerate(zip(cast.runs, cast.colours, strict=True))
    )
    return f"<fieldset><legend>runs shown</legend>{boxes}</fieldset>"


def _lead(found: Content) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in found.lead)
    return f'<ul class="reading">{items}</ul>' if items else ""


def _sections(found: Content) -> Iterable[str]:
    yield '<div id="figures"></div>'
    for i, (name, figures) in enumerate(found.sections):
        cards = "".join(map(_card, figures))
        lead = "" if i else _lead(found)
        yield f'<section><h2>{escape(name)}</h2><div class="cards">{cards}</div>{lead}</section>'
    for run in [run for run in found.runs if gallery.sections(run)][:MOST_GALLERIES]:
        where = f": {run.name}" if len(found.runs) > 1 else ""
        for title, reading, strips in gallery.sections(run):
            yield f'<section><h2>{escape(title + where)}</h2><p class="reading">{escape(reading)}</p>{strips}</section>'


def _card(figure: Figure) -> str:
    numbers = f'<div class="scroll" tabindex="0">{_numbers(figure)}</div>'
    return (
        f'<figure class="card" id="{figure.key}"><h3>{escape(figure.title)}</h3>{svg.draw(figure)}'
        f'<figcaption class="reading">{escape(figure.reading)}</figcaption><p class="readout" aria-live="polite"></p>'
        f"<details><summary>the numbers</summary>{numbers}</details></figure>"
    )


def _numbers(figure: Figure) -> str:
    """Return the figure's table; columns of a run say which, so that the script can leave them out."""
    if not isinstance(figure.drawing, Lines):
        return to_html(figure.table)
    heads = [(figure.table.columns[0], None), *((series.label, series.run) for series in figure.drawing.series)]
    head = "".join(
        f'<th scope="col"{"" if run is None else f" data-of={chr(34)}{run}{chr(34)}"}>{escape(name)}</th>'
        for name, run in heads
    )
    body = "".join(
        f"<tr>{''.join(f'<td class=n>{shown(cell)}</td>' for cell in row)}</tr>" for row in figure.table.rows
    )
    caption = f"<caption>{escape(figure.table.title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _table_section(found: Content) -> str:
    parts = "".join(f'<div class="scroll" tabindex="0">{to_html(table)}</div>' for _, table in found.tables)
    return f"<section><h2>Tables</h2>{parts}</section>"
