"""invaug in a Lightning training: a callback that leaves the LightningModule as it is."""

from collections.abc import MutableMapping
from typing import Any

from torch import Tensor

from invaug.checks import require
from invaug.constraint import Constraint
from invaug.integrations.common import DualSteps, check_version, logits_of, to_bytes
from invaug.problem import InvarianceConstrained
from invaug.scoring import Model, Outputs
from invaug.step import Step

check_version("lightning", "2.4", "3")
from lightning.pytorch import Callback  # noqa: E402


class InvarianceCallback(Callback):
    """Trains an unchanged LightningModule under invariance constraints, for `Trainer(callbacks=[...])`.

    Before each training step it replaces the images of the batch by one view per image, clean or transformed; the mean
    loss that the module takes of them is then the Lagrangian / (1 + Σ gamma), up to a constant. When the optimiser has
    stepped, gamma follows. Validation never sees it. Works with the Trainer of `pytorch_lightning` as well.

    Args:
        model: What proposals are scored with; by default the forward of the LightningModule.
        keys: Where the batch, a list or a dictionary, has its images and its targets.
        outputs: Which part of the model's answer are the logits.
        options: Those of `InvarianceConstrained`, such as `finish`, `loss_fn`, `dual_lr` and `seed`.

    Example:
        >>> from invaug import sets
        >>> callback = InvarianceCallback(Constraint(sets.wide()), seed=1)
        >>> callback.problem.gamma  # the price of each invariance, while it trains
        tensor([0.], dtype=torch.float64)
    """

    def __init__(
        self,
        *constraints: Constraint,
        model: Model | None = None,
        keys: tuple[Any, Any] = (0, 1),
        outputs: Outputs = logits_of,
        **options: Any,
    ) -> None:
        views = options.get("views", "one")
        way = "which needs losses per sample: call InvarianceConstrained in a training_step with manual optimisation"
        require(views == "one", f'views must be "one" in InvarianceCallback, got {views!r}, {way}')
        self.problem = InvarianceConstrained(*constraints, outputs=outputs, **options)
        self.model, self.keys = model, keys
        self._duals = DualSteps(self.problem)
        self._step: Step | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Follow the optimiser, with a gamma of this rank alone and `finish` on the device of the model."""
        way = "call InvarianceConstrained in training_step instead"
        require(pl_module.automatic_optimization, f"InvarianceCallback needs automatic optimisation: {way}", TypeError)
        scores = self.model or getattr(type(pl_module).forward, "__qualname__", "") != "LightningModule.forward"
        way = "say with model= what to score with, for example model=module.network"
        require(scores, f"{type(pl_module).__name__} has no forward: {way}", TypeError)
        self.problem.to(pl_module.device)
        for buffer in self.problem.buffers():
            buffer.data = buffer.data.clone()  # ranks that were spawned share their memory
        self._duals.follow(trainer.optimizers[0])

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Put one view per image in the place of the images."""
        images, targets = _parts_of(batch, self.keys)
        with trainer.precision_plugin.train_step_context():
            prepared = self.problem.prepare(self.model or pl_module, to_bytes(images), targets)
        batch[self.keys[0]] = prepared.inputs
        self._step = self.problem.evaluate(prepared)

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Forget batches whose gradients are thrown away: a gradient scaler has skipped the step."""
        self._duals.forget()

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Record the slack of a batch whose gradient counts; a training_step that returns None has none."""
        if self._step:
            self._duals.add(self._step.slack)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log gamma, slack and acceptance of each constraint through the loggers of the module."""
        if self._step:
            pl_module.log_dict(_metrics_of(self._step, self.problem.gamma))

    def state_dict(self) -> dict[str, Any]:
        """Return gamma and the number of batches seen, for the checkpoint."""
        return dict(self.problem.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore gamma and the number of batches from a checkpoint."""
        self.problem.load_state_dict(state_dict)


def _metrics_of(step: Step, gamma: Tensor) -> dict[str, float | Tensor]:
    """Return what to log, by name; constraints that cannot bind have nothing to say."""
    metrics: dict[str, float | Tensor] = {}
    for k, made in enumerate(step.proposals):
        end = f"_{k}" if len(step.proposals) > 1 else ""
        if made:
            metrics |= {f"invaug/gamma{end}": gamma[k].item(), f"invaug/slack{end}": step.slack[k].item()}
        if made and made.chain.accepted.numel():
            metrics[f"invaug/acceptance{end}"] = made.chain.accepted.float().mean()
    return metrics


def _parts_of(batch: Any, keys: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return images and targets of a batch in which the images can be replaced."""
    if not isinstance(batch, list | MutableMapping):
        rule = "the batch must be a list or a dictionary, so that its images can be replaced"
        raise TypeError(f"{rule}, got {type(batch).__name__}: let collate_fn return a list")
    try:
        return batch[keys[0]], batch[keys[1]]
    except (KeyError, IndexError, TypeError):
        found = sorted(map(str, batch)) if isinstance(batch, MutableMapping) else f"{len(batch)} entries"
        rule = f"keys must say where the batch has its images and targets, got {keys}"
        raise ValueError(f"{rule} for a batch with {found}") from None
