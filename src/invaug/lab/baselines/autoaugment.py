"""AutoAugment's published policies: `autoaugment.toml` has 25 pairs of operations for each dataset.

Levels are spaced evenly over an operation's range. Strength grows with the level, geometric operations get a random
sign, and pixels from outside the image are black.
"""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from invaug.lab.baselines.policy import AUTOAUGMENT_OPS, Policy, equal_rows, policy_of_rows
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""The pairs by dataset, each operation as [name, probability, level]; a dataset without a table uses ImageNet's."""
TABLES["cifar100"] = TABLES["cifar10"]  # as in the paper


def published_policy(_: Config, dataset: Dataset) -> Policy:
    """Return the policy of --method autoaugment."""
    return autoaugment(dataset.name)


def autoaugment(dataset: str) -> Policy:
    """Return the published policy for a dataset: each image draws one pair, and each operation by its probability."""
    words = np.array(TABLES.get(dataset, TABLES["imagenet"])).T
    op = np.vectorize(AUTOAUGMENT_OPS.names.index)(words[0])
    level, probability = words[2].astype(int), words[1].astype(float)
    return policy_of_rows(AUTOAUGMENT_OPS, equal_rows(AUTOAUGMENT_OPS, op, level, probability, joint=True))
