"""Tiny models and data, and the paper's algorithms one image at a time in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor, nn

from invaug import Chain, InvarianceConstrained, Op, TransformSet


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_images(n: int, seed: int = 0, size: int = 6, channels: int = 1) -> Tensor:
    return torch.randint(256, (n, channels, size, size), dtype=torch.uint8, generator=seeded(seed))


def make_targets(n: int, seed: int = 0, n_classes: int = 3) -> Tensor:
    return torch.randint(n_classes, (n,), generator=seeded(seed + 1000))


def make_batches(n_batches: int, n: int = 8) -> list[tuple[Tensor, Tensor]]:
    return [(make_images(n, seed), make_targets(n, seed)) for seed in range(n_batches)]


def to_double(images: Tensor) -> Tensor:
    return images.double() / 255


def noisy(images: Tensor) -> Tensor:
    """Finish images the way training scripts do: flip and noise from torch's own generator."""
    flipped = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)
    return flipped.float() / 255 + 0.1 * torch.randn(images.shape)


def fixed(function: Callable[[Tensor], Tensor]) -> TransformSet:
    """Return a set of one transformation: whatever is drawn, the images become the same."""
    return TransformSet((Op("Fixed", lambda images, _: function(images)),))


def inverted(images: Tensor) -> Tensor:
    return 255 - images


def smooth_network(seed: int = 0) -> nn.Sequential:
    """Return a network without BatchNorm or dropout, in float64: what it says of an image depends on nothing else."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batch_norm_network(seed: int = 0, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(seed)
    body = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(dropout), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def two_view_problem(*constraints, **settings) -> InvarianceConstrained:
    """Return a problem that trains on clean and kept views, as printed, unless the settings say otherwise."""
    return InvarianceConstrained(*constraints, **{"views": "both", **settings})


class Weights(nn.Module):
    """The linear model θ · x on images of two pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.theta


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets) ** 2


def towards(x: float, y: float) -> TransformSet:
    """Return a set whose one transformation makes every image (x, y)."""
    pixels = torch.tensor([x, y], dtype=torch.float64).view(1, 1, 1, 2)
    return fixed(lambda images: pixels.expand_as(images).clone())


class Recorder(nn.Module):
    """A model that writes down what it is asked, apart for passes with and without gradient."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.trained: list[Tensor] = []
        self.scored: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        (self.trained if torch.is_grad_enabled() else self.scored).append(inputs.detach().clone())
        return self.model(inputs)


def train_step(problem: nn.Module, model: nn.Module, optimizer: torch.optim.Optimizer, *batch: Tensor, **others):
    """Take the five lines of the README: one primal and one dual step."""
    step = problem(model, *batch, **others)
    optimizer.zero_grad()
    step.lagrangian.backward()
    optimizer.step()
    problem.dual_step(step.slack)
    return step


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two state dicts agree to the last bit, NaN included."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].numpy().tobytes() == other[name].numpy().tobytes()
        for name in one
    )


def copy_of(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in state.items()}


def algorithm_1(losses: Sequence[float], uniforms: Sequence[float]) -> int:
    """Return where the printed chain of one image ends; "w.p. p" is a uniform number below p."""
    state, current = 0, losses[0]
    for t in range(1, len(losses)):
        proposed = losses[t]
        p = min(1.0, proposed / current)
        if uniforms[t - 1] < p:
            state, current = t, proposed
    return state


def argmax(losses: Sequence[float], uniforms: Sequence[float]) -> int:
    """Return the first of the highest losses."""
    return max(range(len(losses)), key=losses.__getitem__)


def law_by_enumeration(losses: Sequence[Fraction]) -> list[Fraction]:
    """Return P(chain ends on each proposal) exactly, as the sum over all 2^n_steps accept/reject paths."""
    law = [Fraction(0)] * len(losses)
    for path in product((False, True), repeat=len(losses) - 1):
        state, probability = 0, Fraction(1)
        for t, accepted in enumerate(path, start=1):
            p = min(Fraction(1), losses[t] / losses[state])
            probability *= p if accepted else 1 - p
            state = t if accepted else state
        law[state] += probability
    return law


class Diary:
    """Writes down every draw and what every sampler call was given, so that plain Python can repeat them."""

    def __init__(self, monkeypatch) -> None:
        self.draws, self.losses, self.uniforms = [], [], []
        draw = TransformSet.draw

        def written(transforms, n, *, generator=None):
            self.draws.append(draw(transforms, n, generator=generator))
            return self.draws[-1]

        monkeypatch.setattr(TransformSet, "draw", written)

    def watch(self, sampler: Callable[..., Chain]) -> Callable[..., Chain]:
        def written(losses: Tensor, *, generator: torch.Generator | None = None) -> Chain:
            twin = torch.Generator()
            twin.set_state(generator.get_state())
            self.losses.append(losses)
            self.uniforms.append(torch.rand(losses[1:].shape, dtype=losses.dtype, generator=twin))
            return sampler(losses, generator=generator)

        return written

    def tear_off(self) -> tuple[list, list, list]:
        """Return the pages so far and start afresh."""
        pages = self.draws[:], self.losses[:], self.uniforms[:]
        for page in (self.draws, self.losses, self.uniforms):
            page.clear()
        return pages
