"""Arrays in an .npz: the header of a member is checked against its size before any memory is taken for it."""

import math
import sys
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from invaug.lab.data.archives import check_zip
from invaug.lab.errors import UserError, reading

SUFFIX = ".npy"
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
MAX_AXES = 32
SURROGATES = (0xD800, 0xDFFF)  # halves of characters


def names_in(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz; none of them is a bomb or occurs twice."""
    return list(_members(path))


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return those of the named arrays that an .npz has."""
    wanted = {name: member for name, member in _members(path).items() if name in names}
    with reading(path), zipfile.ZipFile(path) as archive:
        return {name: _read_member(archive, member) for name, member in wanted.items()}


def _members(path: Path) -> dict[str, str]:
    """Return the member of the zip that holds each array."""
    members: dict[str, str] = {}
    for member in check_zip(path):
        name = member.removesuffix(SUFFIX)
        if name in members:
            raise UserError(f"cannot read {path}: it holds {name} twice")
        members[name] = member
    return members


def _read_member(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    try:
        with warnings.catch_warnings(), archive.open(member) as file:
            warnings.simplefilter("ignore")  # of numpy and of the parser, about odd headers
            _check_header(file, archive.getinfo(member).file_size)
            file.seek(0)
            return _check_text(npy.read_array(file, allow_pickle=False))
    except (ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise UserError(f"{member} is not an array that can be used: {error or type(error).__name__}") from error


def _check_header(file: IO[bytes], n_bytes: int) -> None:
    """Raise unless the array that a header describes has as many bytes as follow it."""
    version = npy.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"its format is {version}, only 1.0 and 2.0 are read: save it with numpy.savez")
    shape, _, dtype = HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded: save numbers, and names as text")
    if len(shape) > MAX_AXES or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("its shape is not one of an array")
    declared, left = math.prod(shape) * dtype.itemsize, n_bytes - file.tell()
    if declared != left:
        raise ValueError(f"its header describes {_counted(declared)}, {_counted(left)} follow")


def _check_text(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array; raise if it is text with numbers in it that are no characters, which Python cannot hold."""
    if array.dtype.kind == "U" and array.nbytes:
        codes = array.ravel(order="K").view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if ((codes > sys.maxunicode) | ((codes >= SURROGATES[0]) & (codes <= SURROGATES[1]))).any():
            raise ValueError("its text is not Unicode")
    return array


def _counted(n_bytes: int) -> str:
    """Return a number of bytes, which may have thousands of digits in a header."""
    return f"{n_bytes:,} bytes" if n_bytes < 1 << 63 else "2^63 bytes or more"
