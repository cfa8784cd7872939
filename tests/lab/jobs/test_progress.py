"""The time that is left of all jobs together."""

from __future__ import annotations

from pathlib import Path

import pytest

from invaug.lab.errors import UserError
from invaug.lab.jobs import progress
from invaug.lab.jobs.job import Job
from invaug.lab.train.display import Screen


def test_the_time_left_is_that_of_all_jobs_at_the_pace_of_those_trained_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    before, first, second, last = (Job(str(i), {"method": "none"}, 0, tmp_path / str(i)) for i in range(4))
    with progress.bar(4, Screen(), "", cost=lambda job: 2.0 if job is last else 2 / 3) as shown:
        shown.started = 0.0
        shown.skip(before)
        assert shown.time_left() == ""
        now[0] = 120.0
        first.keep({"numbers": {"test_accuracy": 0.5}})
        shown.done(first)
        now[0] = 180.0
        second.folder.mkdir()
        (second.folder / "config.toml").write_text("[train]\nepochs = 10\n")  # as its run has chosen
        (second.folder / "record.jsonl").write_text("{}\n" * 5)
        shown.advance(second)
        assert shown.time_left() == "about 7 min left"  # half a job in a minute: half a job, and one as long as three
    assert capsys.readouterr().out.strip() == "2 of 4: 1 seed 0: test accuracy 50.00%, about 8 min left"


@pytest.mark.parametrize("trained", [False, True])
def test_a_search_that_is_refused_leaves_nothing_behind_but_what_was_trained(tmp_path: Path, trained: bool) -> None:
    file = tmp_path / "new" / "search" / "plan.json"

    def search() -> None:
        with progress.kept_plan(file, {"folds": 3}):
            assert file.read_text() == '{"folds": 3}'
            if trained:
                (file.parent / "fold-0").mkdir()
            raise UserError("unknown model")

    with pytest.raises(UserError, match="unknown model"):
        search()
    assert list(tmp_path.rglob("plan.json")) == ([file] if trained else [])
    assert any(tmp_path.iterdir()) == trained
