"""The protocol's experiments: valid configs, equal conditions, choices by held-out images, numbers of the page."""

from __future__ import annotations

import json
import math
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from invaug.lab.config.build import build
from invaug.lab.config.schema import Config
from invaug.lab.reproduce import proof, proof_page
from invaug.lab.reproduce.cells import Cell
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.findings import accuracy, choose, difference, regrets
from invaug.lab.reproduce.outcome import Outcome
from invaug.levels import Resilient
from tests.support.experiments import ROOT, row

RESULTS = ROOT / "results"
OWN = {"lr", "epochs"}
"""The settings outside the table [method] in which arms may differ: chosen for each, or fewer for equal passes."""
WRONG = ("extreme", "rotation")
METHODS = {
    "crops and flips alone": "basic",
    "TrivialAugment": "trivial",
    "RandAugment": "randaugment",
    "AutoAugment": "autoaugment",
    "EntAugment": "entaugment",
    "our set as plain augmentation": "plain",
    "invaug": "invaug",
    "invaug with uniform draws": "uniform",
    "the paper's two views": "two-views",
}
"""The arms of `compare` by their names in the README."""


def cells_of(name: str) -> list[Cell]:
    return list(find(name).plans["small"].cells)


def rows_of(name: str) -> list[dict]:
    path = RESULTS / name / "small.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


@pytest.mark.parametrize("name", proof.NAMES)
def test_every_cell_is_a_valid_config_with_a_label_of_its_own(name):
    labels = [cell.label for cell in cells_of(name)]
    assert len(set(labels)) == len(labels)
    assert all(isinstance(build(cell.settings), Config) for cell in cells_of(name))


@pytest.mark.parametrize("name", proof.NAMES)
def test_arms_of_a_task_differ_in_nothing_but_the_method(name):
    for task in proof.TABLE[name]["tasks"]:
        configs = [build(c.settings) for c in cells_of(name) if c.settings["data"] == task]
        shared = [
            {**c.data.model_dump(), **c.model.model_dump(), **c.train.model_dump(exclude=OWN), **c.run.model_dump()}
            for c in configs
        ]
        if name == "width":
            assert {each.pop("name") for each in shared} == {*proof.TABLE["width"]["vary"]["model"]}
        assert all(each == shared[0] for each in shared)
        assert {c.train.cutout for c in configs} == {0}


@pytest.mark.parametrize("name", [name for name in proof.NAMES if not name.endswith("-rates") and name != "length"])
def test_arms_have_equal_epochs_except_where_passes_are_equal(name):
    for task in proof.TABLE[name]["tasks"]:
        cells = [cell for cell in cells_of(name) if cell.settings["data"] == task]
        assert len({cell.settings["epochs"] for cell in cells if not cell.label.endswith(proof.EQUAL_PASSES)}) == 1


def test_a_comparison_has_about_240_000_visits():
    images = {"cifar100": 10_000, "tiny-imagenet": 10_000}
    for cell in (*cells_of("compare"), *cells_of("compare-frozen")):
        if not cell.label.endswith(proof.EQUAL_PASSES):
            assert images.get(cell.settings["data"], 4_000) * cell.settings["epochs"] == 240_000


@pytest.mark.parametrize("arm", ["invaug", "uniform"])
def test_our_arms_have_the_rule_of_the_default(arm):
    assert proof.TABLE["arms"][arm]["alpha"] == Resilient().alpha


def test_levels_are_shares_of_the_loss_of_a_guess():
    (cell,) = [c for c in cells_of("auto") if c.label == "cifar10-wide-fixed-level-0.5"]
    assert cell.settings["epsilon"] == pytest.approx(0.5 * math.log(10), abs=1e-4)


def test_a_set_called_all_has_every_operation_of_the_others():
    table = proof.TABLE["sets"]
    others = [name for name in table if name != "all" and "families" in table[name]]
    named = {op for name in others for family in table[name]["families"].values() for op in family}
    assert named <= {*table["all"]["families"]["all"]}


