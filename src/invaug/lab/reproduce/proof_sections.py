"""The sections of docs/compare.md, one function per kind of experiment: a verdict in words, tables, a figure."""

from collections.abc import Iterator, Mapping
from statistics import fmean

from invaug.lab.report.document import Bars, Drawing, Figure, Lines, Rule, Series, Table
from invaug.lab.report.intervals import estimate
from invaug.lab.reproduce.findings import POINTS, Difference, accuracy, choose, difference, mean_over, regrets
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.proof import EQUAL_PASSES, TABLE, label_of, variations

OURS = "invaug"
Part = Table | Figure | str


# --- compare ---------------------------------------------------------------------------------------------------------


def compare(found: Outcome) -> Iterator[Part]:
    """Accuracy by arm and dataset, and what invaug is above each arm."""
    entry = TABLE[found.experiment.name]
    yield _verdict_of_comparison(found)
    yield _accuracies(found)
    for suffix, title in (("", "equal epochs"), (f"-{EQUAL_PASSES}", "equal passes")):
        table = _differences(found, suffix, title)
        if table.rows:
            yield table
    bars = {arm: _over_tasks(found, arm) for arm in entry["arms"] if arm != OURS}
    there = {arm: made for arm, made in bars.items() if made}
    if there:
        key, title = f"{found.experiment.name}-differences", "invaug minus each arm, mean over datasets (points)"
        names, ends = tuple(there), tuple(each.of.interval for each in there.values())
        means = tuple(each.of.mean for each in there.values())
        drawing = Bars("points", names, (("invaug minus arm", means),), Rule(0.0, "equal"), whiskers=ends)
        yield _figure(key, title, drawing)


def _tasks(found: Outcome, arm: str) -> list[str]:
    entry = TABLE[found.experiment.name]
    return [task for task in entry["tasks"] if task in entry.get("only_on", {}).get(arm, [task])]


def _over_tasks(found: Outcome, arm: str, suffix: str = "") -> Difference | None:
    """Return invaug minus an arm in the mean over the datasets of the arm."""
    tasks = _tasks(found, arm)
    ours = mean_over([accuracy(found, task, f"{OURS}{suffix}") for task in tasks])
    return difference(ours, mean_over([accuracy(found, task, arm) for task in tasks]), found.seeds)


def _accuracies(found: Outcome) -> Table:
    entry = TABLE[found.experiment.name]
    arms = [*entry["arms"], *(f"{arm}-{EQUAL_PASSES}" for arm in entry.get("equal_passes", []))]
    lines = []
    for arm in arms:
        columns = [accuracy(found, task, arm) for task in entry["tasks"]]
        runs = [row for task in entry["tasks"] for row in found.rows_of(f"{task}-{arm}")]
        texts = [_mean_text(column) for column in columns]
        costs = [row.numbers["passes"] for row in runs]
        base = arm.removesuffix(f"-{EQUAL_PASSES}")
        lines.append((arm, *texts, f"{fmean(costs) / 1e3:,.0f}" if costs else None, _n_tried(entry, base)))
    title = "Test accuracy (%), mean over seeds ± 95 % interval"
    return Table(title, ("arm", *entry["tasks"], "thousand passes", "settings tried"), tuple(lines))


def _n_tried(entry: Mapping[str, object], arm: str) -> int:
    """Return how many settings of an arm were tried before the experiment."""
    before = TABLE[str(entry["chosen_by"])]
    return len(before["vary"]["lr"]) + len(before.get("more", {}).get(arm, []))


def _mean_text(column: Mapping[int, float]) -> str | None:
    return estimate([*column.values()]).text(".2f", POINTS) if column else None


def _differences(found: Outcome, suffix: str, title: str) -> Table:
    entry = TABLE[found.experiment.name]
    lines = []
    for arm in (arm for arm in entry["arms"] if arm != OURS):
        tasks = _tasks(found, arm)
        made = {
            task: difference(
                accuracy(found, task, f"{OURS}{suffix}"), accuracy(found, task, _rival(entry, arm, suffix)), found.seeds
            )
            for task in tasks
        }
        overall = _over_tasks(found, _rival(entry, arm, suffix), suffix) if tasks else None
        texts = [each.text if (each := made.get(task)) else None for task in entry["tasks"]]
        if any(texts):
            lines.append((arm, *texts, overall.text if overall else None, overall.verdict if overall else None))
    columns = ("invaug minus", *entry["tasks"], "mean", "verdict")
    return Table(f"Difference in points for {title}, paired by seed", columns, tuple(lines))


