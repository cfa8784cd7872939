"""Scoring proposals: losses without gradient, without a trace in the model, in chunks of bounded memory."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

Model = Callable[[Tensor], Any]
Loss = Callable[[Any, Tensor], Tensor]
Outputs = Callable[[Any], Any]

DEPTH = 4  # how deep the search for modules goes: a function, its closure, the objects it holds


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each sample, shape (batch,).

    Outputs have shape (batch, classes) or (batch, classes, height, width), whose pixels are averaged. Targets are
    class indices or probabilities.

    Example:
        >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor([1.3863, 1.3863])
    """
    if not isinstance(outputs, Tensor):
        way = 'outputs=operator.attrgetter("logits") or the like'
        raise TypeError(f"the model must return a tensor, got {type(outputs).__name__}: take the logits out with {way}")
    losses = F.cross_entropy(outputs, targets, reduction="none")
    return losses if losses.ndim < 2 else losses.flatten(1).mean(1)


def guess_loss(outputs: Any) -> float | None:
    """Return the cross-entropy of a uniform guess among the classes of some outputs; None where they have none.

    Example:
        >>> guess_loss(torch.zeros(8, 10)) == math.log(10)
        True
        >>> guess_loss(torch.zeros(8)) is None
        True
    """
    known = isinstance(outputs, Tensor) and outputs.ndim > 1
    return math.log(max(outputs.shape[1], 2)) if known else None


def unchanged(answer: Any) -> Any:
    """Return the model's answer as it is.

    Example:
        >>> unchanged("anything")
        'anything'
    """
    return answer


def per_sample(loss_fn: Loss, outputs: Any, targets: Tensor) -> Tensor:
    """Return the loss of each sample, shape (batch,), after checking that there is exactly one per sample.

    Example:
        >>> per_sample(cross_entropy, torch.zeros(2, 4), torch.tensor([0, 3])).shape
        torch.Size([2])
    """
    n = len(targets)
    if isinstance(outputs, Tensor) and (outputs.ndim == 0 or len(outputs) != n):
        raise ValueError(f"the model must return one output per image ({n}), got shape {tuple(outputs.shape)}")
    losses = loss_fn(outputs, targets)
    if not isinstance(losses, Tensor) or losses.shape != (n,):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(f'loss_fn must return one loss per sample, shape ({n},), got {shape}: use reduction="none"')
    return losses


def score(
    model: Model,
    inputs: Tensor,
    targets: Tensor,
    loss_fn: Loss,
    outputs: Outputs = unchanged,
    mode: str = "frozen",
    chunk: int | None = None,
) -> tuple[Tensor, float | None]:
    """Return the loss of each input without gradient, shape (batch,), and the loss of a guess where the outputs tell.

    Args:
        mode: "frozen" leaves the model as it was, bit for bit; "train" scores in the model's own mode, as the authors'
            code does.
        chunk: Largest number of inputs in one forward pass; None takes all.

    Example:
        >>> losses, guess = score(nn.Linear(3, 4), torch.zeros(5, 3), torch.zeros(5, dtype=torch.long), cross_entropy)
        >>> losses.shape, losses.requires_grad, guess == math.log(4)
        (torch.Size([5]), False, True)
    """
    with _without_gradient(), frozen(model) if mode == "frozen" else nullcontext(model) as scored:
        losses, guess = [], None
        for x, y in zip(inputs.split(chunk or len(inputs)), targets.split(chunk or len(inputs)), strict=True):
            answer = outputs(scored(x))
            losses.append(per_sample(loss_fn, answer, y))
            guess = guess_loss(answer)
        return torch.cat(losses), guess


@contextmanager
def _without_gradient() -> Iterator[None]:
    """Disable gradients, and keep no weights that autocast has cast meanwhile: the next pass needs their gradient."""
    torch.clear_autocast_cache()
    try:
        with torch.no_grad():
            yield
    finally:
        torch.clear_autocast_cache()


@contextmanager
def frozen(model: Model) -> Iterator[Model]:
    """Put every module of the model in eval mode for the duration of a block, then restore the mode of each.

    Example:
        >>> model = nn.Dropout()
        >>> with frozen(model) as scored:
        ...     scored.training
        False
        >>> model.training
        True
    """
    # DDP would broadcast buffers in every forward pass, and wait for ranks that score fewer chunks
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    modules = modules_of(inner)
    switched = [(module, "training") for module in modules if module.training]
    wrapped = [module for module in modules if isinstance(module, DistributedDataParallel)]
    switched += [(m, "require_forward_param_sync") for m in wrapped if m.require_forward_param_sync]
    try:
        for module, flag in switched:
            setattr(module, flag, False)
        yield inner
    finally:
        for module, flag in switched:
            setattr(module, flag, True)


def modules_of(model: Model) -> list[nn.Module]:
    """Return every module that a call of the model may use; refuse a function in which none can be found.

    The search covers a module's own parts; the object of a bound method; what a `functools.partial` holds; the
    closure, the defaults and the global names of a function; the attributes of any other callable object.

    Example:
        >>> network = nn.Linear(2, 3)
        >>> modules_of(lambda inputs: network(inputs).softmax(1)) == [network]
        True
    """
    found: dict[int, nn.Module] = {}
    level, seen = [model], set[int]()
    for _ in range(DEPTH + 1):
        for module in (part for part in level if isinstance(part, nn.Module)):
            found.update((id(inner), inner) for inner in module.modules())
        others = [part for part in level if id(part) not in seen and not isinstance(part, nn.Module)]
        seen.update(map(id, others))
        level = [inner for part in others for inner in _parts_of(part)]
    if not found:
        name = getattr(model, "__name__", type(model).__name__)
        why = f"no torch.nn.Module was found in the model {name}, so it cannot be scored in eval mode: "
        way = "pass the module itself and say with outputs= what of its answer is the output"
        raise TypeError(f'{why}{way}, or score with scoring="train"')
    return list(found.values())


def _parts_of(part: Any) -> list[Any]:
    """Return what a function or an object holds that a call of it may use."""
    if isinstance(part, partial):
        return [part.func, *part.args, *part.keywords.values()]
    if isinstance(part, MethodType):
        return [part.__self__, part.__func__]
    if isinstance(part, FunctionType):
        cells = [cell.cell_contents for cell in part.__closure__ or () if cell != CellType()]  # some have no value yet
        named = _values_of(_names_in(part.__code__), part.__globals__)
        return [*cells, *(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values(), *named]
    if isinstance(part, dict | list | tuple):
        return list(part.values() if isinstance(part, dict) else part)
    if isinstance(part, type | ModuleType) or not hasattr(part, "__dict__"):
        return []
    return [*vars(part).values(), getattr(type(part), "__call__", None)]  # noqa: B004


def _values_of(names: list[str], namespace: dict[str, Any]) -> list[Any]:
    """Return the values of global names; of an imported file, as in `models.network`, the named attributes too."""
    values = [namespace[name] for name in names if name in namespace]
    files = [vars(value) for value in values if isinstance(value, ModuleType)]
    return [*values, *(file[name] for file in files for name in names if name in file)]


def _names_in(code: CodeType) -> list[str]:
    """Return the names a function looks up, including those in functions it defines."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names_in(constant)]
    return [*code.co_names, *inner]