@pytest.mark.parametrize("name", ["compare-rates", "safety-rates"])
def test_what_was_chosen_is_the_best_on_held_out_images(name):
    found, chosen = proof_page.outcomes(RESULTS)[name], proof.TABLE["chosen"][name]
    done = {each["cell"] for each in rows_of(name)}
    for arm in proof.TABLE[name]["arms"]:
        wanted = {c.label for c in cells_of(name) if re.search(rf"(^|-){arm}-(lr|magnitude|level)-", c.label)}
        assert wanted
        if wanted <= done:
            best = choose(found, arm)
            assert {key: chosen[arm].get(key) for key in best} == best, arm


@pytest.mark.parametrize("arm", proof.TABLE["ratios"])
def test_equal_passes_are_never_more_than_the_passes_of_the_others(arm):
    measured = []
    for name in ("compare-rates", "safety-rates"):
        passes = {each["cell"]: each["numbers"]["passes"] for each in rows_of(name)}
        own = [c for c in cells_of(name) if c.label in passes and f"-{arm}-lr-" in c.label]
        none = {c.settings["data"]: passes[c.label] for c in cells_of(name) if "-basic-" in c.label}
        measured += [passes[cell.label] / none[cell.settings["data"]] for cell in own]
    assert measured
    assert max(measured) <= proof.TABLE["ratios"][arm] < 1.02 * max(measured)


@pytest.mark.parametrize("name", ["compare", "safety", "length", "width", "auto", "lambda-c", "compare-frozen"])
def test_nothing_is_measured_before_its_settings_are_chosen(name):
    by = proof.TABLE[name]["chosen_by"]
    if rows_of(name):
        assert {each["cell"] for each in rows_of(by)} == {cell.label for cell in cells_of(by)}


@pytest.mark.parametrize("name", proof.NAMES)
def test_every_row_has_what_the_protocol_asks_for(name):
    for each in rows_of(name):
        assert {"resolved", "commit", "cpu", "versions"} <= set(each)
        assert "auto" not in each["resolved"].values()
        assert not each["commit"].endswith("changed")
        new = "held_out" if each["config"].get("val_fraction") else "test"
        needed = {"passes", "seconds", "train_loss", "train_accuracy", f"{new}_loss", f"{new}_accuracy"}
        assert needed <= set(each["numbers"])


def made_up(name: str, accuracies: dict[str, list[float]]) -> Outcome:
    rows = [
        row(cell, seed, test_accuracy=value) for cell, values in accuracies.items() for seed, value in enumerate(values)
    ]
    return Outcome(find(name), "small", rows)


def test_a_difference_is_that_of_scipys_paired_test():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.7, 0.01, 5), rng.normal(0.68, 0.01, 5)
    found = difference(dict(enumerate(ours)), dict(enumerate(theirs)), 5)
    interval = stats.ttest_rel(100 * ours, 100 * theirs).confidence_interval()
    assert found.of.interval == pytest.approx((interval.low, interval.high))
    assert found.verdict == ("shown to be above" if interval.low > 0 else "not decided")
    assert difference(dict(enumerate(theirs)), dict(enumerate(ours)), 5).verdict == found.verdict.replace(
        "above", "below"
    )


def test_four_seeds_decide_nothing_however_far_apart():
    found = difference(dict(enumerate([0.9] * 4)), dict(enumerate([0.1, 0.11, 0.1, 0.11])), 5)
    assert found.verdict == "not decided yet: 4 of 5 seeds"


def test_regret_is_the_distance_to_the_better_of_none_and_plain():
    found = made_up(
        "safety",
        {
            "mnist-basic": [0.9, 0.8],
            "mnist-mild-plain": [0.95, 0.97],
            "mnist-mild-invaug": [0.94, 0.94],
            "mnist-flips-plain": [0.5, 0.5],
            "mnist-flips-invaug": [0.89, 0.83],
        },
    )
    mild, flips = regrets(found, "invaug")
    assert (mild.set_name, mild.mean) == ("mild", pytest.approx(2.0))
    assert (flips.set_name, flips.mean) == ("flips", pytest.approx(-1.0))
    assert accuracy(found, "mnist", "mild", "plain") == {0: 0.95, 1: 0.97}


def numbers_in(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in re.findall(r"[-+]?\d+\.\d+", text)]


