"""The networks: wide and plain ResNets, and the small ones of the synthetic experiments.

Each is built from the shape of an image, the number of classes and the numbers in its name. Weights are drawn in the
order in which layers are made, so that order is part of what a seed means.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from invaug.lab.errors import UserError

Shape = tuple[int, int, int]
Block = Callable[[int, int, int], nn.Module]
"""A block from its numbers of input and output channels and its stride."""
SMALL_IMAGE = 64  # up to this many pixels ResNet-18 and 50 keep the size in their stem


def conv3x3(n_in: int, n_out: int, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """Return a 3x3 convolution that keeps the size, or halves it with stride 2."""
    return nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=bias)


def with_norm(conv: nn.Conv2d) -> list[nn.Module]:
    """Return the convolution and a BatchNorm."""
    return [conv, nn.BatchNorm2d(conv.out_channels)]


def with_norm_relu(conv: nn.Conv2d) -> list[nn.Module]:
    """Return the convolution, a BatchNorm and a ReLU."""
    return [*with_norm(conv), nn.ReLU(inplace=True)]


class WideBlock(nn.Module):
    """Two BatchNorm-ReLU-convolutions, added to the unchanged input.

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


def wide_resnet(image_shape: Shape, n_classes: int, depth: int, width: int) -> nn.Module:
    """Return the Wide ResNet of three stages: no dropout, default initialisation."""
    n_blocks = blocks_per_stage(f"wrn-{depth}-{width}", depth, 4, "10, 16, 22, 28, 34, 40")
    widths = (16, 16 * width, 32 * width, 64 * width)
    stages = nn.Sequential(*stack(WideBlock, widths, [n_blocks] * 3))
    stem = conv3x3(image_shape[0], 16, bias=True)
    return nn.Sequential(stem, stages, nn.BatchNorm2d(widths[-1]), nn.ReLU(inplace=True), head(widths[-1], n_classes))


