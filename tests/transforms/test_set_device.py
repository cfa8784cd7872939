"""Every operation and set on any device: where a GPU is missing, on `meta`, on fake CUDA tensors, compiled, counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from invaug import Draw, Op, TransformSet, sets
from invaug.kernels import dispatch
from invaug.transforms.sets import EXTRA, KNOWN
from tests.support.images import by_torch

MOST_CALLS = 100
SETS = {
    "standard": sets.standard(),
    "wide": sets.wide(),
    "relative": sets.wide(relative_to=16),
    "mild, two in a row": sets.mild(),
    "extra": TransformSet(EXTRA),
    "everything, three in a row": TransformSet((*sets.wide().ops, *EXTRA), depth=3),
    "rotations": sets.rotations(1.0),
    "translations": replace(sets.translations(2.0), depth=2),
    "scalings": sets.scalings(0.5),
    "bytes and warps": TransformSet((*sets.wide().ops, *sets.rotations(1.0).ops)),
}


class Calls(TorchDispatchMode):
    """Count what reaches the dispatcher, and refuse what reads from a device."""

    READS = ("aten._local_scalar_dense", "aten.nonzero", "aten.equal", "aten.is_nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        assert not str(function).startswith(self.READS), f"{function} reads from the device"
        self.count += 1
        return function(*arguments, **(options or {}))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def single(op: Op) -> TransformSet:
    return TransformSet((op,))


def assert_stays(transforms: TransformSet, images: Tensor, draw: Draw) -> None:
    changed = transforms.apply(images, draw)
    assert (changed.shape, changed.dtype, changed.device) == (images.shape, images.dtype, images.device)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("name", SETS)
def test_every_set_runs_where_the_images_are(name: str, dtype: torch.dtype) -> None:
    images = torch.empty(40, 3, 16, 20, dtype=dtype, device="meta")
    assert_stays(SETS[name], images, SETS[name].draw(40, generator=seeded()))


@pytest.mark.parametrize("n_channels", [1, 2, 3])
@pytest.mark.parametrize("op", KNOWN, ids=lambda op: op.name)
def test_every_operation_runs_where_the_images_are(op: Op, n_channels: int) -> None:
    images = torch.empty(5, n_channels, 7, 9, dtype=torch.uint8, device="meta")
    assert_stays(single(op), images, single(op).draw(5, generator=seeded()))


# the others call grid_sample, which is not faked where torch is built without CUDA
@pytest.mark.parametrize("name", [name for name, transforms in SETS.items() if transforms._codes])
def test_every_set_of_byte_operations_runs_on_a_fake_gpu(name: str) -> None:
    draw = SETS[name].draw(40, generator=seeded())
    with FakeTensorMode():
        assert_stays(SETS[name], torch.empty(40, 3, 16, 20, dtype=torch.uint8, device="cuda"), draw)


BATCHES = {
    "one image": sets.wide().draw(1, generator=seeded()),
    "few images": sets.wide().draw(64, generator=seeded()),
    "many images": sets.wide().draw(256, generator=seeded()),
    "every transformation there is": sets.wide().every(),
    **{
        f"{name} alone": Draw(torch.full((9,), i), torch.zeros(9).long(), torch.ones(9))
        for i, name in enumerate(sets.wide().names)
    },
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kind", BATCHES)
def test_wide_set_takes_few_calls_and_reads_nothing_back(
    monkeypatch: pytest.MonkeyPatch, kind: str, device: str
) -> None:
    monkeypatch.setattr(dispatch, "has_numba", lambda: False)
    images = torch.zeros(len(BATCHES[kind]), 3, 32, 32, dtype=torch.uint8, device=device)
    with Calls() as calls:
        sets.wide().apply(images, BATCHES[kind])
    assert 0 < calls.count <= MOST_CALLS


def test_number_of_calls_does_not_grow_with_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "has_numba", lambda: False)
    counts = []
    for n in (200, 2000):
        images = torch.zeros(n, 3, 8, 8, dtype=torch.uint8)
        draw = sets.wide().draw(n, generator=seeded())
        with Calls() as calls:
            sets.wide().apply(images, draw)
        counts.append(calls.count)
    assert counts[0] == counts[1]


COMPILED = {
    "wide": sets.wide(),
    "mild, two in a row": sets.mild(),
    "extra, relative": TransformSet(EXTRA, reference_size=16),
    "identity": sets.wide().only("Identity"),
    "rotations": sets.rotations(1.0),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if "," in name else []) for name in COMPILED]
)
def test_compiled_set_gives_the_same_bytes(photographs: Tensor, name: str) -> None:
    transforms = COMPILED[name]
    torch._dynamo.reset()
    compiled = torch.compile(lambda images, draw: transforms.apply(images, draw), fullgraph=True, backend="aot_eager")
    for seed in (0, 1):
        draw = transforms.draw(64, generator=seeded(seed))
        changed = compiled(photographs, draw)
        assert torch.equal(changed, transforms.apply(photographs, draw))
        assert torch.equal(changed, by_torch(transforms, photographs, draw))
    assert changed.data_ptr() != photographs.data_ptr()
