"""Whether a value from a file has the structure of a known one: the same keys, types, dtypes and shapes."""

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from invaug.lab import errors
from invaug.lab.terminal import plain

MAX_SHOWN = 60  # characters of a value or a key, which in a hostile file may be of any length


class MisfitError(Exception):
    """An entry is not what it must be; the message names it, its value and the rule."""


def require(holds: bool, where: str, found: Any, expected: str) -> None:
    """Raise MisfitError about an entry unless the rule holds."""
    if not holds:
        raise MisfitError(f"{where} is {shown(found)}, expected {expected}")


def require_keys(found: Any, keys: Collection[Any], where: str, optional: Collection[Any] = ()) -> None:
    """Refuse what is no dict, lacks one of the keys or has a further one; True is not the key 1."""
    require(type(found) is dict, where, found, "a table")
    known = {(type(key), key) for key in (*keys, *optional)}
    for key in keys:
        if key not in found:
            raise MisfitError(f"{where}/{shown_key(key)} is missing")
    for key in found:
        if (type(key), key) not in known:
            raise MisfitError(f"{where}/{shown_key(key)} is unknown to this run")


def require_alike(found: Any, like: Any, where: str) -> None:
    """Refuse a value whose keys, lengths, types, dtypes or shapes differ from those of another."""
    if isinstance(like, Mapping):
        require_keys(found, like, where)
        for key in like:
            require_alike(found[key], like[key], f"{where}/{shown_key(key)}")
    elif isinstance(like, list | tuple):
        require(type(found) is type(like) and len(found) == len(like), where, found, shown(like))
        for i, item in enumerate(like):
            require_alike(found[i], item, f"{where}/{i}")
    elif isinstance(like, Tensor):
        fits = isinstance(found, Tensor) and (found.dtype, found.shape) == (like.dtype, like.shape)
        require(fits, where, found, shown(like))
    else:
        require(type(found) is type(like), where, found, f"a value of type {type(like).__name__}")


def shown(value: Any) -> str:
    """Return a value for a message: short, in one line."""
    if isinstance(value, Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple | Mapping):
        return f"a {type(value).__name__} of {len(value)}"
    return shorten(errors.shown(value))


def shown_key(key: Any) -> str:
    """Return a key for a message: short, in one line."""
    return shorten(str(key))


def shorten(text: str, most: int = MAX_SHOWN) -> str:
    """Return the beginning of a text, in one line."""
    return plain(text if len(text) <= most else f"{text[:most]}…")
