"""invaug in timm: a training task for timm's own `train.py`."""

import logging
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from invaug.checks import check_type, require
from invaug.constraint import Constraint
from invaug.integrations.common import ROUNDING, DualSteps, check_version, logits_of
from invaug.problem import InvarianceConstrained
from invaug.scoring import Loss

check_version("timm", "1.0.27", "1.1")
from timm.data import resolve_model_data_config  # noqa: E402
from timm.data.loader import adapt_to_chs  # noqa: E402
from timm.loss import JsdCrossEntropy  # noqa: E402
from timm.task import ClassificationTask  # noqa: E402

LOG_EVERY = 50  # updates, as train.py does by default
_log = logging.getLogger(__name__)


class InvarianceTask(ClassificationTask):
    """Trains a classifier under invariance constraints, in the place of `timm.task.ClassificationTask`.

    timm's loaders hand over normalised images. The task restores their bytes exactly, transforms those, and normalises
    the result as timm's prefetcher does, so loaders, validation and checkpoints stay as they are. The loss is timm's
    criterion, image by image. `train.py` calls `update_ema` after each optimiser step, with or without EMA; gamma then
    follows, by the average over accumulated batches. Gamma and the batch number are in the checkpoint.

    Args:
        criterion: The mean of one loss per image; by default what timm makes of `criterion_kwargs`.
        constraints: At least one; see `InvarianceConstrained`.
        mean: What the loader subtracts, as `--mean`; by default that of the model's pretrained config.
        std: What it divides by, as `--std`.
        settings: `device`, `dtype`, `verbose` and `criterion_kwargs` go to timm, the rest to `InvarianceConstrained`.

    Example:
        >>> from timm import create_model
        >>> from invaug import sets
        >>> task = InvarianceTask(create_model("test_resnet", num_classes=4), constraints=[Constraint(sets.wide())])
        >>> images = torch.randint(256, (8, 3, 32, 32)) / 255
        >>> mean, std = (torch.tensor(values).view(3, 1, 1) for values in (task.mean, task.std))
        >>> task((images - mean) / std, torch.arange(8) % 4)["loss"].backward()
        >>> task.update_ema()
        >>> task.problem.gamma.shape
        torch.Size([1])
    """

    def __init__(
        self,
        model: torch.nn.Module,
        criterion: Any = None,
        *,
        constraints: Sequence[Constraint],
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        **settings: Any,
    ) -> None:
        names = ("criterion_kwargs", "device", "dtype", "verbose")
        super().__init__(model, criterion, **{name: settings.pop(name) for name in names if name in settings})
        config = resolve_model_data_config(model)
        self.mean, self.std = mean or config["mean"], std or config["std"]
        usual = {"finish": self._normalise, "loss_fn": loss_per_image(self.criterion), "outputs": logits_of}
        self.problem = InvarianceConstrained(*constraints, **usual | settings)
        self._duals = DualSteps(self.problem)
        self._scales: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}

    def forward(self, input: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return the Lagrangian as `loss`, and the logits of the views that were trained on as `output`."""
        step = self.problem(self.trainable_module, self._restore_bytes(input), target)
        self._duals.add(step.slack)
        return {"loss": step.lagrangian, "output": step.outputs}

    def update_ema(self, step: int | None = None) -> None:
        """Update the EMA of the weights if there is one, and take the dual step."""
        super().update_ema(step)
        self._duals.take()
        if self.verbose and step and step % LOG_EVERY == 0:
            _log.info("update %d: gamma %s", step, " ".join(f"{gamma:.4f}" for gamma in self.problem.gamma))

    def get_task_state(self, module: Any = None, ema: bool = False) -> dict[str, Any]:
        """Return gamma and the number of batches seen, for the checkpoint."""
        return {} if ema else dict(self.problem.state_dict())

    def load_task_state(self, state: Any, strict: bool = True, module: Any = None, ema: bool = False) -> None:
        """Restore gamma and the number of batches; a checkpoint of a plain training has none, so they start anew."""
        if state and not ema:
            self.problem.load_state_dict(state, strict=strict)

    def _scale(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return what timm's prefetcher subtracts and divides by, in bytes; made once."""
        n_channels, device = key = (images.shape[1], images.device)
        if key not in self._scales:
            ends = [[255 * value for value in adapt_to_chs(end, n_channels)] for end in (self.mean, self.std)]
            mean, std = torch.tensor(ends, device=device).view(2, 1, -1, 1, 1)
            self._scales[key] = mean, std
        return self._scales[key]

    def _normalise(self, images: Tensor) -> Tensor:
        mean, std = self._scale(images)
        return images.to(self.dtype).sub_(mean).div_(std)

    @torch.no_grad()
    def _restore_bytes(self, images: Tensor) -> Tensor:
        check_type("input", images, Tensor, "a batch of images (NaFlex loaders are not supported)")
        mean, std = self._scale(images)
        bytes_ = images.float() * std + mean
        whole = bytes_.round()
        low, high, off = torch.stack([*whole.aminmax(), (bytes_ - whole).abs().max()]).tolist()
        if not (0 <= low <= high <= 255 and off <= ROUNDING):
            rule = f"images must be bytes, normalised with mean {tuple(self.mean)} and std {tuple(self.std)}"
            ways = "give mean= and std= as train.py has them, keep float32 and the prefetcher, leave out --reprob"
            raise ValueError(f"{rule}, got values from {low:g} to {high:g}, up to {off:.2g} off whole bytes: {ways}")
        return whole.to(torch.uint8)


def loss_per_image(criterion: Any) -> Loss:
    """Return a criterion that averages over images as a function that gives the loss of each of them.

    Example:
        >>> losses = loss_per_image(torch.nn.CrossEntropyLoss())(torch.zeros(2, 4), torch.tensor([0, 3]))
        >>> losses.tolist() == [torch.tensor(4.0).log().item()] * 2
        True
    """
    splits = isinstance(criterion, JsdCrossEntropy)
    way = "leave out --aug-splits and --loss jsd"
    require(not splits, f"criterion must average over images, got JsdCrossEntropy, which compares splits: {way}")
    if not isinstance(getattr(criterion, "reduction", None), str):
        return torch.func.vmap(lambda output, target: criterion(output[None], target[None]))
    alone, combine = deepcopy(criterion), Tensor.sum if getattr(criterion, "sum_classes", False) else Tensor.mean
    alone.reduction, alone.sum_classes = "none", False  # binary cross-entropy then gives a row of classes per image

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        each: Tensor = alone(outputs, targets)
        return combine(each.flatten(1), 1) if each.ndim > 1 else each

    return losses
