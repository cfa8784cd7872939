"""The callback in real Lightning trainings on real digits, next to Lightning without it and to a loop of our own."""

from __future__ import annotations

import csv
import importlib
import math
from collections.abc import Iterator
from importlib import metadata
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import IterableDataset, default_collate

from invaug import Constraint, InvarianceConstrained, sets, views
from tests.support.lightning import Classifier, digits, fit, loader, make_network, quiet_trainer, to_floats
from tests.support.problems import fixed, inverted, same_bits

from invaug.integrations.lightning import InvarianceCallback  # isort: skip  # torchvision first, where it is installed
from lightning.pytorch import LightningModule  # isort: skip
from lightning.pytorch.loggers import CSVLogger  # isort: skip
from lightning.pytorch.plugins.precision import MixedPrecision  # isort: skip

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:The '(train|val)_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
]

more = pytest.mark.integrations  # left to `make integrations`


def normalise(images: Tensor) -> Tensor:
    return (images.float() / 255 - 0.13) / 0.31


def strict(**settings) -> InvarianceCallback:
    """Return a callback whose gamma moves at once."""
    return InvarianceCallback(Constraint(sets.wide(), 0.3), **{"dual_lr": 0.5, **settings})


def own_loop(problem, data, n_epochs=2, accumulate=1, precision=torch.float32):
    """Train as a plain loop does; return the network."""
    network = make_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 100)
    torch.manual_seed(7)
    for _ in range(n_epochs):
        slacks = []
        for i, (images, targets) in enumerate(data, start=1):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
                step = problem(network, images, targets)
            (step.lagrangian / accumulate).backward()
            slacks.append(step.slack)
            if i % accumulate == 0 or i == len(data):
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                problem.dual_step(slacks)
                slacks = []
    return network


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate_grad_batches": 3},
        pytest.param({"precision": "bf16-mixed"}, marks=more),
        pytest.param({"gradient_clip_val": 0.1}, marks=more),
    ],
    ids=["plain", "accumulated", "bf16", "clipped"],
)
def test_with_infinite_epsilon_the_weights_are_those_without_the_callback(options):
    """Without the callback images are normalised by the dataset, with it by `finish`."""
    callback = InvarianceCallback(Constraint(sets.wide(), math.inf), finish=normalise)
    plain = fit(data=loader(make=normalise), **options)
    ours = fit(callback, data=loader(), **options)
    assert same_bits(plain.state_dict(), ours.state_dict())
    assert not same_bits(plain.state_dict(), Classifier().state_dict())


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"accumulate_grad_batches": 3}, {"accumulate": 3}),
        pytest.param({"precision": "bf16-mixed"}, {"precision": torch.bfloat16}, marks=more),
    ],
    ids=["plain", "accumulated", "bf16"],
)
def test_gamma_rises_and_the_weights_are_those_of_our_own_loop(options, settings):
    callback = strict(finish=normalise)
    module = fit(callback, data=loader(80), **options)
    problem = InvarianceConstrained(Constraint(sets.wide(), 0.3), dual_lr=0.5, finish=normalise)
    network = own_loop(problem, loader(80), **settings)
    assert callback.problem.gamma.item() > 0.1
    assert same_bits(callback.problem.state_dict(), problem.state_dict())
    assert same_bits(module.network.state_dict(), network.state_dict())


@pytest.mark.parametrize(("n_batches", "accumulate", "n_steps"), [(4, 4, 1), (5, 2, 3)])
def test_accumulated_batches_take_one_dual_step_with_their_mean(n_batches, accumulate, n_steps):
    """One transformation and a network that stands still: gamma in closed form, from the whole batch."""
    callback = InvarianceCallback(Constraint(fixed(inverted), 0.3, share=1.0), n_steps=0, dual_lr=0.5)
    network = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))  # BatchNorm would go on averaging
    module = Classifier(network)
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0.0)
    n = 16 * n_batches
    fit(callback, module=module, data=loader(n), accumulate_grad_batches=accumulate, max_epochs=1)
    images, targets = digits(0, n)
    windows = torch.arange(n).split(16 * accumulate)
    assert len(windows) == n_steps
    with torch.no_grad():
        slacks = [F.cross_entropy(network(to_floats(inverted(images[w]))), targets[w]).item() - 0.3 for w in windows]
    torch.testing.assert_close(callback.problem.gamma.item(), 0.5 * sum(slacks), rtol=1e-6, atol=0)
    assert int(callback.problem.n_batches) == n_batches


