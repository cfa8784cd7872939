"""The task for timm, with timm's own loaders, losses, optimisers, EMA and checkpoints."""

from __future__ import annotations

import math
import sys
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from invaug import Constraint, InvarianceConstrained, sets
from tests.support.images import import_torchvision
from tests.support.problems import (
    fixed,
    inverted,
    make_images,
    make_targets,
    same_bits,
    smooth_network,
    to_double,
    train_step,
)

if find_spec("timm") is None:
    pytest.skip("NOT TESTED WITH TIMM: `make integrations` installs it", allow_module_level=True)

KEEP = import_torchvision()  # timm needs it

import timm  # noqa: E402
from timm.data.mixup import FastCollateMixup, Mixup  # noqa: E402
from timm.loss import (  # noqa: E402
    AsymmetricLossSingleLabel,
    BinaryCrossEntropy,
    JsdCrossEntropy,
    LabelSmoothingCrossEntropy,
    PolyCrossEntropy,
    SoftTargetCrossEntropy,
)
from timm.task import ClassificationTask  # noqa: E402

from invaug.integrations.timm import InvarianceTask, loss_per_image  # noqa: E402
from tests.support import timm_training as support  # noqa: E402

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # timm leaves images open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WIDE = Constraint(sets.wide())
NO_BYTES = r"^images must be bytes, normalised with mean \(.*\) and std \(.*\), got values from .*, up to .* off .*: .*"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return support.write_digits(tmp_path_factory.mktemp("digits"), n_train=1024, n_test=256)


