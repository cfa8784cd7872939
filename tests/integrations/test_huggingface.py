"""The real Hugging Face Trainer with and without us, on real digits and small models with random weights."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("transformers") is None or find_spec("datasets") is None:
    reason = "NOT TRAINED WITH HUGGING FACE: transformers is not installed; `make integrations` installs it"
    pytest.skip(reason, allow_module_level=True)

# first, because it makes torchvision importable where it is installed
from tests.support.transformers_fits import (
    Recorder,
    beit,
    collate_normalised,
    colour_vit,
    constrained,
    digits,
    gradient_of,
    make_problem,
    normalise,
    plain,
    resnet,
    restored_vit,
    vit,
)

# isort: split
import importlib
import json
import math
import signal
import statistics
import subprocess
import sys
from functools import partial
from importlib import metadata
from operator import itemgetter
from pathlib import Path

import torch
import transformers
from PIL import Image
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, get_linear_schedule_with_warmup

from invaug import Constraint, InvarianceConstrained, sets
from invaug.integrations.collate import collate_bytes
from invaug.integrations.common import logits_of
from invaug.integrations.huggingface import InvarianceTrainer
from tests.support import trainer_process
from tests.support.images import real_images
from tests.support.problems import copy_of, same_bits, train_step

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.integrations
# the one of Pillow, which had another name in the first versions
PROCESSOR = getattr(transformers, "ViTImageProcessorPil", None) or transformers.ViTImageProcessor


def trace_of(trainer):
    """Return all that a training leaves behind, bit for bit."""
    moments = trainer.optimizer.state_dict()["state"]
    of_optimiser = {f"{i} {name}": value for i, each in moments.items() for name, value in each.items()}
    problem = getattr(trainer, "problem", None)
    ours = {"gamma": problem.gamma, "n_batches": problem.n_batches} if problem else {}
    return copy_of({**trainer.model.state_dict(), **of_optimiser, **ours, "rng": torch.get_rng_state()})


def logged(trainer, name):
    return [row[name] for row in trainer.state.log_history if name in row]


# parity


@pytest.mark.parametrize("make", [vit, resnet, beit])
def test_with_an_infinite_epsilon_the_weights_are_those_of_the_plain_trainer_bit_for_bit(tmp_path, make):
    found = []
    for trainer in (partial(plain, tmp_path, make), partial(constrained, tmp_path, make_problem(math.inf), make)):
        made = trainer()  # seeds the random numbers
        before = copy_of(made.model.state_dict())
        made.train()
        assert not same_bits(before, made.model.state_dict())
        found.append({name: value for name, value in trace_of(made).items() if name not in ("gamma", "n_batches")})
    assert same_bits(*found)


def recorded(folder, *args, others=None, **changes):
    """Return a Trainer that has trained, and what was written down on the way."""
    recorder = Recorder()
    trainer = constrained(folder, *args, others={"data_collator": recorder.collate, **(others or {})}, **changes)
    recorder.watch(trainer.model)
    trainer.add_callback(recorder)
    trainer.train()
    return trainer, recorder


@pytest.mark.parametrize("n_steps", [1, 3])
def test_the_trainer_does_what_a_loop_of_one_s_own_does(tmp_path, n_steps):
    """Weights and γ are those of the problem's own step, the optimiser and one dual step per step of it."""
    settings = {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, "gradient_accumulation_steps": n_steps}
    trainer, recorder = recorded(tmp_path, make=partial(vit, 0.0), max_steps=4, train=digits(192), **settings)
    model, problem = vit(0.0), make_problem(outputs=lambda answer: answer.logits)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for i in range(0, 4 * n_steps, n_steps):
        steps = [problem(model, *batch.values()) for batch in recorder.given[i : i + n_steps]]
        optimizer.zero_grad()
        (sum(step.lagrangian for step in steps) / n_steps).backward()
        optimizer.step()
        problem.dual_step([step.slack for step in steps])
    torch.testing.assert_close(trainer.problem.gamma, problem.gamma, rtol=1e-5, atol=0)
    assert problem.gamma.item() not in (0.0, 0.5)
    assert trainer.problem.n_batches == problem.n_batches == 4 * n_steps
    torch.testing.assert_close(trainer.model.state_dict(), model.state_dict(), rtol=1e-4, atol=1e-5)


