"""The Hugging Face Trainer under invariance constraints.

Only the images of a batch change. The loss stays that of the Trainer, with label smoothing or a loss of your own: with
one view per image, its mean is the Lagrangian up to a constant.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from invaug.checks import check_type, require
from invaug.integrations.common import DualSteps, check_version, logits_of, to_bytes
from invaug.problem import InvarianceConstrained
from invaug.scoring import unchanged
from invaug.step import Step
from invaug.views import one

check_version("transformers", "5.0", "6", extra="huggingface")

from transformers import Trainer, TrainerCallback  # noqa: E402

STATE = "invaug"  # the key of what trainer_state.json keeps for us


class InvarianceTrainer(Trainer):
    """A Trainer of image classifiers under invariance constraints, which takes what `Trainer` takes, and `problem`.

    Batches hold `pixel_values`, uint8, and `labels`; `problem.finish` normalises. gamma, slack and acceptance are added
    to the log, gamma and the batch number to the checkpoints. Evaluation is left alone.

    Args:
        problem: With one view per image. Its `outputs` are by default the logits of the model's answer.

    Example:
        >>> from invaug import Constraint, sets
        >>> problem = InvarianceConstrained(Constraint(sets.wide()))
        >>> trainer = InvarianceTrainer(model, arguments, train_dataset=rows, problem=problem)  # doctest: +SKIP
        >>> class MyInvarianceTrainer(InvarianceTrainer, MyTrainer):  # doctest: +SKIP
        ...     "A Trainer of one's own, with a loss of its own, under the constraints."
    """

    def __init__(self, *args: Any, problem: InvarianceConstrained, **others: Any) -> None:
        _check_problem(problem)
        super().__init__(*args, **others)
        problem.outputs = logits_of if problem.outputs is unchanged else problem.outputs
        self.problem, self.duals = problem, DualSteps(problem)
        self.last_step: Step | None = None
        self.add_callback(_DualCallback(self.duals))

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of the Trainer; while training, on the views that the problem has chosen."""
        _check_inputs(inputs, model.training)
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch=num_items_in_batch)
        batch = self.problem.prepare(model, to_bytes(inputs["pixel_values"]), inputs["labels"])
        views = {**inputs, "pixel_values": batch.inputs, "labels": batch.targets}
        loss, outputs = self._scaled_loss(model, views, num_items_in_batch)
        self.last_step = self.problem.evaluate(batch)
        self.duals.add(self.last_step.slack)
        return (loss, outputs) if return_outputs else loss

    def _scaled_loss(self, model: nn.Module, inputs: dict[str, Any], n_images: Any) -> Any:
        """Return the loss of a batch as its share of the `n_images` of an optimiser step, and the model's answer.

        The Trainer leaves the share to the model, but most image models ignore it, and their gradient grows with the
        accumulation steps. So they are asked for the mean. What the user has said of the scale is left as it is.
        """
        # the first versions do not know the attribute, whatever a subclass says
        says_so = hasattr(Trainer, "loss_is_scaled_for_ga") and self.loss_is_scaled_for_ga is not None
        if says_so or self.compute_loss_func or n_images is None:
            return super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=n_images)
        n = len(inputs["labels"]) * (self.accelerator.num_processes if self.args.average_tokens_across_devices else 1)
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
        return loss * (n / n_images), outputs

    def log(self, logs: dict[str, float], *args: Any, **others: Any) -> None:
        """Add gamma, slack and acceptance to what the Trainer logs of the training."""
        if "loss" in logs and self.last_step:
            logs = {**logs, **_metrics(self.problem, self.last_step)}
        super().log(logs, *args, **others)


class _DualCallback(TrainerCallback):
    """Takes the dual steps of a training, and keeps gamma and the batch number in the Trainer's state."""

    def __init__(self, duals: DualSteps) -> None:
        self.duals, self.start = duals, _state_of(duals.problem)
        self.handle: RemovableHandle | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **others: Any) -> None:
        """Go on where the checkpoint ended; a training that is not resumed starts anew."""
        _load(self.duals.problem, state.stateful_callbacks.get(STATE, self.start))
        self.duals.problem.to(args.device)  # a `finish` with buffers
        self.duals.forget()
        self.on_train_end()  # of a training that was interrupted
        self.handle = self.duals.follow(optimizer)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Hand over what the next checkpoint must hold."""
        self.duals.forget()  # a step that a gradient scaler skipped
        state.stateful_callbacks[STATE] = _state_of(self.duals.problem)

    def on_train_end(self, *args: Any, **others: Any) -> None:
        """Let go of the optimiser."""
        if self.handle:
            self.handle.remove()


def _metrics(problem: InvarianceConstrained, step: Step) -> dict[str, float]:
    """Return gamma, slack and acceptance of each constraint that can bind, as numbers with names."""
    columns = {"gamma": problem.gamma, "slack": step.slack, "acceptance": step.acceptance}
    several = len(step.proposals) > 1
    active = [(k, f"_{k}" if several else "") for k, made in enumerate(step.proposals) if made]
    numbers = {f"invaug/{name}{k_}": float(column[k]) for name, column in columns.items() for k, k_ in active}
    return {name: number for name, number in numbers.items() if not math.isnan(number)}


def _state_of(problem: InvarianceConstrained) -> dict[str, Any]:
    return {"gamma": problem.gamma.tolist(), "n_batches": int(problem.n_batches)}


def _load(problem: InvarianceConstrained, state: Mapping[str, Any]) -> None:
    n, found = len(problem.gamma), len(state["gamma"])
    way = "resume with the constraints it was trained with"
    require(n == found, f"the checkpoint has gamma of {found} constraints, the problem has {n}: {way}")
    problem.gamma.copy_(torch.tensor(state["gamma"], dtype=torch.float64))
    problem.n_batches.fill_(state["n_batches"])


def _check_problem(problem: InvarianceConstrained) -> None:
    check_type("problem", problem, InvarianceConstrained, "an InvarianceConstrained")
    way = "other views need a loop of your own"
    require(problem.views in ("one", one), f'problem must have views="one", got {problem.views!r}: {way}')


def _check_inputs(inputs: Mapping[str, Any], training: bool) -> None:
    missing = [name for name in ("pixel_values", "labels") if name not in inputs]
    if training and missing:
        way = "collate with invaug.integrations.collate.collate_bytes and set remove_unused_columns=False"
        raise ValueError(f"batches must hold pixel_values and labels, got {', '.join(inputs) or 'nothing'}: {way}")
    images = inputs.get("pixel_values")
    if not training and isinstance(images, Tensor) and images.dtype == torch.uint8:
        way = "give eval_dataset the image processor with do_rescale and do_normalize"
        raise TypeError(f"images to evaluate must be floats, as the model takes them, got torch.uint8: {way}")
