"""Automatic data augmentation by invariance-constrained learning."""

from invaug import ops, presets, sets
from invaug.draws import Draw
from invaug.ops import Op
from invaug.problem import Constraint, InvarianceConstrained, Step
from invaug.samplers import Chain, chain_probabilities, metropolis_hastings, worst
from invaug.transforms import TransformSet

__version__ = "0.1.0"

__all__ = [
    "Chain",
    "Constraint",
    "Draw",
    "InvarianceConstrained",
    "Op",
    "Step",
    "TransformSet",
    "chain_probabilities",
    "metropolis_hastings",
    "ops",
    "presets",
    "sets",
    "worst",
]
