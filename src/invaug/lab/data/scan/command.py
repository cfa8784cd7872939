"""`invaug scan`: a folder of images or an .npz checked before training, every bad or unusual file with its reason."""

import stat
from pathlib import Path

from invaug.lab.data.decode import printable
from invaug.lab.data.scan.folder import scan_folder
from invaug.lab.data.scan.npz import scan_npz
from invaug.lab.data.scan.report import Report
from invaug.lab.errors import UserError, reading


def scan(path: Path) -> Report:
    """Return what there is to say about a folder of images or an .npz."""
    with reading(printable(str(path))):
        kind = stat.S_IFMT(path.stat().st_mode)
    if kind == stat.S_IFDIR:
        return scan_folder(path)
    if kind == stat.S_IFREG and path.suffix.lower() == ".npz":
        return scan_npz(path)
    raise UserError(f"{printable(str(path))} is neither a folder of images nor an .npz file")
