"""Other libraries' transformations as operations, beside the libraries called by hand."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from invaug import Constraint, Draw, InvarianceConstrained, Op, TransformSet, adapters, ops, testing
from tests.support.images import import_torchvision

# else it asks the network for its newest version, and warns when there is no answer
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

SEEDS = [0, 1, 77, 123456789, 2**31 - 2]


def library(name: str) -> ModuleType:
    """Return a module of an optional library, or skip the test."""
    root = name.partition(".")[0]
    if find_spec(root) is None:
        pytest.skip(f"NOT COMPARED WITH {root.upper()}: it is not installed; `make adapters` installs it")
    if root == "torchvision":
        import_torchvision()
    return import_module(name)


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def by_torchvision(transform: Any, image: Tensor, seed: int) -> Tensor:
    seed_everything(seed)
    return transform(image)


def by_kornia(transform: Any, image: Tensor, seed: int) -> Tensor:
    torch.manual_seed(seed)
    changed = transform(image[None].float() / 255)
    return (changed.clamp(0, 1) * 255).round().to(torch.uint8)[0]


def by_albumentations(transform: Any, image: Tensor, seed: int) -> Tensor:
    transform.set_random_seed(seed)
    changed = transform(image=np.ascontiguousarray(image.numpy().transpose(1, 2, 0)))["image"]
    return torch.from_numpy(np.ascontiguousarray(changed.transpose(2, 0, 1)))


@dataclass(frozen=True)
class Peer:
    """An adapter, and how a user would call the library without it."""

    module: str
    adapt: Callable[..., Op]
    by_hand: Callable[[Any, Tensor, int], Tensor]


class StandIn:
    """Claims to come from torchvision and draws from every global generator, so that no library is needed."""

    __module__ = "torchvision.transforms"

    def __call__(self, image: Tensor) -> Tensor:
        noise = torch.randint(0, 9, image.shape) + np.random.randint(9) + random.randrange(9)
        return (image + noise).clamp_(max=255).to(torch.uint8)


NO_LIBRARY = Peer("torch", adapters.torchvision, by_torchvision)
V1 = Peer("torchvision.transforms", adapters.torchvision, by_torchvision)
V2 = Peer("torchvision.transforms.v2", adapters.torchvision, by_torchvision)
KORNIA = Peer("kornia.augmentation", adapters.kornia, by_kornia)
ALBUMENTATIONS = Peer("albumentations", adapters.albumentations, by_albumentations)

CASES: dict[str, tuple[Peer, Callable[[Any], Any]]] = {
    "stand-in": (NO_LIBRARY, lambda _: StandIn()),
    "v2 ColorJitter": (V2, lambda t: t.ColorJitter(0.5, 0.5, 0.5, 0.2)),
    "v2 RandomAffine": (V2, lambda t: t.RandomAffine(30, (0.2, 0.2), (0.8, 1.2))),
    "v2 RandomErasing in place": (V2, lambda t: t.RandomErasing(p=1.0, inplace=True)),
    "v2 Compose": (V2, lambda t: t.Compose([t.RandomHorizontalFlip(), t.RandomRotation(20)])),
    "v1 ColorJitter": (V1, lambda t: t.ColorJitter(0.5, 0.5, 0.5, 0.2)),
    # these two ask Python's own generator
    "v1 RandomChoice": (V1, lambda t: t.RandomChoice([t.RandomVerticalFlip(1.0), t.RandomInvert(1.0)])),
    "v1 RandomOrder": (V1, lambda t: t.RandomOrder([t.RandomRotation(20), t.RandomAffine(0, (0.2, 0.2))])),
    "kornia RandomAffine": (KORNIA, lambda t: t.RandomAffine(30.0, (0.1, 0.1), p=1.0)),
    "kornia RandomGaussianNoise": (KORNIA, lambda t: t.RandomGaussianNoise(std=0.5, p=1.0)),
    "kornia Sequential": (
        KORNIA,
        lambda t: nn.Sequential(t.RandomHorizontalFlip(p=0.5), t.RandomBrightness((0.5, 1.5), p=1.0)),
    ),
    "albumentations ElasticTransform": (ALBUMENTATIONS, lambda t: t.ElasticTransform(alpha=50, p=1.0)),
    "albumentations RandomBrightnessContrast": (ALBUMENTATIONS, lambda t: t.RandomBrightnessContrast(p=1.0)),
    "albumentations GaussNoise": (ALBUMENTATIONS, lambda t: t.GaussNoise(p=1.0)),
    "albumentations HorizontalFlip": (ALBUMENTATIONS, lambda t: t.HorizontalFlip(p=0.5)),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Peer, Any]:
    peer, build = CASES[request.param]
    return peer, build(library(peer.module))


@pytest.fixture
def grey(digits: Tensor) -> Tensor:
    return digits[:8]


@pytest.fixture
def colours(photographs: Tensor) -> Tensor:
    return photographs[:8]


def seeds_for(images: Tensor) -> Tensor:
    return torch.tensor((SEEDS * 2)[: len(images)], dtype=torch.float64)


def mixed_set() -> TransformSet:
    """Byte operations and one adapter of each library."""
    return TransformSet(
        (
            Op("Rotate", ops.rotate, 0, 90, signed=True, whole=True),
            Op("Equalize", ops.equalize),
            Op("Cutout", ops.cutout, 0, 16, whole=True, placed=True),
            Op("Roll", adapters.per_image(lambda image, pixels: image.roll(int(pixels), 2)), 0, 9, signed=True),
            adapters.torchvision(library("torchvision.transforms.v2").ColorJitter(0.5, 0.5, 0.5, 0.2)),
            adapters.kornia(library("kornia.augmentation").RandomAffine(30.0, p=1.0)),
            adapters.albumentations(library("albumentations").ElasticTransform(p=1.0)),
        )
    )


def test_per_image_gives_each_image_its_magnitude_as_a_float(grey: Tensor) -> None:
    seen: list[Any] = []

    def note(image: Tensor, magnitude: float) -> Tensor:
        seen.append((tuple(image.shape), magnitude))
        return image

    magnitudes = torch.arange(len(grey), dtype=torch.float64) / 4
    assert torch.equal(adapters.per_image(note)(grey, magnitudes), grey)
    assert seen == [((1, 28, 28), i / 4) for i in range(len(grey))]


def test_per_image_of_a_torchvision_functional_is_the_functional(colours: Tensor) -> None:
    functional = library("torchvision.transforms.v2.functional")
    op = Op("Hue", adapters.per_image(functional.adjust_hue), -0.5, 0.5)
    magnitudes = torch.linspace(-0.5, 0.5, len(colours), dtype=torch.float64)
    expected = [functional.adjust_hue(image, float(m)) for image, m in zip(colours, magnitudes, strict=True)]
    assert torch.equal(op(colours, magnitudes), torch.stack(expected))
    testing.check_op(op)


def test_per_image_of_a_kornia_functional_is_the_functional(colours: Tensor) -> None:
    enhance = library("kornia.enhance")
    op = Op("Gamma", adapters.per_image(lambda image, gamma: enhance.adjust_gamma(image, gamma)), 0.5, 2)
    images, magnitudes = colours.float() / 255, torch.linspace(0.5, 2, len(colours), dtype=torch.float64)
    # kornia's own way to take a batch
    assert torch.allclose(op(images, magnitudes), enhance.adjust_gamma(images, magnitudes.float()), atol=1e-6)


def test_per_image_passes_both_magnitudes_of_a_pair(grey: Tensor) -> None:
    shift = adapters.per_image(lambda image, pixels: image.roll((int(pixels[0]), int(pixels[1])), (2, 1)))
    op = Op("Wrap", shift, 0, 5, signed=True, continuous=True, n_magnitudes=2)
    testing.check_op(op)
    assert torch.equal(op(grey[:1], torch.tensor([[3.0, -2.0]])), grey[:1].roll((-2, 3), (2, 3)))


def test_per_image_lets_gradients_through() -> None:
    image = torch.rand(1, 1, 4, 4, requires_grad=True)
    adapters.per_image(lambda image, factor: image * factor)(image, torch.tensor([3.0])).sum().backward()
    assert image.grad is not None
    assert (image.grad == 3).all()


def test_per_image_of_no_images_is_no_images() -> None:
    nothing = torch.zeros(0, 3, 5, 5, dtype=torch.uint8)
    assert adapters.per_image(lambda image, _: image)(nothing, torch.zeros(0)).shape == (0, 3, 5, 5)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda image, _: image[:, :14], ValueError, r"must keep the shape \(1, 28, 28\), got \(1, 14, 28\)"),
        (lambda image, _: image / 255, TypeError, r"must keep the dtype torch.uint8, got torch.float32"),
        (lambda image, _: image.numpy(), TypeError, r"must return a tensor of shape \(1, 28, 28\), got ndarray"),
    ],
)
def test_per_image_says_what_a_function_did_wrong(
    grey: Tensor, function: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        adapters.per_image(function)(grey, torch.zeros(len(grey)))


def test_adapter_gives_what_the_library_gives_for_the_seed(case: tuple[Peer, Any], colours: Tensor) -> None:
    peer, transform = case
    seeds = seeds_for(colours)
    changed = peer.adapt(transform)(colours, seeds)
    expected = [peer.by_hand(transform, i.clone(), int(s)) for i, s in zip(colours, seeds, strict=True)]
    assert torch.equal(changed, torch.stack(expected))
    assert not torch.equal(changed, colours)


def test_adapter_keeps_the_contract(case: tuple[Peer, Any], colours: Tensor) -> None:
    peer, transform = case
    testing.check_op(peer.adapt(transform), colours)


def test_adapter_takes_grey_images(case: tuple[Peer, Any], grey: Tensor) -> None:
    peer, transform = case
    seeds = seeds_for(grey)
    changed = peer.adapt(transform)(grey, seeds)
    expected = [peer.by_hand(transform, i.clone(), int(s)) for i, s in zip(grey, seeds, strict=True)]
    assert torch.equal(changed, torch.stack(expected))


def test_adapter_leaves_every_global_generator_as_it_was(case: tuple[Peer, Any], colours: Tensor) -> None:
    peer, transform = case
    op = peer.adapt(transform)
    seed_everything(99)
    before = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()
    op(colours, seeds_for(colours))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tobytes() == before[1]
    assert random.getstate() == before[2]


def test_adapter_does_not_listen_to_global_generators(case: tuple[Peer, Any], colours: Tensor) -> None:
    peer, transform = case
    op = peer.adapt(transform)
    seed_everything(98)
    first = op(colours, seeds_for(colours))
    seed_everything(99)
    assert torch.equal(op(colours, seeds_for(colours)), first)


def test_adapter_gives_the_same_bytes_under_autocast(case: tuple[Peer, Any], colours: Tensor) -> None:
    peer, transform = case
    op = peer.adapt(transform)
    expected = op(colours, seeds_for(colours))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(op(colours, seeds_for(colours)), expected)


def test_adapter_takes_float_images_as_their_bytes(case: tuple[Peer, Any], colours: Tensor) -> None:
    peer, transform = case
    op = peer.adapt(transform)
    as_floats = op(colours.float() / 255, seeds_for(colours))
    assert torch.equal((as_floats * 255).round().to(torch.uint8), op(colours, seeds_for(colours)))


def test_adapter_cuts_a_magnitude_to_a_whole_seed(colours: Tensor) -> None:
    op = adapters.torchvision(StandIn())
    seeds = seeds_for(colours)
    assert torch.equal(op(colours, seeds + 0.99), op(colours, seeds))


def test_adapter_takes_a_name_and_else_the_name_of_the_class() -> None:
    assert adapters.torchvision(StandIn()).name == "StandIn"
    assert adapters.torchvision(StandIn(), name="Grain").name == "Grain"


def test_adapter_holds_a_copy_of_the_transform(colours: Tensor) -> None:
    transform = library("albumentations").HorizontalFlip(p=1.0)
    transform.set_random_seed(5)
    state = transform.py_random.getstate()
    op = adapters.albumentations(transform)
    transform.p = 0.0
    assert torch.equal(op(colours, seeds_for(colours)), colours.flip(3))
    assert transform.py_random.getstate() == state


def test_parts_of_an_albumentations_composition_are_independent() -> None:
    transforms = library("albumentations")
    op = adapters.albumentations(transforms.Compose([transforms.HorizontalFlip(p=0.5), transforms.VerticalFlip(p=0.5)]))
    corners = torch.arange(4, dtype=torch.uint8).view(1, 1, 2, 2).repeat(400, 1, 1, 1)
    _, counts = op(corners, torch.arange(400.0)).flatten(1).unique(dim=0, return_counts=True)
    # four outcomes of 100 each; 50 is six standard deviations away
    assert len(counts) == 4
    assert counts.min() > 50


def test_seeds_of_a_draw_are_spread_over_the_whole_range() -> None:
    transforms = TransformSet((adapters.torchvision(StandIn()),))
    draw = transforms.draw(4000, generator=torch.Generator().manual_seed(0))
    seeds = draw.magnitude.long()
    assert len(seeds.unique()) == 4000
    assert seeds.min() >= 0
    assert torch.histc(draw.magnitude, 4, 0, adapters.N_SEEDS).min() > 800
    assert (draw.level == -1).all()


def test_mixed_set_keeps_the_contract() -> None:
    testing.check_set(mixed_set())


def test_saved_draw_of_a_mixed_set_replays_to_the_same_bytes(colours: Tensor, tmp_path: Path) -> None:
    images = colours.repeat(8, 1, 1, 1)
    draw = mixed_set().draw(len(images), generator=torch.Generator().manual_seed(3))
    assert len(draw.op.unique()) == 7
    changed = mixed_set().apply(images, draw)
    draw.save(tmp_path / "draw.npz")
    torch.rand(5)
    # a new set, as in a new process
    assert torch.equal(mixed_set().apply(images, Draw.load(tmp_path / "draw.npz")), changed)


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))


def test_constrained_step_trains_on_what_its_kept_draws_replay(colours: Tensor) -> None:
    transforms, model, targets = mixed_set(), small_model(), torch.arange(8)
    constraint = Constraint(transforms, epsilon=0.5)
    problem = InvarianceConstrained(constraint, n_steps=2, views="both", gamma_init=1.0, dual_lr=0.1)
    step = problem(model, colours, targets)
    replayed = transforms.apply(colours, step.kept[0]).float() / 255
    expected = nn.functional.cross_entropy(model(replayed), targets) - 0.5
    assert step.slack.item() == pytest.approx(expected.item(), rel=1e-5)
    step.lagrangian.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    problem.dual_step(step.slack)
    assert problem.gamma.item() == pytest.approx(1.0 + 0.1 * expected.item(), rel=1e-5)


def test_constrained_step_depends_on_the_seed_alone(colours: Tensor) -> None:
    def lagrangian(disturbance: int) -> float:
        model = small_model()
        problem = InvarianceConstrained(Constraint(mixed_set(), epsilon=0.5), gamma_init=1.0)
        seed_everything(disturbance)
        return problem(model, colours, torch.arange(8)).lagrangian.item()

    assert lagrangian(1) == lagrangian(2)


RESIZING: dict[str, tuple[Peer, Callable[[Any], Any]]] = {
    "v1": (V1, lambda t: t.RandomCrop(14)),
    "v2": (V2, lambda t: t.RandomCrop(14)),
    "kornia": (KORNIA, lambda t: t.RandomCrop((14, 14), p=1.0)),
    "albumentations": (ALBUMENTATIONS, lambda t: t.RandomCrop(14, 14, p=1.0)),
}


@pytest.mark.parametrize("name", RESIZING)
def test_transform_that_changes_the_size_is_refused(name: str, colours: Tensor) -> None:
    peer, build = RESIZING[name]
    op = peer.adapt(build(library(peer.module)))
    with pytest.raises(ValueError, match=r"RandomCrop must keep the shape \(3, 32, 32\), got \(3, 14, 14\)"):
        op(colours, seeds_for(colours))


def test_transform_that_normalises_is_refused(colours: Tensor) -> None:
    op = adapters.albumentations(library("albumentations").Normalize())
    with pytest.raises(TypeError, match=r"Normalize must keep the dtype torch.uint8, got torch.float32: normalise in"):
        op(colours, seeds_for(colours))


def test_transform_that_returns_no_tensor_is_refused(colours: Tensor) -> None:
    op = adapters.torchvision(library("torchvision.transforms.v2").ToPILImage())
    with pytest.raises(TypeError, match=r"ToPILImage must return a tensor of shape \(3, 32, 32\), got Image"):
        op(colours, seeds_for(colours))


def test_generators_are_put_back_after_an_error(colours: Tensor) -> None:
    op = adapters.albumentations(library("albumentations").RandomCrop(14, 14))
    seed_everything(99)
    before = torch.get_rng_state(), random.getstate()
    with pytest.raises(ValueError, match="must keep the shape"):
        op(colours, seeds_for(colours))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


@pytest.mark.parametrize("seed", [-1.0, 2.0**31])
def test_magnitude_that_is_no_seed_is_refused(seed: float, grey: Tensor) -> None:
    op = adapters.torchvision(StandIn())
    with pytest.raises(ValueError, match=r"magnitude of StandIn is a seed and must lie in \[0, 2147483647\), got"):
        op(grey[:1], torch.tensor([seed], dtype=torch.float64))


@pytest.mark.parametrize("name", adapters.LIBRARIES)
def test_missing_library_is_named_with_the_command_that_installs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=f"adapters.{name} needs {name}, .*: pip install 'invaug\\[peers\\]'$"):
        getattr(adapters, name)(object())


@pytest.mark.parametrize("name", adapters.LIBRARIES)
def test_object_of_no_library_is_refused(name: str) -> None:
    library(name)
    with pytest.raises(TypeError, match=rf"must be an object of {name}, got function: for a function .*\.per_image"):
        getattr(adapters, name)(lambda image: image)


def test_object_of_another_library_is_sent_to_its_adapter() -> None:
    transform = library("kornia.augmentation").RandomAffine(30.0)
    with pytest.raises(TypeError, match=r"must be an object of torchvision, got RandomAffine: use adapters.kornia$"):
        adapters.torchvision(transform)


def test_import_of_the_adapters_imports_no_library() -> None:
    code = (
        "import sys; from invaug import adapters; print(*[name for name in adapters.LIBRARIES if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert run.stdout.strip() == ""
