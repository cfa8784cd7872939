"""A draw is data: it is saved, loaded, indexed, joined and replayed to the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from invaug import Draw, TransformSet, sets

SETS = {
    "standard": sets.standard(),
    "wide": sets.wide(),
    "extra": TransformSet(sets.EXTRA),
    "rotations": sets.rotations(3.0),
    "translations": sets.translations(5.0),
    "scalings": sets.scalings(0.7),
    "mild": sets.mild(),
    "three in a row": replace(sets.wide(), depth=3),
}


def same(first: Draw, second: Draw) -> bool:
    names = ("op", "level", "magnitude", "place")
    layers = list(zip(first.layers, second.layers, strict=True))
    return all(torch.equal(getattr(a, name), getattr(b, name)) for a, b in layers for name in names)


@pytest.mark.parametrize("name", SETS)
def test_saved_draw_replays_to_the_same_bytes(photographs: Tensor, generator, tmp_path: Path, name: str) -> None:
    draw = SETS[name].draw(64, generator=generator)
    draw.save(tmp_path / "draw")
    loaded = Draw.load(tmp_path / "draw")
    assert same(loaded, draw)
    assert [t.dtype for t in (loaded.op, loaded.level, loaded.magnitude)] == [torch.int64, torch.int64, torch.float64]
    assert torch.equal(SETS[name].apply(photographs, loaded), SETS[name].apply(photographs, draw))


def test_saved_draw_is_plain_numpy(tmp_path: Path, generator) -> None:
    draw = sets.wide().draw(5, generator=generator)
    draw.save(tmp_path / "draw.npz")
    with np.load(tmp_path / "draw.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"op", "level", "magnitude", "place"}
        assert arrays["magnitude"].tolist() == draw.magnitude.tolist()


def test_saving_writes_the_name_it_is_given_and_nothing_else(tmp_path: Path) -> None:
    sets.wide().draw(1).save(tmp_path / "draw.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["draw.bin"]


def arrays_of(draw: Draw) -> dict[str, np.ndarray]:
    return {name: getattr(draw, name).numpy() for name in ("op", "level", "magnitude", "place")}


def saved(path: Path, **arrays: np.ndarray) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def write_truncated(path: Path) -> None:
    sets.wide().draw(3).save(path)
    path.write_bytes(path.read_bytes()[:-40])


def write_single_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def write_objects(path: Path) -> None:
    saved(path, **{**arrays_of(sets.wide().draw(1)), "op": np.array([{}], dtype=object)})


def write_words(path: Path) -> None:
    saved(path, **{**arrays_of(sets.wide().draw(1)), "op": np.array(["Rotate"])})


FOREIGN = {
    "other arrays": lambda path: saved(path, images=np.zeros(3), labels=np.zeros(3)),
    "a missing array": lambda path: saved(path, op=np.zeros(3), level=np.zeros(3), magnitude=np.zeros(3)),
    "text": lambda path: path.write_text("op,level\n1,2\n"),
    "nothing": lambda path: path.write_bytes(b""),
    "a truncated draw": write_truncated,
    "a single array": write_single_array,
    "objects": write_objects,
    "words": write_words,
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_file_that_is_no_draw_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    FOREIGN[kind](tmp_path / "foreign.npz")
    with pytest.raises(ValueError, match=r"foreign\.npz is not a saved draw"):
        Draw.load(tmp_path / "foreign.npz")


def test_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Draw.load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    "rows",
    [slice(2, 9, 3), [4, 0, 4], torch.tensor([5, 1]), torch.arange(64) % 2 == 0, np.array([3, 2])],
    ids=["slice", "list", "tensor", "mask", "numpy"],
)
def test_rows_of_a_draw_are_the_draw_of_those_images(photographs: Tensor, generator, rows) -> None:
    draw = sets.wide().draw(64, generator=generator)
    whole = sets.wide().apply(photographs, draw)
    assert torch.equal(sets.wide().apply(photographs[rows], draw[rows]), whole[rows])


@pytest.mark.parametrize("i", [0, 7, -1])
def test_integer_gives_a_draw_of_one_image(generator, i: int) -> None:
    draw = sets.translations(3).draw(8, generator=generator)
    assert len(draw[i]) == 1
    assert draw[i].magnitude.tolist() == [draw.magnitude[i].tolist()]


def test_row_that_is_not_there_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        sets.wide().draw(3)[3]


def test_draw_is_iterated_image_by_image(generator) -> None:
    draw = sets.wide().draw(4, generator=generator)
    assert same(Draw.cat(list(draw)), draw)


@pytest.mark.parametrize("name", SETS)
def test_parts_of_a_draw_join_to_the_whole(generator, name: str) -> None:
    draw = SETS[name].draw(10, generator=generator)
    assert same(Draw.cat([draw[:3], draw[3:3], draw[3:]]), draw)


def test_what_follows_must_have_as_many_rows(generator) -> None:
    draw = sets.mild().draw(3, generator=generator)
    with pytest.raises(ValueError, match=r"^then must have one row per image \(3\), got 2$"):
        replace(draw, then=draw.layers[1][:2])


def test_no_images_have_as_many_layers(generator) -> None:
    assert len(sets.mild().draw(3, generator=generator)[:0].layers) == 2


def test_draw_without_places_is_centred() -> None:
    draw = Draw(torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), torch.zeros(2))
    assert draw.place.tolist() == [[0.5, 0.5]] * 2


def test_draw_moves_whole() -> None:
    moved = sets.wide().draw(3).to("meta")
    assert {getattr(moved, name).device.type for name in ("op", "level", "magnitude", "place")} == {"meta"}


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one row per image, got \{'op': 3, 'level': 3, 'magnitude': 2, 'place': 3\}"):
        Draw(torch.zeros(3), torch.zeros(3), torch.zeros(2))


WRONG = {
    "op of floats": {"op": torch.zeros(4)},
    "op of two columns": {"op": torch.zeros(4, 2, dtype=torch.int64)},
    "level of two columns": {"level": torch.zeros(4, 2, dtype=torch.int64)},
    "magnitude of two columns": {"magnitude": torch.zeros(4, 2)},
    "magnitude of three axes": {"magnitude": torch.zeros(4, 2, 2)},
    "place of one column": {"place": torch.zeros(4, 1)},
    "place of no columns": {"place": torch.zeros(4)},
    "place of NaN": {"place": torch.full((4, 2), float("nan"))},
    "magnitude of NaN": {"magnitude": torch.full((4,), float("nan"))},
    "magnitude of inf": {"magnitude": torch.full((4,), float("inf"))},
}


@pytest.mark.parametrize("kind", WRONG)
def test_column_of_the_wrong_shape_or_type_is_refused_by_name(photographs: Tensor, path: str, kind: str) -> None:
    columns = arrays_of(sets.wide().draw(4))
    tensors = {name: torch.from_numpy(column) for name, column in columns.items()} | WRONG[kind]
    with pytest.raises((ValueError, TypeError), match=rf"{kind.split()[0]} must"):
        sets.wide().apply(photographs[:4], Draw(**tensors))


def test_single_magnitudes_are_refused_where_two_are_needed(photographs: Tensor) -> None:
    with pytest.raises(ValueError, match="magnitude must"):
        sets.translations(3.0).apply(photographs[:4], sets.rotations(1.0).draw(4))


def test_two_magnitudes_are_refused_where_one_is_needed(photographs: Tensor) -> None:
    with pytest.raises(ValueError, match="magnitude must"):
        sets.rotations(1.0).apply(photographs[:4], sets.translations(3.0).draw(4))
