"""The compiled loops of `dispatch.transform_compiled`: one image at a time, planes of bytes, the arithmetic of Pillow.

Arrays are uint8 images of shape (channels, height, width) unless a name says otherwise; every function fills `target`
and returns nothing. These functions are compiled, so their examples are the tests in `tests/kernels`, which compare
them with the torch kernels and with Pillow.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from invaug.kernels import rules
from invaug.kernels.rules import Array


def compiled(function: Any) -> Any:
    """Return the function compiled without the interpreter lock, cached on disk where the disk allows it."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(function, cache=True, **options)
    except RuntimeError:  # there is no writable place for a cache
        return njit(function, **options)


@compiled
def copy(source: Array, target: Array) -> None:
    """Copy an array; a flat loop becomes one memory copy, which a slice of three dimensions does not."""
    flat_source, flat_target = source.reshape(source.size), target.reshape(source.size)
    for i in range(flat_source.size):
        flat_target[i] = flat_source[i]


@compiled
def run_inside(start: int, step: int, extent: int, n: int) -> tuple[int, int]:
    """Return the first x of 0 to n, and the end, where start + x * step (16.16 fixed point) lies within the extent."""
    end = extent << 16
    if step > 0:
        first, last = -(start // step), -((start - end) // step)
    elif step < 0:
        first, last = (start - end) // -step + 1, start // -step + 1
    else:
        first, last = 0, n if 0 <= start < end else 0
    return min(max(first, 0), n), min(max(last, 0), n)


@compiled
def affine(source: Array, target: Array, six: Array) -> None:
    """Fill target with source read at (a x + b y + c, d x + e y + f): 16.16 fixed point, nearest, black outside."""
    n_channels, height, width = source.shape
    step_x, row_x, start_x, step_y, row_y, start_y = six
    flat = source.reshape(n_channels, height * width)
    # indices are unsigned: a signed one may count from the end, and checking for that prevents vectorised loops
    pixels = np.empty(width, np.uint32)
    for y in range(height):
        x_fixed, y_fixed = start_x + y * row_x, start_y + y * row_y
        # the source of a row is a line, so the part of it inside the image is one run
        first_x, last_x = run_inside(x_fixed, step_x, width, width)
        first_y, last_y = run_inside(y_fixed, step_y, height, width)
        first, last = max(first_x, first_y), min(last_x, last_y)
        first = min(first, last)
        straight = step_x == 65536 and step_y == 0  # along a row of the source: one memory copy
        offset = (y_fixed >> 16) * width + (x_fixed >> 16)
        if not straight:
            near_x, near_y = np.int32(x_fixed + first * step_x), np.int32(y_fixed + first * step_y)
            for i in range(last - first):
                source_x = (near_x + np.int32(i) * np.int32(step_x)) >> np.int32(16)
                source_y = (near_y + np.int32(i) * np.int32(step_y)) >> np.int32(16)
                pixels[first + i] = source_y * np.int32(width) + source_x
        left, n_inside = np.uint64(first), np.uint64(last - first)
        for channel in range(n_channels):
            row, plane = target[channel, y], flat[channel]
            for x in range(left):
                row[x] = 0
            if straight:
                start = np.uint64(offset + first)
                for i in range(n_inside):
                    row[left + i] = plane[start + i]
            else:
                for i in range(n_inside):
                    row[left + i] = plane[pixels[left + i]]
            for x in range(np.uint64(last), np.uint64(width)):
                row[x] = 0


@compiled
def mix(start: float, value: float, factor: np.float32) -> np.uint8:
    """Return start + factor * (value - start) in float32, clipped and truncated to a byte."""
    mixed = np.float32(start) + factor * (np.float32(value) - np.float32(start))
    return np.uint8(min(max(mixed, np.float32(0.0)), np.float32(255.0)))


@compiled
def look_up(source: Array, target: Array, table: Array) -> None:
    """Replace every value by its entry in the table."""
    flat_source, flat_target = source.reshape(source.size), target.reshape(source.size)
    for i in range(flat_source.size):
        flat_target[i] = table[flat_source[i]]


@compiled
def count(plane: Array, counts: Array) -> None:
    """Count the values of one plane, in four tables so that a run of equal values does not wait for its own sums."""
    flat = plane.reshape(plane.size)
    parts = np.zeros((4, 256), np.int32)
    whole = flat.size - flat.size % 4
    for i in range(0, whole, 4):
        parts[0, flat[i]] += 1
        parts[1, flat[i + 1]] += 1
        parts[2, flat[i + 2]] += 1
        parts[3, flat[i + 3]] += 1
    for i in range(whole, flat.size):
        parts[0, flat[i]] += 1
    for v in range(256):
        counts[v] = parts[0, v] + parts[1, v] + parts[2, v] + parts[3, v]


@compiled
def auto_contrast(source: Array, target: Array, table: Array) -> None:
    """Stretch each channel from its darkest and brightest value to 0 and 255."""
    for channel in range(source.shape[0]):
        low, high = source[channel].min(), source[channel].max()
        if high <= low:
            copy(source[channel], target[channel])
            continue
        scale = 255.0 / (float(high) - float(low))
        offset = -float(low) * scale
        for v in range(256):
            table[v] = np.uint8(min(max(v * scale + offset, 0.0), 255.0))
        look_up(source[channel], target[channel], table)


@compiled
def equalize(source: Array, target: Array, table: Array) -> None:
    """Spread each channel's values by the share of darker pixels."""
    counts = np.empty(256, np.int64)
    for channel in range(source.shape[0]):
        count(source[channel], counts)
        brightest = 255
        while counts[brightest] == 0:
            brightest -= 1
        step = (source[channel].size - counts[brightest]) // 255
        if step == 0:
            copy(source[channel], target[channel])
            continue
        darker = step // 2
        for v in range(256):
            table[v] = min(darker // step, 255)
            darker += counts[v]
        look_up(source[channel], target[channel], table)


@compiled
def grey(source: Array, out: Array) -> None:
    """Fill out, shape (height, width), with the luminance of each pixel."""
    n_channels, n_pixels = source.shape[0], out.size
    flat, flat_out = source.reshape(n_channels, n_pixels), out.reshape(n_pixels)
    if n_channels == 3:
        red, green, blue = flat[0], flat[1], flat[2]
        for i in range(n_pixels):
            weighted = np.int32(19595) * red[i] + np.int32(38470) * green[i] + np.int32(7471) * blue[i]
            flat_out[i] = (weighted + np.int32(0x8000)) >> np.int32(16)
    else:
        for i in range(n_pixels):
            total = 0
            for channel in range(n_channels):
                total += flat[channel, i]
            flat_out[i] = (2 * total + n_channels) // (2 * n_channels)


@compiled
def color(source: Array, target: Array, factor: np.float32) -> None:
    """Blend with the luminance."""
    shade = np.empty(source.shape[1:], np.uint8)
    grey(source, shade)
    flat_shade = shade.reshape(shade.size)
    for channel in range(source.shape[0]):
        flat_source, flat_target = source[channel].reshape(shade.size), target[channel].reshape(shade.size)
        for i in range(shade.size):
            flat_target[i] = mix(flat_shade[i], flat_source[i], factor)


@compiled
def blend_table(start: int, factor: np.float32, table: Array) -> None:
    """Fill the table with the blend of one grey and every value."""
    for v in range(256):
        table[v] = mix(start, v, factor)


@compiled
def contrast(source: Array, target: Array, factor: np.float32, table: Array) -> None:
    """Blend with the mean luminance of the image."""
    shade = np.empty(source.shape[1:], np.uint8)
    grey(source, shade)
    flat, total = shade.reshape(shade.size), 0
    for i in range(flat.size):
        total += flat[i]
    blend_table((2 * total + flat.size) // (2 * flat.size), factor, table)
    look_up(source, target, table)


@compiled
def sharpness(source: Array, target: Array, factor: np.float32) -> None:
    """Blend with the smoothed image, whose border is the image itself."""
    copy(source, target)
    for channel in range(source.shape[0]):
        plane, out = source[channel], target[channel]
        for y in range(1, plane.shape[0] - 1):
            above, here, below, row = plane[y - 1], plane[y], plane[y + 1], out[y]
            for x in range(1, plane.shape[1] - 1):
                total = np.int32(above[x - 1]) + above[x] + above[x + 1] + below[x - 1] + below[x] + below[x + 1]
                total += np.int32(here[x - 1]) + 5 * np.int32(here[x]) + here[x + 1]
                row[x] = mix((2 * total + 13) // 26, here[x], factor)


@compiled
def cut_out(source: Array, target: Array, size: float, place: Array) -> None:
    """Black out the box that reaches half a size around the place."""
    height, width = source.shape[1:]
    half = math.floor(size / 2)
    x, y = math.floor(place[0] * width), math.floor(place[1] * height)
    copy(source, target)
    target[:, max(y - half, 0) : max(y + half, 0), max(x - half, 0) : max(x + half, 0)] = 0


@compiled
def transform(
    source: Array, target: Array, code: int, magnitude: float, place: Array, six: Array, table: Array
) -> None:
    """Fill target with one image under one operation; an operation that depends on the image fills its table first."""
    if code == rules.IDENTITY:
        copy(source, target)
    elif code < rules.SOLARIZE:
        affine(source, target, six)
    elif code < rules.AUTO_CONTRAST:
        look_up(source, target, table)
    elif code == rules.AUTO_CONTRAST:
        auto_contrast(source, target, table)
    elif code == rules.EQUALIZE:
        equalize(source, target, table)
    elif code == rules.COLOR:
        color(source, target, np.float32(magnitude))
    elif code == rules.CONTRAST:
        contrast(source, target, np.float32(magnitude), table)
    elif code == rules.SHARPNESS:
        sharpness(source, target, np.float32(magnitude))
    elif code == rules.CUTOUT:
        cut_out(source, target, magnitude, place)


@compiled
def transform_all(
    sources: Array, targets: Array, codes: Array, magnitudes: Array, places: Array, maps: Array, tables: Array
) -> None:
    """Fill targets with every image under the operation its code names."""
    for i in range(len(sources)):
        transform(sources[i], targets[i], codes[i], magnitudes[i], places[i], maps[i], tables[i])
