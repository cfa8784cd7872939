"""Mutations of JSON and TOML: a few values of a parsed document become odd, or its text does."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import tomli_w

from faults.fuzz.bytewise import mutate_bytes

DIGITS = "a number of 5000 digits"  # Python would refuse to print it, so the text gets it at the end
ODD_NUMBERS = (0, 1, -1, 2, 255, 2**31, -(2**31), 2**63, 2**64, 10**400, 1e308, -1e308, 1e30, 1e-320, 0.5, -0.0)
ODD_FLOATS = (float("inf"), float("-inf"), float("nan"))
ODD_TEXTS = (
    "",
    "0",
    "nan",
    "auto",
    "none",
    "../x",
    "/dev/zero",
    "a\0b",
    "\x1b[2J\x07",
    "ü" * 300,
    "{0}%s",
    "[b]",
    "\u202e",
)
ODD_OTHERS = (True, False, None, [], {}, [[]], [{}], {"": ""}, {"$tensor": "state/0"}, {"$tuple": [1]})
DEEP, NESTED = "lists in lists", "[" * 3000 + "]" * 3000

Place = tuple[Any, Any]
"""A dict or list, and a key or index of it."""


def places(tree: Any) -> Iterator[Place]:
    """Yield where every value of a document is."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from places(tree[key])


def odd_value(random: random.Random) -> Any:
    """Return a value that a reader may not expect."""
    kinds = (ODD_NUMBERS, ODD_FLOATS, ODD_TEXTS, ODD_OTHERS, (DIGITS,))
    return copy.deepcopy(random.choice(random.choices(kinds, (6, 2, 5, 6, 1))[0]))


def replace(random: random.Random, place: Place, _: list[Place]) -> None:
    """Put an odd value there."""
    owner, key = place
    owner[key] = odd_value(random)


def alter(random: random.Random, place: Place, all_places: list[Place]) -> None:
    """Change the value within its type."""
    owner, key = place
    value = owner[key]
    if isinstance(value, bool):
        owner[key] = not value
    elif isinstance(value, int | float):
        owner[key] = random.choice((-value, value + 1, value * 10**9, value // 2, str(value), [value], *ODD_NUMBERS))
    elif isinstance(value, str):
        owner[key] = random.choice((value.upper(), value * 50, value[1:], f" {value}\n", value.encode().hex(), [value]))
    elif isinstance(value, list) and value:
        owner[key] = random.choice(
            (value * 2, value[1:], value[:1], value * 300, value[::-1], [value], dict(enumerate(map(str, value))))
        )
    else:
        replace(random, place, all_places)


def remove(_: random.Random, place: Place, __: list[Place]) -> None:
    """Leave the value out."""
    owner, key = place
    del owner[key]


def rename(random: random.Random, place: Place, _: list[Place]) -> None:
    """Put the value under another key."""
    owner, key = place
    value = owner[key]
    if isinstance(owner, dict):
        owner[random.choice((*ODD_TEXTS, f"{key}x", str(key).upper(), *owner))] = value
    else:
        owner.append(value)


def copy_from(random: random.Random, place: Place, all_places: list[Place]) -> None:
    """Put another value of the document there."""
    (owner, key), (other, name) = place, random.choice(all_places)
    owner[key] = copy.deepcopy(other[name])


def nest(random: random.Random, place: Place, _: list[Place]) -> None:
    """Put the value into lists or dicts, deep ones at times."""
    owner, key = place
    inner = owner[key]
    for _ in range(random.choice((1, 2, 100))):
        inner = random.choice(([inner], {"a": inner}))
    owner[key] = random.choice((inner, inner, DEEP))


Act = Callable[[random.Random, Place, list[Place]], None]
ACTS: tuple[Act, ...] = (replace, alter, remove, rename, copy_from, nest)


def mutate_tree(random: random.Random, tree: Any) -> Any:
    """Return the document with one to three values changed."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        all_places = list(places(tree))
        if all_places:
            random.choices(ACTS, (6, 5, 3, 2, 2, 1))[0](random, random.choice(all_places), all_places)
    return tree


def mutate_json(random: random.Random, content: bytes) -> bytes:
    """Return a JSON document with odd values in it or, one time in six, with odd bytes."""
    if random.random() < 1 / 6:
        return mutate_bytes(random, content)
    return to_json(mutate_tree(random, json.loads(content)))


def to_json(tree: Any) -> bytes:
    """Return a document as JSON, with the infinities and NaN that Python's reader takes."""
    return unfold(json.dumps(tree))


def unfold(text: str) -> bytes:
    """Return the text of a document with what could not be written as a value."""
    return text.replace(f'"{DIGITS}"', "9" * 5000).replace(f'"{DEEP}"', NESTED).encode()


def mutate_toml(random: random.Random, content: bytes) -> bytes:
    """Return a TOML document with odd values in it or, one time in six, with odd bytes."""
    import tomllib

    if random.random() < 1 / 6:
        return mutate_bytes(random, content)
    tree = mutate_tree(random, tomllib.loads(content.decode()))
    return unfold(tomli_w.dumps(without_none(tree)))


def without_none(tree: Any) -> Any:
    """Return a document as TOML can have it: text for None and for keys that are none."""
    if isinstance(tree, dict):
        return {str(key): without_none(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [without_none(value) for value in tree]
    return "" if tree is None else tree


def mutate_lines(random: random.Random, content: bytes) -> bytes:
    """Return a document of one JSON object per line with a line mutated, left out, repeated or moved."""
    lines = content.splitlines(keepends=True)
    i, chance = random.randrange(len(lines)), random.random()
    if chance < 0.1:
        return mutate_bytes(random, content)
    if chance < 0.2:
        return b"".join(random.choice((lines[:i] + lines[i + 1 :], lines[::-1], lines * 40, [*lines, lines[i]])))
    lines[i] = mutate_json(random, lines[i]) + random.choice((b"\n", b"\n", b"\n", b"", b"\r\n", b"\0\n"))
    return b"".join(lines)
