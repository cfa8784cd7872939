"""`invaug train`: from what the user gave to runs on disk and a table at the end."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from invaug.lab.config import schema as configs
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset, load_dataset
from invaug.lab.environment import restarts, under_torchrun
from invaug.lab.errors import UserError
from invaug.lab.evaluate.measure import averaged, under_each
from invaug.lab.models.build import build_model, is_custom
from invaug.lab.report.command import report_runs
from invaug.lab.run import atomic, checkpoint
from invaug.lab.run import folder as run
from invaug.lab.run.lock import NAME as LOCK
from invaug.lab.run.lock import RunLock
from invaug.lab.run.loggers import open_loggers
from invaug.lab.run.record import read
from invaug.lab.terminal import say
from invaug.lab.train import loop, problem, ranks
from invaug.lab.train.display import Display, Screen, summary_table
from invaug.lab.train.finish import Finish, Randomness
from invaug.lab.train.signals import Stopped
from invaug.lab.train.state import Training, prepare

FREE = {
    "workers", "data_dir", "threads", "log", "device", "scoring_batch", "checkpoint_minutes", "checkpoint_steps",
    "on_nan",
}  # fmt: skip
"""Keys that may change when a run goes on."""
COMPARED = ("none", "trivial")


def run_all(
    given: Mapping[str, Any], out: Path | None, *, resume: bool, compare: bool, quiet: bool, trust_model: bool = False
) -> list[dict[str, Any]]:
    """Train what was asked for, and with `compare` the two baselines under the same budget; return their summaries."""
    if resume and out is None:
        raise UserError("nothing to resume: name the folder of the run with --out")
    if under_torchrun() and out is None:
        raise UserError("torchrun needs --out FOLDER, so that ranks that are started again find their run")
    if out:
        run.check_usable(out)
    if resume and out:
        given = {**stored_settings(out, given, compare, trust_model), **given}
    config = decide(configs.build(given))
    fabric = ranks.launch(config)
    root = Path(ranks.first_does(fabric, lambda: str(out or free_folder(default_folder(config)))))
    wanted = dict.fromkeys([*COMPARED, config.method]) if compare else {config.method: None}
    folders = {method: root / method if compare else root for method in wanted}
    going_on = resume or restarts() > 0  # what is not there yet can only start, if torchrun or --compare come to it
    resuming = {f: going_on and (f.is_dir() or not (compare or restarts())) for f in folders.values()}
    ranks.first_does(fabric, lambda: check_folders(resuming))
    dataset = load_once(config, fabric)
    console = Screen()
    plans = {method: decide_for(config, dataset, method) for method in folders}
    for plan in plans.values():  # an unknown model or operation must show before anything is written
        build_model(plan.model, len(dataset.classes), dataset.image_shape)
        problem.problem(plan, dataset, Finish(dataset.mean, dataset.std, Randomness(0, False, 0, False)))
        problem.transform_sets(plan)
    quiet = quiet or not fabric.is_global_zero
    rows = [
        train_one(plans[method], dataset, folder, fabric, console, quiet=quiet, resume=resuming[folder])
        for method, folder in folders.items()
    ]
    pages = ranks.first_does(fabric, lambda: write_pages(root, list(folders.values())))
    if not quiet:
        console.print(summary_table([_in_words(row) for row in rows]))
        for row in rows:
            console.print(f"run: {row['run']}", soft_wrap=True, highlight=False)
        if pages:
            console.print(f"report: {pages[-1]}", soft_wrap=True, highlight=False)
    return rows


def stored_settings(out: Path, given: Mapping[str, Any], compare: bool, trust_model: bool) -> dict[str, Any]:
    """Return the settings the run was started with; of several compared, those of one that has begun."""
    methods_there = dict.fromkeys([str(given.get("method", configs.DEFAULT_METHOD)), *COMPARED])
    folders = [out / method for method in methods_there] if compare else [out]
    folder = next((folder for folder in folders if (folder / "config.toml").exists()), None)
    if folder is None:
        if compare:
            raise UserError(f"nothing to resume in {out}: no run with a config.toml there; leave out --resume to start")
        return {}
    named = given.get("model") == run.read_config(folder)[0].model  # naming the model is trusting it
    settings = run.read_trusted(folder, trust_model or named).model_dump(exclude_none=True)
    return {key: value for key, value in settings.items() if key != "method" or not compare}


def write_pages(root: Path, folders: list[Path]) -> list[str]:
    """Write the page of each run, and one of all where several were compared; a run that is done never fails by it."""
    wanted = [*folders, *([root] if len(folders) > 1 else [])]
    try:
        return [str(report_runs([folder])[0]) for folder in wanted]
    except Exception as error:
        say(f"the report could not be written: {error}; try invaug report {root}")
        return []


def default_folder(config: Config) -> Path:
    """Return where a run goes that was given no folder."""
    return Path("runs") / f"{Path(config.data).stem}-{config.method}"


def load_once(config: Config, fabric: Fabric, *, with_test: bool = True) -> Dataset:
    """Return the data; rank 0 reads it first, so that a download or a bad file happens once."""
    loaded: list[Dataset] = []

    def load() -> None:
        data = load_dataset(
            config.data, data_dir=config.data_dir, fraction=config.fraction, per_class=config.per_class,
            subset=config.subset, val_fraction=config.val_fraction, val_fold=config.val_fold,
            image_size=config.image_size, seed=config.seed,
            on_bad=config.on_bad, with_test=with_test,
        )  # fmt: skip
        loaded.append(data)

    ranks.first_does(fabric, load)
    if not loaded:
        load()
    return loaded[0]


def free_folder(folder: Path) -> Path:
    """Return the folder, or the first of folder-2, folder-3, … that is not there yet."""
    names = (folder.with_name(f"{folder.name}-{n}") if n > 1 else folder for n in count(1))
    return next(name for name in names if not name.exists())


def decide(config: Config) -> Config:
    """Return the config with what depends on the machine filled in."""
    if config.threads:
        torch.set_num_threads(config.threads)
    kinds = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if config.device != "auto" and not kinds.get(config.device, False):
        there = ", ".join(kind for kind, found in kinds.items() if found)
        raise UserError(f"device {config.device} is not there: choose auto or one of {there}")
    return config


def decide_for(config: Config, dataset: Dataset, method: str) -> Config:
    """Return the config with what depends on the data filled in: the model, the set and epsilon."""
    changes: dict[str, Any] = {"method": method}
    if config.model == "auto":
        changes["model"] = "cnn-small" if dataset.image_shape[0] == 1 else "resnet-8"
    if config.set == "auto" and method != "trivial":
        changes["set"] = configs.DEFAULT_SET
    if method in configs.CONSTRAINED:
        level = problem.epsilon(config.model_copy(update=changes), len(dataset.classes))
        changes["epsilon"] = level if isinstance(level, float) else configs.rule_table(level)
    return config.model_copy(update=changes)


def check_folders(resuming: Mapping[Path, bool]) -> None:
    """Check every folder before the first run starts."""
    for folder, resume in resuming.items():
        check_folder(folder, resume)


def check_folder(folder: Path, resume: bool) -> None:
    """Refuse a folder that holds another run, or nothing to resume."""
    run.check_usable(folder)
    found = [] if not folder.exists() else list(folder.iterdir()) if folder.is_dir() else [folder]
    # a run that was killed before it wrote its config leaves these, and may be started or resumed
    left = [path for path in found if path.name == LOCK or atomic.LEFTOVER.fullmatch(path.name)]
    if resume and not (folder / "config.toml").exists() and not (left and len(left) == len(found)):
        raise UserError(f"nothing to resume in {folder}: no config.toml there; leave out --resume to start")
    if not resume and len(found) > len(left):
        raise UserError(f"{folder} exists and is not empty: add --resume to go on, or choose another --out")


def train_one(
    config: Config, dataset: Dataset, folder: Path, fabric: Fabric, console: Screen, *, quiet: bool,
    resume: bool, also: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train one run in its folder; return its summary."""
    training, finish = prepare(config, dataset, fabric)
    with ranks.noticing_losses(fabric), held(folder, fabric):
        ranks.first_does(fabric, lambda: begin(config, dataset, folder, resume))
        done = len(read(folder))
        if not quiet:
            console.print(_headline(config, dataset), highlight=False, soft_wrap=True)
        log_to = config if fabric.is_global_zero else config.model_copy(update={"log": []})
        with Display(config.epochs, done, quiet=quiet, console=console) as display, logging(log_to, folder) as log:

            def on_epoch(row: dict[str, Any]) -> None:
                display.epoch(row)
                log(row)
                if also:
                    also(row)

            watch = loop.Watch(display.batch, on_epoch, say)
            try:
                loop.fit(config, dataset, folder, training, finish, facts_of(config), watch)
            except (Stopped, loop.BadStepError) as error:
                if fabric.is_global_zero and read(folder):  # the handlers are gone: a second signal ends this too
                    write_pages(folder, [folder])
                raise _with_way_on(error, config, folder) from None
        return ranks.first_does(fabric, lambda: summary(config, dataset, folder, training))


