"""`invaug train`: from what the user gave to runs on disk and a table at the end."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from invaug.lab.config.build import build
from invaug.lab.config.resolve import Facts, Machine, resolve
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset, load_dataset
from invaug.lab.environment import restarts, under_torchrun
from invaug.lab.errors import UserError
from invaug.lab.models.build import is_custom
from invaug.lab.models.check import check_model
from invaug.lab.models.weights import new_model
from invaug.lab.report.command import report_runs
from invaug.lab.run.folder import check_usable
from invaug.lab.run.loggers import check_installed, open_logs
from invaug.lab.run.record import read
from invaug.lab.terminal import say
from invaug.lab.train import folders, loop, ranks
from invaug.lab.train.compiled import load_compiled_loops
from invaug.lab.train.display import Display, Screen, summary_table
from invaug.lab.train.finish import Finish
from invaug.lab.train.one_process import Processes
from invaug.lab.train.plan import Plan, describe
from invaug.lab.train.problem import build_problem
from invaug.lab.train.sets import transform_sets
from invaug.lab.train.signals import Stopped
from invaug.lab.train.state import Training, prepare
from invaug.lab.train.summary import Measured, summarise, table_row

READ_DATA = (
    *("data_dir", "fraction", "per_class", "images", "subset", "val_fraction", "val_fold"),
    *("image_size", "inputs", "on_bad", "max_bad"),
)


def run_one(
    given: Mapping[str, Any],
    out: Path | None,
    *,
    resume: bool,
    quiet: bool,
    trust_model: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Train what was asked for; return the summary of the run.

    Args:
        dry_run: Whether to say what would be trained, and to return that, without a trace on disk.
    """
    if resume and out is None:
        raise UserError("nothing to resume: name the folder of the run with --out")
    if under_torchrun() and out is None:
        raise UserError("torchrun needs --out FOLDER, so that restarted ranks find their run")
    if out:
        check_usable(out)
    if resume and out:
        given = {**folders.stored_settings(out, given, trust_model), **given}
    config = build(given)
    fabric = ranks.launch(config)
    folder = Path(ranks.on_first_rank(fabric, lambda: str(out or folders.free_folder(folders.default_folder(config)))))
    again = resume or (restarts() > 0 and folder.is_dir())  # torchrun may restart ranks before the run has begun
    ranks.on_first_rank(fabric, lambda: folders.check_folder(folder, again))
    dataset = load_once(config, fabric)
    config = resolve_for(config, dataset, fabric)
    plan = Plan(config, dataset, fabric.world_size)
    check_buildable([plan])
    console = Screen(quiet=quiet or not fabric.is_global_zero)
    seconds = None if console.quiet and not dry_run else plan.seconds(fabric, done=len(read(folder)))
    print_lines(console, describe([plan], [seconds], None if dry_run else folder))
    if dry_run:
        return plan.as_json(folder, seconds)
    training = train_one(config, dataset, folder, fabric, console, resume=again)
    summary = ranks.on_first_rank(fabric, lambda: summarise(config, dataset, folder, training, dataset.test))
    pages = ranks.on_first_rank(fabric, lambda: write_pages(folder, [folder]))
    print_summaries(console, [summary], pages)
    return summary


def resolve_for(config: Config, dataset: Dataset, fabric: Processes) -> Config:
    """Return the config without `auto`, given the data and the machine that Fabric has found."""
    facts = Facts(dataset.classes, len(dataset.train), dataset.image_shape)
    return resolve(config, facts, Machine(fabric.device.type, torch.get_num_threads(), fabric.world_size))


def check_buildable(plans: Sequence[Plan]) -> None:
    """Build every model and problem once: what cannot be trained must show before anything is written."""
    for plan in plans:
        config, dataset, _ = plan.config, plan.dataset, plan.n_steps  # which refuses too few images
        finish = Finish(dataset.mean, dataset.std)
        images = finish.plain(torch.randint(256, (2, *dataset.image_shape), dtype=torch.uint8))
        model = new_model(config.model, dataset.classes, dataset.image_shape)
        check_model(config.model.name, model, images, len(dataset.classes))
        build_problem(config, dataset, finish)
        transform_sets(config)
        check_installed(config.run.log)


