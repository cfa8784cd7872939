"""What tests count in a network."""

from __future__ import annotations

from torch import nn


def n_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
