"""What decides a verdict of insights, and its words: for the terminal, the page and the JSON alike; without torch.

Losses of accuracy are counted in shares of the skill: the held-out accuracy of the network that was trained without any
family, above that of always guessing the most frequent class. A share means the same for two classes and for a hundred.
"""

LEARNED, MOSTLY_LEARNED, NOT, UNDECIDED = VERDICTS = ("learned", "mostly learned", "not learned", "undecided")
FULLY, MOSTLY = 0.05, 0.15
"""The share of the skill up to which a symmetry counts as learned, and as mostly learned: what the network trained with
it loses under its transformations, against its own clean accuracy and against that of the network without, the larger.
The latter includes what asking for the symmetry costs on clean images."""
SURELY = 0.35
"""The share that the cautious end of both losses must stay below for one of these two verdicts."""
ERRORS = 2.0  # standard errors from a mean to its cautious end
FEWEST_EPOCHS = 4  # before which gamma cannot have settled
STILL, STILL_SHARE = 0.05, 0.25
"""The change of gamma between the last two quarters of a training up to which it has settled: this much, or this share
of gamma."""
NEAR_CHANCE, MOVING, TOO_FEW = "near chance", "gamma has not settled", "too few images"
WAYS_OUT = {NEAR_CHANCE: "train longer", MOVING: "train longer", TOO_FEW: "more images or seeds"}
"""Why a family is undecided, and what helps."""
