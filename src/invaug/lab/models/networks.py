"""The networks: wide and plain ResNets, and the small ones of the synthetic experiments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shortcut = Callable[[int, int, int], nn.Module]


def conv3x3(n_in: int, n_out: int, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """Return a 3x3 convolution that keeps the size, or halves it with stride 2."""
    return nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=bias)


class WideBlock(nn.Module):
    """Two BatchNorm-ReLU-convolutions, added to the input as it came.

    As in TrivialAugment's code, on which the authors built theirs: biases, the stride on the second convolution.
    """

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(n_in), conv3x3(n_in, n_out, bias=True)
        self.norm2, self.conv2 = nn.BatchNorm2d(n_out), conv3x3(n_out, n_out, stride, bias=True)
        same = stride == 1 and n_in == n_out
        self.shortcut = nn.Identity() if same else nn.Conv2d(n_in, n_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus what the block adds."""
        added = self.conv1(F.relu(self.norm1(x), inplace=True))
        added = self.conv2(F.relu(self.norm2(added), inplace=True))
        return torch.add(added, self.shortcut(x))


def wide_resnet(n_channels: int, n_classes: int, *, n_blocks: int, width: int) -> nn.Module:
    """Return the Wide ResNet of three stages of n_blocks: depth 6 n_blocks + 4, no dropout, default initialisation."""
    stages = stack(WideBlock, 16, [(16 * width, 1), (32 * width, 2), (64 * width, 2)], n_blocks)
    last = 64 * width
    return nn.Sequential(
        conv3x3(n_channels, 16, bias=True), stages, nn.BatchNorm2d(last), nn.ReLU(inplace=True), head(last, n_classes)
    )


class Residual(nn.Module):
    """ReLU of body plus shortcut."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        return F.relu(torch.add(self.body(x), self.shortcut(x)), inplace=True)


class Padded(nn.Module):
    """The shortcut without parameters of the CIFAR ResNets: every second pixel, new channels zero."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.n_new, self.stride = n_out - n_in, stride

    def forward(self, x: Tensor) -> Tensor:
        """Return the input in the shape of the body's output."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.n_new))


def projected(n_in: int, n_out: int, stride: int) -> nn.Module:
    """Return the learned shortcut of the ImageNet ResNets."""
    return nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))


def basic(n_in: int, n_out: int, stride: int, shortcut: Shortcut) -> nn.Module:
    """Return a block of two 3x3 convolutions."""
    body = nn.Sequential(
        conv3x3(n_in, n_out, stride), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True),
        conv3x3(n_out, n_out), nn.BatchNorm2d(n_out),
    )  # fmt: skip
    same = stride == 1 and n_in == n_out
    return Residual(body, nn.Identity() if same else shortcut(n_in, n_out, stride))


def bottleneck(n_in: int, n_out: int, stride: int, shortcut: Shortcut) -> nn.Module:
    """Return a block of 1x1, 3x3 and 1x1 convolutions, a quarter as wide inside; the stride is on the 3x3."""
    n_mid = n_out // 4
    body = nn.Sequential(
        nn.Conv2d(n_in, n_mid, 1, bias=False), nn.BatchNorm2d(n_mid), nn.ReLU(inplace=True),
        conv3x3(n_mid, n_mid, stride), nn.BatchNorm2d(n_mid), nn.ReLU(inplace=True),
        nn.Conv2d(n_mid, n_out, 1, bias=False), nn.BatchNorm2d(n_out),
    )  # fmt: skip
    same = stride == 1 and n_in == n_out
    return Residual(body, nn.Identity() if same else shortcut(n_in, n_out, stride))


def cifar_resnet(n_channels: int, n_classes: int, *, n_blocks: int) -> nn.Module:
    """Return the CIFAR ResNet of three stages of n_blocks, 16, 32 and 64 wide: depth 6 n_blocks + 2."""
    block = partial(basic, shortcut=Padded)
    stages = stack(block, 16, [(16, 1), (32, 2), (64, 2)], n_blocks)
    stem = nn.Sequential(conv3x3(n_channels, 16), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    return initialised(nn.Sequential(stem, stages, head(64, n_classes)))


def resnet(
    n_channels: int, n_classes: int, *, block: Callable[..., nn.Module], growth: int, n_blocks: list[int], small: bool
) -> nn.Module:
    """Return the ImageNet ResNet of four stages.

    Args:
        growth: How much wider the block's output is than the stage's nominal 64, 128, 256, 512.
        small: A 3x3 stem of stride 1 without pooling, for images of which 7x7 and pooling would leave too little.
    """
    stem = small_stem(n_channels) if small else large_stem(n_channels)
    stages, n_in = [], 64
    for stage, n in enumerate(n_blocks):
        n_out = 64 * 2**stage * growth
        stages.append(stack(partial(block, shortcut=projected), n_in, [(n_out, 2 if stage else 1)], n))
        n_in = n_out
    return initialised(nn.Sequential(stem, *stages, head(n_in, n_classes)))


def large_stem(n_channels: int) -> nn.Module:
    """Return the ImageNet stem: a quarter of the size."""
    return nn.Sequential(
        nn.Conv2d(n_channels, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    )  # fmt: skip


def small_stem(n_channels: int) -> nn.Module:
    """Return the stem for small images: the same size."""
    return nn.Sequential(conv3x3(n_channels, 64), nn.BatchNorm2d(64), nn.ReLU(inplace=True))


def stack(
    block: Callable[[int, int, int], nn.Module], n_in: int, stages: list[tuple[int, int]], n_blocks: int
) -> nn.Module:
    """Return n_blocks blocks for each (width, stride) of stages; the first block of a stage has the stride."""
    blocks = []
    for n_out, stride in stages:
        for i in range(n_blocks):
            blocks.append(block(n_in, n_out, 1 if i else stride))
            n_in = n_out
    return nn.Sequential(*blocks)


def head(n_in: int, n_classes: int) -> nn.Module:
    """Return mean over the pixels, then a linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))