def without_dropout() -> Classifier:
    network = make_network()
    network[3].p = 0.0  # Lightning does not restore torch's generator
    return Classifier(network)


@pytest.mark.parametrize("options", [{}, pytest.param({"accumulate_grad_batches": 3}, marks=more)])
def test_a_resumed_training_has_the_bits_of_one_that_was_not_stopped(tmp_path, options):
    whole, whole_callback = without_dropout(), strict()
    fit(whole_callback, module=whole, max_epochs=3, **options)
    trainer = quiet_trainer(strict(), max_epochs=1, **options)
    trainer.fit(without_dropout(), loader())
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")
    resumed, callback = without_dropout(), strict()
    quiet_trainer(callback, max_epochs=3, **options).fit(resumed, loader(), ckpt_path=tmp_path / "stopped.ckpt")
    assert callback.problem.gamma.item() > 0
    assert same_bits(callback.problem.state_dict(), whole_callback.problem.state_dict())
    assert same_bits(resumed.state_dict(), whole.state_dict())


def test_the_checkpoint_holds_gamma_and_the_batch_number_in_plain_tensors(tmp_path):
    callback = strict()
    trainer = quiet_trainer(callback)
    trainer.fit(Classifier(), loader())
    trainer.save_checkpoint(tmp_path / "it.ckpt")
    saved = torch.load(tmp_path / "it.ckpt", weights_only=True)["callbacks"]["InvarianceCallback"]
    assert saved.keys() == {"gamma", "n_batches"}
    assert same_bits(saved, callback.problem.state_dict())
    assert saved["n_batches"] == 8


def test_gamma_is_not_shared_with_processes_that_were_spawned():
    """The strategy ddp_spawn puts the tensors of the callback into shared memory, where both ranks would step."""
    callback = strict()
    shared = callback.problem.gamma.share_memory_().detach()
    assert shared.is_shared()
    fit(callback, max_epochs=1)
    assert callback.problem.gamma.item() > 0
    assert shared.item() == 0


class Kept:
    """A loader that gives the same lists in every epoch."""

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        self.batches = [[x, y] for x, y in zip(images.split(16), targets.split(16), strict=True)]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Tensor]]:
        return iter(self.batches)


def test_validation_sees_what_its_loader_gives():
    images, targets = digits(64, 96)
    module = fit(strict(), val=Kept(to_floats(images), targets))
    n_times = len(module.validated) // 2  # two batches each; before training, and after each epoch
    assert n_times == 3
    assert torch.equal(torch.cat(module.validated), torch.cat([to_floats(images)] * n_times))


@more
def test_training_and_validation_mode_are_as_without_the_callback():
    """Scoring in eval mode leaves no trace: after it, validation and training find the modes Lightning set."""
    callback = InvarianceCallback(Constraint(sets.wide(), 0.3), dual_lr=0.0)  # scores, and trains on clean views
    images, targets = digits(64, 96)
    plain = fit(data=loader(make=to_floats), val=Kept(to_floats(images), targets))
    ours = fit(callback, val=Kept(to_floats(images), targets))
    assert same_bits(plain.state_dict(), ours.state_dict())


def dictionaries(samples):
    images, targets = default_collate(samples)
    return {"image": images, "label": targets, "name": ["a digit"] * len(targets)}


class OfDictionaries(Classifier):
    def training_step(self, batch, batch_idx):
        assert batch["name"]
        return F.cross_entropy(self(batch["image"]), batch["label"])


class WithIndices(Classifier):
    def training_step(self, batch, batch_idx):
        images, targets, indices = batch
        assert indices.shape == targets.shape
        return F.cross_entropy(self(images), targets)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(*digits(0, 64), strict=True)


