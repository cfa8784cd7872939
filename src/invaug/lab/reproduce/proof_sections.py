"""The sections of docs/compare.md about test images, and `auto`: a verdict in words, tables, a figure.

Those that choose settings are in `proof_choices.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean

from invaug.lab.report.document import Bars, Drawing, Figure, Lines, Rule, Series, Table
from invaug.lab.report.intervals import estimate
from invaug.lab.reproduce.findings import (
    POINTS,
    Difference,
    Regret,
    accuracy,
    difference,
    mean_over,
    regrets,
)
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.proof import EQUAL_PASSES, TABLE, label_of, variations

OURS = "invaug"
Part = Table | Figure | str


# --- compare ---------------------------------------------------------------------------------------------------------


def compare(found: Outcome) -> Iterator[Part]:
    """Accuracy by arm and dataset, and what invaug is above each arm."""
    entry = TABLE[found.experiment.name]
    budgets = {"equal epochs": "", **({"equal passes": f"-{EQUAL_PASSES}"} if "equal_passes" in entry else {})}
    yield " ".join(_standing(found, title, suffix) for title, suffix in budgets.items())
    yield _accuracies(found)
    for title, suffix in budgets.items():
        lines = tuple(_difference_line(found, arm, suffix) for arm in _rivals(found))
        if any(any(line[1:]) for line in lines):
            columns = ("invaug minus", *entry["tasks"], "mean", "verdict")
            yield Table(f"Difference in points for {title}, paired by seed", columns, lines)
    for title, suffix in budgets.items():
        if overall := _overall(found, suffix):
            words = f"invaug minus each arm for {title}, mean over datasets (points)"
            key = f"{found.experiment.name}-{title.replace(' ', '-')}"
            yield make_figure(key, words, difference_bars(overall))


def _rivals(found: Outcome) -> list[str]:
    return [arm for arm in TABLE[found.experiment.name]["arms"] if arm != OURS]


def _overall(found: Outcome, suffix: str) -> dict[str, Difference]:
    """Return what invaug is above each arm in the mean over datasets, as far as there are runs."""
    return {arm: made for arm in _rivals(found) if (made := _over_tasks(found, arm, suffix))}


def _standing(found: Outcome, title: str, suffix: str) -> str:
    """Return what invaug is shown to be above and below, and what is not decided, in one sentence."""
    by_verdict: dict[str, list[str]] = {}
    for arm, made in sorted(_overall(found, suffix).items(), key=lambda item: -item[1].of.mean):
        by_verdict.setdefault(made.verdict, []).append(f"{arm} ({made.text})")
    said = "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in by_verdict.items())
    done, planned = _whole_tasks(found), len(TABLE[found.experiment.name]["tasks"])
    names = f" ({', '.join(done)})" if done else ""
    over = f"{len(done)} of {planned} datasets{names}" if len(done) < planned else "all datasets"
    return f"For {title}, invaug minus each arm over {over}, in points of accuracy: {said or 'none is done yet'}."


def _whole_tasks(found: Outcome) -> list[str]:
    """Return the datasets on which every arm has every seed: the others are in no mean."""
    missing = {
        cell.settings["data"]
        for cell in found.plan.cells
        if len(found.by_seed(cell.label, "test_accuracy")) < found.seeds
    }
    return [task for task in TABLE[found.experiment.name]["tasks"] if task not in missing]


def tasks_of(found: Outcome, arm: str) -> list[str]:
    """Return the datasets that an arm is trained on."""
    entry = TABLE[found.experiment.name]
    return [task for task in entry["tasks"] if task in entry.get("only_on", {}).get(arm, [task])]


def _rival(found: Outcome, arm: str, suffix: str) -> str:
    """Return the arm to compare with: where passes are equal, its own version with as many passes."""
    return f"{arm}{suffix}" if arm in TABLE[found.experiment.name].get("equal_passes", []) else arm


def _over_tasks(found: Outcome, arm: str, suffix: str) -> Difference | None:
    """Return invaug minus an arm in the mean over the datasets of the arm that are done."""
    done = _whole_tasks(found)
    ours, theirs = (
        mean_over([accuracy(found, task, name) for task in tasks_of(found, arm) if task in done])
        for name in _sides(found, arm, suffix)
    )
    return difference(ours, theirs, found.seeds)


def _sides(found: Outcome, arm: str, suffix: str) -> tuple[str, str]:
    return f"{OURS}{suffix}", _rival(found, arm, suffix)


def _difference_line(found: Outcome, arm: str, suffix: str) -> tuple[str | None, ...]:
    """Return invaug minus an arm by dataset and in the mean, and the verdict."""
    (ours, rival), texts = _sides(found, arm, suffix), []
    for task in TABLE[found.experiment.name]["tasks"]:
        made = difference(accuracy(found, task, ours), accuracy(found, task, rival), found.seeds)
        texts.append(made.text if made else None)
    return arm, *texts, *_text_and_verdict(_over_tasks(found, arm, suffix))


def _text_and_verdict(made: Difference | None) -> tuple[str | None, str | None]:
    return (made.text, made.verdict) if made else (None, None)


def _accuracies(found: Outcome) -> Table:
    entry = TABLE[found.experiment.name]
    lines = []
    for arm in [*entry["arms"], *(f"{arm}-{EQUAL_PASSES}" for arm in entry.get("equal_passes", []))]:
        texts = [mean_text(accuracy(found, task, arm)) for task in entry["tasks"]]
        costs = [row.numbers["passes"] for task in entry["tasks"] for row in found.rows_of(f"{task}-{arm}")]
        tried = len(variations(TABLE[entry["chosen_by"]], arm.removesuffix(f"-{EQUAL_PASSES}")))
        lines.append((arm, *texts, f"{fmean(costs) / 1e3:,.0f}" if costs else None, tried))
    title = "Test accuracy (%), mean over seeds ± 95 % interval"
    return Table(title, ("arm", *entry["tasks"], "thousand passes", "settings tried"), tuple(lines))


def difference_bars(made: Mapping[str, Difference]) -> Drawing:
    """Return a bar for each difference, with its interval."""
    means, ends = tuple(each.of.mean for each in made.values()), tuple(each.of.interval for each in made.values())
    return Bars("points", tuple(made), (("difference", means),), Rule(0.0, "equal"), whiskers=ends)


def mean_text(column: Mapping[int, float]) -> str | None:
    """Return the mean of accuracies in percent, with its interval."""
    return estimate([*column.values()]).text(".2f", POINTS) if column else None


# --- safety ----------------------------------------------------------------------------------------------------------


def safety(found: Outcome) -> Iterator[Part]:
    """The regret of each arm, and the accuracies behind it; pairs that miss a run are in the second table alone."""
    entry = TABLE["safety"]
    every = {arm: regrets(found, arm) for arm in entry["arms"] if arm not in entry["once"]}
    known = {arm: [each for each in of_arm if _is_whole(found, each, every)] for arm, of_arm in every.items()}
    if ours := known[OURS]:
        total = len(entry["tasks"]) * len(entry["sets"])
        yield (
            f"Over {len(ours)} of {total} pairs of dataset and set, invaug is below the better of no and plain "
            f"augmentation by {_regret_in_words(ours)}; plain augmentation by {_regret_in_words(known['plain'])}."
        )
        gains = {arm: _gain(found, ours, each) for arm, each in known.items() if arm != OURS}
        columns = ("arm", "mean regret", "worst regret", "where", "invaug minus the arm", "verdict")
        lines = tuple((arm, *_regret_line(each), *_text_and_verdict(gains.get(arm))) for arm, each in known.items())
        yield Table("Regret in points", columns, lines)
    yield Table("Test accuracy (%)", ("dataset", "set", *entry["arms"], "γ of invaug"), tuple(_pairs(found)))
    if ours:
        bars = tuple(
            (name, tuple(pick(regret.mean for regret in each) for each in known.values()))
            for name, pick in (("mean regret", fmean), ("worst regret", max))
        )
        yield make_figure("safety-regret", "Regret by arm (points)", Bars("points", tuple(known), bars))


def _is_whole(found: Outcome, pair: Regret, every: Mapping[str, Sequence[Regret]]) -> bool:
    """Return whether every arm has every seed of a pair of dataset and set."""
    same = [each for of_arm in every.values() for each in of_arm if _key(each) == _key(pair)]
    return len(same) == len(every) and all(len(each.by_seed) == found.seeds for each in same)


def _key(pair: Regret) -> tuple[str, str]:
    return pair.task, pair.set_name


def _gain(found: Outcome, ours: Sequence[Regret], theirs: Sequence[Regret]) -> Difference | None:
    """Return how far invaug is above an arm, in the mean over the pairs: the regret it does not have."""
    above, below = ([each.by_seed for each in known] for known in (theirs, ours))
    return difference(mean_over(above), mean_over(below), found.seeds, unit=1)


def _regret_line(known: Sequence[Regret]) -> tuple[str, str, str]:
    """Return the mean regret with its interval over seeds, the worst, and where that is."""
    by_seed = mean_over([each.by_seed for each in known])
    mean = estimate([*by_seed.values()]) if by_seed else estimate([fmean(each.mean for each in known)])
    worst = max(known, key=lambda each: each.mean)
    return mean.text(".1f"), f"{worst.mean:.1f}", f"{worst.task}, {worst.set_name}"


def _regret_in_words(known: Sequence[Regret]) -> str:
    mean, worst, where = _regret_line(known)
    return f"{mean} points in the mean and {worst} at worst ({where})"


def _pairs(found: Outcome) -> Iterator[tuple[str | None, ...]]:
    entry = TABLE["safety"]
    for task in entry["tasks"]:
        for set_name in entry["sets"]:
            columns = [accuracy(found, task, "" if arm == "basic" else set_name, arm) for arm in entry["arms"]]
            gammas = found.by_seed(f"{task}-{set_name}-{OURS}", "gamma")
            families = found.by_seed(f"{task}-{set_name}-{OURS}", f"gamma.{set_name}")
            values = [*(gammas or families).values()]
            if any(columns[1:]):
                texts = [mean_text(column) for column in columns]
                yield (task, set_name, *texts, f"{fmean(values):.2f}" if values else None)


# --- the others ------------------------------------------------------------------------------------------------------


def auto(found: Outcome) -> Iterator[Part]:
    """The rule next to each fixed level."""
    entry = TABLE["auto"]
    levels = [each["level"] for each in entry["more"]["fixed"]]
    lines, gains = [], []
    for task, set_name in product(entry["tasks"], entry["sets"]):
        rule = accuracy(found, task, set_name, OURS)
        fixed = {level: accuracy(found, task, set_name, "fixed", f"level-{level:g}") for level in levels}
        best = max(fixed.values(), key=lambda column: fmean(column.values()) if column else -1.0)
        made = difference(rule, best, found.seeds)
        if made:
            gains.append({seed: POINTS * (rule[seed] - best[seed]) for seed in rule.keys() & best.keys()})
            lines.append((task, set_name, *map(mean_text, (rule, *fixed.values())), *_text_and_verdict(made)))
    mean = mean_over(gains)
    if mean:
        yield (
            f"Over {len(gains)} pairs of dataset and set, the rule is {estimate([*mean.values()]).text('+.2f')} points "
            f"from the best of {len(levels)} fixed levels, which was picked on the same images."
        )
    columns = ("dataset", "set", "rule", *(f"{level:g} log C" for level in levels), "rule minus best", "verdict")
    yield Table("Held-out accuracy (%)", columns, tuple(lines))
    yield make_figure("auto-levels", "Held-out accuracy by level, mean over seeds (%)", _auto_lines(found, levels))


def _auto_lines(found: Outcome, levels: list[float]) -> Drawing:
    lines = []
    for i, task in enumerate(TABLE["auto"]["tasks"]):
        columns = {level: accuracy(found, task, "mild", "fixed", f"level-{level:g}") for level in levels}
        points = tuple((level, POINTS * fmean(column.values())) for level, column in columns.items() if column)
        if points:
            lines.append(Series(f"{task}, mild", points, i, 0, task))
    return Lines("held-out accuracy (%)", tuple(lines), x_label="epsilon / log C")


def lambda_c(found: Outcome) -> Iterator[Part]:
    """Chains next to uniform draws: in the mean over the datasets in words, by dataset in the table."""
    entry, lines = TABLE["lambda-c"], []
    tasks, arms, transitions = entry["tasks"], entry["arms"], entry["vary"]["n_steps"]

    def gain(n: int, arm: str, *of: str) -> Difference | None:
        chains, uniform = (
            mean_over([accuracy(found, label_of(task, "", arm, {"n_steps": steps})) for task in of]) for steps in (n, 0)
        )
        return difference(chains, uniform, found.seeds) if n else None

    over_tasks = {
        f"{arm.replace('-', ' ')}, {n} transition{'s' * (n > 1)}": made
        for arm, n in product(arms, transitions)
        if (made := gain(n, arm, *tasks))
    }
    words = [f"{name} {each.text} ({each.verdict})" for name, each in over_tasks.items()]
    yield f"Chains minus uniform draws, in points of accuracy over both datasets: {'; '.join(words) or 'no runs yet'}."
    for task, arm, n in product(tasks, arms, transitions):
        label = label_of(task, "", arm, {"n_steps": n})
        others = [number_text(found, label, key) for key in ("gamma", "entropy", "train_loss")]
        lines.append((task, arm, n, mean_text(accuracy(found, label)), *_text_and_verdict(gain(n, arm, task)), *others))
    columns = ("dataset", "arm", "transitions", "test accuracy (%)", "minus uniform", "verdict")
    yield Table("λ_c against uniform draws", (*columns, "γ", "entropy", "training loss"), tuple(lines))
    if over_tasks:
        title = "Chains minus uniform draws, mean over both datasets (points)"
        yield make_figure("lambda-c-differences", title, difference_bars(over_tasks))


def number_text(found: Outcome, label: str, key: str) -> str | None:
    """Return the mean of a measure of a cell, with its interval."""
    made = found.estimate(label, key)
    return made.text(".3f") if made else None


def make_figure(key: str, title: str, drawing: Drawing) -> Figure:
    """Return a figure of the page."""
    return Figure(key, title, drawing, "", Table(title, (), ()))
