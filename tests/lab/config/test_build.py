from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from invaug import Resilient
from invaug.lab.cli import main
from invaug.lab.config import build as configs
from invaug.lab.config.levels import level_of
from invaug.lab.config.schema import PLACES, RECORDS
from invaug.lab.data.known import SOURCES
from invaug.lab.errors import UserError
from invaug.lab.models.build import MODELS
from invaug.lab.train.sets import transform_set
from tests.support.configs import flat, resolved

NAMES = configs.shipped_names()

# the constraint levels as published: (standard, wide) in the paper's text, (standard, wide) in the authors' code
LEVELS = {
    ("cifar10", "wrn-40-2"): ((0.6, 0.8), (0.6, 0.8)),
    ("cifar10", "wrn-28-10"): ((0.4, 0.8), (1.2, None)),
    ("cifar100", "wrn-40-2"): ((0.9, 0.8), (0.9, 2.1)),
    ("cifar100", "wrn-28-10"): ((0.9, 1.2), (1.3, 2.1)),
    ("svhn", "wrn-28-10"): ((0.1, 0.2), (None, 0.2)),
}
PUBLISHED = {
    f"{data}-{model}-{kind}-{preset}": (data, model, kind, preset, level)
    for (data, model), columns in LEVELS.items()
    for preset, levels in zip(("paper", "authors-code"), columns, strict=True)
    for kind, level in zip(("standard", "wide"), levels, strict=True)
    if level is not None
}
SYNTHETIC_LEVELS = {
    ("mnist", "mlp"): 0.6,
    ("mnist", "cnn"): 0.35,
    ("fashion-mnist", "mlp"): 0.8,
    ("fashion-mnist", "cnn"): 0.6,
}
RANGES = {"rotations": math.pi, "translations": 7.0, "scalings": 1.5}
SYNTHETIC = {
    f"{data}-{kind}-{model}": (data, model, kind, level)
    for (data, model), level in SYNTHETIC_LEVELS.items()
    for kind in RANGES
}


def built(name: str) -> SimpleNamespace:
    return flat(configs.build(configs.read(name)))


def test_these_configs_ship_and_no_others() -> None:
    assert set(NAMES) == {"digits", "imagenet100-resnet-50-wide-paper", *PUBLISHED, *SYNTHETIC}
    assert len(PUBLISHED) == 18


@pytest.mark.parametrize("name", NAMES)
def test_every_config_builds_and_names_what_is_there(name: str) -> None:
    config = built(name)
    assert config.data in SOURCES
    assert config.model == "auto" or config.model in MODELS
    assert transform_set(resolved(**configs.read(name))).ops


@pytest.mark.parametrize("name", NAMES)
def test_every_config_starts_with_a_comment(name: str) -> None:
    text = (configs.SHIPPED / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert text.endswith("\n")


@pytest.mark.parametrize("name", PUBLISHED)
def test_epsilon_is_the_published_one(name: str) -> None:
    config = built(name)
    assert (config.data, config.model, config.set, config.preset, config.epsilon) == PUBLISHED[name]
    assert config.method == "constrained"


@pytest.mark.parametrize("name", PUBLISHED)
def test_optimisation_is_that_of_the_published_runs(name: str) -> None:
    config = built(name)
    departs = (config.data, config.preset) == ("svhn", "authors-code")
    assert (config.optimizer, config.momentum, config.schedule, config.min_lr) == ("sgd", 0.9, "cosine", 0.0)
    assert (config.batch_size, config.epochs, config.drop_last, config.warmup) == (128, 200, True, 0.0)
    assert (config.lr, config.weight_decay) == ((0.005, 0.005) if departs else (0.1, 5e-4))
    assert (config.crop, config.flip, config.cutout) == ((0, "no", 16) if departs else (4, "yes", 16))
    assert (config.clip, config.label_smoothing, config.ema, config.accumulate) == (5.0, 0.0, 0.0, 1)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_two_presets_differ_where_text_and_code_differ(name: str) -> None:
    config = built(name)
    assert (config.n_steps, config.dual_lr, config.scoring, config.identity) == {
        "paper": (2, 1e-3, "frozen", True),
        "authors-code": (1, 1e-4, "train", False),
    }[config.preset]
    assert (config.n_levels, config.n_views, config.gamma_init, config.views) == (30, 1, 0.0, "apart")


def test_imagenet100_is_trained_with_adam() -> None:
    config = built("imagenet100-resnet-50-wide-paper")
    assert (config.data, config.model, config.set, config.epsilon) == ("imagenet100", "resnet-50", "wide", 0.7)
    assert (config.optimizer, config.lr, config.weight_decay) == ("adam", 5e-4, 0.0)
    assert (config.batch_size, config.epochs, config.schedule) == (128, 270, "cosine")
    assert (config.cutout, config.dual_lr, config.preset) == (0, 1e-3, "paper")


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_invariances_are_those_of_the_appendix(name: str) -> None:
    config = built(name)
    assert (config.data, config.model, config.set, config.epsilon) == SYNTHETIC[name]
    assert config.range == pytest.approx(RANGES[config.set])
    assert (config.optimizer, config.lr, config.min_lr, config.schedule) == ("adam", 0.005, 1e-6, "cosine")
    assert (config.weight_decay, config.clip, config.batch_size, config.epochs) == (1e-4, 1.0, 1000, 400)
    assert (config.dual_lr, config.gamma_init, config.views) == (5e-4, 0.0, "both")
    assert (config.crop, config.flip, config.cutout) == (0, "no", 0)


def test_digits_is_the_default_job() -> None:
    assert configs.build(configs.read("digits")) == configs.build({})


def test_a_shipped_config_is_the_start_of_ones_own() -> None:
    config = flat(configs.build(configs.read("cifar10-wrn-40-2-wide-paper") | {"epochs": 3, "n_steps": 1}))
    assert (config.epochs, config.n_steps, config.epsilon) == (3, 1, 0.8)


def test_an_unknown_config_answers_with_the_nearest() -> None:
    with pytest.raises(
        UserError, match=r"no config cifar10-wrn-40-2-wide: .* did you mean cifar10-wrn-40-2-wide-paper"
    ):
        configs.read("cifar10-wrn-40-2-wide")


@pytest.mark.parametrize("key", [name for name in configs.REMOVED if " " not in name])
def test_a_removed_key_is_named_with_what_replaced_it(key: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"{key} was removed: use {configs.REMOVED[key]}")):
        configs.build({key: 1})
    assert key not in PLACES


