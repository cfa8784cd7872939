"""The table of experiments: one entry per table and figure of the paper, with what it must show and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from invaug.lab.errors import UserError, nearest
from invaug.lab.jobs import job
from invaug.lab.reproduce import full, small
from invaug.lab.reproduce.cells import Cell, Claim, Experiment, Scale, along, compared, falling, rising

LEVELS = [f"constrained-{level:g}" for level in small.LEVELS]
CHAINS = [f"{n}-transitions" for n in small.STEPS]
ENDS = ("gamma_quarter", "gamma_half", "gamma_three_quarters", "gamma")


def _plans(name: str) -> Mapping[Scale, Any]:
    function = name.replace("-", "_")
    return {"full": getattr(full, function)(), "small": getattr(small, function)()}


def _better(a: str, b: str) -> Claim:
    """Claim that one cell's test accuracy is above another's."""
    wanted = along("test_accuracy", (a, b))
    return Claim(f"{a} is above {b}", compared(lambda x, y: x > y, *wanted), (a, b))


def _gains() -> Claim:
    cells = [f"{size}-{method}" for size in small.SIZES for method in ("constrained", "trivial")]
    wanted = along("test_accuracy", cells)

    def shrink(*means: float) -> bool:
        gains = [ours - trivial for ours, trivial in zip(means[::2], means[1::2], strict=True)]
        return gains[0] > gains[-1] and min(gains) > 0

    text = "constrained is above trivial at every size, and by more with the fewest images than with the most"
    return Claim(text, compared(shrink, *wanted))


def _cheapest() -> tuple[Claim, ...]:
    """Claim, for each planted dataset, that the true symmetry has the smallest gamma."""
    truths = {"r180": "rotation", "r90": "rotation", "translated": "translation", "scaled": "scale"}
    claims = []
    for cell in small.table_synthetic().cells:
        truth = truths[cell.label.rsplit("-", 1)[1]]
        others = [family for family in full.families(1.0) if family != truth]
        wanted = [(cell.label, f"gamma.{family}") for family in (truth, *others)]
        text = f"{cell.label}: gamma is smallest for {truth}"
        claims.append(Claim(text, compared(lambda own, *rest: own < min(rest), *wanted)))
    return tuple(claims)


def _uniform() -> tuple[Claim, ...]:
    return tuple(_better(f"constrained-{level:g}", f"uniform-{level:g}") for level in small.UNIFORM_LEVELS)


def _longer(number: str, text: str) -> tuple[Claim, ...]:
    pairs = [(f"constrained-{level:g}", f"constrained-{level:g}-long") for level in small.LONG_LEVELS]
    return tuple(Claim(f"{text}: {long}", compared(rising, *along(number, (short, long)))) for short, long in pairs)


def _table(*entries: Experiment) -> dict[str, Experiment]:
    return {entry.name: entry for entry in entries}


@cache
def experiments() -> dict[str, Experiment]:
    """Return every experiment by its name, in the order of the paper's argument."""
    return _table(
        Experiment(
            "pilot", "The level of the small scale, chosen on training images held out",
            "3-fold cross-validation chose its levels", ("held_out_accuracy", "held_out_loss", "gamma"),
            _plans("pilot"),
        ),
        Experiment(
            "table-1", "Accuracy by method, network and set",
            "constrained is above TrivialAugment and DeepAA, or level with them, on CIFAR-10, CIFAR-100 and SVHN",
            ("test_accuracy",), _plans("table-1"),
            tuple(
                _better(f"{data}-constrained", f"{data}-{other}")
                for data in small.SHAPES
                for other in ("none", "trivial", "trivial-no-identity", "randaugment", "uniform")
            ),
        ),
        Experiment(
            "table-2", "Accuracy with few images",
            "constrained is above TrivialAugment on ImageNet-100 at 1 to 10 %, by 0.9 to 3.2 points",
            ("test_accuracy",), _plans("table-2"), (_gains(),),
        ),
        Experiment(
            "figure-epsilon", "Error, generalisation gap and gamma against epsilon",
            "as epsilon grows the training error falls, the gap grows, and gamma vanishes where the curve bends",
            ("train_error", "test_error", "gap", "gamma"), _plans("figure-epsilon"),
            (
                Claim("training error falls with epsilon", compared(falling, *along("train_error", LEVELS))),
                Claim("the gap grows with epsilon", compared(rising, *along("gap", LEVELS))),
                Claim("gamma falls with epsilon", compared(falling, *along("gamma", LEVELS))),
                Claim(
                    "gamma vanishes at the loosest level",
                    compared(lambda gamma: gamma < full.VANISHED, (LEVELS[-1], "gamma")),
                ),
            ),
        ),
        Experiment(
            "figure-uniform", "λ_c against uniform draws at the same epsilon",
            "test error is lower under λ_c at the same epsilon, most where the uniform gamma vanishes",
            ("test_error", "gamma"), _plans("figure-uniform"), _uniform(),
        ),
        Experiment(
            "figure-steps", "Losses, entropy and gamma by sampling steps",
            "with more steps entropy falls, gamma and the training loss rise; the test loss hardly changes",
            ("train_loss", "test_loss", "entropy", "gamma"), _plans("figure-steps"),
            (
                Claim("entropy falls with the steps", compared(falling, *along("entropy", CHAINS))),
                Claim("gamma rises with the steps", compared(rising, *along("gamma", CHAINS))),
            ),
        ),
        Experiment(
            "figure-steps-dual", "gamma over epochs by sampling steps",
            "gamma grows faster with more steps", ENDS,
            {"full": full.figure_steps(), "small": small.figure_steps()},
            (Claim("half-way gamma rises with the steps", compared(rising, *along("gamma_half", CHAINS))),),
            keeps=("curve",),
        ),
        Experiment(
            "table-synthetic", "gamma of three constraints on four planted symmetries",
            "gamma of the planted symmetry is the smallest, but for scale on F-MNIST",
            tuple(f"gamma.{family}" for family in full.families(1.0)), _plans("table-synthetic"), _cheapest(),
        ),
        Experiment(
            "figure-dual", "gamma over epochs by epsilon",
            "gamma grows until the constraint holds, then falls; the strictest do not settle in 200 epochs",
            (*ENDS, "gamma_highest"), _plans("figure-dual"),
            (
                Claim("the highest gamma falls with epsilon", compared(falling, *along("gamma_highest", LEVELS))),
                Claim(
                    "at the loosest level gamma ends below its highest",
                    compared(falling, (LEVELS[-1], "gamma_highest"), (LEVELS[-1], "gamma")),
                ),
            ),
            keeps=("curve",),
        ),
        Experiment(
            "figure-epochs", "200 against 600 epochs",
            "with 600 epochs the training loss falls and the gap grows; the constraint hardly changes",
            ("train_loss", "gap", "constraint_loss", "gamma"), _plans("figure-epochs"),
            _longer("gap", "the gap grows"),
        ),
        Experiment(
            "figure-frequency", "How often each operation is sampled",
            "geometric operations are sampled most, more so late in training and with more steps",
            ("geometric_first", "geometric", "entropy_first", "entropy"), _plans("figure-frequency"),
            (
                Claim("geometric operations rise with the steps", compared(rising, *along("geometric", CHAINS))),
                Claim(
                    "geometric operations rise from the first epoch to the last, 8 proposals",
                    compared(rising, (CHAINS[-1], "geometric_first"), (CHAINS[-1], "geometric")),
                ),
            ),
            keeps=("kept",),
        ),
        Experiment(
            "figure-levels", "How often each level is sampled",
            "extreme levels are sampled more often, more so with more steps",
            ("extreme_first", "extreme"), _plans("figure-levels"),
            (
                Claim(
                    "extreme levels rise with the steps",
                    compared(rising, *along("extreme", ("1-transitions", "7-transitions"))),
                ),
                Claim(
                    "extreme levels are sampled more often than uniform draws would, 8 proposals",
                    compared(lambda times: times > 1, ("7-transitions", "extreme")),
                ),
            ),
            keeps=("levels",),
        ),
        Experiment(
            "table-runtime", "Seconds an epoch",
            "2 steps cost 2.58 times TrivialAugment, 4 steps 4.06 times",
            ("seconds_per_epoch", "time_ratio", "pass_ratio"), _plans("table-runtime"),
            (
                Claim(
                    "2 steps cost at most the paper's 2.58 times TrivialAugment",
                    compared(lambda ratio: ratio <= 32.5 / 12.6, ("2-steps", "time_ratio")),
                ),
                Claim(
                    "4 steps cost at most the paper's 4.06 times TrivialAugment",
                    compared(lambda ratio: ratio <= 51.2 / 12.6, ("4-steps", "time_ratio")),
                ),
            ),
            reference="trivial",
        ),
        Experiment(
            "table-views", "Accuracy by kept views",
            "accuracy falls slightly from m = 2 to m = 16", ("test_accuracy",), _plans("table-views"),
            (_better("2-views", "16-views"),),
        ),
        Experiment(
            "table-bias", "The wide set at its largest magnitudes",
            "λ_c alone is below no augmentation; with the clean images it is above", ("test_accuracy",),
            _plans("table-bias"), (_better("identity-mix", "none"), _better("none", "sampled")),
        ),
        Experiment(
            "table-epsilon-rule", "Halving and doubling epsilon by gamma",
            "the adjusted levels are better by 0.3 to 7.8 points", ("test_accuracy",), _plans("table-epsilon-rule"),
            tuple(
                _better(f"{data}-{model}-{plant}-adjusted", f"{data}-{model}-{plant}-same")
                for data, model in full.RULED
                for plant in full.RULED_PLANTS
            ),
        ),
    )  # fmt: skip


def find(name: str) -> Experiment:
    """Return an experiment by name."""
    if name == "tune":
        raise UserError("tune is a command of its own: invaug tune cifar10, over the levels of the paper")
    if name not in experiments():
        raise UserError(f"unknown experiment {name}, {nearest(name, experiments())}")
    return experiments()[name]


class Place(NamedTuple):
    """Where a cell is trained: of equal cells, where the first is."""

    home: str
    label: str


def identity(cell: Cell) -> str:
    """Return what makes two cells the same training."""
    return job.identity(cell.settings, cell.unit_inputs)


@cache
def places(scale: Scale) -> Mapping[str, Place]:
    """Return where each training of a scale is, by its identity."""
    found: dict[str, Place] = {}
    for experiment in experiments().values():
        if experiment.reference:  # seconds are measured in turn, in runs of their own
            continue
        for cell in experiment.plans[scale].cells:
            if not cell.lacks:
                found.setdefault(identity(cell), Place(experiment.name, cell.label))
    return found


def place(experiment: Experiment, scale: Scale, cell: Cell) -> Place:
    """Return where a cell of an experiment is trained."""
    own = Place(experiment.name, cell.label)
    return own if experiment.reference else places(scale).get(identity(cell), own)
