"""A job in this process."""

from __future__ import annotations

import pytest

from invaug.lab.data.load import load_dataset
from invaug.lab.evaluate import measure as evaluate
from invaug.lab.jobs import job as lab_job
from invaug.lab.jobs import train_job
from invaug.lab.run import folder as run
from invaug.lab.run import record
from invaug.lab.train import summary
from tests.support.runs import write_digits
from tests.support.tiny_experiment import tiny


def test_a_run_that_holds_images_out_is_measured_on_these_and_reads_no_test_image(tmp_path, monkeypatch):
    data = write_digits(tmp_path)
    settings = {**tiny(data).plans["small"].cells[0].settings, "val_fraction": 0.5, "epochs": 1}
    held = lab_job.Job("held", settings, 0, tmp_path / "held")
    seen, measure = [], summary.clean
    monkeypatch.setattr(summary, "clean", lambda *given, **more: seen.append(given[2]) or measure(*given, **more))
    train_job.Trainer()(held, lambda: None)
    loaded = load_dataset(str(data), val_fraction=0.5)
    assert [split.images.sum() for split in seen] == [loaded.val.images.sum(), loaded.train.images.sum()]
    model = run.load(tmp_path / "held")
    right = evaluate.clean(model.network, model.finish, loaded.val)["accuracy"]
    numbers = held.found()["numbers"]
    assert numbers["held_out_accuracy"] == pytest.approx(right, abs=1e-6)
    assert not [name for name in numbers if name.startswith("test_")]
    (row,) = record.read(tmp_path / "held")
    assert row["val_accuracy"] == pytest.approx(right, abs=1e-6)
    assert not [key for key in row if key.startswith("test_")]
