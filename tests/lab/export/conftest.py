"""Fixtures of the tests of exports and predictions."""

from __future__ import annotations

import pytest
from torch import Tensor

from invaug.lab.data.load import load_dataset
from tests.support.untrained_runs import MODELS, Made, make_run, settled


@pytest.fixture(scope="package")
def digits() -> Tensor:
    images = load_dataset("digits").test.images
    assert images is not None
    return images[::8]


@pytest.fixture(scope="package", params=MODELS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, digits: Tensor) -> Made:
    model, shape = request.param, MODELS[request.param]
    network = settled(model, shape, digits)
    return Made(make_run(tmp_path_factory.mktemp("runs") / model, network, model, shape), network, shape)


@pytest.fixture(scope="package")
def grey(tmp_path_factory: pytest.TempPathFactory, digits: Tensor) -> Made:
    shape = MODELS["cnn-small"]
    network = settled("cnn-small", shape, digits)
    return Made(make_run(tmp_path_factory.mktemp("runs") / "grey", network, "cnn-small", shape), network, shape)
