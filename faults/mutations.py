"""Random changes of a checkpoint: another type, keys removed, added and renamed, tensors swapped and reshaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch

from faults.odd_states import Forged

Place = tuple[Any, Any]  # a list or a table, and the index or key in it
VALUES: tuple[Callable[[Random], Any], ...] = (
    *(lambda _: None, lambda _: True, lambda _: "x", lambda _: "\x1b[2J\ud800", lambda _: "", lambda _: []),
    *(lambda _: {}, lambda _: [[]], lambda _: {"": None}, lambda _: 0, lambda _: -1, lambda _: 0.5),
    *(lambda _: 2**63, lambda _: 10**4000, lambda _: -(2**31), lambda _: 1e308, lambda _: math.nan),
    *(lambda _: -math.inf, lambda _: {"$float": "nan"}, lambda _: {"$float": "x"}, lambda _: {"$float": 1}),
    *(lambda _: {"$tuple": []}, lambda _: {"$tuple": 1}, lambda _: {"$dict": []}, lambda _: {"$dict": [[[], 1]]}),
    *(lambda _: {"$dict": [[1, 2], [True, 3]]}, lambda _: {"$tensor": "no"}, lambda _: {"$tensor": 1}),
    *(lambda _: {"$evil": 1}, lambda random: nested(random.choice([5, 31, 33, 400])), lambda random: random.random()),
    *(lambda random: random.randrange(10), lambda random: [random.randrange(10)] * 3),
)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


def nested(depth: int) -> Any:
    """Return lists in tables in lists."""
    inner: Any = 1
    for i in range(depth):
        inner = [inner] if i % 2 else {"a": inner}
    return inner


def places(node: Any) -> Iterator[Place]:
    """Yield every list item and table entry below a node."""
    keys = range(len(node)) if isinstance(node, list) else node if isinstance(node, dict) else ()
    for key in keys:
        yield node, key
        yield from places(node[key])


def mutate(forged: Forged, random: Random) -> str:
    """Make one to three changes; return what they were."""
    return ", ".join(random.choice(CHANGES)(forged, random) for _ in range(random.choice([1, 1, 1, 2, 3])))


def any_place(forged: Forged, random: Random) -> Place:
    """Return a random place, each part of the state as likely as the next."""
    root = random.choice(["state", "state", "state", "state", "body", "meta", "tensors"])
    whole = forged.body if root == "body" else forged.body.get(root)
    if not (isinstance(whole, dict) and whole):
        whole = forged.body
    below: Any = whole
    if root == "state" and random.random() < 0.8:
        key = random.choice(list(whole))
        found = list(places({key: whole[key]}))
        return random.choice(found[1:]) if len(found) > 1 else (whole, key)
    return random.choice([*places(below)])


def replace(forged: Forged, random: Random) -> str:
    """Replace a value by one of another type."""
    node, key = any_place(forged, random)
    node[key] = random.choice(VALUES)(random)
    return f"{str(key)[:40]!r} = {str(node[key])[:40]!r}"


def remove(forged: Forged, random: Random) -> str:
    """Remove an item or an entry."""
    node, key = any_place(forged, random)
    del node[key]
    return f"without {str(key)[:40]!r}"


def add(forged: Forged, random: Random) -> str:
    """Add an item or an entry."""
    node, _ = any_place(forged, random)
    value = random.choice(VALUES)(random)
    if isinstance(node, list):
        node.insert(random.randrange(len(node) + 1), value)
    else:
        node[random.choice(["evil", "", "$evil", "0", "step", "order", "momentum_buffer"])] = value
    return f"with {str(value)[:40]!r}"


def rename(forged: Forged, random: Random) -> str:
    """Rename a key, or give an item to its neighbour."""
    node, key = any_place(forged, random)
    if isinstance(node, list):
        node[key] = node[key - 1]
    else:
        node[random.choice([f"{key}x", str(key)[1:], "evil"])] = node.pop(key)
    return f"renamed {str(key)[:40]!r}"


def swap(forged: Forged, random: Random) -> str:
    """Swap two tensors, or let two names mean one."""
    one, other = random.sample(sorted(forged.tensors), 2)
    tensors = forged.tensors
    if random.random() < 0.5:
        tensors[one], tensors[other] = tensors[other].clone(), tensors[one].clone()
        return f"swapped {one} and {other}"
    for node, key in list(places(forged.body)):
        if isinstance(node, dict) and key == "$tensor" and node[key] == one:
            node[key] = other
    return f"{one} is {other}"


def reshape(forged: Forged, random: Random) -> str:
    """Give a tensor another dtype or shape."""
    name = random.choice(sorted(forged.tensors))
    tensor, kind = forged.tensors[name], random.randrange(6)
    flat = tensor.reshape(-1)
    made = (tensor.to(random.choice(DTYPES)), flat, flat[:-1], flat[:0], torch.cat([flat, flat]), tensor[None])[kind]
    forged.tensors[name] = made.clone()
    return f"{name} is {made.dtype} {tuple(made.shape)}"


def poke(forged: Forged, random: Random) -> str:
    """Change a number of a tensor."""
    name = random.choice(sorted(forged.tensors) + ["state/tallies", "state/problem/gamma"] * 4)
    tensor = forged.tensors[name].clone()
    value: Any = random.choice([0.0, -1.0, 0.5, 1e30, 2.0**62, math.nan, math.inf, -math.inf])
    if tensor.numel():
        if not tensor.is_floating_point():
            value = int(value) % 2 if tensor.dtype in (torch.bool, torch.uint8) and math.isfinite(value) else 3
        tensor.view(-1)[random.randrange(tensor.numel())] = value
    forged.tensors[name] = tensor
    return f"{name} has {value}"


CHANGES = (replace, replace, replace, remove, add, rename, swap, reshape, poke, poke)
