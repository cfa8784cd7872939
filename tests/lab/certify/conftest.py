"""Fixtures of the tests of certificates."""

from __future__ import annotations

import pytest

from invaug.lab.data.batches import Batch
from invaug.lab.run.folder import Predictor
from tests.support.certificates import make_sample, train_predictor


@pytest.fixture(scope="package")
def sample() -> Batch:
    """Colour images that a small network is right about now and then."""
    return make_sample()


@pytest.fixture(scope="package")
def predictor(sample: Batch) -> Predictor:
    """A small network that is right about some images under some transformations."""
    return train_predictor(sample)
