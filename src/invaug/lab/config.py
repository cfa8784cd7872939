"""One flat config: what a TOML file may say and what the command line takes, under the same names."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from invaug.lab.errors import UserError, nearest

Method = Literal[
    "uniform",
    "constrained",
    "learned",
    "trivial",
    "none",
    "penalty",
    "worst",
    "identity-mix",
    "sampled",
    "randaugment",
    "autoaugment",
    "deepaa",
]
DEFAULT_METHOD: Method = "uniform"
CONFIGS = Path(__file__).parent / "configs"
ONE_VIEW = ("constrained", "learned", "uniform")
"""Methods that have one view an image by default."""
NO_CHAINS = ("learned", "uniform")
"""Methods that keep what they draw."""


def _level(value: Any) -> Any:
    """Return an epsilon, which a flag gives as text."""
    if value is None or value == "auto":
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError("must be a number or auto") from None


class Config(BaseModel):
    """A whole run: data, model, method, optimisation. Every field is a key of config.toml and a flag of `train`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str = Field("digits", description="a known dataset, a folder of images, or an .npz file")
    data_dir: Path | None = Field(None, description="where datasets lie or are downloaded to [env: INVAUG_DATA]")
    fraction: float = Field(1.0, gt=0, le=1, description="share of the training images to use")
    per_class: int | None = Field(None, ge=1, description="training images to use per class")
    subset: Literal["random", "first"] = Field("random", description="which images fraction and per_class take")
    val_fraction: float = Field(0.0, ge=0, lt=1, description="share of the training images held out for choices")
    val_fold: int = Field(0, ge=0, description="which part of that size is held out, counted from 0")
    image_size: int | None = Field(None, ge=1, le=8192, description="side to resize images to")
    workers: int = Field(2, ge=0, le=1024, description="processes that decode image files")
    on_bad: Literal["stop", "skip"] = Field("stop", description="image files that cannot be used; skips at most 1 %")

    model: str = Field("auto", description="wrn-40-2, resnet-8, cnn, a timm name, or your own module:factory")

    method: Method = Field(DEFAULT_METHOD, description="what decides the augmentation")
    preset: Literal["default", "two-view", "paper", "authors-code"] = Field(
        "default", description="ours, two views an image from the wide set, or settings as published"
    )
    set: Literal["auto", "mild", "standard", "wide", "rotations", "translations", "scalings"] = Field(
        "auto", description="transformations that should not change the label; auto: mild, but wide for trivial"
    )
    depth: int | None = Field(None, ge=1, le=8, description="of them in a row for a view [2 of mild, else 1]")
    range: float | None = Field(None, gt=0, description="largest angle (radians), shift (pixels) or log scale")
    only: list[str] = Field([], description="keep only these operations of the set")
    without: list[str] = Field([], description="leave these operations out of the set")
    n_levels: int = Field(31, ge=2, le=10_000, description="levels of each magnitude")
    identity: bool = Field(True, description="whether Identity and level 0 are among the draws")
    relative_to: int | None = Field(None, ge=1, description="shifts are pixels of an image this large and grow with it")
    families: dict[str, dict[str, bool | float | tuple[float, float]]] = Field(
        {},
        description="several constraints, in a config file: [families.NAME] tables of operations, ranges and epsilon",
    )
    share: float = Field(1.0, gt=0, le=1, description="part of each batch a constraint looks at")
    epsilon: Annotated[float | Literal["auto"] | None, BeforeValidator(_level)] = Field(
        "auto", description="loss allowed on transformed images, or auto: chosen while training, at the price"
    )
    price: float = Field(3.0, gt=0, lt=math.inf, description="what --epsilon auto pays for transformed loss")
    n_steps: int = Field(1, ge=0, description="accept/reject transitions; 0 draws uniformly")
    learn: float = Field(1.0, ge=0, lt=math.inf, description="power of the loss --method learned draws by; 0 of others")
    n_views: int = Field(1, ge=1, description="transformed views kept per image")
    dual_lr: float = Field(2e-2, ge=0, description="step size of gamma")
    gamma_init: float = Field(0.0, ge=0, description="where gamma starts; the fixed weight of --method penalty")
    scoring: Literal["frozen", "train"] = Field("frozen", description="how proposals are scored")
    scoring_batch: int = Field(256, ge=1, description="most proposals scored at once")
    scoring_precision: Literal["auto", "same", "bf16"] = Field(
        "auto", description="arithmetic of scoring; auto: bf16 on GPUs that are faster for it, else that of the model"
    )
    mixture: bool = Field(True, description="one view an image, clean or transformed: the cost of plain training")
    watched: float = Field(0.25, gt=0, le=1, description="least share of a batch --mixture measures a constraint on")
    remember: int = Field(4, ge=0, description="visits an image's chain may stay where the last one left it; 0 none")
    normalized: bool = Field(False, description="divide by 1 + gamma [where epsilon is a number, and gamma unbounded]")
    joint: bool = Field(True, description="clean and kept views in one forward pass")
    policy: Path | None = Field(None, description="policy file of --method deepaa")
    n_ops: int = Field(2, ge=1, description="operations per image of --method randaugment")
    magnitude: int = Field(9, ge=0, le=30, description="magnitude of --method randaugment, 0 to 30")

    crop: int = Field(-1, ge=-1, description="pixels of padding before a random crop [4 for small colour images]")
    flip: Literal["auto", "yes", "no"] = Field("auto", description="random horizontal flips [natural images only]")
    cutout: int = Field(-1, ge=-1, description="side of a random black box [photographs: 16, but 0 with --mixture]")
    resized_crop: Literal["auto", "yes", "no"] = Field("auto", description="random-resized-crop [images over 64 px]")

    epochs: int = Field(30, ge=1, description="passes over the training images")
    batch_size: int = Field(128, ge=1, description="images per step")
    optimizer: Literal["sgd", "adam", "adamw"] = Field("sgd", description="sgd is Nesterov")
    lr: float = Field(0.1, gt=0, description="learning rate at its highest")
    min_lr: float = Field(0.0, ge=0, description="learning rate at the end")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd")
    weight_decay: float = Field(5e-4, ge=0, description="weight decay")
    schedule: Literal["cosine", "constant", "cosine-600"] = Field("cosine", description="learning rate over steps")
    warmup: float = Field(0.0, ge=0, description="epochs of linear warm-up")
    clip: float = Field(5.0, ge=0, description="largest gradient norm; 0 does not clip")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing of the loss")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of an average of the weights; 0 keeps none")
    accumulate: int = Field(1, ge=1, description="batches per optimiser step")
    early_stop: int = Field(0, ge=0, description="stop after this many epochs without a better validation accuracy")
    drop_last: bool = Field(True, description="leave out the last incomplete batch")
    checkpoint_minutes: float = Field(10.0, ge=0, description="save at least this often, also within an epoch; 0 never")
    checkpoint_steps: int = Field(0, ge=0, description="save every so many optimiser steps; 0 does not count them")
    on_nan: Literal["stop", "skip"] = Field("stop", description="batches whose loss is not finite; skips at most 1 %")

    seed: int = Field(0, ge=0, description="the only source of randomness")
    device: str = Field("auto", description="auto, cpu, cuda, mps")
    devices: int = Field(1, ge=1, description="how many of them")
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = Field("32-true", description="arithmetic of the model")
    threads: int | None = Field(None, ge=1, description="CPU threads [all cores]")
    log: list[Literal["csv", "tensorboard", "wandb", "mlflow"]] = Field(
        [], description="further logs beside the record"
    )


