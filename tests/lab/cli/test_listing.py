from __future__ import annotations

import json
from typing import get_args

import pytest

from invaug.lab.cli.listing import catalogue, first_comment
from invaug.lab.config import build as configs
from invaug.lab.config.methods import METHODS
from invaug.lab.config.schema import PLACES
from invaug.lab.data.known import SOURCES
from invaug.lab.models.build import MODELS


@pytest.fixture(scope="module")
def names() -> dict[str, dict[str, str]]:
    return catalogue()


def choices(key: str) -> set[str]:
    """What the config accepts for a key."""
    return set(get_args(PLACES[key].info.annotation))


def test_there_is_one_heading_for_everything_with_a_name(names: dict[str, dict[str, str]]) -> None:
    assert list(names) == ["datasets", "models", "sets", "methods", "presets", "configs"]


def test_what_is_listed_is_what_can_be_asked_for(names: dict[str, dict[str, str]]) -> None:
    assert set(names["sets"]) == choices("set")
    assert set(names["methods"]) == set(METHODS)
    assert set(names["presets"]) == choices("preset") == set(configs.PRESETS)
    assert tuple(names["datasets"]) == tuple(SOURCES)
    assert tuple(names["models"]) == tuple(MODELS)
    assert list(names["configs"]) == configs.shipped_names()


def test_everything_says_what_it_is_in_one_line(names: dict[str, dict[str, str]]) -> None:
    for entries in names.values():
        for name, summary in entries.items():
            assert summary.strip(), name
            assert summary == " ".join(summary.split()), name
            assert len(summary) <= 100, name


def test_continuous_sets_name_their_default_range(names: dict[str, dict[str, str]]) -> None:
    assert names["sets"]["translations"].endswith("[7]")
    assert names["sets"]["rotations"].endswith("[3.142]")


def test_a_config_is_described_by_its_first_comment() -> None:
    assert first_comment("cifar10-wrn-40-2-wide-paper") == "CIFAR-10, WRN-40-2, wide set, as the paper's text has it"


def test_the_catalogue_is_json(names: dict[str, dict[str, str]]) -> None:
    assert json.loads(json.dumps(names)) == names