def table_after(page: str, heading: str) -> list[list[str]]:
    """Return the first table of a section of the page."""
    lines = page[page.index(f"\n## {heading}\n") :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def test_the_page_is_what_the_rows_say():
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    assert page == proof_page.write_page(RESULTS)
    figures = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "compare").glob("*.svg")}
    assert figures == proof_page.draw_figures(RESULTS)


def test_the_accuracies_of_the_page_are_recomputed_from_the_rows_by_numpy_and_scipy():
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    rows = rows_of("compare")
    if not rows:
        assert "*compare*: not run yet, so nothing is claimed" in page
        return
    columns, *lines = table_after(page, "compare")
    for line in lines:
        for task, text in zip(columns[1:-2], line[1:-2], strict=True):
            values = [100 * r["numbers"]["test_accuracy"] for r in rows if r["cell"] == f"{task}-{line[0]}"]
            if len(values) > 1:
                half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
                assert numbers_in(text) == pytest.approx([np.mean(values), half], abs=0.0051)
            elif values:
                assert numbers_in(text) == pytest.approx(values, abs=0.0051)
            else:
                assert text == "–"


def mean_accuracy(cell: str) -> str:
    values = [100 * r["numbers"]["held_out_accuracy"] for r in rows_of("cap") if r["cell"] == cell]
    assert len(values) == 5
    return f"{np.mean(values):.1f}"


def lines_under(page: str, head: str) -> list[list[str]]:
    """Return the cells of a table of a page, without its head."""
    text = (ROOT / page).read_text(encoding="utf-8")
    _, _, *lines = text[text.index(head) :].partition("\n\n")[0].splitlines()
    return [[each.strip() for each in line.strip("|").split("|")] for line in lines]


def test_the_accuracies_of_the_default_are_the_means_of_the_rows():
    lines = lines_under("docs/default.md", "| | CIFAR-10: none | plain | invaug, α = 5 |")
    assert len(lines) == 3
    for name, *printed in lines:
        arms = ("basic", *(f"{name}-{arm}" for arm in ("plain", "invaug-cap-2", "invaug-alpha-2.5")))
        wanted = [mean_accuracy(f"{task}-{arm}") for task, arm in product(("cifar10", "fashion-mnist"), arms)]
        assert [each or wanted[i] for i, each in enumerate(printed)] == wanted


def test_the_intervals_of_the_default_are_those_of_scipy():
    text = " ".join((ROOT / "docs" / "default.md").read_text(encoding="utf-8").split())
    numbers = {(r["cell"], r["seed"]): 100 * r["numbers"]["held_out_accuracy"] for r in rows_of("cap")}

    def mean_of(pairs: list[tuple[str, str]]) -> str:
        """Return the mean difference of pairs of cells, with its paired interval over seeds."""
        each = [np.mean([numbers[a, seed] - numbers[b, seed] for a, b in pairs]) for seed in range(5)]
        low, high = stats.ttest_1samp(each, 0).confidence_interval()
        return f"{abs(np.mean(each)):.2f} ± {(high - low) / 2:.2f}"

    tasks, wrong = ("cifar10", "fashion-mnist"), ("extreme", "inversion")
    both = [(f"{t}-{s}-invaug-alpha-2.5", f"{t}-{s}-invaug-cap-2") for t in tasks for s in ("mild", *wrong)]
    assert f"by {mean_of(both)} points in the mean of the six pairs" in text
    assert f"by {mean_of([pair for pair in both if '-mild-' not in pair[0]])} in the mean of the four" in text
    none = [(f"{t}-{s}-invaug-alpha-2.5", f"{t}-basic") for t in tasks for s in wrong]
    assert f"{mean_of(none)} points below no augmentation" in text


