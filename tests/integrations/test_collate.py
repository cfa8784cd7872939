"""Batches from the rows people have: PIL images in a `Dataset`, rows of Hugging Face `datasets`, tensors."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from invaug import Constraint, InvarianceConstrained, sets
from invaug.integrations.collate import collate_bytes
from tests.support.images import real_images

without = pytest.mark.skipif(not find_spec("datasets"), reason="NOT RUN: `make integrations` installs datasets")


def pictures(n: int, channels: int = 3) -> tuple[torch.Tensor, list[Image.Image]]:
    """Return real images as a batch, and the same as PIL images."""
    batch = real_images(n, 24, 20, channels)
    arrays = batch.permute(0, 2, 3, 1).numpy()
    return batch, [Image.fromarray(array if channels == 3 else array[..., 0]) for array in arrays]


class Photographs(Dataset):
    """A dataset as torchvision's are: an image of PIL and a number."""

    def __init__(self, images: list[Image.Image]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        return self.images[i], i % 4


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_dataset_of_pil_images_keeps_its_bytes(channels, n_workers):
    wanted, images = pictures(8, channels)
    loader = DataLoader(Photographs(images), 8, collate_fn=collate_bytes, num_workers=n_workers)
    ((found, labels),) = loader
    assert found.dtype == torch.uint8
    assert torch.equal(found, wanted)
    assert torch.equal(labels, torch.arange(8) % 4)


def test_a_batch_goes_through_the_problem():
    _, images = pictures(8)
    (batch,) = DataLoader(Photographs(images), 8, collate_fn=collate_bytes)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 24 * 20, 4))
    step = InvarianceConstrained(Constraint(sets.wide()))(model, *batch)
    step.lagrangian.backward()
    assert step.slack.isfinite().all()


@pytest.mark.parametrize(("image", "label"), [("image", "label"), ("img", "label"), ("pixel_values", "labels")])
def test_dictionaries_become_what_a_trainer_takes(image, label):
    wanted, images = pictures(4)
    batch = collate_bytes([{image: each, label: i, "id": "other"} for i, each in enumerate(images)])
    assert list(batch) == ["pixel_values", "labels"]
    assert torch.equal(batch["pixel_values"], wanted)
    assert batch["labels"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("file", ["png", "memory"])
@pytest.mark.integrations
@without
def test_rows_of_datasets_keep_their_bytes(tmp_path, file):
    """Images that were encoded as files or kept in memory, by index and as a stream, through a real DataLoader."""
    import datasets

    wanted, images = pictures(8)
    if file == "png":
        for i, image in enumerate(images):
            image.save(tmp_path / f"{i}.png")
    column = [str(tmp_path / f"{i}.png") for i in range(8)] if file == "png" else images
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(num_classes=4))
    rows = datasets.Dataset.from_dict({"image": column, "label": [0, 1, 2, 3] * 2}, features)
    for each in (rows, rows.to_iterable_dataset(), rows.with_transform(lambda some: some)):
        (batch,) = DataLoader(each, 8, collate_fn=collate_bytes)
        assert torch.equal(batch["pixel_values"], wanted)
        assert batch["labels"].tolist() == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_tensors_keep_their_dtype(dtype):
    wanted, _ = pictures(4)
    images, _ = collate_bytes([(image.to(dtype), 0) for image in wanted])
    assert torch.equal(images, wanted.to(dtype))
    assert images.dtype == dtype


@pytest.mark.parametrize("label", [2, np.int64(2), torch.tensor(2)])
def test_labels_become_int64(label):
    _, images = pictures(2)
    assert torch.equal(collate_bytes([(image, label) for image in images])[1], torch.tensor([2, 2]))


def test_soft_labels_stay_soft():
    _, images = pictures(2)
    soft = torch.tensor([0.25, 0.75])
    assert torch.equal(collate_bytes([(image, soft) for image in images])[1], torch.stack([soft, soft]))


@pytest.mark.parametrize("mode", ["P", "RGBA", "1", "CMYK", "I;16", "F"])
def test_modes_whose_bytes_are_not_the_pixels_are_refused_with_the_way_out(mode):
    image = Image.new(mode, (4, 4))
    with pytest.raises(ValueError, match=rf'^PIL images must have mode L or RGB, got {mode}: .*convert\("RGB"\)'):
        collate_bytes([(image, 0)])


def test_sizes_that_differ_are_refused_with_the_way_out():
    rows = [(Image.new("RGB", size), 0) for size in ((4, 4), (5, 4))]
    rule = r"^the images of a batch must have one shape, got \(3, 4, 4\) and \(3, 4, 5\): resize them"
    with pytest.raises(ValueError, match=rule):
        collate_bytes(rows)


def test_grey_and_colour_in_one_batch_are_refused_with_the_way_out():
    rows = [(Image.new(mode, (4, 4)), 0) for mode in ("L", "RGB")]
    with pytest.raises(ValueError, match=r"^the images of a batch must have one shape, .* convert them to one mode"):
        collate_bytes(rows)


def test_arrays_are_refused_because_nothing_says_where_their_channels_are():
    with pytest.raises(TypeError, match=r"^images must be PIL images or tensors, got ndarray: .*permute\(2, 0, 1\)"):
        collate_bytes([(np.zeros((4, 4, 3), np.uint8), 0)])


@pytest.mark.parametrize(
    ("row", "missing"), [({"label": 0}, "pixel_values or image or img"), ({"image": 0}, "labels or label")]
)
def test_columns_that_are_missing_are_named(row, missing):
    with pytest.raises(ValueError, match=rf"^rows must have a column {missing}, got \w+: .*remove_unused_columns=Fal"):
        collate_bytes([row])
