"""Finish: the compiled pass against plain torch, and against slices written out by hand."""

import pytest
import torch

from invaug.kernels import dispatch
from invaug.lab.train.finish import Finish, Randomness, draw_boxes

EVERY_KIND = [
    Randomness(4, True, 16, False),
    Randomness(0, False, 0, False),
    Randomness(0, True, 3, True),
    Randomness(2, False, 5, False),
]


def finish(n_channels: int, kind: Randomness) -> Finish:
    return Finish((0.49, 0.48, 0.45)[:n_channels], (0.21, 0.2, 0.22)[:n_channels], kind)


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 7, 9), (1, 1, 1), (3, 300, 300)])
def test_one_pass_gives_the_bits_and_strides_of_torch(shape, kind, monkeypatch) -> None:
    images = torch.randint(256, (9, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    results = []
    for can_run in (dispatch.can_run_compiled, lambda _: False):
        monkeypatch.setattr(dispatch, "can_run_compiled", can_run)
        torch.manual_seed(0)
        results.append(finish(shape[0], kind)(images))
    one, other = results
    assert torch.equal(one, other)
    assert one.stride() == other.stride()


def test_a_box_is_the_mean_colour_and_lies_within_half_a_size_of_a_pixel() -> None:
    images = torch.full((2000, 3, 32, 20), 200, dtype=torch.uint8)
    made = finish(3, Randomness(0, False, 8, False))(images)
    areas = (made == 0).all(1).sum((1, 2))
    assert areas.max() == 64  # 8 x 8 when nothing sticks out
    assert areas.min() == 16  # 4 x 4 around a corner
    assert (made == 0).all(1).equal((made == 0).any(1))
    boxes = draw_boxes(images, 8)
    assert boxes.min() == 0
    assert boxes[:, 1].max() == 32
    assert boxes[:, 3].max() == 20


def test_without_randomness_images_are_only_normalised() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    made = finish(1, Randomness())(images)
    torch.testing.assert_close(made, (images / 255 - 0.49) / 0.21)