def test_what_the_default_says_of_longer_training_and_wider_networks_is_recomputed_by_scipy():
    text = " ".join((ROOT / "docs" / "default.md").read_text(encoding="utf-8").split())
    numbers = {
        (name, r["cell"], r["seed"]): 100 * r["numbers"]["held_out_accuracy"]
        for name in ("length", "width")
        for r in rows_of(name)
    }

    def cost(name: str, end: str) -> str:
        none = np.array([numbers[name, f"cifar10-basic-{end}", seed] for seed in range(5)])
        sets = [[numbers[name, f"cifar10-{each}-invaug-{end}", seed] for seed in range(5)] for each in WRONG]
        each = none - np.mean(sets, axis=0)
        low, high = stats.ttest_1samp(each, 0).confidence_interval()
        return f"{each.mean():.2f} ± {(high - low) / 2:.2f}"

    epochs = [cost("length", f"epochs-{n}") for n in (15, 60, 240)]
    assert f"{epochs[0]} points after 15 epochs, {epochs[1]} after 60 and {epochs[2]} after 240" in text
    assert f"{cost('width', 'model-conv-64')} after 60 epochs of a network with seven times the weights" in text


def test_the_rules_that_give_a_set_up_have_the_accuracies_and_gammas_of_their_rows():
    rows = (RESULTS / "archive" / "retained" / "small.jsonl").read_text(encoding="utf-8").splitlines()
    numbers = {each["cell"]: each["numbers"] for each in map(json.loads, rows)}
    names = ("default", "retained", "retained-0.7", "cut", "cut-0.75", "cut-squared")
    cifar, fashion = ("mild", "wide", "all", "extreme", "rotation"), ("mild", "wide", "all", "inversion", *WRONG)
    columns = [f"cifar10-{name}" for name in cifar] + [f"fashion-mnist-{name}" for name in fashion]
    lines = lines_under("docs/default.md", "| rule | CIFAR-10 mild | wide | all |")
    for name, (_, *printed) in zip(names, lines, strict=True):
        for column, text in zip(columns, printed, strict=True):
            found = numbers.get(f"{column}-{name}")
            if found:
                gamma = next(value for key, value in found.items() if key == "gamma" or key.startswith("gamma."))
                assert text == f"{100 * found['held_out_accuracy']:.1f}{', given up' * (gamma < 0.005)}"
            else:
                assert text == ""


def test_what_the_readme_says_of_chains_is_recomputed_by_scipy():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    numbers = {(r["cell"], r["seed"]): 100 * r["numbers"]["test_accuracy"] for r in rows_of("lambda-c")}

    def gain(arm: str, n: int) -> tuple[float, float]:
        def mean(steps: int, seed: int) -> float:
            return np.mean([numbers[f"{task}-{arm}-n_steps-{steps}", seed] for task in ("cifar10", "fashion-mnist")])

        low, high = stats.ttest_1samp([mean(n, seed) - mean(0, seed) for seed in range(10)], 0).confidence_interval()
        return low, high

    one, three = (
        f"{(low + high) / 2:.2f} ± {(high - low) / 2:.2f}" for low, high in map(gain, 2 * ["same-gamma"], (1, 3))
    )
    assert f"by {one} points of test accuracy with one transition and {three} with three" in text
    assert all(low > 0 for low, _ in (gain("same-gamma", 1), gain("same-gamma", 3)))
    assert all(low < 0 < high for low, high in (gain("same-epsilon", 1), gain("same-epsilon", 3)))