def _rival(entry: Mapping[str, object], arm: str, suffix: str) -> str:
    """Return the arm to compare with: where passes are equal, its own version with as many passes."""
    shorter = entry.get("equal_passes", [])
    return f"{arm}{suffix}" if suffix and arm in shorter else arm  # type: ignore[operator]


def _verdict_of_comparison(found: Outcome) -> str:
    entry = TABLE[found.experiment.name]
    made = {arm: _over_tasks(found, arm) for arm in entry["arms"] if arm != OURS}
    words = [f"{arm} {each.text} ({each.verdict})" for arm, each in made.items() if each]
    return f"invaug minus each arm, in points of accuracy over its datasets: {'; '.join(words) or 'no runs yet'}."


# --- safety ----------------------------------------------------------------------------------------------------------


def safety(found: Outcome) -> Iterator[Part]:
    """The regret of each arm, and the accuracies behind it."""
    entry = TABLE["safety"]
    arms = [arm for arm in entry["arms"] if arm != "basic"]
    known = {arm: regrets(found, arm) for arm in arms}
    total = len(entry["tasks"]) * len(entry["sets"])
    ours = known[OURS]
    if ours:
        worst = max(ours, key=lambda each: each.mean)
        mean = estimate([*mean_over([each.by_seed for each in ours]).values()] or [fmean(e.mean for e in ours)])
        plain = fmean(each.mean for each in known["plain"])
        yield (
            f"over {len(ours)} of {total} pairs of dataset and set, the regret of invaug is {mean.text('.1f')} points "
            f"in the mean and {worst.mean:.1f} at worst ({worst.task}, {worst.set_name}); that of plain augmentation "
            f"is {plain:.1f} in the mean and {max(each.mean for each in known['plain']):.1f} at worst."
        )
    lines = [
        (arm, len(each), f"{fmean(r.mean for r in each):.1f}", f"{(top := max(each, key=lambda r: r.mean)).mean:.1f}",
         f"{top.task}, {top.set_name}")
        for arm, each in known.items() if each
    ]  # fmt: skip
    yield Table("Regret in points", ("arm", "pairs", "mean regret", "worst regret", "where"), tuple(lines))
    yield Table("Test accuracy (%)", ("dataset", "set", *entry["arms"], "γ of invaug"), tuple(_pairs(found)))
    if lines:
        columns = tuple(
            (name, tuple(pick([r.mean for r in known[arm]]) for arm, *_ in lines))
            for name, pick in (("mean regret", fmean), ("worst regret", max))
        )
        names = tuple(arm for arm, *_ in lines)
        yield _figure("safety-regret", "Regret by arm (points)", Bars("points", names, columns))


def _pairs(found: Outcome) -> Iterator[tuple[str | None, ...]]:
    entry = TABLE["safety"]
    for task in entry["tasks"]:
        for set_name in entry["sets"]:
            columns = [accuracy(found, task, "" if arm == "basic" else set_name, arm) for arm in entry["arms"]]
            gammas = found.by_seed(f"{task}-{set_name}-{OURS}", "gamma")
            families = found.by_seed(f"{task}-{set_name}-{OURS}", f"gamma.{set_name}")
            values = [*(gammas or families).values()]
            if any(columns[1:]):
                texts = [_mean_text(column) for column in columns]
                yield (task, set_name, *texts, f"{fmean(values):.2f}" if values else None)


# --- the others ------------------------------------------------------------------------------------------------------


def auto(found: Outcome) -> Iterator[Part]:
    """The rule next to each fixed level."""
    entry = TABLE["auto"]
    levels = [each["level"] for each in entry["more"]["fixed"]]
    lines, gains = [], []
    for task in entry["tasks"]:
        for set_name in entry["sets"]:
            rule = accuracy(found, task, set_name, OURS)
            fixed = {level: accuracy(found, task, set_name, "fixed", f"level-{level:g}") for level in levels}
            there = {level: column for level, column in fixed.items() if column}
            if rule and there:
                best = max(there, key=lambda level: fmean(there[level].values()))
                made = difference(rule, there[best], found.seeds)
                gains.append({s: POINTS * (rule[s] - there[best][s]) for s in rule.keys() & there[best].keys()})
                lines.append((task, set_name, _mean_text(rule), *(_mean_text(fixed[level]) for level in levels),
                              made.text if made else None, made.verdict if made else None))  # fmt: skip
    if gains:
        mean = estimate([*mean_over(gains).values()] or [fmean(fmean(g.values()) for g in gains if g)])
        yield (
            f"over {len(gains)} pairs of dataset and set, the rule is {mean.text('+.2f')} points from the best of "
            f"{len(levels)} fixed levels, which was picked on the same images."
        )
    columns = ("dataset", "set", "rule", *(f"{level:g} log C" for level in levels), "rule minus best", "verdict")
    yield Table("Held-out accuracy (%)", columns, tuple(lines))
    yield _figure("auto-levels", "Held-out accuracy by level, mean over seeds (%)", _auto_lines(found, levels))


