"""Draw `report.png`: the top of a report page, as Chromium shows it.

invaug train --out runs/digits
invaug evaluate runs/digits && invaug report runs/digits
python docs/images/make_report.py runs/digits/report.html
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

WIDTH, HEIGHT, SHOWN_WIDTH = 1100, 850, 880


def shoot(page: Path, target: Path, height: int = HEIGHT, n_colours: int = 128) -> None:
    """Write the top of a page as a picture, scaled and reduced to a few colours."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        raise SystemExit("Chromium is needed to show the page")
    with TemporaryDirectory() as folder:
        shot = Path(folder) / "page.png"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WIDTH},{height}"]
        subprocess.run([browser, *flags, f"--screenshot={shot}", page.resolve().as_uri()], check=True)  # noqa: S603
        picture = Image.open(shot).convert("RGB")
        picture = picture.resize((SHOWN_WIDTH, SHOWN_WIDTH * picture.height // picture.width), Image.Resampling.LANCZOS)
        picture.quantize(n_colours).save(target, optimize=True)


if __name__ == "__main__":
    shoot(Path(sys.argv[1]), Path(__file__).with_name("report.png"))
