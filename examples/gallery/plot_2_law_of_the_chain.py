"""
From uniform draws to λ_c
=========================

The method trains on transformations that are drawn in proportion to their loss: λ_c(g) ∝ ℓ(g).
Metropolis–Hastings reaches this law without knowing its normalising constant, by comparing losses. How many
transitions does it take? The answer is exact: ``chain_probabilities`` gives the law of a chain in closed form.
"""

# %%
# An image with twenty transformations, most of them easy
# --------------------------------------------------------

import matplotlib.pyplot as plt
import torch

from invaug import chain_probabilities, metropolis_hastings

losses = torch.tensor([0.05] * 12 + [0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.8, 2.5])
lambda_c = losses / losses.sum()

# %%
# The law of a chain
# ------------------
# Proposals are uniform. Sampling many sets of proposals and averaging the exact law of each chain gives the
# probability that a transformation is kept after T transitions.

generator = torch.Generator().manual_seed(0)


def kept(n_steps: int, n_chains: int = 20_000) -> torch.Tensor:
    """Return the probability that a chain of n_steps transitions ends on each transformation."""
    proposals = torch.randint(len(losses), (n_steps + 1, n_chains), generator=generator)
    law = chain_probabilities(losses[proposals])
    return torch.zeros(len(losses), dtype=torch.float64).index_add_(0, proposals.flatten(), law.flatten()) / n_chains


laws = {n_steps: kept(n_steps) for n_steps in (0, 1, 2, 4, 8)}

figure, axis = plt.subplots(figsize=(7, 4))
for n_steps, law in laws.items():
    label = "T = 0: uniform draws" if n_steps == 0 else f"T = {n_steps}" + (", the default" if n_steps == 1 else "")
    axis.plot(losses, law, "o-", label=label, alpha=0.8)
axis.plot(losses, lambda_c, "k--", label="λ_c")
axis.set_xlabel("loss of the transformation")
axis.set_ylabel("probability that it is kept")
axis.legend()
figure.tight_layout()
plt.show()

# %%
# What it means for training
# --------------------------
# The mean loss of the kept transformation rises with T and approaches that of λ_c, and with it what epsilon has
# to allow: a level has a meaning only together with a number of transitions. The share of accepted moves comes
# from chains that were run.

print(f"{'T':>4} {'mean loss':>10} {'accepted':>9} {'distance to λ_c':>16}")
for n_steps, law in laws.items():
    proposals = torch.randint(len(losses), (n_steps + 1, 20_000), generator=generator)
    chain = metropolis_hastings(losses[proposals], generator=generator)
    accepted = f"{chain.accepted.float().mean():9.0%}" if n_steps else f"{'-':>9}"
    print(f"{n_steps:4} {(law * losses).sum():10.2f} {accepted} {(law - lambda_c).abs().sum() / 2:16.2f}")
print(f" λ_c {(lambda_c * losses).sum():10.2f}")
