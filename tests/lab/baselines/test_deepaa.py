"""DeepAA's policy files: Pillow's bytes, the file's laws, and what is refused."""

from __future__ import annotations

import io
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ImageEnhance, ImageOps
from torch import Tensor

from invaug.lab.baselines.deepaa import deepaa
from invaug.lab.errors import UserError
from tests.support.policies import (
    FILE_OPS,
    SIGNED,
    MakeFile,
    Picture,
    assert_frequencies,
    file_arrays,
    file_rows,
    layers,
    names_of,
    seeded,
    shifted,
    to_picture,
    to_tensor,
)


def only(*names: str) -> dict[str, Any]:
    """Return the change that makes every layer draw these operations alone, all their rows alike."""
    wanted = np.array([[FILE_OPS[op][0] in names for op, _ in file_rows()]] * 6, dtype=np.float32)
    return {"policy_probs": wanted / wanted.sum(axis=1, keepdims=True)}


def pillow_deepaa(image: Picture, name: str, value: float, place: list[float]) -> Picture:
    """Return the image under an operation of a policy file; the value is signed and in the file's units."""
    width, height = image.size
    fill = (125, 123, 114) if image.mode == "RGB" else 123  # 123 is that colour in grey
    x, y = place[0] * width, place[1] * height

    def cutout() -> Picture:
        painted = image.copy()
        painted.paste(fill, tuple(int(math.floor(v) + d) for v, d in ((x, -8), (y, -8), (x, 8), (y, 8))))
        return painted

    def crop() -> Picture:
        left, top = (math.floor(p * 9) for p in place)
        return ImageOps.expand(image, 4, fill).crop((left, top, left + width, top + height))

    calls: dict[str, Callable[[], Picture]] = {
        "Identity": lambda: image,
        "AutoContrast": lambda: ImageOps.autocontrast(image),
        "Equalize": lambda: ImageOps.equalize(image),
        "Invert": lambda: ImageOps.invert(image),
        "Rotate": lambda: image.rotate(value),
        "Solarize": lambda: ImageOps.solarize(image, value),  # type: ignore[arg-type]
        "Posterize": lambda: ImageOps.posterize(image, int(value)),
        "Color": lambda: ImageEnhance.Color(image).enhance(value),
        "Contrast": lambda: ImageEnhance.Contrast(image).enhance(value),
        "Brightness": lambda: ImageEnhance.Brightness(image).enhance(value),
        "Sharpness": lambda: ImageEnhance.Sharpness(image).enhance(value),
        "ShearX": lambda: shifted(image, 1, value, 0, 0, 1, 0),
        "ShearY": lambda: shifted(image, 1, 0, 0, value, 1, 0),
        "TranslateX": lambda: shifted(image, 1, 0, value * width, 0, 1, 0),
        "TranslateY": lambda: shifted(image, 1, 0, 0, 0, 1, value * height),
        "RandFlip": lambda: ImageOps.mirror(image),
        "RandCutout": cutout,
        "RandCrop": crop,
    }
    return calls[name]()


@pytest.mark.parametrize(("n_channels", "side"), [(3, 32), (3, 33), (1, 32)])
def test_deepaa_is_pillow_byte_for_byte(
    n_channels: int, side: int, make_file: MakeFile, make_images: Callable[..., Tensor]
) -> None:
    uniform = np.full((6, 139), 1 / 139, dtype=np.float32)
    policy = deepaa(make_file(policy_probs=uniform))
    images = make_images(400, side, side, n_channels)
    draws = policy.draw(400, generator=seeded(side))
    changed = policy.apply(images, draws)
    ranges = {name: (low, high) for name, low, high in FILE_OPS}
    for i, image in enumerate(images):
        picture = to_picture(image)
        for draw in layers(draws):
            name, level = policy.transforms.names[int(draw.op[i])], int(draw.level[i])
            low, high = ranges[name]
            value = low + level / 12 * (high - low)
            if name in SIGNED and float(draw.magnitude[i]) * value < 0:
                value = -value
            picture = pillow_deepaa(picture, name, value, draw.place[i, 0].tolist())
        assert torch.equal(changed[i], to_tensor(picture)), policy.describe(draws)[i]


def test_deepaa_draws_each_layer_by_its_own_row_of_probabilities(make_file: MakeFile) -> None:
    policy = deepaa(make_file())
    draws = policy.draw(40_000, generator=seeded(5))
    assert draws.depth == 6
    for draw, probabilities in zip(layers(draws), file_arrays()["policy_probs"].astype(float), strict=True):
        expected: Counter[tuple[str, int]] = Counter()
        for (op, level), share in zip(file_rows(), probabilities / probabilities.sum(), strict=True):
            name = FILE_OPS[op][0]
            taken = 0.5 if name == "RandFlip" else 1.0
            expected[name, level] += share * taken  # type: ignore[assignment]
            expected["Identity", 0] += share * (1 - taken)  # type: ignore[assignment]
        observed = Counter(zip(names_of(policy, draw), draw.level.flatten().tolist(), strict=True))
        assert_frequencies(observed, dict(expected))