def test_the_comparison_of_the_readme_is_recomputed_by_numpy_and_scipy():
    numbers = {(r["cell"], r["seed"]): 100 * r["numbers"]["test_accuracy"] for r in rows_of("compare")}
    spent = {(r["cell"], r["seed"]): r["numbers"]["passes"] for r in rows_of("compare")}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    head = next(line for line in readme.splitlines() if line.startswith("| method | passes"))
    titles = {"CIFAR-10": "cifar10", "SVHN": "svhn", "Fashion-MNIST": "fashion-mnist", "CIFAR-100": "cifar100"}
    tasks = [titles[name] for name in titles if f"| {name} |" in head]
    lines = {line[0]: line[1:] for line in lines_under("README.md", head)}
    assert len(lines) == len(METHODS)

    def of_arm(arm: str, on: list[str], what: dict[tuple[str, int], float] = numbers) -> np.ndarray:
        return np.mean([[what[f"{task}-{arm}", seed] for seed in range(5)] for task in on], axis=0)

    for name, arm in METHODS.items():
        passes, *accuracies, epochs, equal = lines[name]
        on = [task for task in tasks if (f"{task}-{arm}", 0) in numbers]
        assert on
        assert passes == f"{of_arm(arm, on, spent).mean() / 1e3:,.0f},000"
        for task, text in zip(tasks, accuracies, strict=True):
            values = of_arm(arm, [task]) if task in on else None
            half = stats.t.ppf(0.975, 4) * stats.sem(values) if values is not None else None
            assert text == ("–" if values is None else f"{values.mean():.1f} ± {half:.1f}")
        own = f"{arm}-{proof.EQUAL_PASSES}" if arm in proof.TABLE["compare"]["equal_passes"] else arm
        for text, ours, theirs in ((epochs, "invaug", arm), (equal, f"invaug-{proof.EQUAL_PASSES}", own)):
            if arm == "invaug":
                assert text == "–"
                continue
            low, high = stats.ttest_rel(of_arm(ours, on), of_arm(theirs, on)).confidence_interval()
            shown = f"{(low + high) / 2:+.1f} ± {(high - low) / 2:.1f}".replace("-", "−")
            assert text == (shown if low <= 0 <= high else f"**{shown}**")


def test_what_the_readme_says_of_svhn_and_of_the_cost_is_what_the_rows_say():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    numbers: dict[str, list[dict[str, float]]] = {}
    for each in rows_of("compare"):
        numbers.setdefault(each["cell"], []).append(each["numbers"])

    def mean(cell: str, measure: str) -> float:
        return float(np.mean([each[measure] for each in numbers[cell]]))

    ours = "svhn-invaug"
    assert f"fits {mean(ours, 'train_accuracy'):.0%}".replace("%", " %") in text
    assert f"ends at {mean(ours, 'gamma'):.1f}" in text
    others = ("trivial", "randaugment", "autoaugment", "entaugment", "plain")
    assert all(mean(f"svhn-{arm}", "test_accuracy") > mean(ours, "test_accuracy") for arm in others)
    more = [mean(f"{task}-invaug", "passes") / mean(f"{task}-plain", "passes") for task in ("cifar10", "svhn")]
    assert np.mean(more) == pytest.approx(1.2, abs=0.025)
    assert "takes a fifth more passes" in text


def test_the_regrets_of_the_readme_are_recomputed_by_numpy_and_scipy():
    lines = dict(
        zip(
            ("plain", "invaug", "uniform", "penalty", "two-views"),
            lines_under("README.md", "| method | mean regret"),
            strict=True,
        )
    )
    numbers = {(r["cell"], r["seed"]): 100 * r["numbers"]["test_accuracy"] for r in rows_of("safety")}
    entry = proof.TABLE["safety"]
    found: dict[str, list[np.ndarray]] = {arm: [] for arm in lines}
    for task, name in product(entry["tasks"], entry["sets"]):
        labels = [f"{task}-basic", *(f"{task}-{name}-{arm}" for arm in lines)]
        if all((label, seed) in numbers for label in labels for seed in range(5)):
            none, *others = [np.array([numbers[label, seed] for seed in range(5)]) for label in labels]
            plain = others[0]
            best = plain if plain.mean() > none.mean() else none
            for arm, accuracies in zip(lines, others, strict=True):
                found[arm].append(best - accuracies)
    assert f"Over {len(found['plain'])} pairs" in (ROOT / "README.md").read_text(encoding="utf-8")
    for arm, (_, mean, worst) in lines.items():
        over_pairs = np.mean(found[arm], axis=0)
        half = stats.t.ppf(0.975, 4) * stats.sem(over_pairs)
        assert mean == f"{over_pairs.mean():.1f} ± {half:.1f}"
        assert worst == f"{max(each.mean() for each in found[arm]):.1f}"


