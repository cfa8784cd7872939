"""Every number of the config has bounds, and what lies outside is refused in one line."""

import math
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import annotated_types
import pytest

from invaug.lab.config.build import build
from invaug.lab.config.levels import LIMITS
from invaug.lab.config.schema import PLACES, Config
from invaug.lab.errors import UserError
from invaug.levels import Resilient

LOW, HIGH = (annotated_types.Ge, annotated_types.Gt), (annotated_types.Le, annotated_types.Lt)


def numbers(kind: Any, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the constraints on each int and float in a type, those around it included."""
    own = (*metadata, *getattr(kind, "__metadata__", ()))
    flat = tuple(part for each in own for part in (getattr(each, "metadata", None) or [each]))
    if kind in (int, float):
        yield flat
    elif hasattr(kind, "__metadata__"):
        yield from numbers(get_args(kind)[0], flat)
    else:
        inner = () if get_origin(kind) in (dict, list, tuple) else flat
        for part in get_args(kind):
            yield from numbers(part, inner)


def settings() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    yield "families", Config.model_fields["families"].annotation, tuple(Config.model_fields["families"].metadata)
    for name, place in PLACES.items():
        yield name, place.info.annotation, tuple(place.info.metadata)


NUMBERS = [(name, found) for name, kind, metadata in settings() for found in numbers(kind, metadata)]
NAMES = sorted({name for name, _ in NUMBERS} - {"families"})


def test_the_walk_finds_the_numbers() -> None:
    assert {"seed", "lr", "epsilon", "families", "range", "threads", "dual_lr", "image_size"} <= {n for n, _ in NUMBERS}
    assert len(NUMBERS) > 35


@pytest.mark.parametrize(("name", "found"), NUMBERS)
def test_every_number_has_a_lower_and_an_upper_bound(name: str, found: tuple[Any, ...]) -> None:
    assert any(isinstance(each, LOW) for each in found), f"{name} has no lower bound: {found}"
    assert any(isinstance(each, HIGH) for each in found), f"{name} has no upper bound: {found}"


def test_every_number_of_a_rule_has_bounds() -> None:
    assert LIMITS.keys() == Resilient.__dataclass_fields__.keys()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-1, 10**19, 10**400, 1e308, -math.inf, math.inf, math.nan, "nan", "9" * 5000])
def test_what_lies_outside_is_refused_in_one_short_line(name: str, value: Any) -> None:
    if (name, value) == ("epsilon", math.inf):
        assert build({name: value}).method.epsilon == math.inf
        return
    with pytest.raises(UserError) as refused:
        build({name: value})
    assert name in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("key", [*PLACES, "families"])
@pytest.mark.parametrize("value", [[], {}, [[1]], {"a": {"b": []}}, -1.5, True, "\0", 2**70, None])
def test_a_wrong_type_is_refused_in_one_line_or_harmless(key: str, value: Any) -> None:
    said = ""
    try:
        build({key: value})
    except UserError as error:
        said = str(error)
    assert len(said) < 400


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seed": 2**64}, "seed should be less than or equal to 9223372036854775807, got 18446744073709551616"),
        ({"dual_lr": 1e308}, "dual_lr should be less than or equal to 100, got 1e[+]308"),
        ({"dual_lr": math.inf}, "dual_lr should be a finite number, got inf"),
        ({"range": math.inf}, "range should be a finite number"),
        ({"set": "scalings", "range": 100.0}, "range must be at most 8 for scalings, a log scale, got 100"),
        ({"epsilon": 1e300}, "epsilon must be at most 1e[+]06, or inf, which switches it off"),
        ({"epsilon": {"rule": "resilient", "alpha": math.nan}}, "alpha must be from 1e-06 to 1e[+]06, or inf, got nan"),
        ({"epsilon": {"rule": "resilient", "guess": math.inf}}, "guess must be from 1e-06 to 1e[+]06, got inf"),
        ({"families": {"turns": {"Rotate": math.inf}}}, "families.turns.Rotate must be true, a number or two numbers"),
        ({"families": {"turns": {"Rotate": [0, 1e9]}}}, "families.turns.Rotate must be .* from -8192 to 8192"),
        ({"families": {"turns": {"epsilon": math.nan}}}, "families.turns.epsilon must be a number, at least 0"),
        ({"families": {"turns": {"epsilon": 1e9}}}, "families.turns.epsilon must be from 0 to 1e[+]06, or inf"),
        ({"families": {str(i): {"FlipX": True} for i in range(101)}}, "at most 100 families, got 101"),
        ({"families": []}, r"families must be tables \[families.NAME\]"),
        ({"preset": []}, "unknown preset"),
        ({"preset": "paper", "n_views": []}, "n_views should be a valid integer"),
    ],
)
def test_the_line_names_the_setting_the_rule_and_the_value(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        build(given)


def test_an_infinite_level_of_a_family_is_allowed() -> None:
    assert build({"families": {"turns": {"Rotate": 30, "epsilon": math.inf}}}).families["turns"]["epsilon"] == math.inf
