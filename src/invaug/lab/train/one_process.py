"""Training in one process without torch's compiler, which Fabric and torch's optimisers import though nothing uses it.

Importing it takes about as long as importing torch, and a run should start at once.
"""

import inspect
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Processes: TypeAlias = "Fabric | OneProcess"


@dataclass
class OneProcess:
    """What the training loop needs of Fabric, for one device and full precision: the same calls, the same numbers."""

    device: torch.device
    world_size: ClassVar[int] = 1
    global_rank: ClassVar[int] = 0
    is_global_zero: ClassVar[bool] = True
    strategy: ClassVar[Any] = SimpleNamespace(precision=nn.Module())  # scales no gradients, so it has no state

    def setup(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        """Move the network to the device."""
        take_step = torch.no_grad()(inspect.unwrap(type(optimizer).step))
        optimizer.step = lambda: take_step(optimizer)  # type: ignore[method-assign, assignment]
        return model.to(self.device), optimizer

    def barrier(self) -> None:
        """Wait for nobody."""

    def no_backward_sync(self, _: nn.Module, enabled: bool = True) -> nullcontext[None]:
        """Exchange no gradients, which is all a single process ever does."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients."""
        loss.backward()

    def clip_gradients(self, model: nn.Module, _: Optimizer, max_norm: float, error_if_nonfinite: bool) -> Tensor:
        """Scale the gradients down to `max_norm` and return their norm before that."""
        return nn.utils.clip_grad_norm_(model.parameters(), max_norm, error_if_nonfinite=error_if_nonfinite)


def find_device(name: str) -> torch.device:
    """Return the device that a config names; `auto` is the fastest of this machine."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    return torch.device(name)


def leave_compiler_unloaded() -> None:
    """Let optimisers be built, saved and restored without importing the compiler.

    Torch wraps some of their methods in a function that imports the compiler to tell it to leave them alone, unless
    it has done so before.
    """
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        method = inspect.unwrap(getattr(Optimizer, name))
        method.__dict__.setdefault("__dynamo_disable", method)