# accumulated gradients


class WithMeanLoss(Trainer):
    """A Trainer whose loss is a mean, as in many scripts."""

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        outputs = model(inputs["pixel_values"])
        loss = F.cross_entropy(outputs.logits, inputs["labels"])
        return (loss, outputs) if return_outputs else loss


class WithMeanLossUnderConstraints(InvarianceTrainer, WithMeanLoss):
    pass


class WithDividedLossUnderConstraints(InvarianceTrainer, WithMeanLoss):
    """One that says so, and is divided by the accumulation steps."""

    loss_is_scaled_for_ga = False


def summed_loss(outputs, labels, num_items_in_batch=None):
    """Return the loss as the Trainer wants it of functions: as a share of all images of the step."""
    return F.cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch


@pytest.mark.parametrize("n_steps", [1, 2, 4])
@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (partial(vit, 0.0), {}),
        (beit, {}),  # takes the number of images of a step, and ignores it
        (beit, {"label_smoothing_factor": 0.2}),
        (beit, {"kind": WithMeanLossUnderConstraints}),
        (beit, {"kind": WithDividedLossUnderConstraints}),
        (beit, {"others": {"compute_loss_func": summed_loss}}),
    ],
    ids=["vit", "beit", "label smoothing", "own trainer", "own trainer that says so", "own loss function"],
)
def test_the_accumulated_gradient_is_that_of_one_big_batch(tmp_path, make, changes, n_steps):
    """The oracle is torch alone, on the views of all micro-batches at once."""
    sizes = {"per_device_train_batch_size": 16 // n_steps, "gradient_accumulation_steps": n_steps, "max_steps": 1}
    problem = make_problem(gamma_init=1.0)
    _, recorder = recorded(tmp_path, problem, make, max_grad_norm=0.0, **sizes, **changes)
    assert [len(views) for views in recorder.views] == [16 // n_steps] * n_steps
    labels = torch.cat([batch["labels"] for batch in recorder.given[:n_steps]])
    model = make().train()
    logits = model(torch.cat(recorder.views)).logits
    F.cross_entropy(logits, labels, label_smoothing=changes.get("label_smoothing_factor", 0.0)).backward()
    (found,), wanted = recorder.gradients, gradient_of(model)
    assert (found - wanted).norm() < 1e-6 * wanted.norm()
    clean = normalise(torch.cat([batch["pixel_values"] for batch in recorder.given[:n_steps]]))
    assert not torch.equal(torch.cat(recorder.views), clean)  # γ = 1: half of the views are transformed


def test_micro_batches_of_different_sizes_count_by_their_images(tmp_path):
    """Ten images in micro-batches of four, four and two, in one step at the end of the epoch."""
    sizes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3, "max_steps": 1}
    _, recorder = recorded(tmp_path, make_problem(math.inf), beit, train=digits(10), max_grad_norm=0.0, **sizes)
    assert [len(views) for views in recorder.views] == [4, 4, 2]
    model = beit().train()
    F.cross_entropy(
        model(torch.cat(recorder.views)).logits, torch.cat([batch["labels"] for batch in recorder.given])
    ).backward()
    wanted = gradient_of(model)
    assert (recorder.gradients[0] - wanted).norm() < 1e-6 * wanted.norm()


# what is logged, and what is not touched


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")
def test_gamma_slack_and_acceptance_are_logged_and_reported(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    constraints = Constraint(sets.wide()), Constraint(sets.rotations(1.0), 0.4), Constraint(sets.wide(), math.inf)
    problem = InvarianceConstrained(*constraints, finish=normalise, dual_lr=0.5)
    trainer = constrained(tmp_path, problem, report_to="tensorboard", max_steps=3)
    trainer.train()
    for k in (0, 1):
        assert logged(trainer, f"invaug/gamma_{k}")[-1] == problem.gamma[k].item() > 0
        assert len(logged(trainer, f"invaug/slack_{k}")) == 3
        assert all(0 <= share <= 1 for share in logged(trainer, f"invaug/acceptance_{k}"))
    assert logged(trainer, "invaug/gamma_2") == []  # it cannot bind
    (folder,) = {path.parent for path in tmp_path.rglob("events.*")}
    events = EventAccumulator(str(folder)).Reload()
    assert [each.value for each in events.Scalars("train/invaug/gamma_0")] == pytest.approx(
        logged(trainer, "invaug/gamma_0")
    )


def test_evaluation_is_that_of_the_plain_trainer(tmp_path):
    others = {"eval_dataset": digits(64, 1000).with_transform(as_floats), "compute_metrics": accuracy_of}
    with_us, without = constrained(tmp_path, others=others), plain(tmp_path, others=others)
    with_us.train()
    without.model.load_state_dict(with_us.model.state_dict())
    before = copy_of(with_us.problem.state_dict())
    found, wanted = with_us.evaluate(), without.evaluate()
    assert found["eval_loss"] == wanted["eval_loss"]
    assert found["eval_accuracy"] == wanted["eval_accuracy"]
    assert same_bits(before, with_us.problem.state_dict())
    rows = digits(64, 1000).with_transform(as_floats)
    assert (with_us.predict(rows).predictions == without.predict(rows).predictions).all()


def as_floats(rows):
    """Give rows as the model takes them: what the transform of an evaluation set does."""
    batch = collate_bytes([{"image": image, "label": label} for image, label in zip(*rows.values(), strict=True)])
    return {"pixel_values": list(normalise(batch["pixel_values"])), "labels": rows["label"]}


def accuracy_of(answers):
    return {"accuracy": float((answers.predictions.argmax(1) == answers.label_ids).mean())}


# checkpoints

SAVED = {"save_strategy": "steps", "save_steps": 4, "max_steps": 10}


@pytest.mark.parametrize("n_steps", [1, 2])
@pytest.mark.parametrize(
    ("make", "restore"), [(resnet, lambda _: resnet()), (vit, restored_vit)], ids=["resnet", "vit"]
)
def test_a_resumed_training_ends_at_the_same_bits(tmp_path, make, restore, n_steps):
    """From the middle of an epoch of seven batches; dropout and BatchNorm included.

    The Trainer alone does not find the weights of a ViT in its own checkpoint, so `from_pretrained` reads them.
    """
    settings = {"train": digits(112), "gradient_accumulation_steps": n_steps, **SAVED}
    checkpoint = tmp_path / "checkpoint-4"
    whole = constrained(tmp_path, None, make, **settings)
    whole.train()
    wanted = trace_of(whole)
    resumed = constrained(tmp_path, None, partial(restore, checkpoint), **settings)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert same_bits(trace_of(resumed), wanted)
    assert logged(resumed, "invaug/gamma") == logged(whole, "invaug/gamma")
    assert len(logged(resumed, "invaug/gamma")) == 10


def test_a_second_training_starts_anew(tmp_path):
    trainer = constrained(tmp_path)
    trainer.train()
    first = int(trainer.problem.n_batches)
    trainer.problem.gamma.fill_(1.5)
    del trainer.state.log_history[:]
    trainer.train()
    assert int(trainer.problem.n_batches) == first == 6
    (gamma, *_), (slack, *_) = logged(trainer, "invaug/gamma"), logged(trainer, "invaug/slack")
    assert gamma == pytest.approx(0.5 + 0.5 * slack)  # one dual step, from where it began


def test_constraints_may_be_added_to_a_training_that_had_none(tmp_path):
    plain(tmp_path, resnet, **SAVED).train()
    trainer = constrained(tmp_path, None, resnet, **SAVED)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert int(trainer.problem.n_batches) == 2
    assert len(logged(trainer, "invaug/gamma")) == 2


def test_callbacks_that_are_restored_do_not_replace_ours(tmp_path):
    settings = {**SAVED, "restore_callback_states_from_checkpoint": True}
    constrained(tmp_path, None, resnet, **settings).train()
    trainer = constrained(tmp_path, None, resnet, **settings)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert int(trainer.problem.n_batches) == 10


def test_a_checkpoint_of_other_constraints_is_refused(tmp_path):
    constrained(tmp_path, None, resnet, **SAVED).train()
    two = InvarianceConstrained(Constraint(sets.wide()), Constraint(sets.rotations(1.0)), finish=normalise)
    with pytest.raises(ValueError, match=r"^the checkpoint has gamma of 1 constraints, the problem has 2: resume with"):
        constrained(tmp_path, two, resnet, **SAVED).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_a_checkpoint_has_gamma_and_the_batch_number_in_the_trainers_own_file(tmp_path):
    trainer = constrained(tmp_path / "ours", **SAVED)
    trainer.train()
    rows = trainer.state.log_history
    plain(tmp_path / "plain", **SAVED).train()
    ours, without = ({path.name for path in (tmp_path / name / "checkpoint-4").iterdir()} for name in ("ours", "plain"))
    assert ours == without
    state = json.loads((tmp_path / "ours" / "checkpoint-4" / "trainer_state.json").read_text())
    kept = state["stateful_callbacks"]["invaug"]
    assert kept == {"gamma": [rows[3]["invaug/gamma"]], "n_batches": 4}


def fit_in_a_process(folder, *flags):
    """Run a training in a process of its own; return its exit code and the digest of what it has learned."""
    command = [sys.executable, "-m", "tests.support.trainer_process", str(folder), *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)  # noqa: S603
    return done.returncode, [line for line in done.stdout.splitlines() if not line.startswith("{")]


def test_a_killed_training_resumes_to_the_same_bits(tmp_path):
    assert fit_in_a_process(tmp_path, "--kill-at", "6") == (-signal.SIGKILL, [])
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]
    whole = trainer_process.make(tmp_path / "whole")
    whole.train()
    assert fit_in_a_process(tmp_path, "--resume") == (0, [trainer_process.digest_of(whole)])


# data


def test_a_stream_of_images_trains_and_resumes_like_any_dataset(tmp_path):
    """An IterableDataset has no indices, and none are needed: randomness is keyed by the number of the batch."""
    settings = {**SAVED, "train": digits(160).to_iterable_dataset()}
    whole = constrained(tmp_path, None, resnet, **settings)
    whole.train()
    wanted = trace_of(whole)
    resumed = constrained(tmp_path, None, resnet, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert same_bits(trace_of(resumed), wanted)
    assert int(resumed.problem.n_batches) == 10


def test_a_processor_without_rescaling_and_normalising_gives_the_bytes(tmp_path):
    """What is left out of the processor goes into `finish`: together they are the processor as it comes."""
    size = {"height": 28, "width": 28}
    whole = PROCESSOR(size=size)
    to_bytes = PROCESSOR(size=size, do_rescale=False, do_normalize=False)
    images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in real_images(8, 40, 32, 3)]
    found, wanted = (each(images, return_tensors="pt")["pixel_values"] for each in (to_bytes, whole))
    assert found.dtype == torch.uint8
    mean, std = (torch.tensor(three).view(3, 1, 1) for three in (whole.image_mean, whole.image_std))
    torch.testing.assert_close((found / 255 - mean) / std, wanted)


def test_rows_of_a_processor_train_with_the_default_collator(tmp_path):
    to_bytes = PROCESSOR(size={"height": 28, "width": 28}, do_rescale=False, do_normalize=False)

    def prepare(rows):
        images = [image.convert("RGB") for image in rows["image"]]
        return {**to_bytes(images, return_tensors="pt"), "labels": rows["label"]}

    data = digits(96).with_transform(prepare)
    trainer = constrained(tmp_path, None, colour_vit, train=data, others={"data_collator": None})
    trainer.train()
    assert int(trainer.problem.n_batches) == 6


def test_floats_that_are_bytes_train_to_the_same_bits(tmp_path):
    def collate_units(rows):
        batch = collate_bytes(rows)
        return {**batch, "pixel_values": batch["pixel_values"] / 255}

    found = []
    for collate in (collate_bytes, collate_units):
        trainer = constrained(tmp_path, others={"data_collator": collate})
        trainer.train()
        found.append(trace_of(trainer))
    assert same_bits(*found)


def test_bfloat16_trains_and_gamma_follows(tmp_path):
    trainer = constrained(tmp_path, bf16=True, max_steps=3)
    trainer.train()
    assert trainer.problem.gamma.item() not in (0.0, 0.5)
    assert all(parameter.dtype == torch.float32 for parameter in trainer.model.parameters())


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused"])
def test_a_step_that_the_gradient_scaler_skips_has_no_dual_step(tmp_path, optim):
    """A real scaler, and a gradient that overflows in the first step."""
    trainer = constrained(tmp_path, max_steps=2, max_grad_norm=0.0, optim=optim)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
    factors = iter([math.inf, 1.0])
    trainer.model.classifier.weight.register_hook(lambda gradient: gradient * next(factors))
    trainer.train()
    first, second = logged(trainer, "invaug/gamma")
    assert first == 0.5 != second


def test_two_ranks_share_gamma_and_take_the_steps_of_the_plain_trainer(tmp_path):
    """Real processes and gloo, with accumulated gradients."""
    ranks = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "tests.support.trainer_ranks",
    ]
    subprocess.run([sys.executable, *ranks, str(tmp_path)], check=True, capture_output=True, cwd=ROOT)  # noqa: S603
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert same_bits(first, second)
    torch.testing.assert_close(first["inactive"], first["plain"], rtol=1e-5, atol=1e-6)
    assert first["gamma"].item() not in (0.0, 0.5)
    assert not torch.equal(first["active"], first["plain"])


