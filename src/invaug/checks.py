"""The checks that every public function shares: one clear line that names the value and the way out."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

MANY = 25  # more names than one line should list


def require(holds: object, message: str, error: type[Exception] = ValueError) -> None:
    """Raise the error with this message unless the condition holds.

    Example:
        >>> require(2 > 1, "arithmetic is broken")
    """
    if not holds:
        raise error(message)


def check_type(name: str, value: object, wanted: type, called: str) -> None:
    """Raise TypeError unless the value has the wanted type, which the message calls by the name given.

    Example:
        >>> check_type("images", [1, 2], dict, "a dictionary")
        Traceback (most recent call last):
        TypeError: images must be a dictionary, got list
    """
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be {called}, got {type(value).__name__}")


def nearest(name: str, names: Iterable[str], otherwise: str = "", n: int = 3) -> str:
    """Return a hint for an unknown name: the known names most like it, or else all of them.

    Args:
        otherwise: What to say instead of listing more than 25 names.
        n: How many of the most similar names to give at most.

    Example:
        >>> nearest("Rotat", ["Rotate", "Color"])
        'did you mean Rotate?'
        >>> nearest("Blur", ["Rotate", "Color"])
        'choose one of Color, Rotate'
    """
    known = sorted(names)
    near = get_close_matches(name, known, n, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise if otherwise and len(known) > MANY else f"choose one of {', '.join(known)}"


def check_known(names: Iterable[str], known: Collection[str]) -> None:
    """Raise ValueError with a hint unless every name of an operation is known.

    Example:
        >>> check_known(["Rotat"], ["Rotate", "Color"])
        Traceback (most recent call last):
        ValueError: unknown operation Rotat, did you mean Rotate?
    """
    for name in names:
        if name not in known:
            raise ValueError(f"unknown operation {name}, {nearest(name, known, n=1)}")