TWO_VIEW: dict[str, Any] = {"mixture": False, "normalized": False, "remember": 0}
CHAINS: dict[str, Any] = {**TWO_VIEW, "method": "constrained", "set": "wide"}
"""The clean and the transformed view of every image, as in the paper."""
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "two-view": {**CHAINS, "price": 1.0, "dual_lr": 5e-3},
    "paper": {
        **CHAINS, "epsilon": None,
        "n_steps": 2, "dual_lr": 1e-3, "n_levels": 30, "scoring": "frozen", "scoring_precision": "same",
        "joint": False, "optimizer": "sgd", "lr": 0.1, "weight_decay": 5e-4, "batch_size": 128, "epochs": 200,
        "crop": 4, "flip": "yes", "cutout": 16, "clip": 5.0,
    },
    "authors-code": {
        **CHAINS, "epsilon": None,
        "n_steps": 1, "dual_lr": 1e-4, "n_levels": 30, "scoring": "train", "scoring_batch": 1_000_000,
        "scoring_precision": "same", "joint": False, "identity": False, "optimizer": "sgd", "lr": 0.1,
        "weight_decay": 5e-4, "batch_size": 128, "epochs": 200, "crop": 4, "flip": "yes",
        "cutout": 16, "clip": 5.0,
    },
}  # fmt: skip
"""What a preset changes of the defaults; a config file or a flag may still say otherwise, and the run records it."""


def build(given: Mapping[str, Any]) -> Config:
    """Return the validated config: defaults, then the preset's values, then what was given."""
    for key in given:
        if key not in Config.model_fields:
            raise UserError(f"unknown key {key}, {nearest(key, Config.model_fields)}")
    preset = given.get("preset", "default")
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset}, {nearest(str(preset), PRESETS)}")
    try:
        config = Config(**{**_fallback(given), **PRESETS[preset], **_gamma_of_views(given), **given})
    except ValidationError as error:
        raise UserError(_first_line(error)) from None
    _check_together(config)
    return config


def method_of(given: Mapping[str, Any]) -> str:
    """Return the method that is given, or that of the preset; who asks for chains by their settings means chains."""
    chains, learns = given.get("n_steps") or given.get("remember"), given.get("learn")
    usual = "constrained" if chains else "learned" if learns else DEFAULT_METHOD
    return str(given.get("method") or PRESETS.get(str(given.get("preset")), {}).get("method", usual))


