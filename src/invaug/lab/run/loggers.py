"""Additional logs next to the record: a CSV table, TensorBoard, Weights & Biases (offline) and MLflow (local)."""

import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from invaug.lab.errors import UserError
from invaug.lab.run import atomic, record

Row = Mapping[str, Any]
Log = Callable[[Row], None]
"""Writes the row of an epoch, so that it survives the process."""


@contextmanager
def open_logs(names: Iterable[str], folder: Path, settings: Row | None = None) -> Iterator[Log]:
    """Yield what writes an epoch to the logs of these names in the run's folder; close them whatever happens.

    Args:
        settings: What the run was started with, for the logs that show it (W&B, MLflow).
    """
    with ExitStack() as stack:
        logs = [OPENERS[name](folder, settings or {}, stack) for name in names]

        def log(row: Row) -> None:
            for write in logs:
                write(row)

        yield log


def open_csv(folder: Path, settings: Row, stack: ExitStack) -> Log:
    """Return what keeps `record.csv`, the record as a table: complete after every epoch and after a resume.

    Fabric's CSVLogger deletes the rows of the stopped run when a run is resumed, rewrites its file in place (a kill
    leaves half a table), and writes text that a spreadsheet would evaluate as a formula.
    """
    rows: list[Row] = list(record.read(folder))

    def log(row: Row) -> None:
        rows[:] = [*(earlier for earlier in rows if earlier["epoch"] < row["epoch"]), row]
        record.to_csv(rows, folder / "record.csv")

    return log


def open_tensorboard(folder: Path, settings: Row, stack: ExitStack) -> Log:
    """Return what writes scalars, and histograms of the levels at which each operation was kept, to `tensorboard/`.

    Fabric's TensorBoardLogger wraps the same writer of torch's, but expands `$NAME` in the path: a run in a folder
    with a dollar in its name would be logged elsewhere.
    """
    tensorboard = import_or_explain("tensorboard", "torch.utils.tensorboard", "tensorboard")
    writer: Any = None

    def log(row: Row) -> None:
        nonlocal writer
        if writer is None:  # the first epoch hides what a stopped run wrote from there on
            writer = tensorboard.SummaryWriter(str(folder / "tensorboard"), purge_step=row["epoch"])
            stack.callback(close)
        with _reporting_newest(folder / "tensorboard"):
            add(row)

    def close() -> None:
        with _reporting_newest(folder / "tensorboard"):
            writer.close()

    def add(row: Row) -> None:
        step = row["epoch"]
        for name, value in scalars(row):
            writer.add_scalar(name, value, step)
        for name, counts in histograms(row):
            levels = np.arange(len(counts))
            writer.add_histogram(name, np.repeat(levels, counts), step, bins=np.append(-0.5, levels + 0.5))
        writer.flush()

    return log


@contextmanager
def _reporting_newest(folder: Path) -> Iterator[None]:
    """Name the newest file of a folder if writing fails: TensorBoard writes in a thread, whose errors name none."""
    try:
        yield
    except OSError as error:
        files = sorted(folder.glob("*"), key=lambda file: file.stat().st_mtime)
        with atomic.reporting(files[-1] if files else folder):
            raise error


def open_wandb(folder: Path, settings: Row, stack: ExitStack) -> Log:
    """Return what writes an offline W&B run to `wandb/`, for `wandb sync`; nothing is recorded of machine or code."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    wandb = import_or_explain("wandb", "wandb", "wandb")
    folder.mkdir(parents=True, exist_ok=True)
    private = {f"x_disable_{what}": True for what in ("meta", "stats", "machine_info")}
    quiet = wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True, **private)
    names = {"project": "invaug", "name": folder.name, "group": folder.name}
    options = {"config": dict(settings), "reinit": "create_new", "settings": quiet}
    run = wandb.init(mode="offline", dir=str(folder), **options, **names)
    stack.callback(run.finish)

    def log(row: Row) -> None:
        kept = {
            name: wandb.Histogram(np_histogram=(counts, [level - 0.5 for level in range(len(counts) + 1)]))
            for name, counts in histograms(row)
        }
        run.log(dict(scalars(row)) | kept, step=row["epoch"])

    return log


def open_mlflow(folder: Path, settings: Row, stack: ExitStack) -> Log:
    """Return what writes an MLflow run to its own store under `mlruns/`; a resumed run continues in it."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # the skinny package has no other local store
    mlflow = import_or_explain("mlflow", "mlflow", "mlflow-skinny")
    client = mlflow.MlflowClient(tracking_uri=(folder / "mlruns").resolve().as_uri())
    found = client.get_experiment_by_name("invaug")
    experiment = found.experiment_id if found else client.create_experiment("invaug")
    runs = client.search_runs([experiment], max_results=1)
    run_id = (runs[0] if runs else client.create_run(experiment, run_name=folder.name)).info.run_id
    for key, value in () if runs else settings.items():  # once: MLflow refuses to change them
        client.log_param(run_id, key, value)
    client.update_run(run_id, status="RUNNING")
    stack.callback(client.set_terminated, run_id)

    def log(row: Row) -> None:
        now, step = int(time.time() * 1000), row["epoch"]
        metrics = [mlflow.entities.Metric(name, value, now, step) for name, value in scalars(row)]
        client.log_batch(run_id, metrics)

    return log


OPENERS: dict[str, Callable[[Path, Row, ExitStack], Log]] = {
    "csv": open_csv,
    "tensorboard": open_tensorboard,
    "wandb": open_wandb,
    "mlflow": open_mlflow,
}


def import_or_explain(log: str, module: str, package: str) -> Any:
    """Return the module that a log needs; if it is missing, say what to install."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"--log {log} needs {package}, which is not installed: pip install 'invaug[{log}]'") from None


def check_installed(logs: Iterable[str]) -> None:
    """Refuse a log whose library is missing, before a run writes anything."""
    for log in logs:
        if log != "csv" and find_spec(log) is None:
            raise UserError(f"--log {log} needs {log}, which is not installed: pip install 'invaug[{log}]'")


def scalars(row: Row, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a row, those of a list one by one (gamma/0, gamma/1); leave out text and counts."""
    for name, value in row.items():
        if isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
        elif isinstance(value, list | tuple):
            yield from scalars({str(i): item for i, item in enumerate(value)}, f"{prefix}{name}/")


def histograms(row: Row) -> Iterator[tuple[str, list[int]]]:
    """Yield for each operation how often each level was kept, from the row's {operation: counts} tables."""
    for name, value in row.items():
        parts = value if isinstance(value, list | tuple) else [value]
        for i, part in enumerate(parts):
            if isinstance(part, Mapping):
                yield from ((f"{name}/{i}/{op}", counts) for op, counts in part.items() if any(counts))
