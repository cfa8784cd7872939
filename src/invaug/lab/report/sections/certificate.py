"""What certificate.json adds: how invariant the model is, in sentences with intervals; operations, levels, classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from invaug.lab.report.document import Section
from invaug.lab.report.drawing.figures import Bars, Figure, Heat
from invaug.lab.report.runs import Run
from invaug.lab.report.tables import Cell, Table
from invaug.lab.report.values import MAX_CONSTRAINTS, MAX_LEVELS, MAX_OPS, number, rows_in, short, table_in, whole

N_CLASSES = 10  # classes shown, the worst first
MOST_RUNS = 6  # runs whose certificate is shown
VERDICTS = {"met": "met with confidence", "violated": "violated with confidence", "not shown": "not shown either way"}
LAWS = {"uniform": "uniform draws", "chain": "the chain as trained", "lambda_c": "λ_c", "worst": "the worst"}
Found = Mapping[str, Any]


def constraints_in(certificate: Any) -> list[Found]:
    """Return what was found for each constraint; none for anything that is not a certificate."""
    return list(rows_in(table_in(certificate).get("constraints"))[:MAX_CONSTRAINTS])


def sentences(found: Found, certificate: Found) -> list[str]:
    """Return what a certificate says of one constraint: its shares, its bound, its invariance risk, their limits."""
    said = [_nearly(found), _blinding(found)] if found.get("kind") == "sampled" else [_all(found), _blinding(found)]
    said += [_bound(found, key, certificate) for key in ("lambda_c", "chain", "uniform")]
    return [text for text in (*said, _risk(found), _cut(found, certificate)) if text]


def _all(found: Found) -> str:
    share = table_in(found.get("all"))
    count = f"{whole(share.get('right')):,} of {whole(share.get('images')):,} images ({percent(share.get('share'))})"
    n = whole(found.get("transformations"))
    which = f"all {n:,} transformations" if n > 1 else "the one transformation"
    return f"{count} are right as they are and under {which}; {_interval(share)}."


def _nearly(found: Found) -> str:
    share = table_in(found.get("nearly"))
    yes, no, n = (whole(share.get(key)) for key in ("right", "wrong", "images"))
    tolerance = number(share.get("tolerance")) or 0.0
    return (
        f"{yes:,} of {n:,} images ({percent(share.get('share'))}) are shown to be right under at least "
        f"{1 - tolerance:.0%} of the draws, {no:,} are shown not to be, {n - yes - no:,} stayed undecided; "
        f"{_interval(share)}."
    )


def _blinding(found: Found) -> str:
    blinding, share = table_in(found.get("blinding")), table_in(found.get("seeing"))
    count = whole(blinding.get("count"))
    if not count:
        return ""
    listed = blinding.get("names")
    names = [short(name, 30) for name in listed[:6]] if isinstance(listed, list) else []
    more = ", …" if count > len(names) else ""
    rest = (
        f"without them {percent(share.get('share'))}, {_interval(share)}" if share else "without them nothing is left"
    )
    return f"{count} of them leave nothing to see of any image of this size ({', '.join(names)}{more}): {rest}."


def _bound(found: Found, key: str, certificate: Found) -> str:
    law, epsilon = table_in(found.get(key)), number(found.get("epsilon", certificate.get("epsilon")))
    if not law and key == "chain":  # only a listed set, and a run that had one
        return ""
    name = f"Loss on held-out images under {LAWS[key]}"
    verdict = VERDICTS.get(str(law.get("verdict")))
    if epsilon is None or verdict is None:
        return f"{name}: {loss_text(law)}; no bound to hold it to."
    return f"{name} at most ε = {epsilon:.3g}: {verdict} ({loss_text(law)})."


def _risk(found: Found) -> str:
    return f"Invariance risk R_inv: {loss_text(table_in(found.get('invariance_risk')))}."


def _cut(found: Found, certificate: Found) -> str:
    cut = max(whole(table_in(found.get(key)).get("cut")) for key in LAWS)
    cap = number(certificate.get("cap"))
    if not cut or cap is None:
        return ""
    return f"Intervals of losses are of losses cut at {cap:.3g}, which up to {cut:,} images exceed."


def percent(value: Any) -> str:
    """Return a share in words."""
    found = number(value)
    return "–" if found is None else f"{found:.1%}"


def ends_of(value: Any) -> tuple[float | None, float | None]:
    """Return the two ends of an interval, None where one is open."""
    if not isinstance(value, list) or len(value) != 2:
        return None, None
    return number(value[0]), number(value[1])


def _interval(share: Found) -> str:
    low, high = ends_of(share.get("interval"))
    return f"of all images like these, {percent(low)} to {percent(high)}"


def loss_text(law: Found) -> str:
    """Return a loss and its interval in words."""
    loss, (low, high) = number(law.get("loss")), ends_of(law.get("loss_interval"))
    value = "not finite" if loss is None else f"{loss:.3f}"
    if low is None:
        return value
    return f"{value}, at least {low:.3f}" if high is None else f"{value}, interval {low:.3f} to {high:.3f}"


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return one section with the figures and tables of the first few runs that have a certificate."""
    made = [figure for run, ending in _certified(runs) for figure in figures(run, ending)]
    listed = [
        replace(table, title=f"{run.name}: {table.title}" if ending else table.title, key=f"certificate{ending}-{i}")
        for run, ending in _certified(runs)
        for i, table in enumerate(tables(run), 1)
    ]
    return [Section("How invariant the model is, with confidence", (*made, *listed))] if made or listed else []


