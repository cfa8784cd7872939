"""Further logs: what was written is read back with the tools of each."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from invaug.lab.config.build import build
from invaug.lab.errors import UserError
from invaug.lab.run import loggers, record
from tests.support.runs import train, write_digits

ROWS: list[dict[str, Any]] = [
    {"epoch": 1, "loss": 0.5, "gamma": [0.25, 0.75], "kept": [{"Rotate": [0, 2, 1], "Solarize": [0, 0, 0]}], "n": "a"},
    {"epoch": 2, "loss": math.nan, "gamma": [0.5, 1.0], "kept": [{"Rotate": [4, 0, 0], "Solarize": [0, 0, 3]}]},
    {"epoch": 3, "loss": 0.125, "gamma": [0.75, -math.inf], "kept": [{}], "exact": True, "n": None},
]
SCALARS = {"epoch": [1, 2, 3], "loss": [0.5, math.nan, 0.125], "gamma/0": [0.25, 0.5, 0.75]}


def log_all(name: str, folder: Path, rows: list[dict[str, Any]] = ROWS, **options: Any) -> None:
    with loggers.open_logs([name], folder, **options) as log:
        for row in rows:
            log(row)


def equal(found: list[float], expected: list[float]) -> bool:
    return found == pytest.approx(expected, nan_ok=True, rel=1e-7)


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "record.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_is_whole_after_every_epoch(tmp_path: Path) -> None:
    with loggers.open_logs(["csv"], tmp_path) as log:
        for n, row in enumerate(ROWS, 1):
            log(row)
            assert [line["epoch"] for line in table(tmp_path)] == [str(epoch) for epoch in range(1, n + 1)]
    assert table(tmp_path)[0]["kept.0.Rotate.1"] == "2"


def test_csv_of_a_resumed_run_has_each_epoch_once(tmp_path: Path) -> None:
    for row in ROWS:
        record.append(tmp_path, row)
    log_all("csv", tmp_path, [{"epoch": 2, "loss": 7.0}, {"epoch": 3, "loss": 8.0}])
    assert [(line["epoch"], line["loss"]) for line in table(tmp_path)] == [("1", "0.5"), ("2", "7.0"), ("3", "8.0")]


def events(folder: Path) -> Any:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="reads what TensorBoard wrote"
    )
    found = accumulator.EventAccumulator(str(folder / "tensorboard"), {"histograms": 0, "scalars": 0})
    return found.Reload()


def test_tensorboard_shows_the_scalars_of_each_epoch(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the tensorboard log needs it")
    log_all("tensorboard", tmp_path)
    found = events(tmp_path)
    assert set(found.Tags()["scalars"]) == {"epoch", "loss", "gamma/0", "gamma/1", "exact"}
    for name, values in SCALARS.items():
        assert [event.step for event in found.Scalars(name)] == [1, 2, 3]
        assert equal([event.value for event in found.Scalars(name)], values)


def test_tensorboard_shows_at_which_levels_operations_were_kept(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the tensorboard log needs it")
    log_all("tensorboard", tmp_path)
    found = events(tmp_path)
    assert set(found.Tags()["histograms"]) == {"kept/0/Rotate", "kept/0/Solarize"}
    first, second = (event.histogram_value for event in found.Histograms("kept/0/Rotate"))
    assert (first.min, first.max, first.num, first.sum, first.sum_squares) == (1, 2, 3, 4, 6)
    assert dict(zip(first.bucket_limit, first.bucket, strict=True)) == {0.5: 0, 1.5: 2, 2.5: 1}
    assert (second.min, second.max, second.num) == (0, 0, 4)
    assert [event.step for event in found.Histograms("kept/0/Solarize")] == [2]


def test_tensorboard_has_an_epoch_on_disk_before_the_log_is_closed(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the tensorboard log needs it")
    with loggers.open_logs(["tensorboard"], tmp_path) as log:
        log(ROWS[0])
        assert [event.value for event in events(tmp_path).Scalars("loss")] == [0.5]


def test_tensorboard_of_a_resumed_run_has_each_epoch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers = pytest.importorskip("tensorboard.summary.writer.event_file_writer", reason="the tensorboard log needs it")
    for start, rows in [(1000, ROWS), (2000, [{"epoch": 2, "loss": 7.0}, {"epoch": 3, "loss": 8.0}])]:
        monkeypatch.setattr(
            writers.time, "time", lambda start=start: start
        )  # files are read in the order of their names
        log_all("tensorboard", tmp_path, rows)
    found = [(event.step, event.value) for event in events(tmp_path).Scalars("loss")]
    assert found == [(1, 0.5), (2, 7.0), (3, 8.0)]


def test_tensorboard_stays_in_a_folder_with_a_dollar_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="the tensorboard log needs it")
    monkeypatch.setenv("ELSEWHERE", "elsewhere")  # which Fabric's own logger puts in its place
    log_all("tensorboard", tmp_path / "$ELSEWHERE")
    assert [path.name for path in tmp_path.iterdir()] == ["$ELSEWHERE"]


def test_closing_a_log_that_was_never_used_writes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the tensorboard log needs it")
    log_all("tensorboard", tmp_path, [])
    log_all("csv", tmp_path, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_wandb_writes_an_offline_run(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="the wandb log needs it")
    log_all("wandb", tmp_path / "run", settings={"epsilon": 0.8})
    wandb.teardown()  # waits for the process that writes, as the end of the program does
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    history, config = wandb_records(file)
    assert [int(row["_step"]) for row in history] == [1, 2, 3]
    for name, values in SCALARS.items():
        assert equal([float(row[name]) for row in history], values)
    assert history[0]["kept/0/Rotate/values"] == [0, 2, 1]
    assert history[0]["kept/0/Rotate/bins"] == [-0.5, 0.5, 1.5, 2.5]
    assert config["epsilon"] == 0.8


def wandb_records(file: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the history and the config that an offline file holds."""
    protocol = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason="reads what wandb wrote")
    history, config = [], {}
    for data in leveldb_records(file.read_bytes()):
        message = protocol.Record()
        message.ParseFromString(data)
        if message.HasField("history"):
            history.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in message.history.item})
        if message.HasField("run"):
            config |= {item.key: json.loads(item.value_json) for item in message.run.config.update}
    return history, config


