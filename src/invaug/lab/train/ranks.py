"""One run on several processes (ranks): starting them, agreeing on values, and what only the first rank does."""

import inspect
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from invaug.lab.config import machine
from invaug.lab.config.schema import Config
from invaug.lab.environment import lacks_bf16, restarts, under_torchrun
from invaug.lab.errors import RunError, UserError
from invaug.lab.terminal import say
from invaug.lab.train.one_process import OneProcess, Processes, find_device, leave_compiler_unloaded
from invaug.lab.train.signals import Stopped

Result = TypeVar("Result")
LOST = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe")


def launch(config: Config) -> Processes:
    """Return Fabric, or its stand-in for one process, with all processes running: torchrun's, or `devices` of our own.

    Fabric is imported only where it is needed, because that takes seconds.
    """
    _check_device(config.run.device)
    _check_machine(config)
    if config.run.threads != "auto":
        torch.set_num_threads(config.run.threads)
    nodes, devices = 1, config.run.devices
    if under_torchrun():
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    if devices > 1 and config.run.threads == "auto":
        torch.set_num_threads(max(1, torch.get_num_threads() // devices))
    if devices * nodes == 1 and config.run.precision == "32-true":
        leave_compiler_unloaded()
        return OneProcess(find_device(config.run.device))
    if config.run.precision == "bf16-mixed" and find_device(config.run.device).type == "cpu" and lacks_bf16():
        say("this processor has no bfloat16 instructions: --precision 32-true is several times faster on it")
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))  # or Fabric chooses one, and warns
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # a banner per rank
    options: dict[str, Any] = {_sync_option(): False}
    strategy = DDPStrategy(**options) if devices * nodes > 1 else "auto"
    fabric = Fabric(
        accelerator=config.run.device,
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        precision=config.run.precision,
    )
    if restarts() and devices > 1 and nodes == 1:
        _connect_again(fabric)
    fabric.launch()
    return fabric


def _check_device(name: str) -> None:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name != "auto" and not available.get(name, False):
        choices = ", ".join(kind for kind, found in available.items() if found)
        raise UserError(f"device {name} is not available: choose auto or one of {choices}")


def _check_machine(config: Config) -> None:
    """Refuse a config that would start more processes or threads than this machine bears, before the first starts."""
    machine.check_workers(config.data.workers)
    if config.run.threads != "auto":
        machine.check_threads(config.run.threads)
    if not under_torchrun():  # which decides how many there are
        kind = find_device(config.run.device).type
        machine.check_devices(config.run.devices, kind, torch.cuda.device_count() if kind == "cuda" else 1)


def _connect_again(fabric: Processes) -> None:
    """Connect the ranks that torchrun has restarted, under a name that hides the addresses of the dead ones.

    torchrun keeps one store over its restarts, and torch 2.13 reads addresses from it without a name for the attempt:
    the first rank to start finds the address of a dead one and waits half an hour for it. Fabric does not touch an
    existing connection. Nodes count their restarts separately, so several nodes need torch's own
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.
    """
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://"))
    attempt = PrefixStore(f"attempt {restarts()}", store)
    backend = "nccl" if fabric.device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=attempt, rank=rank, world_size=size)


def _sync_option() -> str:
    """Return the name this version of torch has for exchanging buffers before every forward pass.

    Off, because scoring must not wait for other ranks; they are averaged after every step instead, so that what one
    rank saves is the state of all.
    """
    from torch.nn.parallel import DistributedDataParallel

    options = inspect.signature(DistributedDataParallel).parameters
    return "forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers"


def max_over_ranks(fabric: Processes, *numbers: float) -> list[float]:
    """Return the largest of each number over the ranks, the same on all of them."""
    if fabric.world_size == 1:
        return list(numbers)
    together = torch.tensor(numbers, dtype=torch.float32, device=fabric.device)
    distributed.all_reduce(together, distributed.ReduceOp.MAX)
    return [float(number) for number in together]


def gather_vectors(fabric: Processes, vector: Tensor) -> Tensor:
    """Return the vectors of all ranks, shape (ranks, length), on the CPU."""
    if fabric.world_size == 1:
        return vector.cpu().unsqueeze(0)
    rows = [torch.empty_like(vector, device=fabric.device) for _ in range(fabric.world_size)]
    distributed.all_gather(rows, vector.to(fabric.device))  # not by Fabric, which calls a deprecated function of torch
    return torch.stack(rows).cpu()


@torch.no_grad()
def average_buffers(fabric: Processes, model: nn.Module) -> None:
    """Replace the buffers (BatchNorm's statistics) of every rank by their mean over the ranks."""
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()] if fabric.world_size > 1 else []
    if not buffers:
        return
    flat = torch.cat([buffer.reshape(-1) for buffer in buffers])
    distributed.all_reduce(flat)
    flat /= fabric.world_size
    for buffer, part in zip(buffers, flat.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(part.view_as(buffer))


def on_first_rank(fabric: Processes, function: Callable[[], Result]) -> Result:
    """Return what the function returns on rank 0, which must be JSON; what it raises there is raised everywhere."""
    if fabric.world_size == 1:
        return function()
    failure: Exception | None = None
    answer: dict[str, Any] = {}
    if fabric.is_global_zero:
        try:
            answer = {"value": function()}
        except Exception as error:
            failure, answer = error, {"error": str(error), "kind": _kind(error), "signum": getattr(error, "signum", 0)}
    answer = json.loads(broadcast_text(fabric, 0, json.dumps(answer)))
    if failure is not None:
        raise failure
    if "error" in answer:
        raise _again(answer)
    return answer["value"]  # type: ignore[no-any-return]


@contextmanager
def reporting_lost_ranks(fabric: Processes) -> Iterator[None]:
    """Turn the errors torch raises when another rank has died into one line."""
    try:
        yield
    except RuntimeError as error:  # gloo has no class of its own for it
        if isinstance(error, RunError) or not any(word in str(error) for word in LOST):
            raise
        raise RunError(f"rank {fabric.global_rank} lost another rank, which failed or was killed") from error


def _kind(error: Exception) -> str:
    return "user" if isinstance(error, UserError) else "stopped" if isinstance(error, Stopped) else "run"


def _again(answer: Mapping[str, Any]) -> Exception:
    """Return the error of rank 0 for the other ranks, marked so that they do not report it again."""
    if answer["kind"] == "stopped":
        return Stopped(int(answer["signum"]), answer["error"])
    error = (UserError if answer["kind"] == "user" else RunError)(answer["error"])
    error.shared = True
    return error


def broadcast_text(fabric: Processes, rank: int, text: str) -> str:
    """Return the text of one rank on all of them; sent as bytes in a tensor, because torch's own way unpickles."""
    if fabric.world_size == 1:
        return text
    data = torch.tensor(list(text.encode()), dtype=torch.uint8, device=fabric.device)
    size = torch.tensor([len(data)], device=fabric.device)
    distributed.broadcast(size, rank)
    if fabric.global_rank != rank:
        data = torch.empty(int(size), dtype=torch.uint8, device=fabric.device)
    distributed.broadcast(data, rank)
    return bytes(data.tolist()).decode()
