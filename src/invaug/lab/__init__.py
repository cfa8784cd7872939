"""The laboratory: data, models, the training loop, experiments and the command line, built on the method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invaug.lab.run.folder import load as load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name == "load":  # on first use, so that the command line need not wait for torch
        from invaug.lab.run.folder import load

        return load
    raise AttributeError(f"module 'invaug.lab' has no attribute {name!r}")