def test_what_speaks_against_safety_on_svhn_is_what_its_rows_say():
    numbers: dict[str, list[float]] = {}
    for r in rows_of("safety"):
        numbers.setdefault(r["cell"], []).append(100 * r["numbers"]["test_accuracy"])
    mean = {cell: np.mean(values) for cell, values in numbers.items()}
    against = " ".join(proof.TABLE["safety"]["against"])
    fitted = [r["numbers"]["train_accuracy"] for r in rows_of("safety") if r["cell"] == "svhn-basic"]
    assert np.mean(fitted) == pytest.approx(2 / 3, abs=0.02)
    assert "every regret of invaug above 5 points is there" in against
    found = proof_page.outcomes(RESULTS)["safety"]
    assert {regret.task for regret in regrets(found, "invaug") if regret.mean > 5} == {"svhn"}
    arms = ("plain", "uniform", "invaug", "penalty")
    leads = [
        mean[f"svhn-{name}-two-views"] - max(mean["svhn-basic"], *(mean[f"svhn-{name}-{arm}"] for arm in arms))
        for name in ("mild", "standard", "wide")
    ]
    assert f"up to {max(leads):.0f} points above the next best arm" in against
    assert min(leads) > 0


def made_up_results(name: str, folder: Path) -> dict[tuple[str, int], float]:
    """Write rows with accuracies from a generator, and return these."""
    rng, plan = np.random.default_rng(len(name)), find(name).plans["small"]
    numbers = {(cell.label, seed): rng.normal(0.7, 0.05) for cell in plan.cells for seed in range(plan.seeds)}
    others = {"passes": 3e5, "gamma": 0.5, "entropy": 2.6, "train_loss": 0.1}
    rows = [row(label, seed, test_accuracy=value, **others) for (label, seed), value in numbers.items()]
    path = folder / name / "small.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{each.line()}\n" for each in rows))
    return numbers


@pytest.fixture(scope="module")
def made_up_page(tmp_path_factory) -> tuple[str, dict[str, dict[tuple[str, int], float]], Path]:
    folder = tmp_path_factory.mktemp("results")
    numbers = {name: made_up_results(name, folder) for name in proof.NAMES}
    return proof_page.write_page(folder), numbers, folder


def of(numbers: dict[tuple[str, int], float], label: str) -> np.ndarray:
    return np.array([value for (cell, _), value in sorted(numbers.items()) if cell == label])


def tables(page: str, heading: str) -> list[dict[tuple[str, ...], dict[str, str]]]:
    """Return the tables of a section: by the texts before the numbers, a row by its columns."""
    section = page[page.index(f"\n## {heading}\n") + 1 :].partition("\n## ")[0]
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        head, _, *lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        found.append([dict(zip(head, line, strict=True)) for line in lines])
    return found


def test_differences_for_equal_passes_are_between_arms_of_equal_passes(made_up_page):
    page, numbers, _ = made_up_page
    _, epochs, passes = tables(page, "compare")
    for table, suffix in ((epochs, ""), (passes, f"-{proof.EQUAL_PASSES}")):
        by_arm = {line["invaug minus"]: line for line in table}
        for arm, rival, tasks in (
            ("basic", "basic", ["cifar10", "svhn", "fashion-mnist", "cifar100"]),
            ("two-views", f"two-views{suffix}", ["cifar10", "fashion-mnist"]),
        ):
            ours, theirs = (
                100 * np.mean([of(numbers["compare"], f"{task}-{name}") for task in tasks], axis=0)
                for name in (f"invaug{suffix}", rival)
            )
            low, high = stats.ttest_rel(ours, theirs).confidence_interval()
            assert numbers_in(by_arm[arm]["mean"]) == pytest.approx([(low + high) / 2, (high - low) / 2], abs=0.0051)
            verdict = "not decided" if low <= 0 <= high else f"shown to be {'above' if low > 0 else 'below'}"
            assert by_arm[arm]["verdict"] == verdict
        assert by_arm["two-views"]["svhn"] == "–"


