"""Run the faults and print one table: `python -m faults`, or one group, or some cases by a part of their names.

What each case came to is kept in build/faults for the code that it was tried on: a run that was stopped is resumed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from faults.harness import Case, all_cases
from invaug.lab.environment import commit, cpu_model

FAILED, BROKEN = "failed: ", "broken: "
PATIENCE = 3600  # seconds for one case
KEPT = Path("build/faults")
HEAD = """# Reliability

Every row is a promise, how often `{command}` tried to break it, and how often it held. Real processes, real signals,
real disks; a case that cannot be made to pass stays here as a miss. The last column is how often `make test` tries it.

{when}, commit {commit}; {machine}; {seconds:.0f} s of cases, some of them at the same time.

"""


class Outcome(NamedTuple):
    """What became of a case."""

    case: Case
    tried: int
    failures: list[str]
    seconds: float

    @property
    def passed(self) -> int:
        """Tries that held; a case that broke down has none."""
        if any(line.startswith(BROKEN) for line in self.failures):
            return 0
        return max(self.tried - len(self.failures), 0)


class Log:
    """The outcomes of all tries of cases, on this code alone; none are kept of code that is not committed."""

    def __init__(self) -> None:
        git = ["git", "rev-parse", "HEAD:src"]
        tree = subprocess.run(git, capture_output=True, text=True, check=False).stdout
        is_known = tree and not (commit() or "changed").endswith("changed")
        self.path = KEPT / f"{tree.strip()}.jsonl" if is_known else None

    def read(self) -> dict[str, dict[str, Any]]:
        """Return what each case came to, by its name."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path and self.path.exists() else []
        return {row["case"]: row for row in map(json.loads, lines)}

    def find(self, case: Case) -> Outcome | None:
        """Return what a case came to, None if all its tries have not been made yet."""
        row = self.read().get(case.name)
        return Outcome(case, case.full, row["failures"], row["seconds"]) if row and row["tried"] == case.full else None

    def add(self, outcome: Outcome) -> None:
        """Keep what a case came to."""
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            row = {**outcome._asdict(), "case": outcome.case.name, "when": f"{datetime.datetime.now(datetime.UTC)}"}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def run_one(case: Case, tries: int) -> None:
    """Run a case in this process, one line of output per failure."""
    with tempfile.TemporaryDirectory(prefix="invaug-fault-") as folder:
        for line in case.failures(tries, Path(folder)):
            print(FAILED + " ".join(line.split()))


def run_apart(case: Case, fast: bool) -> Outcome:
    """Run a case in a process of its own, so that a crash is a failure of that case alone."""
    started = time.perf_counter()
    tried = case.fast if fast else case.full
    command = [sys.executable, "-m", "faults", "--one", case.name, *(["--fast"] if fast else [])]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)
        failures = [line.removeprefix(FAILED) for line in done.stdout.splitlines() if line.startswith(FAILED)]
        if done.returncode:
            failures.append(BROKEN + (done.stderr.strip().splitlines() or ["no message"])[-1])
    except subprocess.TimeoutExpired:
        failures = [f"{BROKEN}no end after {PATIENCE} s"]
    seconds = time.perf_counter() - started
    outcome = Outcome(case, tried, failures, seconds)
    print(f"{case.group}: {case.name}: {outcome.passed}/{tried} in {seconds:.0f} s", file=sys.stderr, flush=True)
    for line in failures:
        print(f"    {line}", file=sys.stderr, flush=True)
    return outcome


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as a Markdown table, and what went wrong below it."""
    lines = ["| group | case | tried | passed | in `make test` |", "| --- | --- | ---: | ---: | ---: |"]
    for case, tried, failures, _ in outcomes:
        passed = Outcome(case, tried, failures, 0).passed
        held = "not run" if not tried else passed if passed == tried else f"**{passed}**"
        lines.append(f"| {case.group} | {case.name} | {tried or case.full} | {held} | {case.fast} |")
    misses = [f"- {o.case.name}: {line}" for o in outcomes for line in o.failures]
    return "\n".join([*lines, *(["", "Misses:", "", *misses] if misses else []), ""])


def head(command: str, seconds: float) -> str:
    """Return what the page says above its table: when, of which commit, and on which machine."""
    system = f"{platform.system()}, Python {platform.python_version()}, torch {version('torch')}"
    machine = f"{cpu_model()}, {os.cpu_count()} cores, {system}"
    when = f"{datetime.datetime.now(datetime.UTC):%d %B %Y}"
    return HEAD.format(command=command, when=when, commit=commit() or "unknown", machine=machine, seconds=seconds)


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("only", nargs="*", help="groups, or parts of the names of cases [all]")
    parser.add_argument("--fast", action="store_true", help="the few tries of `make test`")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at the same time [cores]")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument("--again", action="store_true", help="also cases that were tried on this code before")
    parser.add_argument("--table", action="store_true", help="try nothing: the table of what was tried on this code")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run what was asked for; 1 if anything missed."""
    options = parse()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, also by the runs that are to heed it
    cases = all_cases()
    if options.one:
        chosen = next(case for case in cases if case.name == options.one)
        run_one(chosen, chosen.fast if options.fast else chosen.full)
        return 0
    wanted = [c for c in cases if not options.only or any(w == c.group or w in c.name for w in options.only)]
    wanted = [c for c in wanted if c.fast or not options.fast]
    if options.list:
        print("\n".join(f"{c.group}: {c.name} ({c.full}; {c.fast} in make test)" for c in wanted))
        return 0
    log, _ = Log(), commit()  # looked up once: what is committed meanwhile was not tried

    def outcome_of(case: Case) -> Outcome:
        kept = None if options.fast or options.again else log.find(case)
        if kept or options.table:
            return kept or Outcome(case, 0, [], 0.0)
        made = run_apart(case, options.fast)
        if not options.fast:
            log.add(made)
        return made

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(outcome_of, wanted))
    print(table(outcomes))
    if options.output:
        command = "python -m faults " + " ".join(map(repr, options.only)) if options.only else "make faults"
        seconds = sum(outcome.seconds for outcome in outcomes)
        options.output.write_text(head(command, seconds) + table(outcomes), encoding="utf-8")
    return int(any(outcome.failures for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