def _auto_lines(found: Outcome, levels: list[float]) -> Drawing:
    lines = []
    for i, task in enumerate(TABLE["auto"]["tasks"]):
        columns = {level: accuracy(found, task, "mild", "fixed", f"level-{level:g}") for level in levels}
        points = tuple((level, POINTS * fmean(column.values())) for level, column in columns.items() if column)
        if points:
            lines.append(Series(f"{task}, mild", points, i, 0, task))
    return Lines("held-out accuracy (%)", tuple(lines), x_label="epsilon / log C")


def lambda_c(found: Outcome) -> Iterator[Part]:
    """Chains next to uniform draws."""
    entry = TABLE["lambda-c"]
    steps, lines, words = entry["vary"]["n_steps"], [], []
    for task in entry["tasks"]:
        for arm in entry["arms"]:
            uniform = accuracy(found, task, arm, "n_steps-0")
            for n in steps:
                label = f"{task}-{arm}-n_steps-{n}"
                ours = accuracy(found, label)
                made = difference(ours, uniform, found.seeds) if n and ours else None
                others = [_number(found, label, key) for key in ("gamma", "entropy", "train_loss")]
                text = (made.text, made.verdict) if made else (None, None)
                lines.append((task, arm, n, _mean_text(ours), *text, *others))
                words += [f"{task}, {arm}, {n}: {made.text} ({made.verdict})"] if made else []
    yield f"transitions against uniform draws: {'; '.join(words) or 'no runs yet'}."
    columns = ("dataset", "arm", "transitions", "test accuracy (%)", "minus uniform", "verdict")
    yield Table("λ_c against uniform draws", (*columns, "γ", "entropy", "training loss"), tuple(lines))


def _number(found: Outcome, label: str, key: str) -> str | None:
    made = found.estimate(label, key)
    return made.text(".3f") if made else None


def cap(found: Outcome) -> Iterator[Part]:
    """Accuracy by cap."""
    entry = TABLE["cap"]
    caps = [each["cap"] for each in entry["more"][OURS]]
    arms = ["basic", "plain", *(f"{OURS}-cap-{cap:g}" for cap in caps)]
    lines = []
    for task in entry["tasks"]:
        for set_name in entry["sets"]:
            columns = [accuracy(found, task, "" if arm == "basic" else set_name, arm) for arm in arms]
            lines.append((task, set_name, *map(_mean_text, columns)))
    yield Table("Held-out accuracy (%)", ("dataset", "set", *arms), tuple(lines))


def rates(found: Outcome) -> Iterator[Part]:
    """What was chosen, and all that was tried."""
    entry = TABLE[found.experiment.name]
    (set_name,), lines, words = entry.get("sets", [""]), [], []
    for arm in entry["arms"]:
        tried = variations(entry, arm)
        labels = [label_of(task, set_name, arm, each) for each in tried for task in _tasks(found, arm)]
        if all(accuracy(found, label) for label in labels):
            words.append(f"{arm} {_in_words(choose(found, arm))}")
        for each in tried:
            cells = [accuracy(found, label_of(task, set_name, arm, each)) for task in entry["tasks"]]
            if any(cells):
                lines.append((arm, _in_words(each), *map(_mean_text, cells)))
    yield f"chosen: {'; '.join(words) or 'nothing yet'}."
    yield Table("Held-out accuracy (%)", ("arm", "settings", *entry["tasks"]), tuple(lines))


def _in_words(settings: Mapping[str, float]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in settings.items())


def _figure(key: str, title: str, drawing: Drawing) -> Figure:
    return Figure(key, title, drawing, "", Table(title, (), ()))