def print_summaries(console: Screen, summaries: list[dict[str, Any]], pages: list[str]) -> None:
    """Print a table with a row per run, where runs and report are, and what to do next."""
    console.print(summary_table([table_row(summary) for summary in summaries]))
    runs = [summary["run"] for summary in summaries]
    print_lines(console, [*(f"run: {run}" for run in runs), *(f"report: {page}" for page in pages[-1:])])
    chosen = shlex.quote(runs[0]) if len(runs) == 1 else "RUN"
    then = f"invaug predict {chosen} IMAGE… (or evaluate, certify, export)"
    print_lines(console, [f"next: {'open the report; ' if pages else ''}use the network: {then}"])


def print_lines(console: Screen, lines: Iterable[str]) -> None:
    """Print lines as they are, however long."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def write_pages(root: Path, runs: list[Path]) -> list[str]:
    """Write the page of each run, and one of all where several were compared; a finished run never fails by it."""
    wanted = [*runs, *([root] if len(runs) > 1 else [])]
    try:
        return [str(report_runs([folder])[0]) for folder in wanted]
    except Exception as error:
        say(f"the report could not be written: {error}; try invaug report {root}")
        return []


def load_once(config: Config, fabric: Processes, *, with_test: bool = True) -> Dataset:
    """Return the data; rank 0 reads it first, so that a download or a bad file happens once."""
    loaded: list[Dataset] = []

    def load() -> None:
        options = {key: getattr(config.data, key) for key in READ_DATA}
        loaded.append(load_dataset(config.data.name, seed=config.run.seed, with_test=with_test, **options))

    ranks.on_first_rank(fabric, load)
    if not loaded:
        load()
    return loaded[0]


def train_one(
    config: Config,
    dataset: Dataset,
    folder: Path,
    fabric: Processes,
    console: Screen,
    *,
    resume: bool,
    measured: Measured | None = None,
    on_epoch: Callable[[], None] = lambda: None,
) -> Training:
    """Train one run, of a resolved config, in its folder; return its last state.

    Args:
        measured: The images it is measured on; by default those that the dataset holds out.
        on_epoch: Called after every epoch.
    """
    load_compiled_loops()
    training = prepare(config, dataset, fabric)
    with ranks.reporting_lost_ranks(fabric), folders.locked(folder, fabric):
        ranks.on_first_rank(fabric, lambda: folders.begin(config, dataset, folder, resume))
        done = len(read(folder))
        settings = {key: value for key, value in config.flat("json").items() if value is not None}
        logs = open_logs(config.run.log if fabric.is_global_zero else [], folder, settings)
        with Display(int(config.train.epochs), done, console=console) as display, logs as log:

            def show_epoch(row: dict[str, Any]) -> None:
                display.epoch(row)
                log(row)
                on_epoch()

            watch = loop.Watch(display.batch, show_epoch, say)
            try:
                loop.fit(config, dataset, folder, training, watch, measured or Measured.held_out(dataset))
            except (Stopped, loop.BadStepError) as error:
                if fabric.is_global_zero and read(folder):  # the handlers are gone: a second signal ends this too
                    write_pages(folder, [folder])
                raise _with_way_out(error, config, folder) from None
    return training


def _with_way_out(error: Stopped | loop.BadStepError, config: Config, folder: Path) -> Exception:
    """Return the error with what is saved and the command that resumes."""
    trust = " --trust-model" if is_custom(config.model.name) else ""
    way = f"resume with: invaug train --resume --out {shlex.quote(str(folder))}{trust}"
    if isinstance(error, Stopped):
        return Stopped(error.signum, f"{error} and saved; {way}")
    return loop.BadStepError(f"{error} (the state before it is saved; {way} --on-nan skip)", error.reason)
