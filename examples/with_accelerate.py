"""Four lines in a loop of Hugging Face accelerate, and one for checkpoints: `python examples/with_accelerate.py`.

Lines that end in `# added` are new; where a line ends in `# was: ...`, that is what it replaces.
"""

from __future__ import annotations

from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from invaug import Constraint, InvarianceConstrained, sets
from invaug.integrations.collate import collate_bytes
from plain_torch import Rows, digits, network, normalise


def train(rows: Rows, n_epochs: int = 3, folder: Path | None = None) -> nn.Module:
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(rows, 64, shuffle=True, collate_fn=collate_bytes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    problem = InvarianceConstrained(Constraint(sets.mild()), finish=normalise)  # added
    accelerator.register_for_checkpointing(problem)  # added
    for epoch in range(n_epochs):
        for images, targets in loader:
            step = problem(model, images, targets)  # was: loss = F.cross_entropy(model(normalise(images)), targets)
            optimizer.zero_grad()
            accelerator.backward(step.lagrangian)  # was: accelerator.backward(loss)
            optimizer.step()
            problem.dual_step(step.slack)  # added
        print(f"epoch {epoch + 1}: loss {F.cross_entropy(model(normalise(images)), targets):.3f}")
        if folder:
            accelerator.save_state(folder)
    return model


if __name__ == "__main__":
    train(digits())
