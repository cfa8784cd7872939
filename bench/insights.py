"""`invaug insights` where the truth is known: symmetries planted in MNIST and Fashion-MNIST, the paper's families.

Prints one row per dataset: the held-out gap of each family in points of accuracy, whether the planted family has the
smallest, and the seconds it took.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from invaug.lab.data import synthetic
from invaug.lab.insights.command import InsightsRequest, insights
from invaug.lab.train.display import Screen

TRUTH = {"r180": "rotation", "r90": "rotation", "translated": "translation", "scaled": "scale"}
FAMILIES = """[families.rotation]
Rotation = 3.141593
[families.translation]
Translation = 7
[families.scale]
Scale = 1.5
"""
EXAMPLE = "python bench/insights.py --data-dir ~/data --seeds 3"


def row_of(name: str, kind: str, options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Return what insights says of one planted dataset."""
    (folder / "paper.toml").write_text(FAMILIES)
    request = InsightsRequest(
        f"{name}+{kind}",
        options.data_dir,
        folder / "paper.toml",
        seeds=options.seeds,
        rounds=0,
        images=options.images,
        epochs=options.epochs,
        model=options.model,
        out=folder / f"{name}-{kind}",
        jobs=options.jobs,
    )
    start = time.perf_counter()
    found, _ = insights(request, Screen(quiet=True))
    gaps = {finding.name: finding.gap.text("+.1f", 100) for finding in found.families}
    smallest = min(found.families, key=lambda finding: finding.gap.mean).name
    seconds = time.perf_counter() - start
    right = smallest == TRUTH[kind]
    return {"data": f"{name}+{kind}", **gaps, "smallest": smallest, "right": right, "seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"Example: {EXAMPLE}")
    parser.add_argument("--data-dir", type=Path, help="where the datasets lie [env: INVAUG_DATA]")
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--model", default="cnn-small")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for name in options.data:
            for kind in synthetic.PLANTS:
                rows.append(row_of(name, kind, options, Path(folder)))
                if not options.json:
                    print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"the planted symmetry has the smallest gap in {sum(bool(row['right']) for row in rows)} of {len(rows)}")


if __name__ == "__main__":
    main()