def begin(config: Config, dataset: Dataset, folder: Path, resume: bool) -> None:
    """Write what a run starts with, once the folder is ours."""
    check_folder(folder, resume)  # again: another process may have used it since
    refuse_changes(folder, config)
    run.write_config(folder, config, dataset)


@contextmanager
def held(folder: Path, fabric: Fabric) -> Iterator[None]:
    """Hold the folder of a run for all ranks, by the lock of the first."""
    with ExitStack() as stack:

        def lock() -> None:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(RunLock(folder))

        ranks.first_does(fabric, lock)
        yield


def facts_of(config: Config) -> dict[str, Any]:
    """Return what a checkpoint says of its run: never where files lie, for checkpoints are passed on."""
    decisive = {key: value for key, value in config.model_dump(mode="json").items() if key not in FREE}
    for key in ("data", "policy"):
        decisive[key] = Path(decisive[key]).name if decisive[key] else None
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
    return {"versions": run.versions(), "config": decisive, "config_sha256": digest}


def _with_way_on(error: Stopped | loop.BadStepError, config: Config, folder: Path) -> Exception:
    """Return the error with what is saved and the command that goes on."""
    trust = " --trust-model" if is_custom(config.model) else ""
    way = f"go on with: invaug train --resume --out {shlex.quote(str(folder))}{trust}"
    if isinstance(error, Stopped):
        return Stopped(error.signum, f"{error} and saved; {way}")
    return loop.BadStepError(f"{error} (the state before it is saved; {way} --on-nan skip)")


