"""Additional logs next to the record: a CSV table, TensorBoard, Weights & Biases (offline) and MLflow (local)."""

import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from invaug.lab.errors import UserError, nearest
from invaug.lab.run import record

Row = Mapping[str, Any]


class Logger(Protocol):
    """Takes one row per epoch."""

    def log(self, row: Row, step: int) -> None:
        """Write the row of an epoch, so that it survives the process."""

    def close(self) -> None:
        """Finish the log."""


class CsvLogger:
    """`record.csv`: the record as a table, complete after every epoch and after a resume.

    Fabric's CSVLogger deletes the rows of the stopped run when a run is resumed, rewrites its file in place (a kill
    leaves half a table), and writes text that a spreadsheet would evaluate as a formula.
    """

    def __init__(self, folder: Path, settings: Row) -> None:
        self.path = folder / "record.csv"
        self.rows: list[Row] = list(record.read(folder))

    def log(self, row: Row, step: int) -> None:
        """Write the table up to this epoch."""
        self.rows = [*(earlier for earlier in self.rows if earlier["epoch"] < row["epoch"]), row]
        record.to_csv(self.rows, self.path)

    def close(self) -> None:
        """Do nothing: the file is complete."""


class TensorboardLogger:
    """Scalars, and a histogram of the levels at which each operation was kept, under `tensorboard/`.

    Fabric's TensorBoardLogger wraps the same writer of torch's, but expands `$NAME` in the path: a run in a folder
    with a dollar in its name would be logged elsewhere.
    """

    def __init__(self, folder: Path, settings: Row) -> None:
        self.tensorboard = import_or_explain("tensorboard", "torch.utils.tensorboard", "tensorboard")
        self.folder = folder / "tensorboard"
        self.writer: Any = None

    def log(self, row: Row, step: int) -> None:
        """Write the epoch; the first one hides what a stopped run wrote from there on."""
        self.writer = self.writer or self.tensorboard.SummaryWriter(str(self.folder), purge_step=step)
        for name, value in scalars(row):
            self.writer.add_scalar(name, value, step)
        for name, counts in histograms(row):
            levels = np.arange(len(counts))
            self.writer.add_histogram(name, np.repeat(levels, counts), step, bins=np.append(-0.5, levels + 0.5))
        self.writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self.writer:
            self.writer.close()


class WandbLogger:
    """An offline W&B run under `wandb/`, for `wandb sync`; nothing about the machine or the code is recorded."""

    def __init__(self, folder: Path, settings: Row) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self.wandb = import_or_explain("wandb", "wandb", "wandb")
        folder.mkdir(parents=True, exist_ok=True)
        private = {f"x_disable_{what}": True for what in ("meta", "stats", "machine_info")}
        quiet = self.wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True, **private)
        names = {"project": "invaug", "name": folder.name, "group": folder.name}
        self.run = self.wandb.init(
            mode="offline", dir=str(folder), config=dict(settings), reinit="create_new", settings=quiet, **names
        )

    def log(self, row: Row, step: int) -> None:
        """Write the epoch."""
        kept = {
            name: self.wandb.Histogram(np_histogram=(counts, [level - 0.5 for level in range(len(counts) + 1)]))
            for name, counts in histograms(row)
        }
        self.run.log(dict(scalars(row)) | kept, step=step)

    def close(self) -> None:
        """End the run."""
        self.run.finish()


class MlflowLogger:
    """An MLflow run in its own store under `mlruns/`; a resumed run continues in it."""

    def __init__(self, folder: Path, settings: Row) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # the skinny package has no other local store
        mlflow = import_or_explain("mlflow", "mlflow", "mlflow-skinny")
        self.metric = mlflow.entities.Metric
        self.client = mlflow.MlflowClient(tracking_uri=(folder / "mlruns").resolve().as_uri())
        found = self.client.get_experiment_by_name("invaug")
        experiment = found.experiment_id if found else self.client.create_experiment("invaug")
        runs = self.client.search_runs([experiment], max_results=1)
        self.run_id = runs[0].info.run_id if runs else self._create(experiment, folder.name, settings)
        self.client.update_run(self.run_id, status="RUNNING")

    def _create(self, experiment: str, name: str, settings: Row) -> str:
        run_id = str(self.client.create_run(experiment, run_name=name).info.run_id)
        for key, value in settings.items():  # once: MLflow refuses to change them
            self.client.log_param(run_id, key, value)
        return run_id

    def log(self, row: Row, step: int) -> None:
        """Write the scalars of the epoch."""
        now = int(time.time() * 1000)
        self.client.log_batch(self.run_id, [self.metric(name, value, now, step) for name, value in scalars(row)])

    def close(self) -> None:
        """Mark the run as finished."""
        self.client.set_terminated(self.run_id)


LOGGERS: dict[str, Callable[[Path, Row], Logger]] = {
    "csv": CsvLogger,
    "tensorboard": TensorboardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}


def open_loggers(names: Iterable[str], folder: Path, settings: Row | None = None) -> list[Logger]:
    """Return the loggers of these names, which write into the run's folder.

    Args:
        settings: What the run was started with, for the logs that show it (W&B, MLflow).
    """
    wanted = list(names)
    for name in wanted:
        if name not in LOGGERS:
            raise UserError(f"unknown log {name}, {nearest(name, LOGGERS)}")
    return [LOGGERS[name](folder, settings or {}) for name in wanted]


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