# a real fit


def test_gamma_rises_and_the_accuracy_is_that_of_our_own_loop(tmp_path):
    """800 digits, a small ResNet: the Trainer, and a loop by hand with the same optimiser and schedule."""
    train, test = digits(800), collate_bytes(list(digits(500, 4000)))
    by_trainer, by_loop = [], []
    for seed in (0, 1, 2):
        problem, own = (
            InvarianceConstrained(Constraint(sets.mild()), finish=normalise, dual_lr=0.1, outputs=logits_of, seed=seed)
            for _ in range(2)
        )
        sizes = {"per_device_train_batch_size": 32, "num_train_epochs": 5, "max_steps": -1, "learning_rate": 1e-2}
        trainer = constrained(tmp_path, problem, resnet, train=train, seed=seed, logging_strategy="epoch", **sizes)
        trainer.train()
        gammas = logged(trainer, "invaug/gamma")
        assert len(gammas) == 5
        assert max(gammas) > 0.5  # from 0
        by_trainer.append(accuracy_on(test, trainer.model))
        by_loop.append(accuracy_on(test, fit_by_hand(own, train, seed)))
    print(f"accuracy of the Trainer {by_trainer}, of our own loop {by_loop}")
    assert min(by_trainer) > 0.75
    assert abs(statistics.mean(by_trainer) - statistics.mean(by_loop)) < 0.03