def test_arms_are_compared_on_the_datasets_that_have_all_runs(tmp_path):
    numbers = made_up_results("compare", tmp_path)
    path = tmp_path / "compare" / "small.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    there = [each for each in lines if each["cell"].startswith("cifar10-") or each["seed"] < 4]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in there))
    ours, theirs = (100 * of(numbers, f"cifar10-{arm}") for arm in ("invaug", "basic"))
    low, high = stats.ttest_rel(ours, theirs).confidence_interval()
    verdict = "not decided" if low <= 0 <= high else f"shown to be {'above' if low > 0 else 'below'}"
    page = proof_page.write_page(tmp_path)
    sentence = page.partition("For equal epochs, invaug minus each arm over 1 of 4 datasets (cifar10)")[2].partition(
        ".\n"
    )[0]
    (said,) = [each for each in sentence.split(";") if f"{verdict}: " in each]
    assert f"basic ({(low + high) / 2:+.2f} ± {(high - low) / 2:.2f})" in said
    assert tables(page, "compare")[1][0]["mean"] == f"{(low + high) / 2:+.2f} ± {(high - low) / 2:.2f}"


def test_regrets_of_the_page_are_those_of_numpy(made_up_page):
    page, numbers, _ = made_up_page
    regret, accuracies = tables(page, "safety")
    assert len(accuracies) == 32
    entry, worst = proof.TABLE["safety"], []
    for task in entry["tasks"]:
        for set_name in entry["sets"]:
            none, plain = of(numbers["safety"], f"{task}-basic"), of(numbers["safety"], f"{task}-{set_name}-plain")
            best = none if none.mean() >= plain.mean() else plain
            worst.append(100 * (best - of(numbers["safety"], f"{task}-{set_name}-invaug")))
    means = np.mean(worst, axis=0)
    half = stats.t.ppf(0.975, 4) * stats.sem(means)
    (line,) = [each for each in regret if each["arm"] == "invaug"]
    assert numbers_in(line["mean regret"]) == pytest.approx([means.mean(), half], abs=0.051)
    assert float(line["worst regret"]) == pytest.approx(max(each.mean() for each in worst), abs=0.051)
    pairs = [(task, set_name) for task in entry["tasks"] for set_name in entry["sets"]]
    for each in regret:
        ours, theirs = (
            100 * np.mean([of(numbers["safety"], f"{task}-{set_name}-{arm}") for task, set_name in pairs], axis=0)
            for arm in ("invaug", each["arm"])
        )
        if each["arm"] != "invaug":
            low, high = stats.ttest_rel(ours, theirs).confidence_interval()
            shown = numbers_in(each["invaug minus the arm"])
            assert shown == pytest.approx([(low + high) / 2, (high - low) / 2], abs=0.0051)
            assert each["verdict"] == (
                "not decided" if low <= 0 <= high else f"shown to be {'above' if low > 0 else 'below'}"
            )


def test_a_pair_without_all_its_runs_has_no_regret_on_the_page(tmp_path):
    made_up_results("safety", tmp_path)
    path = tmp_path / "safety" / "small.jsonl"
    lines = [line for line in path.read_text().splitlines() if json.loads(line)["cell"] != "svhn-wide-penalty"]
    path.write_text("\n".join(lines))
    page = proof_page.write_page(tmp_path)
    assert "Over 31 of 32 pairs" in page
    assert len(tables(page, "safety")[1]) == 32


def test_chains_are_compared_with_uniform_draws_of_the_same_arm(made_up_page):
    page, numbers, _ = made_up_page
    (table,) = tables(page, "lambda-c")
    assert len(table) == 12
    for line in table:
        label = f"{line['dataset']}-{line['arm']}-n\\_steps".replace("\\", "")
        ours, uniform = (of(numbers["lambda-c"], f"{label}-{n}") for n in (line["transitions"], 0))
        if line["transitions"] == "0":
            assert line["minus uniform"] == "–"
        else:
            low, high = stats.ttest_rel(100 * ours, 100 * uniform).confidence_interval()
            assert numbers_in(line["minus uniform"])[0] == pytest.approx((low + high) / 2, abs=0.0051)


