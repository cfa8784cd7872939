"""AutoAugment: the published tables, their frequencies, and Pillow's bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from invaug.lab.baselines import autoaugment
from tests.support.policies import assert_frequencies, assert_pillow_agrees, layers, names_of, seeded


@pytest.mark.parametrize("dataset", ["cifar10", "svhn", "imagenet"])
@pytest.mark.parametrize(("n_channels", "side"), [(3, 32), (3, 47), (1, 28)])
def test_autoaugment_is_pillow_byte_for_byte(
    dataset: str, n_channels: int, side: int, make_images: Callable[..., Tensor]
) -> None:
    images = make_images(600, side, side, n_channels)
    policy = autoaugment.autoaugment(dataset)
    assert_pillow_agrees(policy, images, policy.draw(600, generator=seeded(side)), 10)


class Entry(NamedTuple):
    name: str
    probability: float
    level: int


def pairs_of(dataset: str) -> list[list[Entry]]:
    """Return the pairs of a published table."""
    return [[Entry(*operation) for operation in pair] for pair in autoaugment.TABLES[dataset]]


@pytest.mark.parametrize("dataset", ["cifar10", "svhn", "imagenet"])
def test_tables_are_those_torchvision_ships(torchvision: ModuleType, dataset: str) -> None:
    kind = torchvision.transforms.AutoAugmentPolicy(dataset)
    theirs = torchvision.transforms.AutoAugment(kind).policies
    ours = pairs_of(dataset)
    assert len(ours) == len(theirs) == 25
    for our_pair, their_pair in zip(ours, theirs, strict=True):
        for entry, (name, probability, level) in zip(our_pair, their_pair, strict=True):
            assert (entry.name, entry.probability) == (name, probability)
            assert level in (None, entry.level)  # torchvision leaves the level out where it has no effect


def expected_pairs(dataset: str) -> dict[tuple[tuple[str, int], ...], float]:
    """Return how likely each pair of (operation, level) is, what is not applied being Identity at level 0."""
    shares: Counter[tuple[tuple[str, int], ...]] = Counter()
    for pair in pairs_of(dataset):
        for applied in product((True, False), repeat=2):
            share = 1 / 25
            for entry, is_applied in zip(pair, applied, strict=True):
                share *= entry.probability if is_applied else 1 - entry.probability
            outcome = [(e.name, e.level) if a else ("Identity", 0) for e, a in zip(pair, applied, strict=True)]
            shares[tuple(outcome)] += share  # type: ignore[assignment]
    return dict(shares)


@pytest.mark.parametrize("dataset", ["cifar10", "svhn", "imagenet"])
def test_autoaugment_draws_pairs_with_their_published_probabilities(dataset: str) -> None:
    policy = autoaugment.autoaugment(dataset)
    drawn = [
        list(zip(names_of(policy, draw), draw.level.flatten().tolist(), strict=True))
        for draw in layers(policy.draw(50_000, generator=seeded(4)))
    ]
    assert_frequencies(Counter(zip(*drawn, strict=True)), expected_pairs(dataset))


@pytest.mark.parametrize(
    ("dataset", "table"),
    [
        ("cifar10", "cifar10"),
        ("cifar100", "cifar10"),
        ("svhn", "svhn"),
        ("imagenet", "imagenet"),
        ("imagenet100", "imagenet"),
        ("tiny-imagenet", "imagenet"),
        ("mnist", "imagenet"),
        ("photos", "imagenet"),
    ],
)
def test_dataset_chooses_its_table(dataset: str, table: str) -> None:
    chosen, named = (autoaugment.autoaugment(name).draw(500, generator=seeded(0)) for name in (dataset, table))
    assert torch.equal(chosen.magnitude, named.magnitude)