@pytest.mark.parametrize(("key", "value"), [name.split() for name in configs.REMOVED if " " in name])
def test_a_removed_method_or_preset_is_named_with_what_replaced_it(key: str, value: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"{key} {value} was removed: use ")):
        configs.build({key: value})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "uniform", "n_steps": 2}, "method uniform has no chains: leave out n_steps 2, or use --method"),
        ({"n_views": 2}, "n_views 2 needs --views both or apart"),
        (
            {"method": "sampled", "families": {"a": {"FlipX": True}, "b": {"FlipY": True}}},
            "sampled takes one constraint",
        ),
        ({"epsilon": {}}, 'epsilon needs rule = "resilient"'),
        ({"epsilon": {"rule": "priced"}}, 'epsilon needs rule = "resilient"'),
        ({"epsilon": {"rule": "resilient", "alhpa": 1.0}}, "unknown key alhpa, did you mean alpha"),
        ({"epsilon": {"rule": "resilient", "alpha": 0.0}}, "alpha must be from 1e-06 to 1e+06, or inf, got 0.0"),
        ({"epsilon": {"rule": "resilient", "alpha": True}}, "needs a number as alpha"),
        ({"epsilon": {"rule": "resilient", "cap": "high"}}, "needs a number as cap"),
        ({"epsilon": {"rule": "resilient", "base": "dirty"}}, 'base must be "clean" or a number'),
        ({"epsilon": {"rule": "resilient", "base": [1]}}, "needs a number as base"),
        ({"epsilon": "much"}, "epsilon must be a number, auto or a table"),
        ({"views": "three"}, "unknown views three"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_in_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as refused:
        configs.build(given)
    assert "\n" not in str(refused.value)


def test_a_table_of_the_rule_is_completed_and_is_the_rule() -> None:
    epsilon = configs.build({"epsilon": {"rule": "resilient", "alpha": 2, "base": 0.5}}).method.epsilon
    assert epsilon == {"rule": "resilient", "alpha": 2, "base": 0.5, "cap": Resilient().cap}
    assert level_of(epsilon) == Resilient(alpha=2, base=0.5)
    assert level_of(resolved().method.epsilon) == Resilient()


def test_the_default_is_chains_one_view_and_a_level_set_by_the_rule() -> None:
    config = flat(configs.build({}))
    assert (config.method, config.n_steps, config.n_views, config.views) == ("constrained", 1, 1, "one")
    assert (config.epsilon, config.set, config.dual_lr, config.gamma_init) == ("auto", "auto", 2e-2, 0.0)
    assert (config.cutout, config.share, config.preset) == (0, "auto", "default")


@pytest.mark.parametrize("given", [{}, {"preset": "paper"}, {"n_steps": 0}])
def test_uniform_draws_have_no_chain(given: dict[str, Any]) -> None:
    config = configs.build({**given, "method": "uniform"})
    assert config.method.n_steps == 0
    assert configs.build(config.flat()) == config  # as a run writes it, and reads it again


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--mixture"], "--mixture"),
        (["--no-mixture"], "--no-mixture"),
        (["--price", "3"], "--price"),
        (["--remember", "4"], "--remember"),
        (["--learn", "1"], "--learn"),
        (["--normalized"], "--normalized"),
        (["--watched", "0.5"], "--watched"),
        (["--scoring-precision", "bf16"], "--scoring-precision"),
        (["--no-joint"], "--no-joint"),
        (["--early-stop", "3"], "--early-stop"),
    ],
)
@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_removed_flag_is_answered_in_one_line_with_code_2(
    command: str, words: list[str], flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["invaug", command, *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"invaug: {flag} was removed: use ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epochs = 3", "epochs belongs in a table: write [train] and under it epochs = …"),
        ('data = "cifar10"', "data belongs in a table: write [data] and under it name = …"),
        ("[train]\nepocs = 3", "unknown key train.epocs, did you mean train.epochs"),
        ("[trian]\nepochs = 3", "unknown table or key trian, did you mean train"),
        ("[method]\nepochs = 3", "unknown key method.epochs"),
        ("[method]\nremember = 4", "remember was removed: use "),
        ('[method]\nname = "learned"', "method learned was removed: use "),
    ],
)
def test_a_key_outside_its_table_is_refused_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UserError, match=re.escape(said)):
        configs.read(tmp_path / "mine.toml")


def test_short_names_are_unique_and_every_setting_has_one() -> None:
    fields = [(record, name) for record, kind in RECORDS.items() for name in kind.model_fields]
    assert len(PLACES) == len(fields)
    assert {(place.record, place.field) for place in PLACES.values()} == set(fields)


def test_nesting_and_flattening_are_inverse() -> None:
    settings = configs.build({"families": {"a": {"FlipX": True}}}).flat()
    assert configs.flatten(configs.nest(settings)) == settings