@pytest.mark.parametrize(
    ("module", "data", "settings"),
    [
        (Classifier, lambda: loader(make=to_floats), {}),
        pytest.param(Classifier, lambda: loader(make=Tensor.float), {}, marks=more),
        (OfDictionaries, lambda: loader(collate_fn=dictionaries), {"keys": ("image", "label")}),
        (WithIndices, lambda: loader(collate_fn=lambda rows: [*default_collate(rows), torch.arange(len(rows))]), {}),
        (Classifier, lambda: torch.utils.data.DataLoader(Stream(), batch_size=16), {}),
    ],
    ids=["floats k / 255", "whole floats", "dictionaries", "lists of three", "iterable dataset"],
)
def test_every_form_of_the_same_batches_trains_to_the_same_bits(module, data, settings):
    expected, callback = strict(), strict(**settings)
    reference, other = fit(expected), fit(callback, module=module(), data=data())
    assert same_bits(expected.problem.state_dict(), callback.problem.state_dict())
    assert same_bits(reference.state_dict(), other.state_dict())


@more
def test_overfit_batches_repeats_the_batches_and_not_their_views():
    callback = strict()
    fit(callback, overfit_batches=2, max_epochs=3)
    assert int(callback.problem.n_batches) == 6
    assert callback.problem.gamma.item() > 0


@more
def test_batches_that_the_loader_keeps_are_left_as_they_are():
    images, targets = digits(0, 64)
    kept = Kept(images.clone(), targets)
    given, ours = (fit(strict(), module=without_dropout(), data=data) for data in (loader(), kept))
    assert same_bits(given.state_dict(), ours.state_dict())
    assert torch.equal(torch.cat([x for x, _ in kept]), images)


class Moody(Classifier):
    """Returns no loss on its second batch, as modules do that skip bad data; or an infinite one."""

    bad: float | None = None

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss if batch_idx != 1 else None if self.bad is None else loss * self.bad


def dual_steps_of(module, **options) -> list[tuple[float, float]]:
    """Return by how much gamma moved after each batch, and by how much it should have with the slack of that batch."""
    callback, gammas, slacks = strict(), [0.0], []

    def note(*_):
        gammas.append(callback.problem.gamma.item())
        slacks.append(module.trainer.callback_metrics["invaug/slack"].item())

    module.on_train_batch_end = note
    fit(callback, module=module, max_epochs=1, **options)
    return [(b - a, 0.5 * slack) for (a, b), slack in zip(pairwise(gammas), slacks, strict=True)]


def only_the_second_was_skipped(steps: list[tuple[float, float]]) -> bool:
    """Whether gamma moved by the slack of its own batch alone, and not at all after the second."""
    taken = [step for i, step in enumerate(steps) if i != 1]
    return steps[1][0] == 0 and all(moved == pytest.approx(expected, rel=1e-5) for moved, expected in taken)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_a_batch_without_a_loss_has_no_dual_step():
    assert only_the_second_was_skipped(dual_steps_of(Moody()))


def test_a_step_that_the_gradient_scaler_skips_has_no_dual_step():
    module = Moody()
    module.bad = math.inf
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=8.0))
    assert only_the_second_was_skipped(dual_steps_of(module, plugins=[plugin]))
    assert all(parameter.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("n", [pytest.param(1, marks=more), 2])
def test_gamma_slack_and_acceptance_reach_the_loggers(tmp_path, n):
    constraints = [Constraint(sets.wide(), 0.3), Constraint(sets.rotations(1.0), 0.3)][:n]
    callback = InvarianceCallback(*constraints, dual_lr=0.5)
    fit(callback, logger=CSVLogger(tmp_path), log_every_n_steps=1)
    with (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ends = [""] if n == 1 else ["_0", "_1"]
    names = {f"invaug/{what}{end}" for what in ("gamma", "slack", "acceptance") for end in ends}
    assert {name for name in rows[0] if name.startswith("invaug")} == names
    assert len(rows) == 8
    for end, gamma in zip(ends, callback.problem.gamma.tolist(), strict=True):
        written = [float(row[f"invaug/gamma{end}"]) for row in rows]
        steps = [0.5 * float(row[f"invaug/slack{end}"]) for row in rows]
        assert written[-1] == pytest.approx(gamma, rel=1e-6)
        assert [b - a for a, b in pairwise([0.0, *written])] == pytest.approx(steps, abs=1e-5)
        assert all(0 <= float(row[f"invaug/acceptance{end}"]) <= 1 for row in rows)


class TwoHeads(Classifier):
    def forward(self, images):
        return self.network(images), images.mean()

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self(batch[0])[0], batch[1])


class WithoutForward(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = make_network()

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.network(batch[0]), batch[1])

    configure_optimizers = Classifier.configure_optimizers
    total_steps = 100


@more
def test_logits_are_where_outputs_says():
    callback = strict(outputs=lambda answer: answer[0])
    assert same_bits(fit(strict()).state_dict(), fit(callback, module=TwoHeads()).state_dict())


@more
def test_proposals_are_scored_with_the_model_that_is_named():
    module = WithoutForward()
    callback = strict(model=module.network)
    assert same_bits(fit(strict()).state_dict(), fit(callback, module=module).state_dict())


def test_a_model_without_logits_is_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"^found no logits in tuple, the answer of the model: say with outputs="):
        fit(strict(), module=TwoHeads())


