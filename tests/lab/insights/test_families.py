"""Several constraints in one run, and symmetries planted in data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import kstest

from invaug import sets
from invaug.lab.data import synthetic
from invaug.lab.errors import UserError
from invaug.lab.insights import families
from invaug.lab.run.record import read
from invaug.lab.train.sets import transform_sets
from invaug.lab.train.tally import histogram
from tests.support.configs import resolved
from tests.support.runs import train, write_digits

THREE = {"rotation": {"Rotate": 90}, "flip": {"FlipX": True}, "zoom": {"Scale": 0.5}}


def digits(n: int = 64) -> torch.Tensor:
    from tests.support.images import load_digits

    return torch.from_numpy(load_digits()[:n]).unsqueeze(1).contiguous()


def test_each_family_is_a_constraint_with_a_gamma_of_its_own(tmp_path):
    out = tmp_path / "run"
    (row,) = train(write_digits(tmp_path), out, families=THREE, share=0.5)
    assert set(row["families"]) == set(THREE)
    last = read(out)[-1]
    assert [list(kept) for kept in last["kept"]] == [["Rotate"], ["FlipX"], ["Scale"]]
    assert len(last["gamma"]) == len(last["slack"]) == 3
    counted = [sum(map(sum, kept.values())) for kept in last["kept"]]
    assert counted == [128, 128, 128]  # half of four batches of 64
    uniform = [found["uniform"]["accuracy"] for found in row["families"].values()]
    assert row["transformed_accuracy"] == pytest.approx(np.mean(uniform))


def test_families_survive_the_config_file_and_a_resume(tmp_path):
    data, out = write_digits(tmp_path), tmp_path / "run"
    train(data, out, families=THREE)
    before = read(out)
    (row,) = train(data, out, resume=True)
    assert read(out) == before
    assert set(row["families"]) == set(THREE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"families": {"a": {"Rotat": 3}}}, "family a: unknown operation Rotat, did you mean Rotate"),
        ({"families": {"a": {}}}, "family a: ops must hold at least one operation"),
        ({"families": {"a": {"Rotate": 3}}, "only": ["Rotate"]}, "leave out only"),
        ({"families": {"a": {"Rotate": [1, 2, 3]}}}, "families"),
        ({"families": {"a": 3}}, "families.a"),
        ({"families": 3}, "families"),
    ],
)
def test_families_that_are_none_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        transform_sets(resolved(**given))


def test_histogram_of_a_mixed_set_counts_levels_and_bins():
    mixed = sets.of({"Rotate": 30, "Scale": 1.0}, n_levels=31)
    draw = mixed.draw(4000, generator=torch.Generator().manual_seed(0))
    counts = histogram(mixed, draw)
    assert counts.shape == (2, 31)
    assert counts[0].sum() == (draw.op == 0).sum()
    expected, _ = np.histogram(draw.magnitude[draw.op == 1].numpy(), bins=20, range=(-1, 1))
    assert counts[1, :20].tolist() == expected.tolist()
    assert not counts[1, 20:].any()


@pytest.mark.parametrize("kind", ["r180", "r90"])
def test_planted_rotations_are_those_of_pillow_within_bilinear_rounding(kind):
    images = digits()
    found = synthetic.plant(images, kind, 1)
    generator = torch.Generator().manual_seed(1)
    most = {"r180": 180.0, "r90": 90.0}[kind]
    angles = (torch.rand(len(images), 1, generator=generator, dtype=torch.float64) * 2 - 1)[:, 0] * most
    for image, changed, angle in zip(images, found, angles.tolist(), strict=True):
        expected = Image.fromarray(image[0].numpy()).rotate(angle, Image.Resampling.BILINEAR)
        inner = np.abs(np.asarray(expected, int) - changed[0].numpy().astype(int))[4:-4, 4:-4]
        assert inner.mean() < 2


def test_planted_magnitudes_are_uniform_and_fixed_by_the_seed():
    images = digits(1000)
    assert torch.equal(synthetic.plant(images, "scaled", 1), synthetic.plant(images, "scaled", 1))
    assert not torch.equal(synthetic.plant(images, "scaled", 1), synthetic.plant(images, "scaled", 0))
    dots = torch.zeros(2000, 1, 57, 57, dtype=torch.uint8)
    dots[..., 28, 28] = 255
    mass = synthetic.plant(dots, "translated", 1).double().squeeze(1)
    shifts = (mass.sum(1) * torch.arange(57)).sum(1) / mass.sum((1, 2)) - 28
    most = 8 / 14 * 28
    assert kstest(shifts.numpy(), "uniform", (-most, 2 * most)).pvalue > 1e-3


def test_an_unknown_plant_is_refused_by_name():
    with pytest.raises(UserError, match=r"unknown symmetry \+r91, did you mean r90"):
        synthetic.find("r91")


def test_a_family_goes_half_as_far_towards_doing_nothing():
    usual = families.usual_families(32, 32)
    half = {name: families.scale_ranges(ranges, 0.5) for name, ranges in usual.items()}
    assert half["rotation"] == {"Rotate": (0.0, 90.0)}
    assert half["colour"]["Color"] == pytest.approx((0.505, 1.495))
    assert half["tone"] == {"Posterize": (8.0, 5.0), "Solarize": (256.0, 128.0)}
    assert half["horizontal flip"] == {"FlipX": True}
    assert families.in_words(half["scale"]) == "Scale ×0.71 to ×1.4"


def test_what_changes_nothing_is_left_out_and_what_destroys_everything_is_refused():
    images = digits()
    kept, idle = families.leave_out_idle(families.usual_families(28, 28), images)
    assert idle == ["colour"]
    assert "rotation" in kept
    far = {"far": families.explicit_ranges("far", {"TranslateX": (60, 90)})}
    with pytest.raises(UserError, match=r"family far leaves nothing of the images \(TranslateX ±90 px\)"):
        families.leave_out_idle(far, images)


def test_images_too_small_for_the_usual_families_are_refused():
    with pytest.raises(UserError, match="images of 4 x 4 pixels are too small"):
        families.usual_families(4, 4)


def test_scale_in_words_is_a_factor():
    assert families.in_words({"Scale": (0.0, math.log(2))}) == "Scale ×0.5 to ×2"
