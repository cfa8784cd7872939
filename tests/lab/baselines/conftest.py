"""Policy files that tests make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.policies import MakeFile, file_arrays


@pytest.fixture
def make_file(tmp_path: Path) -> MakeFile:
    def make(**changes: Any) -> Path:
        path = tmp_path / "policy_DeepAA_cifar.npz"
        np.savez(path, **{name: array for name, array in {**file_arrays(), **changes}.items() if array is not None})
        return path

    return make
