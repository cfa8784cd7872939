"""docs/compare.md: the protocol's experiments, each with its question, table, figure, verdict and counter-arguments.

Everything is computed from the rows in `results/`; the words around it are in `proof.md` and `proof.toml`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from invaug.lab.report.document import Figure, Table
from invaug.lab.report.drawing import svg
from invaug.lab.report.tables import to_markdown
from invaug.lab.reproduce import proof_choices, proof_sections, rows
from invaug.lab.reproduce.cells import Experiment
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.proof import TABLE, experiments
from invaug.lab.reproduce.proof_sections import Part
from invaug.lab.terminal import count

HEAD = Path(__file__).with_name("proof.md").read_text(encoding="utf-8")

SECTIONS: Mapping[str, Callable[[Outcome], Iterator[Part]]] = {
    "rates": proof_choices.rates,
    "alpha": proof_choices.alpha,
    "cap": proof_choices.cap,
    "compare": proof_sections.compare,
    "safety": proof_sections.safety,
    "length": proof_choices.costs,
    "width": proof_choices.costs,
    "auto": proof_sections.auto,
    "lambda-c": proof_sections.lambda_c,
}


def outcomes(results: Path) -> dict[str, Outcome]:
    """Return what there is of every experiment."""
    return {
        each.name: Outcome(each, "small", rows.read(rows.path_of(results, each.name, "small")))
        for each in experiments()
    }


def write_page(results: Path) -> str:
    """Return the whole page."""
    found = outcomes(results)
    sections = ["\n".join(_section(each)) for each in found.values()]
    return "\n".join([HEAD.replace("HEADLINE", "\n".join(headline(found))), *sections])


def draw_figures(results: Path) -> dict[str, str]:
    """Return the figures of the page, as SVG by the names of their files."""
    parts = [part for found in outcomes(results).values() if found.rows for part in SECTIONS[_kind(found)](found)]
    return {f"{part.key}.svg": svg.picture(part) + "\n" for part in parts if isinstance(part, Figure)}


def _kind(found: Outcome) -> str:
    name = found.experiment.name
    return "rates" if name.endswith("-rates") else "compare" if name.startswith("compare") else name


def _section(found: Outcome) -> Iterator[str]:
    experiment: Experiment = found.experiment
    entry, counts = TABLE[experiment.name], found.total()
    yield from (f"## {experiment.name}", "", f"**{experiment.found}** {entry['title']}.", "")
    done = f"{counts.done} of {counts.done + counts.failed + counts.left_out} runs are done"
    failed = f", {counts.failed} failed" if counts.failed else ""
    yield from (f"`invaug reproduce {experiment.name}`: {done}{failed}, {count(found.seeds, 'seed')} planned.", "")
    for part in SECTIONS[_kind(found)](found) if found.rows else ():
        if isinstance(part, Table):
            yield from (f"{part.title}:", "", to_markdown(part))
        else:
            text = f"![{part.title}](compare/{part.key}.svg)" if isinstance(part, Figure) else part
            yield from (text, "")
    yield from (f"- {note}" for note in (*found.plan.notes, *_processors(found)))
    against = entry.get("against", ())
    if against:
        yield from ("", "What speaks against it:", "", *(f"- {each}" for each in against))
    yield ""


def _processors(found: Outcome) -> Iterator[str]:
    """Return which processors the rows come from, if there are several: they round differently."""
    counts = Counter(row.more["cpu"] for row in found.rows if "cpu" in row.more)
    if len(counts) > 1:
        yield f"rows by processor: {'; '.join(f'{name}: {count}' for name, count in counts.most_common())}"


def headline(found: Mapping[str, Outcome]) -> Iterator[str]:
    """Return what the experiments that choose nothing say, in a sentence each."""
    for name in ("compare", "safety", "auto", "lambda-c", "compare-frozen"):
        verdicts = (
            [part for part in SECTIONS[_kind(found[name])](found[name]) if isinstance(part, str)]
            if found[name].rows
            else []
        )
        missing = f"not {'finished' if found[name].rows else 'run'} yet, so nothing is claimed."
        yield f"- *{name}*: {verdicts[0] if verdicts else missing}"