class Residual(nn.Module):
    """ReLU of body plus shortcut, which is the identity where input and output have one shape."""

    def __init__(self, body: nn.Module, n_in: int, n_out: int, stride: int, shortcut: Block) -> None:
        super().__init__()
        same = stride == 1 and n_in == n_out
        self.body, self.shortcut = body, nn.Identity() if same else shortcut(n_in, n_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        return F.relu(torch.add(self.body(x), self.shortcut(x)), inplace=True)


class PaddedShortcut(nn.Module):
    """The shortcut without parameters of the CIFAR ResNets: every second pixel, new channels zero."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.n_new, self.stride = n_out - n_in, stride

    def forward(self, x: Tensor) -> Tensor:
        """Return the input in the shape of the body's output."""
        # pooling of single pixels is x[:, :, ::stride, ::stride], whose gradient would lose the order of memory that
        # convolutions are fastest in: a step of ResNet-8 would take a tenth longer on a CPU
        return F.pad(F.avg_pool2d(x, 1, self.stride), (0, 0, 0, 0, 0, self.n_new))


def learned_shortcut(n_in: int, n_out: int, stride: int) -> nn.Module:
    """Return the shortcut of the ImageNet ResNets."""
    return nn.Sequential(*with_norm(nn.Conv2d(n_in, n_out, 1, stride, bias=False)))


def basic_block(n_in: int, n_out: int, stride: int, shortcut: Block = learned_shortcut) -> nn.Module:
    """Return a block of two 3x3 convolutions."""
    body = nn.Sequential(*with_norm_relu(conv3x3(n_in, n_out, stride)), *with_norm(conv3x3(n_out, n_out)))
    return Residual(body, n_in, n_out, stride, shortcut)


def bottleneck_block(n_in: int, n_out: int, stride: int) -> nn.Module:
    """Return a block of 1x1, 3x3 and 1x1 convolutions, a quarter as wide inside; the stride is on the 3x3."""
    n_mid = n_out // 4
    body = nn.Sequential(
        *with_norm_relu(nn.Conv2d(n_in, n_mid, 1, bias=False)),
        *with_norm_relu(conv3x3(n_mid, n_mid, stride)),
        *with_norm(nn.Conv2d(n_mid, n_out, 1, bias=False)),
    )
    return Residual(body, n_in, n_out, stride, learned_shortcut)


def cifar_resnet(image_shape: Shape, n_classes: int, depth: int) -> nn.Module:
    """Return the CIFAR ResNet of three stages, 16, 32 and 64 wide."""
    examples = "8, 14, 20, 26, 32, 44, 56, 110, or the ImageNet depths 18 and 50"
    n_blocks = blocks_per_stage(f"resnet-{depth}", depth, 2, examples)
    block = partial(basic_block, shortcut=PaddedShortcut)
    stages = nn.Sequential(*stack(block, (16, 16, 32, 64), [n_blocks] * 3))
    stem = nn.Sequential(*with_norm_relu(conv3x3(image_shape[0], 16)))
    return init_as_he(nn.Sequential(stem, stages, head(64, n_classes)))


def resnet_18(image_shape: Shape, n_classes: int) -> nn.Module:
    """Return the ImageNet ResNet of basic blocks."""
    return _imagenet_resnet(image_shape, n_classes, basic_block, (64, 64, 128, 256, 512), (2, 2, 2, 2))


def resnet_50(image_shape: Shape, n_classes: int) -> nn.Module:
    """Return the ImageNet ResNet of bottlenecks."""
    return _imagenet_resnet(image_shape, n_classes, bottleneck_block, (64, 256, 512, 1024, 2048), (3, 4, 6, 3))


def _imagenet_resnet(
    image_shape: Shape, n_classes: int, block: Block, widths: Sequence[int], n_blocks: Sequence[int]
) -> nn.Module:
    """Return a stem and four stages; of small images a stem of 7x7 and pooling would leave too little."""
    if max(image_shape[1:]) <= SMALL_IMAGE:
        stem = with_norm_relu(conv3x3(image_shape[0], 64))
    else:
        large = nn.Conv2d(image_shape[0], 64, 7, 2, padding=3, bias=False)
        stem = [*with_norm_relu(large), nn.MaxPool2d(3, 2, padding=1)]
    blocks = iter(stack(block, widths, n_blocks))
    stages = [nn.Sequential(*(next(blocks) for _ in range(n))) for n in n_blocks]
    return init_as_he(nn.Sequential(nn.Sequential(*stem), *stages, head(widths[-1], n_classes)))


def blocks_per_stage(name: str, depth: int, extra: int, examples: str) -> int:
    """Return the blocks in each of the three stages of a network of two convolutions per block."""
    n_blocks, rest = divmod(depth - extra, 6)
    if rest or n_blocks < 1:
        raise UserError(f"the depth of {name} must be 6n + {extra} ({examples}), got {depth}")
    return n_blocks


def stack(block: Block, widths: Sequence[int], n_blocks: Sequence[int]) -> list[nn.Module]:
    """Return the blocks of all stages: each stage but the first halves the size in its first block."""
    blocks = []
    for stage, ((n_in, n_out), n) in enumerate(zip(pairwise(widths), n_blocks, strict=True)):
        blocks += [block(n_out if i else n_in, n_out, 2 if stage and not i else 1) for i in range(n)]
    return blocks


def head(n_in: int, n_classes: int) -> nn.Module:
    """Return a mean over the pixels, then a linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))


def init_as_he(model: nn.Module) -> nn.Module:
    """Return the model with its convolutions drawn as He et al. draw them."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and not module.weight.is_meta:  # drawing those would import torch's compiler
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def mlp(image_shape: Shape, n_classes: int) -> nn.Module:
    """Return the MLP of the synthetic experiments: 1000 tanh units."""
    channels, height, width = image_shape
    hidden = nn.Linear(channels * height * width, 1000)
    return nn.Sequential(nn.Flatten(), hidden, nn.Tanh(), nn.Linear(1000, n_classes))


def tanh_cnn(image_shape: Shape, n_classes: int) -> nn.Module:
    """Return the CNN of the synthetic experiments, for 28 px; larger images widen its first linear layer."""
    channels, *sides = image_shape
    height, width = (((side - 4) // 2 - 2) // 2 - 4 for side in sides)
    layers: list[nn.Module] = []
    for n_in, n_out, size in ((channels, 6, 5), (6, 16, 3)):
        layers += [nn.Conv2d(n_in, n_out, size), nn.Tanh(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 120, 5), nn.Tanh(), nn.Flatten()]
    layers += [nn.Linear(120 * height * width, 84), nn.Tanh(), nn.Linear(84, n_classes)]
    return nn.Sequential(*layers)


def plain_cnn(image_shape: Shape, n_classes: int, width: int) -> nn.Module:
    """Return three strided 3x3 convolutions, width, 2 width and 4 width wide: a fast network without shortcuts."""
    widths = (image_shape[0], width, 2 * width, 4 * width)
    layers = [layer for n_in, n_out in pairwise(widths) for layer in with_norm_relu(conv3x3(n_in, n_out, 2))]
    return init_as_he(nn.Sequential(*layers, head(4 * width, n_classes)))


def small_cnn(image_shape: Shape, n_classes: int) -> nn.Module:
    """Return two strided convolutions and a linear layer: the fast one for digits.

    Images of 64 px and more are pooled before the linear layer, so that it does not grow with them.
    """
    channels, *sides = image_shape
    height, width = ((side + 3) // 4 for side in sides)
    pool = max(1, min(height, width) // 8)
    layers = [*with_norm_relu(conv3x3(channels, 16, 2)), *with_norm_relu(conv3x3(16, 32, 2))]
    layers += [nn.AvgPool2d(pool) if pool > 1 else nn.Identity(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32 * (height // pool) * (width // pool), n_classes))