def _certified(runs: Sequence[Run]) -> list[tuple[Run, str]]:
    found = [run for run in runs if constraints_in(run.certificate)][:MOST_RUNS]
    return [(run, f"-{i}" if len(runs) > 1 else "") for i, run in enumerate(found, 1)]


def figures(run: Run, ending: str = "") -> list[Figure]:
    """Return the figures of one run's certificate: a constraint's operations as bars, its levels as a map."""
    certificate = table_in(run.certificate)
    found = constraints_in(certificate)
    made = []
    for i, entry in enumerate(found, 1):
        key = f"{ending}-{i}" if len(found) > 1 else ending
        where = f"{f', {_name(entry)}' if len(found) > 1 else ''}{f': {run.name}' if ending else ''}"
        made += [_bars(entry, certificate, key, where), _heat(entry, key, where)]
    return [figure for figure in made if figure is not None]


def _name(entry: Found) -> str:
    return short(entry.get("name", "?"), 40)


def _operations(entry: Found) -> dict[str, Found]:
    pairs = list(table_in(entry.get("operations")).items())[:MAX_OPS]
    return {short(name, 30): row for name, row in pairs if isinstance(row, dict)}


def _bars(entry: Found, certificate: Found, key: str, where: str) -> Figure | None:
    operations = _operations(entry)
    exact = entry.get("kind") == "exact"
    shares = {name: number(row.get("share" if exact else "accuracy")) for name, row in operations.items()}
    ranked = sorted((name for name, value in shares.items() if value is not None), key=lambda name: shares[name] or 0.0)
    if not ranked:
        return None
    title = (
        f"Images right under every transformation of an operation{where}" if exact else f"Accuracy under draws{where}"
    )
    whiskers = [ends_of(operations[name].get("interval")) for name in ranked]
    known = tuple((low, high) if low is not None and high is not None else None for low, high in whiskers)
    values = tuple(shares[name] for name in ranked)
    label = "share of images" if exact else "accuracy"
    drawing = Bars(label, tuple(ranked), ((label, values),), percent=True, whiskers=known if exact else ())
    rows = tuple((name, value, *ends) for name, value, ends in zip(ranked, values, whiskers, strict=True))
    table = Table(title, ("operation", label, "low", "high"), rows)
    return Figure(f"certified{key}", title, drawing, " ".join(sentences(entry, certificate)), table)


