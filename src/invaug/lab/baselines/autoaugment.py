"""AutoAugment's published policies (Cubuk et al. 2019, tables 7 to 9): 25 pairs of operations for each dataset.

A line is a pair; each operation has its probability and its magnitude, a level of 0 to 9 spaced evenly over its range.
Strength grows with the level, geometric operations get a random sign, and pixels from outside the image are black.
"""

import numpy as np

from invaug.lab.baselines.policy import AUTOAUGMENT_OPS, Policy, equal_rows, policy_of_rows
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset

CIFAR10 = """
Invert       0.1 7  Contrast     0.2 6
Rotate       0.7 2  TranslateX   0.3 9
Sharpness    0.8 1  Sharpness    0.9 3
ShearY       0.5 8  TranslateY   0.7 9
AutoContrast 0.5 8  Equalize     0.9 2
ShearY       0.2 7  Posterize    0.3 7
Color        0.4 3  Brightness   0.6 7
Sharpness    0.3 9  Brightness   0.7 9
Equalize     0.6 5  Equalize     0.5 1
Contrast     0.6 7  Sharpness    0.6 5
Color        0.7 7  TranslateX   0.5 8
Equalize     0.3 7  AutoContrast 0.4 8
TranslateY   0.4 3  Sharpness    0.2 6
Brightness   0.9 6  Color        0.2 8
Solarize     0.5 2  Invert       0.0 3
Equalize     0.2 0  AutoContrast 0.6 0
Equalize     0.2 8  Equalize     0.6 4
Color        0.9 9  Equalize     0.6 6
AutoContrast 0.8 4  Solarize     0.2 8
Brightness   0.1 3  Color        0.7 0
Solarize     0.4 5  AutoContrast 0.9 3
TranslateY   0.9 9  TranslateY   0.7 9
AutoContrast 0.9 2  Solarize     0.8 3
Equalize     0.8 8  Invert       0.1 3
TranslateY   0.7 9  AutoContrast 0.9 1
"""

SVHN = """
ShearX       0.9 4  Invert       0.2 3
ShearY       0.9 8  Invert       0.7 5
Equalize     0.6 5  Solarize     0.6 6
Invert       0.9 3  Equalize     0.6 3
Equalize     0.6 1  Rotate       0.9 3
ShearX       0.9 4  AutoContrast 0.8 3
ShearY       0.9 8  Invert       0.4 5
ShearY       0.9 5  Solarize     0.2 6
Invert       0.9 6  AutoContrast 0.8 1
Equalize     0.6 3  Rotate       0.9 3
ShearX       0.9 4  Solarize     0.3 3
ShearY       0.8 8  Invert       0.7 4
Equalize     0.9 5  TranslateY   0.6 6
Invert       0.9 4  Equalize     0.6 7
Contrast     0.3 3  Rotate       0.8 4
Invert       0.8 5  TranslateY   0.0 2
ShearY       0.7 6  Solarize     0.4 8
Invert       0.6 4  Rotate       0.8 4
ShearY       0.3 7  TranslateX   0.9 3
ShearX       0.1 6  Invert       0.6 5
Solarize     0.7 2  TranslateY   0.6 7
ShearY       0.8 4  Invert       0.8 8
ShearX       0.7 9  TranslateY   0.8 3
ShearY       0.8 5  AutoContrast 0.7 3
ShearX       0.7 2  Invert       0.1 5
"""

IMAGENET = """
Posterize    0.4 8  Rotate       0.6 9
Solarize     0.6 5  AutoContrast 0.6 5
Equalize     0.8 8  Equalize     0.6 3
Posterize    0.6 7  Posterize    0.6 6
Equalize     0.4 7  Solarize     0.2 4
Equalize     0.4 4  Rotate       0.8 8
Solarize     0.6 3  Equalize     0.6 7
Posterize    0.8 5  Equalize     1.0 2
Rotate       0.2 3  Solarize     0.6 8
Equalize     0.6 8  Posterize    0.4 6
Rotate       0.8 8  Color        0.4 0
Rotate       0.4 9  Equalize     0.6 2
Equalize     0.0 7  Equalize     0.8 8
Invert       0.6 4  Equalize     1.0 8
Color        0.6 4  Contrast     1.0 8
Rotate       0.8 8  Color        1.0 2
Color        0.8 8  Solarize     0.8 7
Sharpness    0.4 7  Invert       0.6 8
ShearX       0.6 5  Equalize     1.0 9
Color        0.4 0  Equalize     0.6 3
Equalize     0.4 7  Solarize     0.2 4
Solarize     0.6 5  AutoContrast 0.6 5
Invert       0.6 4  Equalize     1.0 8
Color        0.6 4  Contrast     1.0 8
Equalize     0.8 8  Equalize     0.6 3
"""


TABLES = {"cifar10": CIFAR10, "cifar100": CIFAR10, "svhn": SVHN, "imagenet": IMAGENET}
"""Which table a dataset uses; any other uses ImageNet's. CIFAR-100 uses CIFAR-10's, as in the paper."""


def published_policy(_: Config, dataset: Dataset) -> Policy:
    """Return the policy of --method autoaugment."""
    return autoaugment(dataset.name)


def autoaugment(dataset: str) -> Policy:
    """Return the published policy for a dataset: each image draws one pair, and each operation by its probability."""
    words = np.array([line.split() for line in TABLES.get(dataset, IMAGENET).strip().split("\n")]).reshape(-1, 2, 3).T
    op = np.vectorize(AUTOAUGMENT_OPS.names.index)(words[0])
    level, probability = words[2].astype(int), words[1].astype(float)
    return policy_of_rows(AUTOAUGMENT_OPS, equal_rows(AUTOAUGMENT_OPS, op, level, probability, joint=True))
