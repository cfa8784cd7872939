"""Longer Lightning trainings: two ranks, a killed process, a real fit, the package of the other name."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DistributedSampler

from invaug import Constraint, InvarianceConstrained, sets
from tests.support.lightning import Classifier, digits, fit, loader, make_network, quiet_trainer, to_floats
from tests.support.problems import fixed, inverted, same_bits

from invaug.integrations.lightning import InvarianceCallback  # isort: skip  # torchvision first, where it is installed
from lightning.pytorch.callbacks import Callback, ModelCheckpoint  # isort: skip

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:The '(train|val)_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


def small_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 16), nn.ReLU(), nn.Linear(16, 10))


class Diary(Callback):
    """Writes down what each rank ends with: gamma after every batch, and the weights."""

    def __init__(self, watched: InvarianceCallback, folder: Path) -> None:
        self.watched, self.folder, self.gammas = watched, folder, []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.gammas.append(self.watched.problem.gamma.tolist())

    def on_train_end(self, trainer, pl_module):
        weights = torch.cat([parameter.detach().flatten() for parameter in pl_module.parameters()])
        np.savez(self.folder / f"{trainer.global_rank}.npz", gammas=self.gammas, weights=weights.numpy())


def train_rank(rank: int, folder: Path, port: int) -> None:
    """Train as one of two processes that `torchrun` has started."""
    torch.set_num_threads(1)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in {**place, "TORCHELASTIC_RUN_ID": "test"}.items()}
    sure = Constraint(fixed(inverted), 0.3, share=1.0)
    callback = InvarianceCallback(sure, Constraint(sets.wide(), "auto"), dual_lr=0.1)
    options = {"devices": 2, "strategy": "ddp", "accumulate_grad_batches": 2}
    fit(callback, Diary(callback, folder), module=Classifier(small_network()), data=loader(128), **options)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    """What each of two ranks found that gloo connects."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(train_rank, args=(folder, port), nprocs=2)
    found = []
    for rank in range(2):
        with np.load(folder / f"{rank}.npz", allow_pickle=False) as arrays:
            found.append(dict(arrays))
    return found


def test_gamma_and_weights_are_bit_equal_on_two_ranks(ranks):
    first, second = ranks
    assert first["gammas"].shape == (8, 2)  # 128 images, two ranks of 16, two epochs
    assert len(np.unique(first["gammas"][:, 0])) == 5  # zero, and one per optimiser step
    assert first["gammas"].tobytes() == second["gammas"].tobytes()
    assert first["weights"].tobytes() == second["weights"].tobytes()


def test_the_first_dual_step_is_that_of_the_images_of_both_ranks(ranks):
    """Lightning gives each rank the samples of a DistributedSampler; two micro-batches of 16 make a step."""
    samplers = [DistributedSampler(range(128), num_replicas=2, rank=rank, seed=0) for rank in range(2)]
    rows = [row for sampler in samplers for row in list(sampler)[:32]]
    images, targets = (part[rows] for part in digits(0, 128))
    with torch.no_grad():
        loss = F.cross_entropy(small_network()(to_floats(inverted(images))), targets).item()
    before, after = ranks[0]["gammas"][:2, 0]
    assert before == 0
    assert after == pytest.approx(0.1 * (loss - 0.3), rel=1e-6)


class Killer(Callback):
    """Ends the process in the middle of the third epoch, without a word to anyone."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.current_epoch == 2 and batch_idx == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def strict() -> InvarianceCallback:
    return InvarianceCallback(Constraint(sets.wide(), 0.3), dual_lr=0.5)


def train_until_killed(folder: Path) -> None:
    torch.set_num_threads(1)
    save = ModelCheckpoint(folder, save_last=True)
    fit(strict(), save, Killer(), module=Classifier(small_network()), max_epochs=4, enable_checkpointing=True)


def test_a_killed_training_resumes_to_the_bits_of_one_that_was_not(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=train_until_killed, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    whole, expected = Classifier(small_network()), strict()
    fit(expected, module=whole, max_epochs=4)
    resumed, callback = Classifier(small_network()), strict()
    save = ModelCheckpoint(tmp_path, save_last=True)
    trainer = quiet_trainer(callback, save, max_epochs=4, enable_checkpointing=True)
    trainer.fit(resumed, loader(), ckpt_path=tmp_path / "last.ckpt")
    assert callback.problem.gamma.item() > 0
    assert same_bits(callback.problem.state_dict(), expected.problem.state_dict())
    assert same_bits(resumed.state_dict(), whole.state_dict())


def accuracy(network: nn.Module) -> float:
    images, targets = digits(4000, 5000)
    with torch.no_grad():
        return (network.eval()(to_floats(images)).argmax(1) == targets).float().mean().item()


def test_a_real_fit_has_the_accuracy_of_our_own_loop_and_gamma_rises():
    """Default settings, 4,000 digits, three epochs; the same seeds, so no tolerance is needed."""
    data = {"n": 4000, "batch_size": 64}
    n_steps = 3 * -(-4000 // 64)
    callback = InvarianceCallback(Constraint(sets.mild()))
    shuffled = torch.Generator().manual_seed(5)
    module = fit(
        callback,
        module=Classifier(total_steps=n_steps),
        data=loader(**data, shuffle=True, generator=shuffled),
        max_epochs=3,
    )
    network, problem = make_network(), InvarianceConstrained(Constraint(sets.mild()))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, n_steps)
    torch.manual_seed(7)
    batches = loader(**data, shuffle=True, generator=torch.Generator().manual_seed(5))
    for _ in range(3):
        for images, targets in batches:
            step = problem(network, images, targets)
            optimizer.zero_grad()
            step.lagrangian.backward()
            optimizer.step()
            schedule.step()
            problem.dual_step(step.slack)
    assert callback.problem.gamma.item() > 0.05
    assert same_bits(callback.problem.state_dict(), problem.state_dict())
    print(f"gamma {problem.gamma.item():.3f}, accuracy {accuracy(module.network):.3f} and {accuracy(network):.3f}")
    assert accuracy(module.network) == accuracy(network) > 0.9


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_trainer_of_pytorch_lightning_takes_the_callback_too():
    from pytorch_lightning import LightningModule, Trainer

    class Other(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.total_steps = make_network(), 100

        forward, training_step = Classifier.forward, Classifier.training_step
        configure_optimizers = Classifier.configure_optimizers

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    expected, callback, other = strict(), strict(), Other()
    module = fit(expected)
    trainer = Trainer(accelerator="cpu", devices=1, max_epochs=2, callbacks=[callback], **quiet)
    torch.manual_seed(7)
    trainer.fit(other, loader())
    assert same_bits(expected.problem.state_dict(), callback.problem.state_dict())
    assert same_bits(module.state_dict(), other.state_dict())
    assert trainer.callback_metrics["invaug/gamma"].item() == pytest.approx(callback.problem.gamma.item())