def _heat(entry: Found, key: str, where: str) -> Figure | None:
    table = {name: levels for name, rows in table_in(entry.get("levels")).items() if (levels := _levels(rows))}
    table = {short(name, 30): table[name] for name in list(table)[:MAX_OPS]}
    if max(map(len, table.values()), default=0) < 2:  # nothing that has a strength
        return None
    exact = entry.get("kind") == "exact"
    highest = max(max(levels) for levels in table.values())
    cells = tuple(_every_level(levels, highest) for levels in table.values())
    name, at = min(((name, at) for name, levels in table.items() for at in levels), key=lambda p: table[p[0]][p[1]])
    reading = f"Lowest: {name} at step {at} of {highest}, accuracy {table[name][at]:.1%}."
    title = f"Accuracy at each level, every image checked{where}" if exact else f"Accuracy over the range, draws{where}"
    columns = tuple(map(str, range(highest + 1)))
    drawing = Heat("level" if exact else "step of the range", tuple(table), columns, cells, "accuracy")
    rows = tuple((name, *row) for name, row in zip(table, cells, strict=True))
    return Figure(f"certified-levels{key}", title, drawing, reading, Table(title, ("operation", *columns), rows))


def _levels(rows: Any) -> dict[int, float]:
    pairs = [(whole(row.get("level")), number(row.get("accuracy"))) for row in rows_in(rows)]
    return {level: value for level, value in pairs if value is not None and level < MAX_LEVELS}


def _every_level(levels: Mapping[int, float], highest: int) -> tuple[float | None, ...]:
    """Return the accuracy at each level; one that is not listed is the same transformation as the one before."""
    row: list[float | None] = []
    for level in range(highest + 1):
        row.append(levels.get(level, row[-1] if row else None))
    return tuple(row)


def tables(run: Run) -> list[Table]:
    """Return the tables of one run's certificate: laws with their intervals, classes."""
    found = constraints_in(run.certificate)
    made = []
    for entry in found:
        where = f", {_name(entry)}" if len(found) > 1 else ""
        made += [_laws(entry, table_in(run.certificate), where), _classes(entry, where)]
    return [table for table in made if table is not None]


def _laws(entry: Found, certificate: Found, where: str) -> Table | None:
    laws = {name: table_in(entry.get(key)) for key, name in LAWS.items()}
    rows: list[tuple[Cell, ...]] = [
        (name, number(row.get("accuracy")), *ends_of(row.get("accuracy_interval")), number(row.get("loss")),
         *ends_of(row.get("loss_interval")), VERDICTS.get(str(row.get("verdict")), "–"))
        for name, row in laws.items() if row
    ]  # fmt: skip
    share = number(certificate.get("confidence"))
    level = "" if share is None else f", intervals of {share:.4g} confidence each"
    columns = ("under", "accuracy", "from", "to", "loss", "loss from", "loss to", "loss ≤ ε")
    return Table(f"Certificate on held-out images{where}{level}", columns, tuple(rows)) if rows else None


def _classes(entry: Found, where: str) -> Table | None:
    rows: list[tuple[Any, ...]] = [
        (short(name, 40), number(row.get("clean")), number(row.get("share")), *ends_of(row.get("interval")),
         whole(row.get("images")))
        for name, row in table_in(entry.get("classes")).items() if isinstance(row, dict)
    ]  # fmt: skip
    known: Sequence[tuple[Any, ...]] = sorted((row for row in rows if row[2] is not None), key=lambda row: row[2])
    shown = tuple(known[:N_CLASSES])
    more = f" ({len(shown)} of {len(rows)})" if len(rows) > len(shown) else ""
    under = "right under all" if entry.get("kind") == "exact" else "right under nearly all"
    columns = ("class", "clean accuracy", under, "from", "to", "images")
    return Table(f"Classes, least invariant first{where}{more}", columns, shown) if shown else None
