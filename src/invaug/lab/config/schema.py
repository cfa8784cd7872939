"""One flat config: what a TOML file may say and what the command line takes, under the same names."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from invaug import presets
from invaug.lab.errors import UserError, nearest
from invaug.levels import Resilient

Method = Literal[
    "constrained",
    "uniform",
    "worst",
    "penalty",
    "identity-mix",
    "sampled",
    "none",
    "trivial",
    "randaugment",
    "autoaugment",
    "deepaa",
]
DEFAULT_METHOD: Method = "constrained"
DEFAULT_SET = "mild"
"""What `set = "auto"` means, except for TrivialAugment, which has its wide set."""
BOUNDED = ("constrained", "uniform", "worst")
"""Methods that hold a loss against epsilon."""
FIXED_GAMMA = ("penalty", "identity-mix", "sampled")
"""Methods whose gamma stays where it is."""
CONSTRAINED = (*BOUNDED, *FIXED_GAMMA)
LABELS = {"constrained": "invaug"}
"""What people read; records and flags keep the method's name."""
CONFIGS = Path(__file__).parent / "shipped"
RESILIENT = "resilient"
AT_ONCE = 1_000_000  # proposals: all of a batch
REMOVED = {
    "mixture": 'views = "one" or "both"',
    "joint": 'views = "apart"',
    "watched": "share",
    "price": 'epsilon = "auto", or a table such as epsilon = {rule = "resilient", alpha = 5.0}',
    "normalized": 'views = "one", which always divides by 1 + gamma',
    "remember": 'method = "constrained", whose chains start anew for every batch',
    "learn": 'method = "constrained"',
    "scoring_precision": 'precision = "bf16-mixed", which covers scoring too',
}
"""Keys and flags that older versions had, and what to use instead."""
REMOVED_VALUES = {
    ("method", "learned"): 'method = "constrained"',
    ("preset", "two-view"): 'views = "both" with set = "wide"',
}


def label(method: str) -> str:
    """Return what a method is called in tables and on pages."""
    return LABELS.get(method, method)


def is_rule(epsilon: object) -> bool:
    """Whether a rule sets epsilon while training."""
    return epsilon == "auto" or isinstance(epsilon, Mapping)


def rule_table(rule: Resilient) -> dict[str, float | str]:
    """Return a rule as a config file has it."""
    values = {key: value for key, value in asdict(rule).items() if value is not None}
    return {"rule": RESILIENT, **values}


def rule_of(table: Mapping[str, Any]) -> Resilient:
    """Return the rule that a table of the config describes; ValueError where it describes none."""
    known = {key: value for key, value in table.items() if key != "rule"}
    if table.get("rule") != RESILIENT:
        raise ValueError(f'needs rule = "{RESILIENT}"')
    for key in known:
        if key not in Resilient.__dataclass_fields__:
            raise ValueError(f"has an unknown key {key}, {nearest(key, Resilient.__dataclass_fields__)}")
    for key, value in known.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number and (key != "base" or not isinstance(value, str)):
            raise ValueError(f"needs a number as {key}")
    return Resilient(**known)


