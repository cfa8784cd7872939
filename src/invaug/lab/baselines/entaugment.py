"""EntAugment (ECCV 2024): the surer the network was of an image at its last visit, the stronger it is transformed.

Every image draws one operation uniformly. Its magnitude is the share 1 - H(p) / log C of the range, where p are the
probabilities that the network gave the image when it was last trained on, and H their entropy: nothing for an image
that was never seen, all of the range for one it is sure of. No further pass through the network is needed.
"""

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from invaug.lab.baselines.policy import Memory, Policy
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.environment import under_torchrun
from invaug.lab.errors import UserError
from invaug.lab.train.sets import transform_set
from invaug.transforms.draw import Draw
from invaug.transforms.set import TransformSet


class Strengths(Memory):
    """The strength of each training image, 0 to 1."""

    strengths: Tensor

    def __init__(self, n_images: int) -> None:
        super().__init__()
        self.register_buffer("strengths", torch.zeros(n_images, dtype=torch.float64))
        self.rows = torch.arange(0)

    def begin(self, rows: Tensor) -> None:
        """Note which images are drawn for next."""
        self.rows = rows.to(self.strengths.device)

    def learn(self, rows: Tensor, outputs: Tensor) -> None:
        """Set the strengths of some images by the network's outputs for them."""
        self.strengths[rows.to(self.strengths.device)] = confidence(outputs).to(self.strengths)


def confidence(outputs: Tensor) -> Tensor:
    """Return 1 - H(p) / log C for each row of outputs: 0 for a guess, 1 for certainty.

    >>> confidence(torch.tensor([[0.0, 0.0], [100.0, 0.0]])).tolist()
    [0.0, 1.0]
    """
    log_p = outputs.double().log_softmax(1)
    entropy = -(log_p.exp() * log_p).sum(1)
    return (1 - entropy / math.log(max(outputs.shape[1], 2))).clamp(0, 1)


def strength_by_confidence(config: Config, dataset: Dataset) -> Policy:
    """Return the policy of --method entaugment."""
    if config.run.devices > 1 or under_torchrun():
        raise UserError("method entaugment remembers every image, which needs one device: leave out --devices")
    transforms, memory = transform_set(config), Strengths(len(dataset.train))
    return Policy(transforms, partial(_draw, transforms, memory), transforms.apply, memory)


def _draw(transforms: TransformSet, memory: Strengths, n: int, generator: torch.Generator | None = None) -> Draw:
    numbers = torch.rand((4, n), dtype=torch.float64, generator=generator).numpy()
    strength = memory.strengths[memory.rows].cpu().numpy()
    op, plus = (numbers[0] * len(transforms.ops)).astype(np.int64), numbers[1] < 0.5
    columns = [(o.start, o.stop, o.signed, o.whole, 0 < o.start < 1 < o.stop) for o in transforms.ops]
    start, stop, signed, whole, blends = np.array(columns, dtype=np.float64).T[:, op]
    # blends change nothing at 1 and go to either end; the others change nothing at their start
    first, last = np.where(blends, 1.0, start), np.where((blends > 0) & ~plus, start, stop)
    moved = strength * (last - first)
    magnitude = first + np.where(whole > 0, np.trunc(moved), moved)
    magnitude = np.where((signed > 0) & ~plus, -magnitude, magnitude) + 0.0  # no -0
    level = np.rint(strength * (transforms.n_levels - 1)).astype(np.int64)
    return Draw(*(torch.from_numpy(np.ascontiguousarray(c)) for c in (op, level, magnitude, numbers[2:].T[:, None])))