def initialised(model: nn.Module) -> nn.Module:
    """Return the model with its convolutions drawn as He et al. draw them."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def mlp(n_inputs: int, n_classes: int) -> nn.Module:
    """Return the MLP of the synthetic experiments: 1000 tanh units."""
    return nn.Sequential(nn.Flatten(), nn.Linear(n_inputs, 1000), nn.Tanh(), nn.Linear(1000, n_classes))


def tanh_cnn(n_channels: int, height: int, width: int, n_classes: int) -> nn.Module:
    """Return the CNN of the synthetic experiments, for 28 px; larger images widen its first linear layer."""
    sides = [((side - 4) // 2 - 2) // 2 - 4 for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(n_channels, 6, 5), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(16, 120, 5), nn.Tanh(), nn.Flatten(),
        nn.Linear(120 * sides[0] * sides[1], 84), nn.Tanh(), nn.Linear(84, n_classes),
    )  # fmt: skip


def plain_cnn(n_channels: int, n_classes: int, width: int) -> nn.Module:
    """Return three strided 3x3 convolutions, width, 2 width and 4 width wide: a fast network without ways round."""
    layers: list[nn.Module] = []
    for n_in, n_out in ((n_channels, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [conv3x3(n_in, n_out, 2), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
    return initialised(nn.Sequential(*layers, head(4 * width, n_classes)))


def small_cnn(n_channels: int, height: int, width: int, n_classes: int) -> nn.Module:
    """Return two strided convolutions and a linear layer: the fast one for digits.

    Images of 64 px and more are pooled before the linear layer, so that it does not grow with them.
    """
    quarter = [(side + 3) // 4 for side in (height, width)]
    pool = max(1, min(quarter) // 8)
    n_features = 32 * (quarter[0] // pool) * (quarter[1] // pool)
    return nn.Sequential(
        conv3x3(n_channels, 16, 2), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
        conv3x3(16, 32, 2), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
        nn.AvgPool2d(pool) if pool > 1 else nn.Identity(), nn.Flatten(), nn.Linear(n_features, n_classes),
    )  # fmt: skip