def _level(value: Any) -> Any:
    """Return an epsilon: a number, which a flag gives as text, auto, or a table with every key of its rule."""
    if value is None or value == "auto":
        return value
    if isinstance(value, Mapping):
        return rule_table(rule_of(value))
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f'must be a number, auto or a table {{rule = "{RESILIENT}", …}}') from None


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
    preset: Literal["default", "paper", "authors-code"] = Field(
        "default", description="our own settings, or settings as published"
    )
    set: Literal["auto", "mild", "standard", "wide", "rotations", "translations", "scalings"] = Field(
        "auto", description=f"transformations that should not change the label; auto: {DEFAULT_SET}, wide for trivial"
    )
    depth: int | None = Field(None, ge=1, le=8, description="operations applied in sequence [2 of mild, else 1]")
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
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="part of a batch a constraint is measured on, at least [1/8; with --views both, 1]",
    )
    epsilon: Annotated[float | Literal["auto"] | dict[str, float | str] | None, BeforeValidator(_level)] = Field(
        "auto", description="loss allowed on transformed images, or auto: set while training, by the resilient rule"
    )
    n_steps: int = Field(1, ge=0, description="accept/reject transitions per chain; 0 draws uniformly")
    n_views: int = Field(1, ge=1, description="transformed views kept per image, with --views both or apart")
    views: Literal["one", "both", "apart"] = Field(
        "one",
        description="one view per image, clean or transformed; both; or both in a forward pass each (apart)",
    )
    dual_lr: float = Field(2e-2, ge=0, description="step size of gamma")
    gamma_init: float = Field(0.0, ge=0, description="where gamma starts; the fixed weight of --method penalty")
    scoring: Literal["frozen", "train"] = Field("frozen", description="how proposals are scored")
    scoring_batch: int = Field(256, ge=1, description="most proposals scored at once")
    policy: Path | None = Field(None, description="policy file of --method deepaa")
    n_ops: int = Field(2, ge=1, description="operations per image of --method randaugment")
    magnitude: int = Field(9, ge=0, le=30, description="magnitude of --method randaugment, 0 to 30")

    crop: int = Field(-1, ge=-1, description="pixels of padding before a random crop [4 for small colour images]")
    flip: Literal["auto", "yes", "no"] = Field("auto", description="random horizontal flips [natural images only]")
    cutout: int = Field(0, ge=0, description="side of a random black box; 0 cuts none")
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


def settings_of(preset: presets.Preset) -> dict[str, Any]:
    """Return what a published preset sets, under the names of the config."""
    own = ("n_steps", "dual_lr", "scoring", "identity", "n_levels")
    return {
        "method": "constrained",
        "views": "apart",
        "set": "wide",
        "epsilon": None,
        "scoring_batch": preset.scoring_batch or AT_ONCE,
        **{name: getattr(preset, name) for name in own},
        **preset.recipe,
    }


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    **{name: settings_of(preset) for name, preset in presets.PRESETS.items()},
}
"""What a preset changes of the defaults; a config file or a flag may still say otherwise, and the run records it."""


def build(given: Mapping[str, Any]) -> Config:
    """Return the validated config: defaults, then the preset's values, then what was given."""
    refuse_removed(given)
    for key in given:
        if key not in Config.model_fields:
            raise UserError(f"unknown key {key}, {nearest(key, Config.model_fields)}")
    preset = given.get("preset", "default")
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset}, {nearest(str(preset), PRESETS)}")
    try:
        config = Config(**{**PRESETS[preset], **_gamma_of_views(given), **given, **_steps_of_uniform(given)})
    except ValidationError as error:
        raise UserError(_first_line(error)) from None
    _check_together(config)
    return config


def refuse_removed(given: Mapping[str, Any], where: str = "") -> None:
    """Refuse a key, a method or a preset that older versions had, and name what replaced it.

    Args:
        where: What the keys come from, as the start of the sentence.
    """
    for key, value in given.items():
        if key in REMOVED:
            raise UserError(f"{where}{key} was removed: use {REMOVED[key]}")
        if isinstance(value, str) and (key, value) in REMOVED_VALUES:
            raise UserError(f"{where}{key} {value} was removed: use {REMOVED_VALUES[key, value]}")


def _gamma_of_views(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return where gamma starts in a published preset: in the authors' code at 1 with several views."""
    preset = presets.PRESETS.get(str(given.get("preset")))
    return {"gamma_init": preset.gamma_init(given.get("n_views", 1))} if preset else {}


def _steps_of_uniform(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return that uniform draws have no chain, whatever a preset says."""
    if given.get("method") != "uniform":
        return {}
    if given.get("n_steps"):
        raise UserError(
            f"method uniform has no chains: leave out n_steps {given['n_steps']}, or use --method constrained"
        )
    return {"n_steps": 0}


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
    if config.n_views > 1 and config.views == "one":
        raise UserError(f"n_views {config.n_views} needs --views both or apart: --views one has one view per image")
    if config.method == "sampled" and len(config.families) > 1:
        raise UserError(f"method sampled takes one constraint, got {len(config.families)} families: keep one of them")
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