def fit_by_hand(problem, rows, seed, n_epochs=5):
    images, labels = collate_bytes(list(rows)).values()
    model, shuffle = resnet(), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, n_epochs * len(images) // 32)
    for _ in range(n_epochs):
        for batch in torch.randperm(len(images), generator=shuffle).split(32):
            train_step(problem, model.train(), optimizer, images[batch], labels[batch])
            schedule.step()
    return model


@torch.no_grad()
def accuracy_on(batch, model):
    answers = model.eval()(normalise(batch["pixel_values"])).logits.argmax(1)
    return round(float((answers == batch["labels"]).float().mean()), 3)


# what is refused


def test_another_version_of_transformers_is_refused(monkeypatch):
    from invaug.integrations import huggingface

    monkeypatch.setattr(metadata, "version", lambda package: "4.57.6")
    way = r"pip install 'invaug\[huggingface\]'$"
    with pytest.raises(ImportError, match=rf"^transformers must be at least 5\.0 and below 6, got 4\.57\.6: {way}"):
        importlib.reload(huggingface)


def test_normalised_floats_are_refused_with_the_way_out(tmp_path):
    trainer = constrained(tmp_path, others={"data_collator": collate_normalised})
    with pytest.raises(ValueError, match=r"^images must be bytes .* move Normalize, .* into finish="):
        trainer.train()