def _fallback(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what gives way of the defaults where they do not fit: several views, a share, the paper's ablations,
    uniform draws, several devices."""
    method = method_of(given)
    several = given.get("n_views", 1) != 1 or given.get("share", 1) != 1
    proposes = {"method": method, **({"n_steps": 0} if method == "learned" else {"learn": 0.0})}
    if several or method not in ONE_VIEW:
        return {**TWO_VIEW, **proposes}
    proposes["normalized"] = _has_a_number(given)
    forgets = method in NO_CHAINS or given.get("n_steps", 1) == 0 or given.get("devices", 1) != 1
    return {**proposes, "remember": 0} if forgets else proposes


def _has_a_number(given: Mapping[str, Any]) -> bool:
    """Return whether a level is fixed: a price holds gamma, and with it the size of a step; a number does not."""
    families = given.get("families")
    each = families.values() if isinstance(families, Mapping) else ()  # what is no table is refused later
    own = [family.get("epsilon", "auto") for family in each if isinstance(family, Mapping)]
    return any(level != "auto" for level in (given.get("epsilon", "auto"), *own))


def _gamma_of_views(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return where gamma starts in the authors' code: at 1 with several views, else at 0."""
    several = given.get("preset") == "authors-code" and given.get("n_views", 1) != 1
    return {"gamma_init": 1.0} if several else {}


def _first_line(error: ValidationError) -> str:
    first = error.errors()[0]
    key, value, rule = ".".join(map(str, first["loc"])), first["input"], first["msg"]
    if first["type"] == "literal_error" and isinstance(value, str):
        choices = [part.strip("'") for part in first["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return f"unknown {key} {value}, {nearest(value, choices)}"
    return f"{key} {rule.removeprefix('Input ').removeprefix('Value error, ')}, got {value!r}"


def _check_together(config: Config) -> None:
    if isinstance(config.epsilon, float) and not config.epsilon >= 0:
        raise UserError(f"epsilon must be positive, got {config.epsilon} (0 makes a pure penalty, inf switches it off)")
    if config.fraction < 1 and config.per_class is not None:
        raise UserError(f"give fraction or per_class, not both: got {config.fraction} and {config.per_class}")
    narrowed = [key for key in ("only", "without", "range") if getattr(config, key)]
    if config.families and narrowed:
        raise UserError(f"families name their own operations and ranges: leave out {', '.join(narrowed)}")
    for name, family in config.families.items():
        level = family.get("epsilon", 0.0)
        if isinstance(level, bool | tuple) or not level >= 0:
            raise UserError(f"families.{name}.epsilon must be a number, at least 0, got {level}")
    if config.mixture and (config.n_views > 1 or config.share < 1 or config.method == "sampled"):
        raise UserError("mixture has one view an image: leave out n_views, share and method sampled")
    if config.method == "uniform" and config.learn:
        raise UserError(f"method uniform does not learn: leave out learn {config.learn:g}, or take --method learned")
    if config.method == "learned" and not config.learn:
        raise UserError("method learned needs a power above 0: --learn 1, or take --method uniform")
    if config.method == "learned" and config.n_steps:
        raise UserError(f"method learned has no chains: leave out n_steps {config.n_steps}, or use method constrained")
    chains = config.n_steps > 0 and config.method not in NO_CHAINS
    if config.remember and (config.n_views > 1 or config.share < 1 or not chains or config.devices > 1):
        raise UserError(
            "remember needs chains of one view on one device: "
            "--method constrained, n_steps 1 or more, no n_views, share, devices"
        )
    if config.method == "penalty" and not config.gamma_init:
        raise UserError("method penalty needs the weight of the transformed loss: --gamma-init, for example 1")
    if config.method == "deepaa" and config.policy is None:
        raise UserError("method deepaa needs a policy file: --policy FILE.npz")
    if config.val_fold and (config.val_fold + 1) * config.val_fraction > 1 + 1e-6:
        raise UserError(
            f"val_fold {config.val_fold} counts from 0: val_fraction {config.val_fraction:g} has fewer parts"
        )
    if config.val_fold and not config.val_fraction:
        raise UserError(
            f"val_fold {config.val_fold} needs the share that is held out: set val_fraction, for example 0.2"
        )
    if config.early_stop and not config.val_fraction:
        raise UserError(f"early_stop {config.early_stop} needs validation images: set val_fraction, for example 0.1")


def read(path: str | Path) -> dict[str, Any]:
    """Return the keys of a TOML file, or of a shipped config by name."""
    shipped = CONFIGS / f"{path}.toml"
    file = shipped if shipped.exists() else Path(path)
    if not file.is_file():
        raise UserError(f"no config {path}: not a file, and not a shipped one; {nearest(str(path), shipped_names())}")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{file} is not TOML: {error}") from None


def shipped_names() -> list[str]:
    """Return the names of the configs that come with the package."""
    return sorted(file.stem for file in CONFIGS.glob("*.toml"))


def dump(values: Mapping[str, Any]) -> str:
    """Return TOML; keys without a value are left out."""
    import tomli_w

    plain = {
        key: str(value) if isinstance(value, Path) else value for key, value in values.items() if value is not None
    }
    return tomli_w.dumps(plain)
