"""Draw `gallery.png`: the top of the gallery of the default set on a photograph, as Chromium shows it.

The photograph is the official portrait of Grace Hopper (James S. Davis, US Navy, 1984; public domain), which comes with
matplotlib.

python docs/images/make_gallery.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import torch
from make_report import shoot

from invaug.lab.config.build import build
from invaug.lab.config.resolve import Facts, resolve
from invaug.lab.data.decode import decode
from invaug.lab.gallery.pages import document_of
from invaug.lab.report.command import write_page

SHAPE = (3, 224, 224)


def main() -> None:
    """Write the picture beside this file."""
    photograph = decode(Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg", SHAPE)
    images = torch.from_numpy(photograph)[None]
    config = resolve(build({"set": "mild"}), Facts(("a", "b"), 100, SHAPE))
    with TemporaryDirectory() as folder:
        page = write_page(document_of(config, images, "photos"), Path(folder) / "gallery.html")
        shoot(page, Path(__file__).with_name("gallery.png"), height=1180)


if __name__ == "__main__":
    main()
