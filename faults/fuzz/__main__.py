"""Mutate every format for a set time: `python -m faults.fuzz --seconds 600`; 1 if anything was found."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from faults.fuzz import worker
from faults.fuzz.findings import FOLDER, keep, key_of, workshop
from faults.fuzz.formats import FORMATS

ROUND = 50  # mutations of a format before the next one has its turn

HEADS = ("format", "mutations", "refused in one line", "accepted", "tracebacks", "hangs", "growth")


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="python -m faults.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="time to spend [600]")
    parser.add_argument("--formats", default="", help=f"some of these, separated by commas [all]: {', '.join(FORMATS)}")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="which mutations [the clock]")
    parser.add_argument("--index", type=int, help="try this mutation alone, and say what it came to")
    parser.add_argument("--findings", type=Path, default=FOLDER, help=f"folder for what is found [{FOLDER}]")
    return parser.parse_args()


def chosen(given: str) -> list[str]:
    """Return the formats that were asked for, all if none was."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    if unknown := [name for name in names if name not in FORMATS]:
        sys.exit(f"unknown format {unknown[0]}: choose some of {', '.join(FORMATS)}")
    return names or list(FORMATS)


def table(counts: dict[str, Counter[str]]) -> str:
    """Return how often each format came to what, as a Markdown table."""
    rows = [HEADS, ("---", *["---:"] * (len(HEADS) - 1))]
    rows += [(name, str(found.total()), *(str(found[kind]) for kind in worker.KINDS)) for name, found in counts.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def fuzz(names: list[str], seed: int, seconds: float, findings: Path) -> dict[str, Counter[str]]:
    """Try rounds of mutations until the time is over; write and print what is found the first time."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    seen: set[tuple[str, str]] = set()
    with workshop() as (examples, place):
        end, first = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for name in names:
                if time.monotonic() > end:
                    break
                job = worker.mutations(name, seed, examples, place)
                for index, found in worker.attempt(job, range(first, first + ROUND)):
                    counts[name][found.kind] += 1
                    if found.kind in worker.GOOD or (name, key_of(found)) in seen:
                        continue
                    seen.add((name, key_of(found)))
                    path = keep(name, found, *job.make(index), findings)
                    print(f"{name} {index}: {found.kind}: {found.text} ({path or 'too large to keep'})", flush=True)
            first += ROUND
    return counts


def main() -> int:
    """Fuzz, or try one mutation."""
    options = parse()
    names = chosen(options.formats)
    if options.index is not None:
        with workshop() as (examples, place):
            job = worker.mutations(names[0], options.seed, examples, place)
            files, words = job.make(options.index)
            found = dict(worker.attempt(job, [options.index]))[options.index]
        print(f"invaug {' '.join(words)} with other {', '.join(files)}: {found.kind}: {found.text}")
        return int(found.kind not in worker.GOOD)
    print(f"seed {options.seed}; one again: python -m faults.fuzz --formats NAME --seed {options.seed} --index NUMBER")
    counts = fuzz(names, options.seed, options.seconds, options.findings)
    print(table(counts))
    return int(any(set(found) - {*worker.GOOD} for found in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