def leveldb_records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a LevelDB log: blocks of 32 KiB; checksum, length and kind (1 whole, 2 to 4 in pieces)."""
    position, whole = 7, b""  # W&B puts seven bytes of its own in front
    while position + 7 <= len(content):
        if 2**15 - position % 2**15 < 7:  # a header does not cross blocks
            position += 2**15 - position % 2**15
        _, length, kind = struct.unpack_from("<IHB", content, position)
        whole += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


@pytest.mark.slow
def test_mlflow_writes_a_local_run_and_goes_on_in_it(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the mlflow log needs mlflow-skinny")
    log_all("mlflow", tmp_path / "run", ROWS[:2], settings={"epsilon": 0.8})
    log_all("mlflow", tmp_path / "run", ROWS[2:], settings={"epsilon": 0.9})
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "run" / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("invaug").experiment_id])
    for name, values in SCALARS.items():
        found = sorted(client.get_metric_history(run.info.run_id, name), key=lambda metric: metric.step)
        assert [metric.step for metric in found] == [1, 2, 3]
        assert equal([metric.value for metric in found], values)
    assert run.data.params == {"epsilon": "0.8"}
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_logs_send_nothing_home(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name, reason=f"the {name} log needs it")
    log_all(name, tmp_path, ROWS[:1])
    variable, value = {"wandb": ("WANDB_ERROR_REPORTING", "false"), "mlflow": ("MLFLOW_DISABLE_TELEMETRY", "true")}[
        name
    ]
    assert os.environ[variable] == value


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("tensorboard", "torch.utils.tensorboard", "tensorboard"),
        ("wandb", "wandb", "wandb"),
        ("mlflow", "mlflow", "mlflow-skinny"),
    ],
)
def test_a_missing_library_is_named_with_the_command_that_brings_it(
    name: str, module: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    message = f"--log {name} needs {package}, which is not installed: pip install 'invaug[{name}]'"
    with pytest.raises(UserError, match=re.escape(message)), loggers.open_logs([name], tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_a_missing_library_is_noticed_before_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"--log wandb needs wandb, .* pip install 'invaug\[wandb\]'$"):
        train(write_digits(tmp_path), tmp_path / "run", log=["csv", "wandb"])
    assert not (tmp_path / "run").exists()


def test_an_unknown_log_answers_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown log tensorbord, did you mean tensorboard\?"):
        build({"log": ["csv", "tensorbord"]})


def test_several_logs_take_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the tensorboard log needs it")
    with loggers.open_logs(["csv", "tensorboard"], tmp_path) as log:
        log(ROWS[0])
    assert {path.name for path in tmp_path.iterdir()} == {"record.csv", "tensorboard"}