def test_a_module_without_forward_is_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"^WithoutForward has no forward: say with model= what to score with"):
        fit(strict(), module=WithoutForward())


def test_normalised_floats_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"^images must be bytes .* got floats from -0\.419 to 2\.81 .* into finish="):
        fit(strict(), data=loader(make=normalise))


def test_tuples_are_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"^the batch must be a list or a dictionary, .* got tuple: let collate_fn"):
        fit(strict(), data=loader(collate_fn=lambda rows: tuple(default_collate(rows))))


@pytest.mark.parametrize(
    ("keys", "collate", "found"),
    [
        ((0, 1), dictionaries, r"\(0, 1\) for a batch with \['image', 'label', 'name'\]"),
        ((0, 5), default_collate, r"\(0, 5\) for a batch with 2 entries"),
        (("image", "label"), default_collate, r"\('image', 'label'\) for a batch with 2 entries"),
    ],
)
def test_keys_that_do_not_fit_the_batch_are_refused(keys, collate, found):
    with pytest.raises(ValueError, match=rf"^keys must say where the batch has its images and targets, got {found}$"):
        fit(strict(keys=keys), data=loader(collate_fn=collate))


@pytest.mark.parametrize("how", ["both", views.apart], ids=["both", "apart"])
def test_views_that_need_losses_per_sample_are_refused_with_the_way_out(how):
    with pytest.raises(ValueError, match=r'^views must be "one" in InvarianceCallback, .* manual optimisation$'):
        strict(views=how)


class ByHand(Classifier):
    """The explicit way: both views, as printed in the paper, in a module that optimises by itself."""

    def __init__(self, how="both"):
        super().__init__()
        self.automatic_optimization = False
        self.problem = InvarianceConstrained(Constraint(sets.wide(), 0.3), dual_lr=0.5, views=how)

    def training_step(self, batch, batch_idx):
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        step = self.problem(self.network, *batch)
        optimizer.zero_grad()
        self.manual_backward(step.lagrangian)
        optimizer.step()
        schedule.step()
        self.problem.dual_step(step.slack)
        self.log("gamma", self.problem.gamma.item())


@pytest.mark.parametrize("how", [pytest.param("one", marks=more), "both"])
def test_manual_optimisation_has_the_bits_of_our_own_loop(how):
    module = fit(module=ByHand(how))
    problem = InvarianceConstrained(Constraint(sets.wide(), 0.3), dual_lr=0.5, views=how)
    network = own_loop(problem, loader())
    assert module.problem.gamma.item() > 0
    assert same_bits(module.problem.state_dict(), problem.state_dict())
    assert same_bits(module.network.state_dict(), network.state_dict())


@more
def test_manual_optimisation_keeps_gamma_in_the_checkpoint(tmp_path):
    module = ByHand()
    trainer = quiet_trainer()
    trainer.fit(module, loader())
    trainer.save_checkpoint(tmp_path / "it.ckpt")
    restored = ByHand.load_from_checkpoint(tmp_path / "it.ckpt")
    assert same_bits(restored.state_dict(), module.state_dict())
    assert restored.problem.gamma.item() > 0


def test_a_module_with_manual_optimisation_is_refused_with_the_way_out():
    with pytest.raises(
        TypeError, match=r"^InvarianceCallback needs automatic optimisation: call InvarianceConstrained"
    ):
        fit(strict(), module=ByHand())


def test_another_version_of_lightning_is_refused(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda package: "1.9.5")
    with pytest.raises(ImportError, match=r"^lightning must be at least 2\.4 and below 3, got 1\.9\.5: pip install"):
        importlib.reload(importlib.import_module("invaug.integrations.lightning"))