def test_deepaa_mirrors_geometric_operations_half_the_time(make_file: MakeFile) -> None:
    policy = deepaa(make_file(**only("Rotate")))
    magnitudes = policy.draw(26_000, generator=seeded(6)).layer(0).magnitude.flatten().round(decimals=9)
    angles = [-30.0 + 5 * m for m in range(13) if m != 6]
    assert_frequencies(Counter(magnitudes.tolist()), dict.fromkeys(angles, 1 / 12))
    first = policy.draw(26_000, generator=seeded(7)).layer(0)
    negated = Counter((first.magnitude.flatten().round() == -(-30 + 5 * first.level.flatten())).tolist())
    assert_frequencies(negated, {True: 0.5, False: 0.5})


def test_deepaa_takes_its_ranges_from_the_file(make_file: MakeFile) -> None:
    wide = [("Rotate", -135.0, 135.0) if name == "Rotate" else (name, low, high) for name, low, high in FILE_OPS]
    names = [f"{name}:({low},,{high})" for name, low, high in wide]
    policy = deepaa(make_file(op_names=names, **only("Rotate")))
    assert policy.draw(2_000, generator=seeded(0)).magnitude.abs().max() == pytest.approx(135)


@pytest.mark.parametrize("name", ["RandCutout", "RandCrop"])
def test_deepaa_fills_holes_with_its_colour(name: str, make_file: MakeFile, photographs: Tensor) -> None:
    policy = deepaa(make_file(**only(name)))
    draws = policy.draw(64, generator=seeded(0))
    white = policy.apply(torch.full_like(photographs, 255), draws)
    colours = {tuple(pixel) for pixel in white.permute(0, 2, 3, 1).reshape(-1, 3).tolist()}
    assert colours == {(255, 255, 255), (125, 123, 114)}
    kept_black = policy.apply(torch.zeros_like(photographs), draws)
    assert (kept_black == 0).any()


def test_deepaa_shifts_leave_black(make_file: MakeFile, photographs: Tensor) -> None:
    policy = deepaa(make_file(**only("TranslateX", "Rotate", "ShearY")))
    changed = policy.apply(torch.full_like(photographs, 255), policy.draw(64, generator=seeded(0)))
    assert set(changed.unique().tolist()) == {0, 255}


def test_deepaa_does_without_identity_in_the_file(make_file: MakeFile, photographs: Tensor) -> None:
    flips = {
        "op_names": ["RandFlip:(0.0,,1.0)", "Invert:(0.0,,1.0)"],
        "l_ops": 2,
        "ops": np.array([[0], [1]]),
        "mags": np.array([[6], [6]]),
        "policy_probs": np.array([[1.0, 0.0]]),
    }
    policy = deepaa(make_file(**flips))
    draws = policy.draw(64, generator=seeded(0))
    names = names_of(policy, draws)
    assert set(names) == {"RandFlip", "Identity"}
    flipped = torch.tensor([name == "RandFlip" for name in names]).view(-1, 1, 1, 1)
    assert torch.equal(policy.apply(photographs, draws), torch.where(flipped, photographs.flip(3), photographs))


def renamed(index: int, text: str) -> list[str]:
    names = file_arrays()["op_names"]
    return [*names[:index], text, *names[index + 1 :]]


