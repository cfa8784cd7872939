"""The real Hugging Face Trainer with and without us, on real digits and small models with random weights."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("transformers") is None or find_spec("datasets") is None:
    reason = "NOT TRAINED WITH HUGGING FACE: transformers is not installed; `make integrations` installs it"
    pytest.skip(reason, allow_module_level=True)

import json
import math
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F
from transformers import Trainer

from invaug import Constraint, InvarianceConstrained, sets
from invaug.integrations.huggingface import InvarianceTrainer
from tests.support.problems import copy_of, same_bits
from tests.support.transformers_fits import (
    Recorder,
    beit,
    constrained,
    make_problem,
    plain,
    resnet,
    vit,
)

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.mark.parametrize("make", [vit, resnet, beit])
def test_with_an_infinite_epsilon_the_weights_are_those_of_the_plain_trainer_bit_for_bit(tmp_path, make):
    found = []
    for trainer in (partial(plain, tmp_path, make), partial(constrained, tmp_path, make_problem(math.inf), make)):
        made = trainer()  # seeds the random numbers
        before = copy_of(made.model.state_dict())
        made.train()
        found.append({**made.model.state_dict(), "rng": torch.get_rng_state()})
        assert not same_bits(before, made.model.state_dict())
    assert same_bits(*found)
