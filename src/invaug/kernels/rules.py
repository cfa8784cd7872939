"""The byte operations as numbers: their codes, and the parameters that each magnitude stands for.

An operation either moves pixels (by a map in fixed point), replaces values (by a table), or blends with another image
(by a factor). Parameters are computed for a whole batch at once, in numpy on the host: a few float64 numbers per image,
whatever the device of the images.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

IDENTITY = 0
ROTATE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y, FLIP_X, FLIP_Y, CROP = MOVES = range(1, 9)
SOLARIZE, POSTERIZE, INVERT, BRIGHTNESS, AUTO_CONTRAST, EQUALIZE = TABLES = range(9, 15)
KNOWN = range(SOLARIZE, AUTO_CONTRAST)  # tables that do not depend on the image
COLOR, CONTRAST, SHARPNESS, CUTOUT = BLENDS = range(15, 19)

FAR = 1e6  # pixels, rows per column or a factor: beyond it the result no longer changes, and fixed point would overflow


class Actions(NamedTuple):
    """What to do to each image of a batch: three arrays with one row per image.

    Example:
        >>> turns = Actions(np.array([ROTATE, ROTATE]), np.array([90.0, -30.0]), np.full((2, 2), 0.5), (ROTATE,))
        >>> turns.rows(slice(1)).magnitudes
        array([90.])
    """

    codes: Array
    magnitudes: Array
    places: Array
    present: tuple[int, ...]
    """The codes that may occur."""

    def rows(self, which: Any) -> Actions:
        """Return the actions of some images: a slice, a mask or indices."""
        return Actions(self.codes[which], self.magnitudes[which], self.places[which], self.present)


def maps(actions: Actions, height: int, width: int) -> Array:
    """Return where each output pixel (x, y) is read, at (a x + b y + c, d x + e y + f).

    The result has shape (batch, 6), float64. Codes that move nothing get the identity.

    Example:
        >>> shift = Actions(np.array([TRANSLATE_X]), np.array([3.0]), np.zeros((1, 2)), (TRANSLATE_X,))
        >>> maps(shift, height=8, width=8).tolist()
        [[1.0, 0.0, 3.0, 0.0, 1.0, 0.0]]
    """
    codes, near = actions.codes, np.clip(actions.magnitudes, -FAR, FAR)
    angle = -np.radians(near % 360.0 * (codes == ROTATE))
    # Pillow rounds to 15 digits, so that quarter turns are exact
    cos, sin = np.round(np.cos(angle), 15), np.round(np.sin(angle), 15)
    # Pillow computes pure shifts in float64, not in fixed point, so halves are rounded here
    pixels = np.floor(near + 0.5)
    # pad by the magnitude, then crop to the old size: one of (2 m + 1)² whole shifts
    padding = np.trunc(near) * (codes == CROP)
    x, y = np.floor(actions.places.T * (2 * padding + 1)) - padding
    x = x + pixels * (codes == TRANSLATE_X) + width * (codes == FLIP_X)
    y = y + pixels * (codes == TRANSLATE_Y) + height * (codes == FLIP_Y)
    middle_x, middle_y = width / 2, height / 2
    six = (
        cos - 2 * (codes == FLIP_X),
        sin + near * (codes == SHEAR_X),
        middle_x - cos * middle_x - sin * middle_y + x,
        -sin + near * (codes == SHEAR_Y),
        cos - 2 * (codes == FLIP_Y),
        middle_y + sin * middle_x - cos * middle_y + y,
    )
    return np.stack(six, axis=1)


def fixed_point(maps: Array) -> Array:
    """Return maps, shape (batch, 6), in 65536ths as Pillow counts them, offsets at the first pixel's centre; int64.

    Example:
        >>> fixed_point(np.array([[1.0, 0, 0, 0, 1, 0]])).tolist()
        [[65536, 0, 32768, 0, 65536, 32768]]
    """
    a, b, c, d, e, f = maps.T
    at_centre = np.stack([a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5], axis=1)
    return np.floor(at_centre * 65536.0 + 0.5).astype(np.int64)


def tables(actions: Actions) -> Array:
    """Return what each of the 256 values becomes: uint8 of shape (batch, 256).

    Example:
        >>> invert = Actions(np.array([INVERT]), np.zeros(1), np.zeros((1, 2)), (INVERT,))
        >>> tables(invert)[0, [0, 100, 255]].tolist()
        [255, 155, 0]
    """
    codes, magnitudes = actions.codes[:, None], actions.magnitudes[:, None]
    values = np.arange(256, dtype=np.int16)
    threshold = np.where(codes == SOLARIZE, magnitudes, np.where(codes == INVERT, 0, 256))
    dropped = np.where(codes == POSTERIZE, 8 - np.clip(np.trunc(magnitudes), 0, 8), 0).astype(np.int16)
    kept = np.where(values < threshold, values, 255 - values) >> dropped << dropped
    factor = np.where(codes == BRIGHTNESS, np.clip(magnitudes, -FAR, FAR), 1).astype(np.float32)
    table: Array = np.clip(kept * factor, 0, 255).astype(np.uint8)
    return table


def factors(actions: Actions) -> Array:
    """Return how far each image goes from its degenerate image (0) to itself (1) and beyond: float32 of shape (batch,).

    Example:
        >>> factors(Actions(np.array([COLOR]), np.array([1.5]), np.zeros((1, 2)), (COLOR,))).tolist()
        [1.5]
    """
    return np.where(actions.codes == CUTOUT, 0, np.clip(actions.magnitudes, -FAR, FAR)).astype(np.float32)


def outside(actions: Actions, height: int, width: int) -> tuple[Array, Array]:
    """Return which rows and columns a cutout leaves alone.

    Both are bool, of shapes (batch, 1, height, 1) and (batch, 1, 1, width).

    Example:
        >>> box = Actions(np.array([CUTOUT]), np.array([2.0]), np.array([[0.5, 0.5]]), (CUTOUT,))
        >>> rows, columns = outside(box, height=4, width=4)
        >>> rows.ravel().tolist()
        [True, False, False, True]
    """
    half = np.floor(np.clip(actions.magnitudes, -FAR, FAR) / 2)[:, None]
    x, y = (np.floor(actions.places * np.array([width, height]))).T[:, :, None]
    rows, columns = np.arange(height), np.arange(width)
    in_rows = (rows >= y - half) & (rows < y + half)
    in_columns = (columns >= x - half) & (columns < x + half)
    return ~in_rows[:, None, :, None], ~in_columns[:, None, None]


def interior(height: int, width: int) -> Array:
    """Return which pixels are not on the border: bool of shape (height, width).

    Example:
        >>> int(interior(4, 5).sum())
        6
    """
    rows, columns = np.arange(height)[:, None], np.arange(width)
    return (rows > 0) & (rows < height - 1) & (columns > 0) & (columns < width - 1)