def test_the_verdicts_over_datasets_are_those_of_scipy(made_up_page):
    page, numbers, _ = made_up_page
    text = " ".join(page.split())
    tasks, sets = ("cifar10", "fashion-mnist"), ("mild", "extreme", "inversion")

    def sentence(name: str, start: str, pairs: list[tuple[str, str]]) -> str:
        ours, theirs = (100 * np.mean([of(numbers[name], pair[i]) for pair in pairs], axis=0) for i in (0, 1))
        low, high = stats.ttest_rel(ours, theirs).confidence_interval()
        verdict = "not decided" if low <= 0 <= high else f"shown to be {'above' if low > 0 else 'below'}"
        return f"{start} {(low + high) / 2:+.2f} ± {(high - low) / 2:.2f} ({verdict})"

    for arm, (n, words) in product(("same-epsilon", "same-gamma"), ((1, "transition"), (3, "transitions"))):
        pairs = [(f"{task}-{arm}-n_steps-{n}", f"{task}-{arm}-n_steps-0") for task in tasks]
        assert sentence("lambda-c", f"{arm.replace('-', ' ')}, {n} {words}", pairs) in text
    for name in ("cap-0.5", "cap-1", "alpha-2.5"):
        pairs = [(f"{t}-{s}-invaug-{name}", f"{t}-{s}-invaug-cap-2") for t, s in product(tasks, sets)]
        assert sentence("cap", name.replace("-", " ", 1), pairs) in text


@pytest.mark.parametrize(
    ("name", "key", "values"), [("length", "epochs", (15, 60, 240)), ("width", "model", ("conv-24", "conv-64"))]
)
def test_what_a_wrong_set_costs_is_that_of_scipy(made_up_page, name, key, values):
    page, numbers, _ = made_up_page
    text, found = " ".join(page.split()), numbers[name]

    def cost(value: float | str) -> np.ndarray:
        sets = [of(found, f"cifar10-{each}-invaug-{key}-{value}") for each in WRONG]
        return 100 * (np.mean(sets, axis=0) - of(found, f"cifar10-basic-{key}-{value}"))

    first, last = values[0], values[-1]
    wanted = {f"{key} {each}": cost(each) for each in values} | {f"from {first} to {last}": cost(last) - cost(first)}
    for start, gains in wanted.items():
        low, high = stats.ttest_1samp(gains, 0).confidence_interval()
        verdict = "not decided" if low <= 0 <= high else f"shown to be {'above' if low > 0 else 'below'}"
        assert f"{start} {(low + high) / 2:+.2f} ± {(high - low) / 2:.2f} ({verdict})" in text


def test_no_augmentation_that_ends_after_as_many_clean_views_is_compared_with_its_own_set(made_up_page):
    page, numbers, _ = made_up_page
    text, found = " ".join(page.split()), numbers["length"]
    for epochs in (15, 60, 240):
        gains = [
            of(found, f"cifar10-{each}-invaug-epochs-{epochs}") - of(found, f"cifar10-basic-epochs-{ends[str(epochs)]}")
            for each, ends in proof.TABLE["length"]["clean_epochs"].items()
        ]
        low, high = stats.ttest_1samp(100 * np.mean(gains, axis=0), 0).confidence_interval()
        start = text.index("invaug minus no augmentation that ends after as many clean views")
        assert f"epochs {epochs} {(low + high) / 2:+.2f} ± {(high - low) / 2:.2f}" in text[start : start + 400]


def test_the_epochs_of_as_many_clean_views_are_those_of_the_rows():
    passes: dict[str, list[float]] = {}
    for each in rows_of("length"):
        passes.setdefault(each["cell"], []).append(each["numbers"]["passes"])
    for name, ends in proof.TABLE["length"]["clean_epochs"].items():
        for epochs, printed in ends.items():
            views = np.mean(passes[f"cifar10-basic-epochs-{epochs}"]) / 3  # one forward and one backward pass each
            # training, two proposals for each transformed view, and the clean scores of an eighth of each batch
            scored = np.mean(passes[f"cifar10-{name}-invaug-epochs-{epochs}"]) / views - 3
            assert printed == round(int(epochs) * (1 - (scored - 1 / 8) / 2))


def test_every_experiment_has_a_verdict_a_table_and_a_figure(made_up_page):
    page, _, folder = made_up_page
    figures = proof_page.draw_figures(folder)
    for name in proof.NAMES:
        assert tables(page, name)
        assert proof.TABLE[name]["against"]
        assert any(f"compare/{figure}" in page for figure in figures if figure.startswith(name))
        assert all(text.startswith("<svg") for text in figures.values())
