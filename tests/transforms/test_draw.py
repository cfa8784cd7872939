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
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in names)


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


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_layers_are_a_dimension(generator, depth: int) -> None:
    draw = replace(sets.translations(3), depth=depth).draw(5, generator=generator)
    assert draw.depth == depth
    shapes = [tuple(value.shape) for value in (draw.op, draw.level, draw.magnitude, draw.place)]
    assert shapes == [(5, depth), (5, depth), (5, depth, 2), (5, depth, 2)]


def test_layers_of_a_draw_are_draws_of_depth_one(photographs: Tensor, generator) -> None:
    mild = sets.mild()
    draw = mild.draw(64, generator=generator)
    first, second = draw.layer(0), draw.layer(1)
    assert first.depth == second.depth == 1
    assert torch.equal(mild.apply(mild.apply(photographs, first), second), mild.apply(photographs, draw))


def test_no_images_have_as_many_layers(generator) -> None:
    assert sets.mild().draw(3, generator=generator)[:0].depth == 2


def whole(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int32)


PROMOTED = {
    "vectors": ((whole(4), whole(4), torch.zeros(4)), (4, 1, 1)),
    "several magnitudes": ((whole(4), whole(4), torch.zeros(4, 3)), (4, 1, 3)),
    "several layers": ((whole(4, 2), whole(4, 2), torch.zeros(4, 2)), (4, 2, 1)),
    "layers and magnitudes": ((whole(4, 2), whole(4, 2), torch.zeros(4, 2, 3)), (4, 2, 3)),
    "no images": ((whole(0), whole(0), torch.zeros(0)), (0, 1, 1)),
}


@pytest.mark.parametrize("kind", PROMOTED)
def test_dimensions_of_length_one_may_be_left_out(kind: str) -> None:
    columns, shape = PROMOTED[kind]
    draw = Draw(*columns)
    assert draw.magnitude.shape == shape
    assert draw.op.shape == draw.level.shape == shape[:2]
    assert draw.place.shape == (*shape[:2], 2)
    dtypes = [value.dtype for value in (draw.op, draw.level, draw.magnitude, draw.place)]
    assert dtypes == [torch.int64, torch.int64, torch.float64, torch.float64]


def test_draw_saved_without_a_layer_dimension_is_still_read(tmp_path: Path) -> None:
    flat = {name: array[:, 0] for name, array in arrays_of(sets.wide().draw(3)).items()}
    saved(tmp_path / "flat.npz", **{**flat, "magnitude": flat["magnitude"][:, 0]})
    assert Draw.load(tmp_path / "flat.npz").magnitude.shape == (3, 1, 1)


def test_draw_without_places_is_centred() -> None:
    draw = Draw(whole(2), whole(2), torch.zeros(2))
    assert draw.place.tolist() == [[[0.5, 0.5]]] * 2


def test_draw_moves_whole() -> None:
    moved = sets.wide().draw(3).to("meta")
    assert {getattr(moved, name).device.type for name in ("op", "level", "magnitude", "place")} == {"meta"}


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"magnitude must have one row per image .* so shape \(3, 1, 1\), got \(2, 1, 1\)"
    ):
        Draw(whole(3), whole(3), torch.zeros(2))


WRONG = {
    "op of floats": {"op": torch.zeros(4)},
    "op of no rows": {"op": torch.tensor(3)},
    "op of three axes": {"op": torch.zeros(4, 1, 1, dtype=torch.int64)},
    "level of floats": {"level": torch.zeros(4)},
    "level of another depth": {"level": torch.zeros(4, 2, dtype=torch.int64)},
    "magnitude of whole numbers": {"magnitude": torch.zeros(4, dtype=torch.int64)},
    "magnitude of another depth": {"magnitude": torch.zeros(4, 2)},
    "magnitude of two numbers": {"magnitude": torch.zeros(4, 1, 2)},
    "magnitude of four axes": {"magnitude": torch.zeros(4, 1, 1, 1)},
    "place of one column": {"place": torch.zeros(4, 1)},
    "place of another depth": {"place": torch.zeros(4, 2, 2)},
    "place of no columns": {"place": torch.zeros(4)},
    "place of NaN": {"place": torch.full((4, 2), float("nan"))},
    "magnitude of NaN": {"magnitude": torch.full((4,), float("nan"))},
    "magnitude of inf": {"magnitude": torch.full((4,), float("inf"))},
}


@pytest.mark.parametrize("kind", WRONG)
def test_column_of_the_wrong_shape_or_type_is_refused_by_name(
    photographs: Tensor, both_backends: str, kind: str
) -> None:
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
