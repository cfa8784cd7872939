"""certificate.json as sections of a document, for page and terminal: how invariant the model is, with intervals."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from invaug.lab.report import values
from invaug.lab.report.document import Bars, Document, Figure, Part, Section, Table
from invaug.lab.report.runs import Run
from invaug.lab.report.sections.evaluation import SHARES, level_map, worst_classes
from invaug.lab.report.values import MAX_OPS, Found, decimal, ends_of, list_in, number, percent, short, table_in, whole

MOST_NOTES = 8  # of a certificate
MOST_VERDICT = 500  # characters of the sentences of a verdict
ANSWERS = {"holds": "yes", "does not hold": "no", "cannot tell": "cannot tell"}
LAWS = {
    "clean": "unchanged",
    "uniform": "random draws",
    "trained": "as trained",
    "lambda_c": "λ_c",
    "worst": "the worst",
}


def sections(run: Run, ending: str, name: str) -> list[Section]:
    """Return what `invaug certify` found, if it did; see `assemble` for the ending and the name."""
    found = table_in(run.certificate)
    return list(describe_certificate(found, ending, name)) if constraints_in(found) else []


def document(certificate: Found, title: str) -> Document:
    """Return a certificate as `invaug certify` prints it."""
    return Document(title, sections=tuple(describe_certificate(certificate)))


def constraints_in(certificate: Found) -> Sequence[Found]:
    """Return the results for each constraint; none for anything that is not a certificate."""
    return values.rows_in(certificate.get("constraints"))[: values.MAX_CONSTRAINTS]


def describe_certificate(certificate: Found, ending: str = "", name: str = "") -> Iterator[Section]:
    """Return a section per constraint, and one on what the intervals mean.

    Args:
        ending: Tells the files of figures and tables from those of other runs.
        name: Tells the headings from those of other runs, after a colon.
    """
    found = constraints_in(certificate)
    for i, entry in enumerate(found, 1):
        own = f"{ending}-{i}" if len(found) > 1 else ending
        depth, alone, what = whole(entry.get("depth")), table_in(entry.get("alone")), short(entry.get("name", "?"), 40)
        title, deep = f"How invariant the model is, with confidence{name}", f", {depth} operations in sequence"
        yield Section(f"{title} ({what}{deep * (depth > 1)})", _parts(entry, certificate, own, has_rest=not alone))
        if alone:
            yield Section(f"{title} ({what}, each operation alone)", _parts(alone, certificate, f"{own}-alone"))
    yield Section(f"Scope of the certificate{name}", tuple(_scope(certificate)))


def _parts(entry: Found, certificate: Found, ending: str, *, has_rest: bool = True) -> tuple[Part, ...]:
    """Return sentences and tables; operations and levels only if no exact ones for each operation alone follow."""
    figures = (_operations(entry, ending), _levels(entry, ending)) if has_rest else ()
    tables = (_laws(entry, ending), *figures, _classes(entry, ending))
    return (*sentences(entry, certificate), *(part for part in tables if part))


def _scope(certificate: Found) -> Iterator[str]:
    n, of, data = whole(certificate.get("images")), whole(certificate.get("of")), short(certificate.get("data"))
    how = f"{short(certificate.get('confidence'), 8)} confidence each, {short(certificate.get('loss_function'))}"
    yield f"{n:,} of {of:,} held-out images of {data}; intervals of {how}."
    yield from (f"Note: {short(note, 200)}." for note in list_in(certificate.get("notes"), MOST_NOTES))
    theorems = islice(table_in(certificate.get("theorems")).items(), MOST_NOTES)
    yield from (f"{short(name, 20).capitalize()}: {short(text, 200)}." for name, text in theorems)


def sentences(found: Found, certificate: Found) -> list[str]:
    """Return what a certificate says about one constraint: verdict, shares, invariance risk, and their limits."""
    said = table_in(found.get("verdict"))
    verdict = [short(text, MOST_VERDICT) for text in (said.get("text", ""), *list_in(said.get("context"), MOST_NOTES))]
    share = _nearly_invariant(found) if found.get("kind") == "sampled" else _invariant(found)
    worse = _loss_with_interval(table_in(found.get("invariance_risk")))
    risk = f"How far the worst loss of an image is above its unchanged one, on average (R_inv): {worse}."
    return [text for text in (*verdict, share, _blinding(found), risk, _clipped(found, certificate)) if text]


def _invariant(found: Found) -> str:
    share, n = table_in(found.get("all")), whole(found.get("transformations"))
    which = f"all {n:,} transformations" if n > 1 else "the one transformation"
    return f"{_count(share)} are right as they are and under {which}; {_interval(share)}."


def _nearly_invariant(found: Found) -> str:
    share = table_in(found.get("nearly"))
    yes, no, n = (whole(share.get(key)) for key in ("right", "wrong", "images"))
    required = 1 - (number(share.get("tolerance")) or 0.0)
    return (
        f"{_count(share)} are shown to be right under at least {required:.0%} of the draws, {no:,} are shown "
        f"not to be, {n - yes - no:,} remain undecided; {_interval(share)}."
    )


def _count(share: Found) -> str:
    return f"{whole(share.get('right')):,} of {whole(share.get('images')):,} images ({percent(share.get('share'))})"


def _interval(share: Found) -> str:
    low, high = ends_of(share.get("interval"))
    return f"of all images like these, {percent(low)} to {percent(high)}"


def _blinding(found: Found) -> str:
    blinding, share = table_in(found.get("blinding")), table_in(found.get("seeing"))
    count, names = whole(blinding.get("count")), [short(name, 30) for name in list_in(blinding.get("names"), 6)]
    if not count:
        return ""
    more = ", …" if count > len(names) else ""
    rest = f"without them {percent(share.get('share'))}, {_interval(share)}" if share else "no others are in the set"
    return f"{count} of them leave nothing to see of any image of this size ({', '.join(names)}{more}): {rest}."


def _loss_with_interval(law: Found) -> str:
    low, high = ends_of(law.get("loss_interval"))
    if low is None:
        return decimal(law.get("loss"))
    ends = f"at least {low:.3f}" if high is None else f"interval {low:.3f} to {high:.3f}"
    return f"{decimal(law.get('loss'))}, {ends}"


def _clipped(found: Found, certificate: Found) -> str:
    n, cap = max(whole(table_in(found.get(key)).get("cut")) for key in LAWS), number(certificate.get("cap"))
    return f"Intervals are of losses clipped at {cap:.3g}, which up to {n:,} images exceed." if n and cap else ""


def _laws(entry: Found, ending: str) -> Table | None:
    """Return accuracy and loss under each law, and whether the loss is within the level, where there is one."""
    laws = values.tables_in({name: entry.get(key) for key, name in LAWS.items()})
    keys = ("accuracy", "accuracy_interval", "loss", "loss_interval")
    answers = [ANSWERS.get(str(row.get("verdict"))) for row in laws.values()]
    shown = [(law, *values.cells_in(row, *keys)) for law, row in laws.items()]
    columns: tuple[str, ...] = ("under", "accuracy", "from", "to", "loss", "loss from", "loss to")
    if any(answers):
        columns = (*columns, "loss ≤ ε")
        shown = [(*row, answer or "–") for row, answer in zip(shown, answers, strict=True)]
    title = "Accuracy and loss, with intervals"
    return Table(title, columns, tuple(shown), f"certificate{ending}-1", SHARES) if shown else None


def _operations(entry: Found, ending: str) -> Figure | None:
    """Return the share of images that each operation leaves right as bars, the lowest first."""
    title, count, at, width = "Accuracy under draws", "draws", 2, 3
    if entry.get("kind") == "exact":
        title, count, at, width = "Images right under every transformation of an operation", "transformations", 3, 7
    columns = ("operation", count, "accuracy", "right under all", "from", "to", "R_inv")[:width]
    keys = (count, "accuracy", "share", "interval", "invariance_risk")
    operations = islice(values.tables_in(entry.get("operations")).items(), MAX_OPS)
    rows: list[Any] = [(name, *values.cells_in(row, *keys))[:width] for name, row in operations]
    ranked = sorted((row for row in rows if row[at] is not None), key=lambda row: row[at])
    if not ranked:
        return None
    whiskers = tuple(None if None in row[4:6] else row[4:6] for row in ranked) if width > 6 else ()
    names, shares = tuple(row[0] for row in ranked), tuple(row[at] for row in ranked)
    drawing = Bars(columns[at], names, ((columns[at], shares),), percent=True, whiskers=whiskers)
    reading = f"Lowest: {names[0]}, {shares[0]:.1%}; highest: {names[-1]}, {shares[-1]:.1%}."
    return Figure(f"certified{ending}", title, drawing, reading, Table(title, columns, tuple(ranked), percent=SHARES))


def _levels(entry: Found, ending: str) -> Figure | None:
    if entry.get("kind") == "exact":
        return level_map(entry, f"certified-levels{ending}", "Accuracy at each level, every image checked")
    return level_map(entry, f"certified-levels{ending}", "Accuracy over the range, from draws", "step")


def _classes(entry: Found, ending: str) -> Table | None:
    sampled = {"clean accuracy": "clean", "accuracy": "uniform", "right under nearly all": "share"}
    exact = {"clean accuracy": "clean", "right under all": "share"}
    shown = sampled if entry.get("kind") == "sampled" else exact
    columns, keys = ("class", *shown, "from", "to", "images"), (*shown.values(), "interval", "images")
    return worst_classes(entry, columns, keys, 2, f"certificate{ending}-2")
