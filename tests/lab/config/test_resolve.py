from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from invaug import Resilient, sets
from invaug.lab.config.build import PRESETS, build, flatten, nest, shipped_names
from invaug.lab.config.build import read as read_settings
from invaug.lab.config.levels import level_of
from invaug.lab.config.methods import METHODS
from invaug.lab.config.resolve import Machine, resolve
from invaug.lab.train.problem import constraints
from invaug.lab.train.sets import transform_set
from tests.support.configs import Facts, flat, resolved

PHOTOGRAPHS = Facts(tuple("abcdefghij"), 50_000, (3, 32, 32))
LARGE = Facts(("cat", "dog"), 800, (3, 224, 224))
CIFAR, FOLDER = {"data": "cifar10"}, {"data": "photos"}
DIGITS = {"batch_size": 128, "epochs": 30, "lr": 0.1, "drop_last": True}
NEEDS = {"gamma_init": 0.5, "policy": "p.npz"}


@pytest.mark.parametrize("facts", [Facts(), PHOTOGRAPHS, LARGE])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_a_resolved_config_has_no_auto_left_and_resolves_to_itself(method: str, preset: str, facts: Facts) -> None:
    config = resolved(facts, method=method, preset=preset, **NEEDS)
    assert "auto" not in config.flat("json").values()
    assert config.method.epsilon is not None
    assert resolve(config, facts, Machine("cuda", 7)).replaced(device="cpu") == config


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_configs_resolve_and_are_read_again_as_they_were(name: str) -> None:
    config = resolved(**read_settings(name))
    settings = {key: value for key, value in config.flat().items() if value is not None}
    assert build(flatten(nest(settings))) == config


@pytest.mark.parametrize(
    ("facts", "given", "expected"),
    [
        (Facts(), {}, {"model": "cnn-small", "crop": 0, "flip": "no", "resized_crop": "no"}),
        (PHOTOGRAPHS, CIFAR, {"model": "resnet-8", "crop": 4, "flip": "yes", "resized_crop": "no"}),
        (PHOTOGRAPHS, {"data": "cifar10+r180"}, {"flip": "no"}),
        (PHOTOGRAPHS, {"data": "svhn"}, {"flip": "no"}),
        (PHOTOGRAPHS, {"data": "photos/svhn"}, {"flip": "yes"}),
        (Facts(), FOLDER, {"flip": "no"}),
        (LARGE, FOLDER, {"model": "resnet-8", "crop": 0, "flip": "yes", "resized_crop": "yes"}),
        (LARGE, {"crop": 2, "flip": "no", "resized_crop": "no"}, {"crop": 2, "flip": "no", "resized_crop": "no"}),
        (Facts(), {}, {"set": "mild", "depth": 2, "share": 1 / 8, "range": None}),
        (Facts(), {"views": "both"}, {"share": 1.0}),
        (Facts(), {"method": "sampled"}, {"share": 1.0, "epsilon": 0.0, "gamma_init": 1.0, "dual_lr": 0.0}),
        (Facts(), {"set": "wide"}, {"depth": 1}),
        (Facts(), {"set": "wide", "depth": 3}, {"depth": 3}),
        (Facts(), {"method": "trivial"}, {"set": "wide", "depth": 1, "epsilon": math.inf}),
        (Facts(), {"method": "trivial", "set": "standard"}, {"set": "standard"}),
        (Facts(), {"set": "rotations"}, {"range": math.pi}),
        (Facts(), {"set": "rotations", "range": 0.5}, {"range": 0.5}),
        (Facts(), {"preset": "paper"}, {"epsilon": 0.81, "set": "wide", "cutout": 16}),
        (Facts(), {"families": {"turn": {"Rotate": 30}}}, {"depth": 1}),
        (Facts(), {"threads": 3}, {"threads": 3, "device": "cpu"}),
    ],
)
def test_what_auto_means(facts: Facts, given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = flat(resolved(facts, **given))
    assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("n_train", "given", "expected"),
    [
        (4_000, {}, DIGITS),
        (50_000, {}, DIGITS),
        (73_257, {}, DIGITS),
        (1_281_167, {}, DIGITS | {"epochs": 10}),
        (800, {}, {"batch_size": 32, "epochs": 30, "lr": 0.05, "drop_last": True}),
        (128, {}, {"batch_size": 8, "epochs": 47, "lr": 0.025, "drop_last": True}),
        (24, {}, {"batch_size": 8, "epochs": 100, "lr": 0.025, "drop_last": True}),
        (7, {}, {"batch_size": 8, "epochs": 100, "drop_last": False}),
        (100, {"batch_size": 128}, {"drop_last": False}),
        (800, {"batch_size": 256}, {"lr": 0.1}),
        (800, {"accumulate": 4}, {"batch_size": 8}),
        (800, {"n_ranks": 4}, {"batch_size": 8}),
        (4_000, {"optimizer": "adam"}, {"lr": 1e-3}),
        (24, {"preset": "paper"}, DIGITS | {"epochs": 200}),
        (24, DIGITS, DIGITS),
    ],
)
def test_the_recipe_fits_the_number_of_images(n_train: int, given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = flat(resolved(Facts(n_train=n_train), **given))
    assert {key: getattr(found, key) for key in expected} == expected


@drawn(st.integers(1, 3_000_000), st.integers(1, 8))
def test_every_dataset_has_a_recipe_that_it_can_be_trained_by(n_train: int, n_ranks: int) -> None:
    train = resolved(Facts(n_train=n_train), n_ranks).train
    steps = max(n_train // (train.batch_size * n_ranks), 1)
    assert train.batch_size in (8, 16, 32, 64, 128)
    assert steps >= 25 or train.batch_size == 8
    assert steps < 50 or train.batch_size == 128
    assert train.epochs == 30 or (train.epochs > 30) == (steps < 25)
    assert 10 <= train.epochs <= 100
    assert not train.drop_last or n_train >= train.batch_size * n_ranks


def test_the_default_is_the_mild_set_under_the_resilient_rule() -> None:
    config = resolved()
    (constraint,) = constraints(config)
    assert level_of(config.method.epsilon) == Resilient()
    assert constraint.transforms == sets.mild()
    assert transform_set(resolved(method="trivial")) == sets.wide()


def test_a_box_is_cut_only_where_a_published_preset_or_the_user_says_so() -> None:
    sides = {
        "none": {},
        "own": {"cutout": 8},
        "published": {"preset": "paper"},
        "off": {"preset": "paper", "cutout": 0},
    }
    found = {name: resolved(PHOTOGRAPHS, **given).train.cutout for name, given in sides.items()}
    assert found == {"none": 0, "own": 8, "published": 16, "off": 0}
