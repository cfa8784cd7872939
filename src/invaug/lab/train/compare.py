"""`invaug train --compare`: the method beside two baselines under the same budget, as jobs of one engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from invaug.lab.config.build import build, dump, read
from invaug.lab.config.schema import Config, nest
from invaug.lab.errors import RunError, UserError
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.pool import check_start, run_jobs
from invaug.lab.jobs.progress import Cost, bar
from invaug.lab.jobs.verbs import resume_command
from invaug.lab.models.build import is_custom
from invaug.lab.run import atomic, record
from invaug.lab.run.folder import check_trust, check_usable
from invaug.lab.train import folders
from invaug.lab.train.command import check_buildable, print_lines, print_summaries, resolve_for, write_pages
from invaug.lab.train.display import Screen
from invaug.lab.train.plan import Plan, describe

COMPARISON = "compare.toml"
"""What was asked, so that it can be resumed before every method has begun."""
BASELINES = ("none", "trivial")
PLACES = ("data_dir", "policy")
"""Settings that say where files are, which a job keeps apart from what it trains."""


def compare_methods(
    given: Mapping[str, Any],
    out: Path | None,
    *,
    resume: bool,
    quiet: bool,
    jobs: int = 1,
    on: str = "processes",
    trust_model: bool = False,
    dry_run: bool = False,
) -> list[dict[str, Any]]:
    """Train plain training, TrivialAugment and the method; return their summaries.

    Args:
        jobs: How many to train at the same time.
        on: processes, ray, or the address of a Ray cluster.
        trust_model: Whether a comparison that is resumed may run the code of its own `module:factory`.
        dry_run: Whether to say what would be trained, and to return that, without a trace on disk.
    """
    check_start("train --compare", on)
    if out:
        check_usable(out)
    if resume and out:
        if not (out / COMPARISON).is_file():
            raise UserError(f"nothing to resume in {out}: no {COMPARISON} there; leave out --resume to start")
        given = {**_stored(out, given, trust_model), **given}
    elif resume:
        raise UserError("nothing to resume: name the folder of the comparison with --out")
    config = build(given)
    if config.run.devices > 1:
        raise UserError(f"--compare trains on one device, got --devices {config.run.devices}: leave it out")
    root = out or folders.free_folder(folders.default_folder(config))
    wanted = _jobs(given, config, root)
    for job in wanted:
        folders.check_folder(job.folder, resume and job.folder.is_dir())
    console = Screen(quiet=quiet)
    plans = _plans(wanted, timed=dry_run or not quiet)
    seconds = [each for _, each in plans]
    print_lines(console, describe([plan for plan, _ in plans], seconds, None if dry_run else root))
    if dry_run:
        return [plan.as_json(job.folder, each) for job, (plan, each) in zip(wanted, plans, strict=True)]
    root.mkdir(parents=True, exist_ok=True)
    atomic.write_text(root / COMPARISON, dump(nest(given)))
    flags: dict[str, Any] = {"resume": True, "out": root, "jobs": jobs, "on": on}
    flags |= {"trust_model": True} if is_custom(config.model.name) else {}
    again = resume_command("train", "--compare", flags, {"jobs": 1, "on": "processes"})
    with bar(len(wanted), console, again, _cost(wanted, seconds)) as shown:
        run_jobs(wanted, shown, at_once=jobs, on=on)
    if failed := [f"{job.label}: {reason}" for job in wanted if (reason := job.failure())]:
        raise RunError(f"not every method could be trained, {'; '.join(failed)}")
    summaries = [{**(job.found() or {})["summary"], "run": str(job.folder)} for job in wanted]
    print_summaries(console, summaries, write_pages(root, [job.folder for job in wanted]))
    return summaries


def _stored(out: Path, given: Mapping[str, Any], trust_model: bool) -> dict[str, Any]:
    """Return what a comparison was started with, for a resume; its folder may come from elsewhere."""
    stored = folders.own_places(read(out / COMPARISON), given)
    if "model" not in given:  # naming the model is trusting it
        check_trust(out, str(stored.get("model", "")), trust_model)
    return stored


def _jobs(given: Mapping[str, Any], config: Config, root: Path) -> list[Job]:
    """Return a job for each method, in a folder of its name."""
    settings = {key: value for key, value in given.items() if key not in ("seed", *PLACES)}
    places = {key: str(given[key]) for key in PLACES if given.get(key)}
    methods = dict.fromkeys([*BASELINES, config.method.name])
    return [
        Job(method, {**settings, "method": method}, config.run.seed, root / method, summary=True, places=places)
        for method in methods
    ]


def _plans(jobs: list[Job], *, timed: bool) -> list[tuple[Plan, float | None]]:
    """Load the data and build every model and problem once, so that a mistake shows before anything is written.

    Args:
        timed: Whether to return about how many seconds of each training are left, too.
    """
    from invaug.lab.jobs.train_job import Trainer

    trainer = Trainer()
    dataset, fabric = trainer.load(jobs[0]), trainer.fabric(jobs[0].config())
    plans = [Plan(resolve_for(job.config(), dataset, fabric), dataset) for job in jobs]
    check_buildable(plans)
    done = [len(record.read(job.folder)) for job in jobs]
    return [(plan, plan.seconds(fabric, n) if timed else None) for plan, n in zip(plans, done, strict=True)]


def _cost(jobs: list[Job], seconds: list[float | None]) -> Cost:
    """Return what a job costs, where 1 is the mean."""
    known = {job.name: each for job, each in zip(jobs, seconds, strict=True) if each}
    mean = sum(known.values()) / len(known) if known else 1.0
    return lambda job: known.get(job.name, mean) / mean
