"""The config: nested records of settings, the same for a TOML file, for flags and for a run's config.toml.

A file has a table per record (`[train] epochs = 30`); a flag has the short name (`--epochs 30`). Short names are
unique; that of a record's `name` is the record's own (`--data cifar10` is `[data] name = "cifar10"`).

Every number has a lower and an upper bound: far beyond what is useful, but within what a machine and float32 can bear.
What depends on the machine at hand is checked when a run starts, in `machine`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from invaug.lab.config import methods
from invaug.lab.config.families import MAX_MAGNITUDE, check_families
from invaug.lab.config.levels import parse_epsilon

Auto = Literal["auto"]
Decision = Literal["auto", "yes", "no"]
MAX_SIDE = 8192  # pixels of an image
MOST_IMAGES = 1_000_000_000
MOST_PROCESSES = 4096  # and threads, of any machine
MAX_SEED = 2**63 - 1  # what TOML can express, and torch and numpy take with room to count on
MAX_LOG_SCALE = 8.0  # enlargement by 3,000


Level = Annotated[float, Field(ge=0, le=math.inf, allow_inf_nan=True)]  # inf holds nothing; levels.py knows the rest


class Record(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Data(Record):
    """Which images are read."""

    name: str = Field("digits", description="a known dataset, a folder of images, or an .npz file")
    data_dir: Path | None = Field(None, description="folder of downloaded datasets [env: INVAUG_DATA]")
    fraction: float = Field(1.0, gt=0, le=1, description="share of the training images to use")
    per_class: int | None = Field(None, ge=1, le=MOST_IMAGES, description="training images to use per class")
    images: int | None = Field(
        None, ge=1, le=MOST_IMAGES, description="training images to use, the same share of every class"
    )
    subset: Literal["random", "first"] = Field("random", description="which images fraction, per_class and images take")
    val_fraction: float = Field(0.0, ge=0, lt=1, description="share of the training images held out for validation")
    val_fold: int = Field(0, ge=0, le=MOST_IMAGES, description="which part of that size is held out, counted from 0")
    image_size: int | None = Field(None, ge=1, le=MAX_SIDE, description="side to resize images to")
    inputs: Literal["normalized", "unit"] = Field(
        "normalized", description="what the network sees: pixels normalised by mean and std, or in 0 to 1 (unit)"
    )
    workers: int = Field(2, ge=0, le=MOST_PROCESSES, description="processes that decode image files")
    on_bad: Literal["stop", "skip"] = Field(
        "stop", description="what to do about unreadable image files; skip leaves out at most max_bad"
    )
    max_bad: float = Field(0.01, ge=0, lt=1, description="share of the image files that --on-bad skip may leave out")

    @model_validator(mode="after")
    def _check(self) -> Data:
        given = {"fraction": self.fraction if self.fraction < 1 else None}
        given |= {"per_class": self.per_class, "images": self.images}
        several = [f"{key} {value}" for key, value in given.items() if value is not None]
        if len(several) > 1:
            raise ValueError(f"give one of fraction, per_class and images, got {' and '.join(several)}")
        fold, share = self.val_fold, self.val_fraction
        if fold and not share:
            raise ValueError(f"val_fold {fold} needs a share to hold out: set val_fraction, for example 0.2")
        if (fold + 1) * share > 1 + 1e-6:
            raise ValueError(f"val_fold {fold} counts from 0: val_fraction {share:g} has fewer parts")
        return self


class Model(Record):
    """Which network is trained."""

    name: str = Field("auto", description="wrn-40-2, resnet-8, cnn, a timm name, or your own module:factory")
    weights: Path | None = Field(None, description="weights to start from: a .safetensors file, or a saved state dict")
    weights_sha256: str | None = Field(None, description="SHA-256 that this file must have; a run records it")


class Method(Record):
    """What decides the augmentation."""

    name: Annotated[str, AfterValidator(methods.check_name)] = Field(
        methods.DEFAULT, description=f"what decides the augmentation: {', '.join(methods.METHODS)}"
    )
    preset: Literal["default", "paper", "authors-code"] = Field(
        "default", description="our own settings, or settings as published"
    )
    set: Literal["auto", "mild", "standard", "wide", "rotations", "translations", "scalings"] = Field(
        "auto", description="transformations that should not change the label"
    )
    depth: Annotated[int, Field(ge=1, le=8)] | Auto = Field(
        "auto", description="number of operations applied in sequence; auto: 2 for mild, else 1"
    )
    range: float | None = Field(
        None, gt=0, le=MAX_SIDE, description="largest angle (radians), shift (pixels) or log scale"
    )
    only: list[str] = Field([], description="keep only these operations of the set")
    without: list[str] = Field([], description="leave these operations out of the set")
    n_levels: int = Field(31, ge=2, le=10_000, description="levels of each magnitude")
    identity: bool = Field(True, description="whether Identity and level 0 are among the draws")
    relative_to: int | None = Field(
        None, ge=1, le=MAX_SIDE, description="shifts are given in pixels of an image this large and grow with the image"
    )
    epsilon: Annotated[Level | Auto | dict[str, Level | str] | None, BeforeValidator(parse_epsilon)] = Field(
        "auto", description="loss allowed on transformed images; auto: set during training by the resilient rule"
    )
    share: Annotated[float, Field(gt=0, le=1)] | Auto = Field(
        "auto", description="smallest part of a batch a constraint is measured on; auto: 1/8 for one view, else 1"
    )
    n_steps: int = Field(1, ge=0, le=10_000, description="accept/reject transitions per chain; 0 draws uniformly")
    n_views: int = Field(1, ge=1, le=1000, description="transformed views kept per image, with --views both or apart")
    views: Literal["one", "both", "apart"] = Field(
        "one", description="one view per image, clean or transformed; both; or both in separate forward passes (apart)"
    )
    dual_lr: float = Field(2e-2, ge=0, le=100, description="step size of gamma")
    gamma_init: float = Field(0.0, ge=0, le=1e6, description="where gamma starts; the fixed weight of --method penalty")
    scoring: Literal["frozen", "train"] = Field("frozen", description="mode of the network while proposals are scored")
    scoring_batch: int = Field(256, ge=1, le=1_000_000, description="largest number of proposals scored at once")
    policy: Path | None = Field(None, description="policy file of --method deepaa")
    n_ops: int = Field(2, ge=1, le=100, description="operations per image of --method randaugment")
    magnitude: int = Field(9, ge=0, le=30, description="magnitude of --method randaugment, 0 to 30")

    @model_validator(mode="after")
    def _check(self) -> Method:
        if self.n_views > 1 and self.views == "one":
            raise ValueError(f"n_views {self.n_views} needs --views both or apart: --views one has one view per image")
        if self.set == "scalings" and (self.range or 0) > MAX_LOG_SCALE:
            raise ValueError(f"range must be at most {MAX_LOG_SCALE:g} for scalings, a log scale, got {self.range:g}")
        needs = methods.METHODS[self.name].needs
        if needs and not getattr(self, needs[0]):
            raise ValueError(f"method {self.name} needs {needs[1]}")
        return self


class Train(Record):
    """How the network is optimised, and the random crops and flips all methods share."""

    epochs: Annotated[int, Field(ge=1, le=1_000_000)] | Auto = Field(
        "auto", description="passes over the training images; auto: 30, more for few images and fewer for very many"
    )
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] | Auto = Field(
        "auto", description="images per step; auto: 8 to 128, by the number of training images"
    )
    optimizer: Literal["sgd", "adam", "adamw"] = Field("sgd", description="sgd uses Nesterov momentum")
    lr: Annotated[float, Field(gt=0, le=1000)] | Auto = Field(
        "auto", description="peak learning rate; auto: by optimizer, batch_size and weights; 0.1 for sgd with 128"
    )
    min_lr: float = Field(0.0, ge=0, le=1000, description="learning rate at the end")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd")
    weight_decay: float = Field(5e-4, ge=0, le=1000, description="weight decay")
    schedule: Literal["cosine", "constant", "cosine-600"] = Field("cosine", description="learning rate schedule")
    warmup: float = Field(0.0, ge=0, le=1e6, description="epochs of linear warm-up")
    clip: float = Field(5.0, ge=0, le=1e9, description="largest gradient norm; 0 does not clip")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing of the loss")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of an average of the weights; 0 keeps none")
    accumulate: int = Field(1, ge=1, le=1_000_000, description="batches per optimiser step")
    drop_last: bool | Auto = Field(
        "auto", description="leave out the last incomplete batch; auto: unless there is no other"
    )
    on_nan: Literal["stop", "skip"] = Field(
        "stop", description="what to do about batches with a non-finite loss; skip leaves out at most 1 %"
    )
    crop: Annotated[int, Field(ge=0, le=1024)] | Auto = Field(
        "auto", description="pixels of padding before a random crop; auto: 4 for small colour images, else 0"
    )
    flip: Decision = Field("auto", description="random horizontal flips; auto: for colour images, but not for digits")
    cutout: int = Field(0, ge=0, le=MAX_SIDE, description="side of a random black box; 0 cuts none")
    resized_crop: Decision = Field("auto", description="random resized crops; auto: for images over 64 px")


class Run(Record):
    """Where and how the run executes, and what it writes."""

    seed: int = Field(0, ge=0, le=MAX_SEED, description="seeds every random number")
    device: str = Field("auto", description="auto, cpu, cuda or mps")
    devices: int = Field(1, ge=1, le=MOST_PROCESSES, description="number of devices")
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = Field("32-true", description="arithmetic of the model")
    threads: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] | Auto = Field(
        "auto", description="CPU threads; auto: all cores"
    )
    checkpoint_minutes: float = Field(
        10.0, ge=0, le=1e6, description="save at least this often, also within an epoch; 0 never"
    )
    checkpoint_steps: int = Field(
        0, ge=0, le=MOST_IMAGES, description="save every so many optimiser steps; 0 does not count them"
    )
    log: list[Literal["csv", "tensorboard", "wandb", "mlflow"]] = Field(
        [], description="further logs beside the record"
    )


Magnitude = Annotated[float, Field(ge=-MAX_MAGNITUDE, le=MAX_MAGNITUDE)]
NoLevel = Annotated[float, Field(ge=math.inf, le=math.inf, allow_inf_nan=True)]  # of epsilon alone
Family = dict[str, bool | Magnitude | tuple[Magnitude, Magnitude] | NoLevel]


class Config(Record):
    """Everything a run is asked to do."""

    data: Data = Data()
    model: Model = Model()
    method: Method = Method()
    train: Train = Train()
    run: Run = Run()
    families: Annotated[dict[str, Family], BeforeValidator(check_families)] = Field(
        {}, description="several constraints: [families.NAME] tables of operations, ranges and epsilon"
    )

    @model_validator(mode="after")
    def _check(self) -> Config:
        narrowed = [key for key in ("only", "without", "range") if getattr(self.method, key)]
        if self.families and narrowed:
            raise ValueError(f"families name their own operations and ranges: leave out {', '.join(narrowed)}")
        method, n = self.method.name, len(self.families)
        if not methods.METHODS[method].keeps_clean and n > 1:
            raise ValueError(f"method {method} takes one constraint, got {n} families: keep one of them")
        return self

    def flat(self, mode: Literal["python", "json"] = "python") -> dict[str, Any]:
        """Return every setting under its short name, and the families."""
        content = self.model_dump(mode=mode)
        settings = {key: content[place.record][place.field] for key, place in PLACES.items()}
        return {**settings, "families": content["families"]}

    def replaced(self, **settings: Any) -> Config:
        """Return the config with some settings, by their short names, replaced; they are not checked again."""
        tables = nest(settings)
        updated = {name: getattr(self, name).model_copy(update=table) for name, table in tables.items()}
        return self.model_copy(update=updated)


RECORDS: Mapping[str, type[Record]] = {"data": Data, "model": Model, "method": Method, "train": Train, "run": Run}


class Place(NamedTuple):
    """Where a setting is kept."""

    record: str
    field: str
    info: FieldInfo


def _places() -> Iterator[tuple[str, Place]]:
    for record, kind in RECORDS.items():
        for name, info in kind.model_fields.items():
            yield record if name == "name" else name, Place(record, name, info)


PLACES: Mapping[str, Place] = dict(_places())
"""Every setting by its short name, in the order of the records."""


def nest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, given by their short names, as the tables of a config file."""
    tables: dict[str, Any] = {}
    for key, value in settings.items():
        if key == "families":
            tables[key] = value
        else:
            tables.setdefault(PLACES[key].record, {})[PLACES[key].field] = value
    return tables