@pytest.fixture(scope="module")
def batch(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return next(iter(support.make_loader(folder)))


def make_task(constraint: Constraint = WIDE, criterion: object = None, **settings: object) -> InvarianceTask:
    torch.manual_seed(1)
    model = timm.create_model(support.MODEL, num_classes=10)
    criterion = criterion or LabelSmoothingCrossEntropy(0.1)
    return InvarianceTask(model, criterion, constraints=[constraint], verbose=False, **settings)


def weights(task: ClassificationTask) -> dict[str, torch.Tensor]:
    return task.get_trainable_module().state_dict()


def test_without_a_constraint_that_can_bind_timm_trains_to_the_same_bits(folder):
    plain = support.fit(folder, ClassificationTask)
    ours = support.fit(folder, partial(InvarianceTask, constraints=[Constraint(sets.wide(), math.inf)]))
    assert same_bits(weights(plain), weights(ours))
    assert same_bits(plain.trainable_module_ema.state_dict(), ours.trainable_module_ema.state_dict())


def smoothed(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of each image with labels smoothed by 0.1."""
    logs = outputs.log_softmax(1)
    return -0.9 * logs[torch.arange(len(targets)), targets] - 0.1 * logs.mean(1)


def train_by_hand(folder: Path, epochs: int, problem: InvarianceConstrained) -> nn.Module:
    """Train with a loop of our own, on the bytes of the same batches."""
    timm.utils.random_seed(42)
    model = timm.create_model(support.MODEL, num_classes=10)
    groups = timm.optim.param_groups_weight_decay(model, 1e-4)
    optimizer = torch.optim.SGD(groups, lr=0.02, momentum=0.9, nesterov=True)
    loader = support.make_loader(folder, mean=(0, 0, 0), std=(1, 1, 1))
    for epoch in range(epochs):
        model.train()
        torch.manual_seed(epoch)
        for images, targets in loader:
            train_step(problem, model, optimizer, (images * 255).round().to(torch.uint8), targets)
    return model


def test_gamma_rises_on_real_images_and_the_training_is_that_of_our_own_loop_to_the_bit(folder):
    task = support.fit(folder, partial(InvarianceTask, constraints=[WIDE]), epochs=4)
    mean, std = (torch.tensor([255 * x for x in part]).view(3, 1, 1) for part in (task.mean, task.std))
    problem = InvarianceConstrained(WIDE, finish=lambda images: (images.float() - mean) / std, loss_fn=smoothed)
    model = train_by_hand(folder, 4, problem)
    assert same_bits(weights(task), model.state_dict())
    assert torch.equal(task.problem.gamma, problem.gamma)
    assert task.problem.gamma > 0.1
    assert support.accuracy(task.get_eval_model(), folder) > 0.8


def test_a_resumed_training_gives_the_same_bits(folder, tmp_path):
    task_of = partial(InvarianceTask, constraints=[WIDE])
    whole = support.fit(folder, task_of, epochs=2)
    support.fit(folder, task_of, epochs=1, output=tmp_path)
    resumed = support.fit(folder, task_of, epochs=2, resume=tmp_path / "last.pth.tar")
    assert same_bits(weights(whole), weights(resumed))
    assert same_bits(whole.trainable_module_ema.state_dict(), resumed.trainable_module_ema.state_dict())
    assert same_bits(whole.problem.state_dict(), resumed.problem.state_dict())
    assert int(resumed.problem.n_batches) == 64
    assert resumed.problem.gamma > 0


def test_a_checkpoint_holds_gamma_once_and_the_weights_under_their_usual_names(folder, tmp_path):
    support.fit(folder, partial(InvarianceTask, constraints=[WIDE]), output=tmp_path)
    saved = support.read_checkpoint(tmp_path / "last.pth.tar")
    assert saved["task_state"].keys() == {"gamma", "n_batches"}
    assert "task_state_ema" not in saved
    timm.create_model(support.MODEL, num_classes=10).load_state_dict(saved["state_dict"])
    timm.create_model(support.MODEL, num_classes=10).load_state_dict(saved["state_dict_ema"])


def test_a_checkpoint_of_a_plain_training_starts_with_the_initial_gamma(folder, tmp_path):
    support.fit(folder, ClassificationTask, output=tmp_path)
    task = make_task(gamma_init=0.5)
    timm.task.resume_task_checkpoint(task, tmp_path / "last.pth.tar", log_info=False)
    assert task.problem.gamma.item() == 0.5


@pytest.mark.parametrize("n_parts", [1, 2, 4])
def test_accumulated_batches_take_the_step_of_the_batch_they_make(n_parts):
    """One dual step per optimiser step, with the mean of the slacks: weights and gamma are those of one big batch."""
    images, targets = make_images(48), make_targets(48)
    constraint = Constraint(fixed(inverted), 0.5)
    settings = {"views": "both", "gamma_init": 1.5, "dual_lr": 0.3, "n_steps": 0}
    model = smooth_network()
    task = InvarianceTask(
        model,
        nn.CrossEntropyLoss(),
        constraints=[constraint],
        mean=(0.0,),
        std=(1.0,),
        dtype=torch.float64,
        verbose=False,
        **settings,
    )
    for x, y in zip(images.chunk(n_parts), targets.chunk(n_parts), strict=True):
        loss = task(to_double(x), y)["loss"]
        loss /= n_parts
        loss.backward()
    task.update_ema(step=1)
    reference, problem = smooth_network(), InvarianceConstrained(constraint, finish=to_double, **settings)
    step = problem(reference, images, targets)
    step.lagrangian.backward()
    problem.dual_step(step.slack)
    found, expected = ([p.grad for p in each.parameters()] for each in (model, reference))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(task.problem.gamma, problem.gamma, rtol=1e-12, atol=0)


def test_two_ranks_agree_on_weights_and_gamma_under_timms_ddp(folder, tmp_path):
    """Each rank has its own images and draws; the slack is averaged, also over accumulated batches."""
    settings = {"constraints": [Constraint(sets.wide(), 0.1)], "gamma_init": 0.5}
    arguments = (folder, tmp_path / "meeting", partial(InvarianceTask, **settings))
    torch.multiprocessing.spawn(support.fit_on_a_rank, arguments, nprocs=2)
    one, other = (np.load(folder / f"rank{rank}.npz") for rank in (0, 1))
    assert (one["weights"] == other["weights"]).all()
    assert (one["gamma"] == other["gamma"]).all()
    assert (one["gamma"] > 0.5).all()


def test_an_update_without_a_batch_leaves_gamma_alone():
    task = make_task(gamma_init=0.5)
    task.update_ema(step=1)
    assert task.problem.gamma.item() == 0.5


def test_gamma_is_logged(batch, caplog):
    task = make_task(gamma_init=0.25, dual_lr=0.0)
    task.verbose = True
    task(*batch)
    with caplog.at_level("INFO"):
        task.update_ema(step=50)
    assert "update 50: gamma 0.2500" in caplog.text


@pytest.mark.parametrize("prefetched", [True, False], ids=["prefetcher", "no prefetcher"])
def test_bytes_come_back_exactly_from_what_the_loader_gives(folder, prefetched):
    torch.manual_seed(3)
    raw, _ = next(iter(support.make_loader(folder, mean=(0, 0, 0), std=(1, 1, 1))))
    torch.manual_seed(3)
    images, _ = next(iter(support.make_loader(folder, use_prefetcher=prefetched)))
    expected = (raw * 255).round().to(torch.uint8)
    restored = make_task()._restore_bytes(images)
    assert torch.equal(restored, expected)
    again = make_task()._normalise(restored)
    if prefetched:
        assert torch.equal(again, images)
    torch.testing.assert_close(again, images, rtol=0, atol=2e-6)  # timm rounds in another order without it


@pytest.mark.parametrize("mean", [(0.485, 0.456, 0.406), (0.5, 0.5, 0.5), (0.0, 0.0, 0.0)])
@pytest.mark.parametrize("std", [(0.229, 0.224, 0.225), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0)])
def test_every_byte_comes_back(mean, std):
    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(2, 3, 16, 16)
    task = make_task(mean=mean, std=std)
    assert torch.equal(task._restore_bytes(task._normalise(every)), every)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_images_of_a_dtype_that_rounds_bytes_away_are_refused(dtype, batch):
    images, targets = batch
    with pytest.raises(ValueError, match=NO_BYTES + "keep float32"):
        make_task()(images.to(dtype), targets)


def test_grey_images_use_the_average_of_three_channels_as_timm_does(folder):
    loader = support.make_loader(folder, input_size=(1, 28, 28))
    loader.loader.dataset.input_img_mode = "L"
    images, targets = next(iter(loader))
    model = timm.create_model(support.MODEL, num_classes=10, in_chans=1)
    task = InvarianceTask(model, nn.CrossEntropyLoss(), constraints=[WIDE], verbose=False)
    assert images.shape[1] == 1
    assert task(images, targets)["loss"].isfinite()
    assert torch.equal(task._normalise(task._restore_bytes(images)), images)


CRITERIA = {
    "cross-entropy": nn.CrossEntropyLoss(),
    "smoothed by torch": nn.CrossEntropyLoss(label_smoothing=0.2),
    "smoothed": LabelSmoothingCrossEntropy(0.1),
    "binary": BinaryCrossEntropy(0.1),
    "binary, summed over classes": BinaryCrossEntropy(0.1, sum_classes=True),
    "poly": PolyCrossEntropy(smoothing=0.1),
    "asymmetric": AsymmetricLossSingleLabel(),
}


@pytest.mark.parametrize("name", CRITERIA)
def test_losses_per_image_average_to_the_criterion_with_the_same_gradient(name):
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(16, 10, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(10, (16,), generator=generator)
    whole = CRITERIA[name](outputs, targets)
    (expected,) = torch.autograd.grad(whole, outputs)
    each = loss_per_image(CRITERIA[name])(outputs, targets)
    assert each.shape == (16,)
    torch.testing.assert_close(each.mean(), whole)
    torch.testing.assert_close(torch.autograd.grad(each.mean(), outputs)[0], expected)
    alone = torch.stack([CRITERIA[name](o[None], t[None]) for o, t in zip(outputs, targets, strict=True)])
    torch.testing.assert_close(each, alone)


@pytest.mark.parametrize("criterion", [SoftTargetCrossEntropy(), BinaryCrossEntropy(0.0)])
def test_mixup_and_cutmix_of_the_prefetcher_are_trained_on_with_their_soft_labels(folder, criterion):
    collate = FastCollateMixup(mixup_alpha=1.0, cutmix_alpha=1.0, num_classes=10)
    torch.manual_seed(0)
    images, targets = next(iter(support.make_loader(folder, collate_fn=collate)))
    assert targets.shape == (32, 10)
    task = make_task(Constraint(sets.wide(), math.inf), criterion)
    expected = criterion(task.get_trainable_module()(images), targets)
    torch.testing.assert_close(task(images, targets)["loss"], expected)
    bound = make_task(Constraint(sets.wide(), 0.01), criterion, gamma_init=1.0)
    bound(images, targets)["loss"].backward()
    bound.update_ema(step=1)
    assert bound.problem.gamma > 1


def test_images_that_are_mixed_after_normalising_are_refused(batch):
    images, targets = Mixup(mixup_alpha=1.0, num_classes=10)(*(part.clone() for part in batch))
    with pytest.raises(ValueError, match=NO_BYTES + "keep float32 and the prefetcher"):
        make_task()(images, targets)


@pytest.mark.parametrize("mode", ["pixel", "const"])
def test_random_erasing_after_normalising_is_refused(folder, mode):
    images, targets = next(iter(support.make_loader(folder, re_prob=1.0, re_mode=mode, no_aug=False)))
    with pytest.raises(ValueError, match=NO_BYTES + "leave out --reprob"):
        make_task()(images, targets)


def test_another_normalisation_is_refused_until_the_task_is_told(folder):
    images, targets = next(iter(support.make_loader(folder, mean=(0, 0, 0), std=(1, 1, 1))))
    with pytest.raises(ValueError, match=NO_BYTES + "give mean= and std= as train.py has them"):
        make_task()(images, targets)
    assert make_task(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))(images, targets)["loss"].isfinite()


def test_floats_up_to_255_are_refused_where_the_task_expects_them_divided():
    images = torch.randint(256, (4, 3, 16, 16)).float()
    with pytest.raises(ValueError, match=NO_BYTES + "give mean= and std="):
        make_task(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))(images, torch.arange(4))


def test_images_with_nan_are_refused(batch):
    images, targets = batch
    with pytest.raises(ValueError, match=NO_BYTES):
        make_task()(images.masked_fill(images > 2, math.nan), targets)


def test_a_criterion_that_compares_splits_is_refused():
    with pytest.raises(ValueError, match=r"must average over images, got JsdCrossEntropy, .*leave out --aug-splits"):
        make_task(criterion=JsdCrossEntropy())


def test_a_criterion_that_cannot_be_taken_apart_is_refused(batch):
    task = make_task(criterion=lambda outputs, targets: outputs.logsumexp((0, 1)).expand(2))
    with pytest.raises(ValueError, match=r"loss_fn must return one loss per sample, shape \(\d+,\), got \(\d+, 2\)"):
        task(*batch)


def test_patches_of_a_naflex_loader_are_refused():
    with pytest.raises(TypeError, match=r"input must be a batch of images \(NaFlex loaders .*\), got dict"):
        make_task()({"patches": torch.zeros(2, 4, 12)}, torch.zeros(2))


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = timm.create_model(support.MODEL, num_classes=10)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, None]:
        return self.network(images), None


def test_a_model_whose_answer_has_no_logits_is_refused_with_the_way_out(batch):
    task = InvarianceTask(Hidden(), nn.CrossEntropyLoss(), constraints=[WIDE], verbose=False)
    with pytest.raises(TypeError, match=r"^found no logits in tuple, .*: say with outputs= where they are"):
        task(*batch)
    told = InvarianceTask(
        Hidden(), nn.CrossEntropyLoss(), constraints=[WIDE], verbose=False, outputs=lambda answer: answer[0]
    )
    assert told(*batch)["loss"].isfinite()


@pytest.mark.parametrize("version", ["1.0.26", "0.9.16", "1.1.0"])
def test_a_version_of_timm_out_of_range_is_refused(version, monkeypatch):
    found = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "timm" else found(name))
    monkeypatch.delitem(sys.modules, "invaug.integrations.timm")
    with pytest.raises(ImportError, match=rf"^timm must be at least 1\.0\.27 and below 1\.1, got {version}: pip inst"):
        import_module("invaug.integrations.timm")


def test_the_module_is_not_the_package_of_the_same_name():
    module: ModuleType = import_module("invaug.integrations.timm")
    assert module.ClassificationTask is timm.task.ClassificationTask
