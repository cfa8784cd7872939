"""A model is tried before it is trained or used: the user's own may do anything."""

import torch
from torch import Tensor, nn

from invaug.lab.errors import UserError, reason_of


@torch.no_grad()
def check_model(name: str, model: nn.Module, images: Tensor, n_classes: int) -> None:
    """Refuse a model that does not give one score per class and image, in training and in evaluation.

    Its buffers change, as the statistics of BatchNorm do in training: build it anew, or load weights into it.

    Args:
        images: At least two, as the network gets them in training.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(f"model {name} has no parameters to train: register them, as nn.Module does for layers")
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for batch, training in ((images, True), (images[:1], False)):
        try:
            scores = model.train(training)(batch)
        except Exception as error:
            shape = " x ".join(map(str, batch.shape))
            reason = f"{type(error).__name__}: {reason_of(error)}"
            raise UserError(f"the forward of model {name} fails on float images of {shape}: {reason}") from error
        _check_scores(name, scores, (len(batch), n_classes))


def _check_scores(name: str, scores: object, expected: tuple[int, int]) -> None:
    rule = f"model {name} must return a float tensor of {expected[0]} x {expected[1]}, images x classes"
    if not isinstance(scores, Tensor):
        raise UserError(f"{rule}, got {type(scores).__name__}")
    if scores.shape != expected:
        got = " x ".join(map(str, scores.shape)) or "a single number"
        raise UserError(f"{rule}, got {got}: its last layer must have n_classes outputs")
    if not scores.is_floating_point():
        raise UserError(f"{rule}, got {scores.dtype}")
