"""The compiled loop behind `finish`: mirror, normalise and cut in one pass."""

from invaug.kernels.by_numba import compiled
from invaug.kernels.rules import Array


@compiled
def finish_all(sources: Array, targets: Array, mirrored: Array, boxes: Array, table: Array) -> None:
    """Fill targets (n, height, width, channels) with what the table makes of sources (n, channels, height, width)."""
    n, n_channels, height, width = sources.shape
    for i in range(n):
        top, bottom, left, right = boxes[i]
        for y in range(height):
            for channel in range(n_channels):
                row, values = sources[i, channel, y], table[channel]
                if mirrored[i]:
                    for x in range(width):
                        targets[i, y, x, channel] = values[row[width - 1 - x]]
                else:
                    for x in range(width):
                        targets[i, y, x, channel] = values[row[x]]
        for y in range(top, bottom):
            for x in range(left, right):
                for channel in range(n_channels):
                    targets[i, y, x, channel] = 0.0
