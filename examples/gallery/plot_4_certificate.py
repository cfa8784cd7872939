"""
A certificate
=============

``invaug certify`` says how invariant a trained network is on images it has not seen, with confidence. This page
trains two networks from the command line, one without augmentation and one under a constraint, certifies both
under the same 388 transformations, and draws what the two certificates say.
"""

# %%
# Train and certify
# -----------------
# A command line is a program, so it can be called from one. Everything is written below a temporary folder.

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt

METHODS = {
    "no augmentation": ["--method", "none"],
    "invaug, ε = 0.81": ["--views", "both", "--epsilon", "0.81"],
}


def invaug(*words: str) -> str:
    """Return what a command printed."""
    command = [sys.executable, "-m", "invaug", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def certify(folder: Path, flags: list[str]) -> dict:
    """Train on the digits for five epochs and return the certificate of the run."""
    invaug("train", "digits", "--set", "standard", "--epochs", "5", "--out", str(folder), *flags)
    invaug("certify", str(folder), "--images", "512")
    return json.loads((folder / "certificate.json").read_text(encoding="utf-8"))["constraints"][0]


with TemporaryDirectory() as runs:
    found = {name: certify(Path(runs, str(i)), flags) for i, (name, flags) in enumerate(METHODS.items())}

# %%
# The verdict
# -----------
# The first sentence is the answer at 95 % confidence. A network that was trained without a level has none to
# hold.

for name, certificate in found.items():
    print(f"{name}: {certificate['verdict']['text']}\n")

# %%
# Accuracy under random draws
# ---------------------------
# The intervals are for images like the held-out ones, unchanged and under a transformation that is drawn at
# random from the set. That a network which has seen transformations does better under them is no surprise; the
# certificate says by how much, and how sure that is.

for name, certificate in found.items():
    for law in ("clean", "uniform"):
        low, high = certificate[law]["accuracy_interval"]
        print(f"{name:18} {law:8} {certificate[law]['accuracy']:6.1%}, between {low:.1%} and {high:.1%}")

# %%
# The worst case, one operation at a time
# ---------------------------------------
# The set can be listed, so every image was tried under every level of every operation. A bar is the share of
# images that are right under all levels of an operation; the line is its exact 95 % interval (Clopper and
# Pearson). What the average hides shows here: few digits survive every shift.

operations = sorted(found["invaug, ε = 0.81"]["operations"].items(), key=lambda item: item[1]["share"])
names = [name for name, _ in operations]
figure, axis = plt.subplots(figsize=(7.5, 5))
for offset, (method, certificate) in zip((-0.2, 0.2), found.items(), strict=True):
    rows = [certificate["operations"][name] for name in names]
    places = [i + offset for i in range(len(rows))]
    shares = [100 * row["share"] for row in rows]
    ends = [[100 * abs(row["interval"][side] - row["share"]) for row in rows] for side in (0, 1)]
    axis.barh(places, shares, height=0.38, xerr=ends, label=method, error_kw={"linewidth": 1})
axis.set_yticks(range(len(names)), names)
axis.set_xlabel("images that are right under every level of the operation (%)")
axis.legend(loc="lower right")
figure.tight_layout()
plt.show()