@contextmanager
def logging(config: Config, folder: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield what writes an epoch to every further log; close them whatever happens."""
    loggers = open_loggers(config.log, folder, config.model_dump(mode="json", exclude_none=True))

    def log(row: Mapping[str, Any]) -> None:
        for logger in loggers:
            logger.log(row, int(row["epoch"]))

    try:
        yield log
    finally:
        for logger in loggers:
            logger.close()


def refuse_changes(folder: Path, config: Config) -> None:
    """Refuse to go on with a run under another config; more epochs would change the schedule too."""
    saved = checkpoint.load(folder / "checkpoints")
    if saved is None:
        return
    before, now = saved.meta["config"], facts_of(config)["config"]
    changed = [f"{key}: {before.get(key)!r} -> {now[key]!r}" for key in now if before.get(key) != now[key]]
    if changed:
        raise UserError(f"{folder} was started with another config ({'; '.join(changed)}): use a new --out")


def summary(config: Config, dataset: Dataset, folder: Path, training: Training) -> dict[str, Any]:
    """Return what a run ends with: accuracy clean and under the set, gamma, whether the constraint holds."""
    rows = read(folder)
    plain = Finish(dataset.mean, dataset.std, Randomness(0, False, 0, False)).to(training.fabric.device)
    names, sets = zip(*problem.transform_sets(config), strict=True)
    each = under_each(
        training.network,
        plain,
        dataset.test,
        sets,
        n_draws=max(4 // len(sets), 1),
        seed=config.seed,
        workers=config.workers,
    )
    last, changed = rows[-1], averaged(each)
    levels = problem.epsilons(config, len(dataset.classes))  # one that a rule sets is neither kept nor violated
    given = [slack for slack, level in zip(last["slack"], levels, strict=False) if isinstance(level, float)]
    return {
        "run": str(folder), "method": config.method, "data": dataset.name, "model": config.model,
        "preset": config.preset, "epochs": len(rows),
        "test_accuracy": last.get("test_accuracy"), "test_loss": last.get("test_loss"),
        "transformed_accuracy": changed["uniform"]["accuracy"], "transformed_loss": changed["uniform"]["loss"],
        "gamma": last["gamma"], "slack": last["slack"], "epsilon": problem.ended_on(config, rows),
        "epsilon_chosen": len(given) < len(last["slack"]),
        "constraint_loss": last["constraint_loss"],
        "feasible": feasible(given) if config.epsilon else None,
        "seconds": sum(row["seconds"] for row in rows),
        **({"families": dict(zip(names, each, strict=True))} if config.families else {}),
    }  # fmt: skip


def feasible(slacks: list[float | None]) -> bool | None:
    """Return whether every constraint held in the last epoch; None where there is none. No slack means no bound."""
    return all(slack is None or slack <= 0 for slack in slacks) if slacks else None


def _headline(config: Config, dataset: Dataset) -> str:
    constraint = ""
    if config.method in configs.CONSTRAINED:
        level = "set by the resilient rule" if configs.is_rule(config.epsilon) else config.epsilon
        constraint = f", {problem.set_name(config)} set, epsilon {level}"
    images = f"{len(dataset.train.targets):,} images of {dataset.name}"
    return f"{configs.label(config.method)}: {config.model} on {images}{constraint}"


def _in_words(row: Mapping[str, Any]) -> dict[str, str]:
    pairs = zip(row["constraint_loss"], row["slack"], strict=True)
    # a family may have an epsilon of its own: what its loss is above
    ends = [(loss, loss - slack) for loss, slack in pairs if None not in (loss, slack, row["feasible"])]
    held = {True: "feasible", False: "violated", None: "-"}[row["feasible"]]
    if row["epsilon_chosen"]:
        held = f"epsilon {row['epsilon']:.2f}, by its rule"
    numbers = " ".join(f"{loss:.2f} vs {level:.4g}" for loss, level in ends)
    if len(ends) > 2:
        above, levels = sum(loss > level for loss, level in ends), {f"{level:.4g}" for _, level in ends}
        numbers = f"{above} of {len(ends)} above {levels.pop() if len(levels) == 1 else 'their epsilons'}"
    return {
        "method": configs.label(row["method"]),
        "clean": f"{row['test_accuracy']:.1%}",
        "transformed": f"{row['transformed_accuracy']:.1%}",
        "gamma": " ".join(f"{gamma:.3f}" for gamma in row["gamma"]) or "-",
        "constraint": f"{held} ({numbers})" if numbers else held,
        "seconds": f"{row['seconds']:.0f}",
    }
