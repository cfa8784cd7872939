"""Real images with planted labels: three families keep every label and three change labels, by construction."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.images import load_digits, load_photographs

TRUTHS = {
    "photographs": ("sharpness", "brightness and contrast", "cutout"),
    "digits": ("sharpness", "brightness and contrast", "vertical flip"),
}
FALSEHOODS = {
    "photographs": ("rotation", "horizontal flip", "inversion"),
    "digits": ("rotation", "horizontal flip", "inversion"),
}
DARKER = 0.4


def photographs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return photographs of 16 x 16 pixels and eight labels: which half is darkened, times positive or negative."""
    found = load_photographs()
    assert found is not None
    rng = np.random.default_rng(seed)
    images = _halve(found[rng.permutation(len(found))[:n]])
    labels = rng.integers(0, 8, n)
    for half, (rows, columns) in enumerate((np.s_[:8, :], np.s_[8:, :], np.s_[:, :8], np.s_[:, 8:])):
        images[:, rows, columns] *= np.where(labels % 4 == half, DARKER, 1.0)[:, None, None, None]
    images[labels >= 4] = 255 - images[labels >= 4]
    return images.round().astype(np.uint8), labels


def digits(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scenes of 14 x 14 pixels and four labels: a digit on the left or right, times its polarity.

    The digit is made symmetric, so that it does not show whether it was mirrored or turned.
    """
    rng = np.random.default_rng(seed)
    small = _halve(_halve(load_digits()[rng.permutation(5000)[:n], ..., None]))[..., 0]
    small = np.maximum(small, small[:, :, ::-1])
    small = np.maximum(small, small[:, ::-1])
    labels = rng.integers(0, 4, n)
    scene = np.zeros((n, 14, 14))
    for image, digit, label, top in zip(scene, small, labels, rng.integers(0, 8, n), strict=True):
        image[top : top + 7, 7 * (label % 2) : 7 * (label % 2) + 7] = digit
    scene[labels >= 2] = 255 - scene[labels >= 2]
    return scene.round().astype(np.uint8)[..., None], labels


def _halve(images: np.ndarray) -> np.ndarray:
    """Return images, shape (n, height, width, channels), of half the height and width."""
    n, height, width, channels = images.shape
    return images.reshape(n, height // 2, 2, width // 2, 2, channels).mean((2, 4))


MAKERS = {"photographs": photographs, "digits": digits}


def write(kind: str, path: Path, n: int, seed: int) -> str:
    """Write a planted dataset of a kind; return where it is."""
    images, labels = MAKERS[kind](n, seed)
    np.savez(path, x_train=images, y_train=labels, x_test=images[:16], y_test=np.arange(16) % (labels.max() + 1))
    return str(path)
