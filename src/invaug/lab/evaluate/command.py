"""`invaug evaluate`: a run measured from every side, as tables for people or as one JSON document for machines."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from invaug.lab.config.machine import usable_workers
from invaug.lab.config.methods import METHODS
from invaug.lab.data.batches import batches
from invaug.lab.errors import UserError
from invaug.lab.evaluate import measure, pictures
from invaug.lab.evaluate.inputs import check_device, load_test_data
from invaug.lab.report.sections import evaluation
from invaug.lab.report.terminal import print_document
from invaug.lab.run.files import EVALUATION, json_safe, write_document
from invaug.lab.run.folder import load, read_config
from invaug.lab.run.record import read
from invaug.lab.run.row import Row
from invaug.lab.terminal import progress_bars, say
from invaug.lab.train import problem
from invaug.lab.train.sets import set_name, transform_sets


def evaluate_run(
    run: Path,
    data: str | None,
    data_dir: Path | None,
    draws: int,
    images: int,
    device: str,
    as_json: bool,
    *,
    trust_model: bool = False,
) -> None:
    """Measure a run on its own test images or on those of another dataset, and print the results."""
    config, facts = read_config(run)
    predictor = load(run, check_device(device), trust_model=trust_model)
    dataset, sampler = load_test_data(config, facts, data, data_dir), problem.sampler_of(METHODS[config.method.name])
    sets, rows = [transforms for _, transforms in transform_sets(config)], _rows(run)
    some = next(iter(batches(dataset.test, images, epoch=0, seed=0, shuffle=True, device=device)))
    with progress_bars() as progress:
        options: dict[str, Any] = {
            "n_draws": draws,
            "workers": usable_workers(config.data.workers),
            "progress": progress,
        }
        numbers = measure.everything(predictor, dataset.test, sets, some, **options)
    report = {
        "run": str(run),
        "data": dataset.name,
        "model": config.model.name,
        "method": config.method.name,
        "set": set_name(config),
        "preset": config.method.preset,
        "epsilon": problem.final_epsilon(config, rows),
        "draws": draws,
        "level_images": len(some.targets),
        **numbers,
    }
    if data is None:  # the page of a run is about its own test images
        examples = pictures.Examples(predictor, some.images, some.targets)
        shown = {
            "gallery": pictures.gallery(examples, sets, sampler=sampler, n_steps=config.method.n_steps),
            "hardest": pictures.hardest(examples, sets),
        }
        _keep_for_page(run, report | shown)
    if as_json:
        print(json.dumps(json_safe(report)))
    else:
        print_document(evaluation.document(report), Console(highlight=False, emoji=False))


def _rows(run: Path) -> list[Row]:
    """Return the epochs of the run; the network can be measured without them, but its epsilon is not known then."""
    try:
        return read(run)
    except UserError as error:
        say(f"epsilon is not known: {error}")
        return []


def _keep_for_page(run: Path, report: dict[str, Any]) -> None:
    """Write evaluation.json, without the path of the run; if the folder is read-only, only the page misses it."""
    try:
        write_document(run, EVALUATION, {key: value for key, value in report.items() if key != "run"})
    except OSError as error:
        say(f"the evaluation is not kept for the report: {error}")
