"""From what was given, by files, presets and flags, to a checked config; every mistake becomes one clear line."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from invaug import presets
from invaug.lab.config.methods import METHODS
from invaug.lab.config.schema import PLACES, RECORDS, Config, nest
from invaug.lab.errors import MAX_SHOWN, UserError, nearest, shown
from invaug.lab.run import files

SHIPPED = Path(__file__).parent / "shipped"
WHOLE_BATCH = 1_000_000  # proposals scored at once: all of a batch
REMOVED = tomllib.loads(Path(__file__).with_name("removed.toml").read_text(encoding="utf-8"))
"""Settings and values that older versions had, and what to use instead."""
PRESETS = ("default", *presets.PRESETS)
WITHOUT = {"n_steps": (0, "chains", "constrained"), "depth": (1, "sequences of operations", "plain")}
"""Settings that some methods fix at the value of nothing, what those lack, and a method that has it."""


def settings_of(name: str, n_views: int) -> dict[str, Any]:
    """Return what a preset changes of the defaults, by short names; files and flags may override it."""
    if name == "default":
        return {}
    preset, own = presets.PRESETS[name], ("n_steps", "dual_lr", "scoring", "identity", "n_levels")
    return {
        "method": "constrained",
        "views": "apart",
        "set": "wide",
        "epsilon": None,
        "gamma_init": preset.gamma_init(n_views),  # in the authors' code 1 with several views
        "scoring_batch": preset.scoring_batch or WHOLE_BATCH,
        **{name: getattr(preset, name) for name in own},
        **preset.recipe,
    }


def build(given: Mapping[str, Any]) -> Config:
    """Return the checked config: defaults, then the preset's values, then what was given, by short names."""
    refuse_removed(given)
    for key in given:
        if key not in PLACES and key != "families":
            raise UserError(f"unknown key {key}, {nearest(key, PLACES)}")
    preset = given.get("preset", "default")
    if preset not in PRESETS:
        name = preset if isinstance(preset, str) else shown(preset)
        raise UserError(f"unknown preset {name}, {nearest(name, PRESETS)}")
    n_views = given.get("n_views")
    settings = {**settings_of(preset, n_views if isinstance(n_views, int) else 1), **given, **_fixed_settings(given)}
    try:
        return Config(**nest(settings))
    except ValidationError as error:
        raise UserError(_first_line(error)) from None


def flatten(tables: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return the settings of a config file by their short names; what is in no table or in a wrong one is refused.

    Args:
        where: Where the tables come from, as the start of the sentence that refuses.
    """
    settings: dict[str, Any] = {}
    for name, table in tables.items():
        if name == "families":
            settings[name] = table
        elif name not in RECORDS or not isinstance(table, Mapping):
            refuse_removed({name: table}, where)
            raise UserError(f"{where}{_misplaced(name)}")
        else:
            for field, value in table.items():
                settings[_short_name(name, field, where)] = value
    refuse_removed(settings, where)
    return settings


def _short_name(record: str, field: str, where: str) -> str:
    if field in RECORDS[record].model_fields:
        return record if field == "name" else field
    refuse_removed({field: None}, where)
    known = [f"{record}.{name}" for name in RECORDS[record].model_fields]
    raise UserError(f"{where}unknown key {record}.{field}, {nearest(f'{record}.{field}', known)}")


def _misplaced(name: str) -> str:
    """Return what to say of a key at the top of a file."""
    if name not in PLACES:
        return f"unknown table or key {name}, {nearest(name, [*RECORDS, 'families'])}"
    place = PLACES[name]
    return f"{name} belongs in a table: write [{place.record}] and under it {place.field} = …"


def refuse_removed(given: Mapping[str, Any], where: str = "") -> None:
    """Refuse a key, a method or a preset that older versions had, and name what replaced it.

    Args:
        where: Where the keys come from, as the start of the sentence.
    """
    for key, value in given.items():
        for name in (key, *([f"{key} {value}"] if isinstance(value, str) else [])):
            if name in REMOVED:
                raise UserError(f"{where}{name} was removed: use {REMOVED[name]}")


def _fixed_settings(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that the method fixes; a chain or a sequence where it has none is refused."""
    name = given.get("method")
    row = METHODS.get(name) if isinstance(name, str) else None
    if row is None:
        return {}
    for key, (none, has_none, other) in WITHOUT.items():
        if row.settings.get(key) == none and given.get(key, none) not in (none, "auto"):
            raise UserError(
                f"method {row.name} has no {has_none}: leave out {key} {shown(given[key])}, or use --method {other}"
            )
    return row.settings


def _first_line(error: ValidationError) -> str:
    first = error.errors()[0]
    place, value, rule = [str(part) for part in first["loc"]], first["input"], first["msg"]
    message = rule.removeprefix("Input ").removeprefix("Value error, ")
    is_own_check = first["type"] == "value_error" and len(place) < 2  # of a whole record, whose message says it all
    if is_own_check or message.startswith("unknown"):
        return message
    key = ".".join(place) if place[0] == "families" else place[0] if place[1:] in ([], ["name"]) else place[1]
    if first["type"] == "literal_error" and isinstance(value, str) and len(value) <= MAX_SHOWN:
        choices = [part.strip("'") for part in first["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return f"unknown {key} {value}, {nearest(value, choices)}"
    return f"{key} {message}" if ", got " in message else f"{key} {message}, got {shown(value)}"


def read(path: str | Path) -> dict[str, Any]:
    """Return the settings of a config file, or of a shipped config by name, by their short names."""
    return flatten(read_toml(path))


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file, or of a shipped config by name."""
    shipped = SHIPPED / f"{path}.toml"
    file = shipped if shipped.exists() else Path(path)
    if not file.is_file():
        raise UserError(f"no config {path}: not a file, and not a shipped one; {nearest(str(path), shipped_names())}")
    try:
        return files.parse_toml(files.read_named(file, files.MAX_CONFIG))
    except files.UnsafeFileError as error:
        raise UserError(f"no config {path}: {error}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number of 5,000 digits, nested too deeply
        raise UserError(f"{file} is not TOML: {error}") from None


def shipped_names() -> list[str]:
    """Return the names of the configs that come with the package."""
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def dump(tables: Mapping[str, Any]) -> str:
    """Return tables as TOML; keys without a value are left out, paths become text."""
    import tomli_w

    return tomli_w.dumps(_without_none(tables))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in values.items() if value is not None}
    return {
        key: _without_none(value) if isinstance(value, Mapping) else str(value) if isinstance(value, Path) else value
        for key, value in found.items()
    }