def with_entry(name: str, place: tuple[int, int], value: Any) -> dict[str, Any]:
    array = np.array(file_arrays()[name])
    array[place] = value
    return {name: array}


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"policy_probs": None}, "it lacks policy_probs$"),
    ({"mags": None, "l_mags": None}, "it lacks mags, l_mags$"),
    ({"l_mags": 1}, r"l_mags must be a whole number of at least 2, got array\(1\)$"),
    ({"l_mags": 13.0}, "l_mags must be a whole number of at least 2, got array"),
    ({"l_mags": np.array([13, 13])}, "l_mags must be a whole number"),
    ({"l_mags": 12}, "mags must lie in 0 to 11, got 0 to 12$"),
    (with_entry("ops", (3, 0), 18), "ops must lie in 0 to 17, got 0 to 18$"),
    (with_entry("ops", (3, 0), -1), "ops must lie in 0 to 17, got -1 to 17$"),
    ({"ops": file_arrays()["ops"][:-1]}, "ops and mags must be equally long, got 138 and 139$"),
    (
        {"ops": file_arrays()["ops"].astype(float)},
        r"ops must be a list of whole numbers, got float64 of shape \(139, 1\)",
    ),
    ({"mags": np.zeros((139, 2), int)}, r"mags must be a list of whole numbers, got int64 of shape \(139, 2\)"),
    ({"mags": np.zeros((0, 1), int)}, r"mags must be a list of whole numbers, got int64 of shape \(0, 1\)"),
    ({"policy_probs": np.ones((6, 100)) / 100}, r"policy_probs must be .* each of ops \(139\), got shape \(6, 100\)$"),
    ({"policy_probs": np.ones(139) / 139}, r"policy_probs must be .*, got shape \(139,\)$"),
    ({"policy_probs": np.ones((0, 139)) / 139}, r"policy_probs must be .*, got shape \(0, 139\)$"),
    ({"policy_probs": np.full((6, 139), "x")}, "policy_probs must be numbers"),
    ({"policy_probs": np.ones((6, 139))}, "each row of policy_probs must sum to 1, one is 138 off$"),
    (with_entry("policy_probs", (2, 3), -0.1), "policy_probs must not be negative or NaN$"),
    (with_entry("policy_probs", (2, 3), np.nan), "policy_probs must not be negative or NaN$"),
    (with_entry("policy_probs", (2, 3), np.inf), "each row of policy_probs must sum to 1, one is inf off$"),
    ({"op_names": renamed(1, "SheerX:(-0.3,,0.3)")}, "unknown operation SheerX, did you mean ShearX"),
    ({"op_names": renamed(1, "ShearX")}, r"an operation of op_names must read Name:\(low,,high\), got 'ShearX'$"),
    ({"op_names": renamed(1, "ShearX:(a,,b)")}, r"an operation of op_names must read Name:\(low,,high\), got"),
    ({"op_names": renamed(1, "ShearX:(-0.3,,nan)")}, "an operation of op_names must read Name:"),
    ({"op_names": renamed(1, "ShearX:(-11,,0.3)")}, "the range of ShearX must lie in -10 to 10, got"),
    ({"op_names": renamed(10, "Posterize:(4.0,,9.0)")}, "the range of Posterize must lie in 0 to 8, got"),
    ({"op_names": renamed(1, "ShearY:(-0.3,,0.3)")}, "op_names must differ, got Identity, ShearY, ShearY"),
    ({"op_names": np.arange(18)}, "op_names must be a list of strings, got int64$"),
]


@pytest.mark.parametrize(("changes", "message"), MALFORMED, ids=[message[:40] for _, message in MALFORMED])
def test_malformed_policy_file_says_what_is_wrong(changes: dict[str, Any], message: str, make_file: MakeFile) -> None:
    path = make_file(**changes)
    with pytest.raises(UserError, match=f"policy_DeepAA_cifar.npz is not a DeepAA policy file: {message}"):
        deepaa(path)


def test_policy_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    with pytest.raises(UserError, match=r"^cannot read .*policy.npz: No such file or directory$"):
        deepaa(path)
    path.write_text("<html>not found</html>", encoding="utf-8")
    with pytest.raises(UserError, match=r"^cannot read .*policy.npz: File is not a zip file$"):
        deepaa(path)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    with pytest.raises(UserError, match=r"^cannot read .*policy.npy: File is not a zip file$"):
        deepaa(path.with_suffix(".npy"))
    with pytest.raises(UserError, match=r"^cannot read .*: .* is not a regular file$"):
        deepaa(tmp_path)


def test_nothing_in_a_policy_file_is_unpickled(make_file: MakeFile) -> None:
    with pytest.raises(UserError, match="Object arrays cannot be loaded"):
        deepaa(make_file(op_names=np.array([{"a": 1}] * 18)))


def test_policy_file_that_unpacks_to_too_much_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy_probs.npy", bytes(100 * 2**20))
    with pytest.raises(UserError, match=r"policy_probs\.npy grows from [\d,]+ to 104,857,600 bytes: a zip bomb$"):
        deepaa(path)


def damaged(whole: bytes) -> Iterator[bytes]:
    """Yield the file cut off at 60 places, then with one of 300 bytes changed."""
    chance = np.random.default_rng(0)
    yield from (whole[: int(end)] for end in np.linspace(0, len(whole) - 1, 60))
    for _ in range(300):
        flipped = bytearray(whole)
        flipped[chance.integers(len(whole))] ^= int(chance.integers(1, 256))
        yield bytes(flipped)


def test_damaged_policy_file_is_read_whole_or_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **file_arrays())
    path = tmp_path / "policy.npz"
    refusals = []
    for content in damaged(buffer.getvalue()):
        path.write_bytes(content)
        try:
            deepaa(path)
        except UserError as error:
            refusals.append(str(error))
    assert len(refusals) > 200
    assert not [message for message in refusals if "\n" in message]
