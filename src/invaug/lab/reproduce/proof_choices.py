"""The sections of docs/compare.md about held-out images: choices of settings, and costs of wrong sets."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean

from invaug.lab.report.document import Bars, Drawing, Lines, Series, Table
from invaug.lab.report.drawing.axes import N_COLOURS
from invaug.lab.reproduce.findings import POINTS, Difference, accuracy, choose, difference, mean_over
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.proof import TABLE, Variation, in_a_word, label_of, variations
from invaug.lab.reproduce.proof_sections import (
    OURS,
    Part,
    difference_bars,
    make_figure,
    mean_text,
    number_text,
    tasks_of,
)


def cap(found: Outcome) -> Iterator[Part]:
    """Accuracy by the settings of the rule, and how far each is above those of before."""
    entry = TABLE["cap"]
    before, *others = sorted(entry["more"][OURS], key=lambda each: each != entry["before"])
    gains = {_in_words(each): made for each in others if (made := _gain(found, entry["sets"], each, before))}
    yield _compare_in_words(gains, f"{_in_words(before)}, over the pairs of dataset and set")
    arms = [("basic", {}), ("plain", {}), *((OURS, each) for each in entry["more"][OURS])]
    lines = []
    for task in entry["tasks"]:
        for set_name in entry["sets"]:
            labels = [label_of(task, "" if arm in entry["once"] else set_name, arm, each) for arm, each in arms]
            lines.append((task, set_name, *(mean_text(accuracy(found, label)) for label in labels)))
    heads = [f"{arm} {_in_words(each)}".strip() for arm, each in arms]
    yield Table("Held-out accuracy (%)", ("dataset", "set", *heads), tuple(lines))
    if gains:
        title = f"Settings of the rule minus {_in_words(before)}, mean over the pairs (points)"
        yield make_figure("cap-differences", title, difference_bars(gains))


def _gain(found: Outcome, sets: Sequence[str], ours: Variation, theirs: Variation) -> Difference | None:
    """Return how far invaug with some settings is above itself with others, in the mean over datasets and sets."""
    pairs = [(task, set_name) for task in TABLE[found.experiment.name]["tasks"] for set_name in sets]
    above, below = (
        mean_over([accuracy(found, label_of(task, set_name, OURS, each)) for task, set_name in pairs])
        for each in (ours, theirs)
    )
    return difference(above, below, found.seeds)


def _compare_in_words(gains: Mapping[str, Difference], to: str) -> str:
    words = [f"{name} {each.text} ({each.verdict})" for name, each in gains.items()]
    return f"In points of accuracy next to {to}: {'; '.join(words) or 'no runs yet'}."


def alpha(found: Outcome) -> Iterator[Part]:
    """Accuracy and gamma by alpha, next to the arms without it."""
    entry, lines = TABLE["alpha"], []
    ours, before = entry["more"][OURS]
    made = _gain(found, [""], ours, before)
    yield _compare_in_words({_in_words(ours): made} if made else {}, f"{_in_words(before)}, over both datasets")
    bars: dict[str, list[float | None]] = {}
    for arm in entry["arms"]:
        for each in variations(entry, arm):
            labels = [label_of(task, "", arm, each) for task in entry["tasks"]]
            numbers = [(mean_text(accuracy(found, label)), number_text(found, label, "gamma")) for label in labels]
            name = f"{arm} {_in_words(each)}".strip()
            lines.append((name, *(number for pair in numbers for number in pair)))
            bars[name] = [_mean(accuracy(found, label)) for label in labels]
    heads = [head for task in entry["tasks"] for head in (task, "γ")]
    yield Table("Held-out accuracy (%)", ("arm", *heads), tuple(lines))
    columns = tuple((task, tuple(each[i] for each in bars.values())) for i, task in enumerate(entry["tasks"]))
    yield make_figure("alpha-accuracy", "Held-out accuracy (%)", Bars("%", tuple(bars), columns))


def costs(found: Outcome) -> Iterator[Part]:
    """What wrong sets cost by the one setting that varies, and how that changes from its first value to its last."""
    name, lines = found.experiment.name, []
    entry = TABLE[name]
    ((task,), sets, ((key, values),)) = entry["tasks"], entry["sets"], entry["vary"].items()
    equal = entry.get("clean_epochs")

    def label(value: float | str, arm: str, set_name: str = "") -> str:
        return label_of(task, set_name, arm, {key: value})

    def none(value: float | str, set_name: str, as_many: bool) -> dict[int, float]:
        return accuracy(found, label(equal[set_name][str(value)] if as_many else value, "basic"))

    def gain(value: float | str, *of: str, as_many: bool = False) -> dict[int, float]:
        ours, theirs = (
            mean_over([accuracy(found, label(value, OURS, each)) for each in of]),
            mean_over([none(value, each, as_many) for each in of]),
        )
        return {seed: ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()}

    def over_seeds(gains: Mapping[int, float]) -> Difference | None:
        return difference(gains, dict.fromkeys(gains, 0.0), found.seeds)

    def in_words(all_of: Mapping[str, Difference | None]) -> str:
        return "; ".join(f"{words} {each.text} ({each.verdict})" for words, each in all_of.items() if each)

    whole = {_in_words({key: value}): over_seeds(gain(value, *sets)) for value in values}
    first, *_, last = (gain(value, *sets) for value in values)
    whole[f"from {values[0]} to {values[-1]}"] = difference(last, first, found.seeds)
    said = in_words(whole) or "no runs yet"
    yield f"invaug minus no augmentation, in points of accuracy over both sets: {said}."
    if equal:
        said = in_words({_in_words({key: value}): over_seeds(gain(value, *sets, as_many=True)) for value in values})
        yield f"invaug minus no augmentation that ends after as many clean views: {said or 'no runs yet'}."
    for set_name, value in product(sets, values):
        made, arms = over_seeds(gain(value, set_name)), (label(value, "basic"), label(value, OURS, set_name))
        numbers = [mean_text(accuracy(found, each)) for each in arms]
        more = [mean_text(none(value, set_name, as_many=True))] if equal else []
        trained = number_text(found, arms[0], "train_accuracy")
        lines.append((set_name, value, *numbers, made and made.text, *more, trained))
    more = ["basic, as many clean views"] if equal else []
    columns = ("set", key, "basic", OURS, "difference", *more, "training accuracy of basic")
    yield Table("Held-out accuracy (%)", columns, tuple(lines))
    known = {words: each for words, each in whole.items() if each}
    if known:
        yield make_figure(f"{name}-differences", "invaug minus no augmentation (points)", difference_bars(known))


def rates(found: Outcome) -> Iterator[Part]:
    """What was chosen, and all that was tried."""
    entry = TABLE[found.experiment.name]
    (set_name,), lines, words = entry.get("sets", [""]), [], []
    for arm in entry["arms"]:
        tried = variations(entry, arm)
        labels = [label_of(task, set_name, arm, each) for each in tried for task in tasks_of(found, arm)]
        if all(accuracy(found, label) for label in labels):
            words.append(f"{arm} {_in_words(choose(found, arm))}")
        for each in tried:
            cells = [accuracy(found, label_of(task, set_name, arm, each)) for task in entry["tasks"]]
            if any(cells):
                lines.append((arm, _in_words(each), *map(mean_text, cells)))
    yield f"Chosen: {'; '.join(words) or 'nothing yet'}."
    yield Table("Held-out accuracy (%)", ("arm", "settings", *entry["tasks"]), tuple(lines))
    first = next(iter(entry["tasks"]))  # the one that every arm is tried on
    title = f"Held-out accuracy on {first} by learning rate (%)"
    yield make_figure(f"{found.experiment.name}-accuracy", title, _rate_lines(found, first, set_name))


def _rate_lines(found: Outcome, task: str, set_name: str) -> Drawing:
    entry, lines = TABLE[found.experiment.name], list[Series]()
    for i, arm in enumerate(entry["arms"]):
        columns = {rate: accuracy(found, label_of(task, set_name, arm, {"lr": rate})) for rate in entry["vary"]["lr"]}
        points = tuple((rate, mean) for rate, column in columns.items() if (mean := _mean(column)) is not None)
        if points:
            lines.append(Series(arm, points, i, i // N_COLOURS, arm))
    return Lines("held-out accuracy (%)", tuple(lines), x_label="learning rate")


def _mean(column: Mapping[int, float]) -> float | None:
    return POINTS * fmean(column.values()) if column else None


def _in_words(settings: Variation) -> str:
    return ", ".join(f"{key} {in_a_word(value)}" for key, value in settings.items())