def test_bytes_are_refused_where_the_model_evaluates_them(tmp_path):
    trainer = constrained(tmp_path, others={"eval_dataset": digits(32)})
    with pytest.raises(TypeError, match=r"^images to evaluate must be floats, .*, got torch\.uint8: give eval_dataset"):
        trainer.evaluate()


class WithoutLogits(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(784, 10)

    def forward(self, pixel_values, labels=None):
        scores = self.body(pixel_values.flatten(1))
        return {"loss": F.cross_entropy(scores, labels) if labels is not None else None, "scores": scores}


def test_a_model_without_logits_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(TypeError, match=r"^found no logits in dict, the answer of the model: say with outputs="):
        constrained(tmp_path, None, WithoutLogits).train()
    trainer = constrained(tmp_path, make_problem(outputs=itemgetter("scores")), WithoutLogits)
    trainer.train()
    assert int(trainer.problem.n_batches) == 6


def test_a_loss_that_reduces_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(ValueError, match=r'^loss_fn must return one loss per sample, .* use reduction="none"'):
        constrained(tmp_path, make_problem(loss_fn=F.cross_entropy)).train()


class WithDualStepsPerMicroBatch(InvarianceTrainer):
    def training_step(self, *args, **others):
        loss = super().training_step(*args, **others)
        self.problem.dual_step(self.last_step.slack)
        return loss


def test_dual_steps_per_micro_batch_are_refused_with_the_way_out(tmp_path):
    trainer = constrained(tmp_path, kind=WithDualStepsPerMicroBatch, gradient_accumulation_steps=2)
    way = "do not call dual_step for each micro-batch"
    with pytest.raises(RuntimeError, match=rf"^gamma has moved between two steps of the optimiser: {way}"):
        trainer.train()


def test_views_that_need_losses_per_sample_are_refused_with_the_way_out(tmp_path):
    with pytest.raises(ValueError, match=r"^problem must have views=\"one\", got 'both': other views need a loop"):
        constrained(tmp_path, make_problem(views="both"))


def test_a_constraint_in_the_place_of_a_problem_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"^problem must be an InvarianceConstrained, got Constraint"):
        constrained(tmp_path, Constraint(sets.wide()))


def test_batches_without_labels_are_refused_with_the_way_out(tmp_path):
    trainer = constrained(tmp_path, others={"data_collator": lambda rows: {"inputs": torch.zeros(len(rows))}})
    with pytest.raises(ValueError, match=r"^batches must hold pixel_values and labels, got inputs: collate with"):
        trainer.train()


def test_columns_that_the_trainer_takes_away_are_named(tmp_path):
    trainer = constrained(tmp_path, remove_unused_columns=True)
    with pytest.raises(ValueError, match=r"^rows must have a column pixel_values or image or img, got label: .*unused"):
        trainer.train()
