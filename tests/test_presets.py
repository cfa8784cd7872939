import copy

import pytest
import torch
from torch.nn import functional as F

from invaug import Constraint, metropolis_hastings, presets, views
from invaug.scoring import cross_entropy
from tests.support.operations import TRIVIAL_AUGMENT
from tests.support.problems import (
    Diary,
    Recorder,
    batch_norm_network,
    make_batches,
    make_images,
    make_targets,
    noisy,
    to_double,
)

# what the paper says and what the authors' code runs, as facts.md has them
PUBLISHED = {
    "paper": {
        "n_proposals": 3,
        "dual_lr": 1e-3,
        "gamma": {1: 0.0, 2: 0.0},
        "scoring": "frozen",
        "ops": TRIVIAL_AUGMENT,
        "levels": range(30),
    },
    "authors-code": {
        "n_proposals": 2,
        "dual_lr": 1e-4,
        "gamma": {1: 0.0, 2: 1.0},
        "scoring": "train",
        "ops": TRIVIAL_AUGMENT[1:],
        "levels": range(1, 30),
    },
}


def test_both_presets_ship_by_name():
    assert {name: preset.name for name, preset in presets.PRESETS.items()} == {name: name for name in PUBLISHED}
    assert presets.PRESETS == {"paper": presets.PAPER, "authors-code": presets.AUTHORS_CODE}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("n_views", [1, 2])
def test_preset_has_the_published_values(name, n_views):
    preset, published = presets.PRESETS[name], PUBLISHED[name]
    problem = preset.problem(Constraint(preset.wide(), 0.8), n_views=n_views)
    assert problem.n_steps + 1 == published["n_proposals"]
    assert problem.n_views == n_views
    assert problem.dual_lr == published["dual_lr"]
    assert problem.gamma.tolist() == [published["gamma"][n_views]]
    assert problem.scoring == published["scoring"]
    assert problem.views is views.apart
    assert problem.loss_fn is cross_entropy
    assert problem.constraints[0].sampler is metropolis_hastings


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("size", ["standard", "wide"])
def test_preset_proposes_from_the_published_set(name, size):
    transforms, published = getattr(presets.PRESETS[name], size)(), PUBLISHED[name]
    draw = transforms.draw(5000, generator=torch.Generator().manual_seed(0))
    assert list(transforms.names) == published["ops"]
    assert sorted(draw.level.flatten().unique().tolist()) == list(published["levels"])
    assert sorted(draw.op.flatten().unique().tolist()) == list(range(len(published["ops"])))


RANGES = {"standard": {"Rotate": 30, "ShearX": 0.3, "TranslateX": 10}, "wide": {"Rotate": 135, "TranslateX": 32}}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("size", RANGES)
def test_preset_reaches_the_published_magnitudes_at_its_last_level(name, size):
    every = getattr(presets.PRESETS[name], size)()
    for op, largest in RANGES[size].items():
        assert every.only(op).every().magnitude.max() == pytest.approx(largest)


def test_authors_score_all_proposals_in_one_pass():
    model, preset = Recorder(batch_norm_network()), presets.AUTHORS_CODE
    problem = preset.problem(Constraint(preset.wide(), 0.8), n_views=3)
    problem(model, make_images(700), make_targets(700))
    assert [len(inputs) for inputs in model.scored] == [2 * 3 * 700]
    assert [len(inputs) for inputs in model.trained] == [700, 2100]


def test_paper_scoring_leaves_batch_norm_alone():
    model, preset = batch_norm_network(), presets.PAPER
    preset.problem(Constraint(preset.wide(), 0.8))(model, make_images(8), make_targets(8))
    assert model[1].num_batches_tracked == 2  # the clean and the kept pass


def test_settings_given_win_over_the_preset():
    problem = presets.AUTHORS_CODE.problem(
        Constraint(presets.AUTHORS_CODE.wide(), 0.7), dual_lr=1e-3, finish=noisy, seed=3, gamma_init=0.1
    )
    assert (problem.dual_lr, problem.finish, problem.seed) == (1e-3, noisy, 3)
    torch.testing.assert_close(problem.gamma.tolist(), [0.1])


class AuthorsTrainer:
    """The authors' training step, restated: two proposals, one accept/reject, two passes with gradient."""

    def __init__(self, model, epsilon, dual_lr, gamma, n_views):
        self.model, self.epsilon, self.dual_lr, self.n_views = model, epsilon, dual_lr, n_views
        self.gamma = torch.tensor(gamma, dtype=torch.float64)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def step(self, clean, first, second, targets, chance):
        """Take clean inputs, two proposals for each view of each image, and one uniform number per pair."""
        self.model.train()
        repeated = targets.repeat(self.n_views)
        with torch.no_grad():
            outputs = self.model(torch.cat([first, second]))
            current, proposed = F.cross_entropy(outputs, repeated.repeat(2), reduction="none").chunk(2)
        accepted = chance < (proposed / current).clamp(max=1)
        kept = torch.where(accepted.view(-1, 1, 1, 1), second, first)
        loss = F.cross_entropy(self.model(clean), targets)
        constraint = F.cross_entropy(self.model(kept), repeated)
        self.optimizer.zero_grad()
        (loss + self.gamma * constraint).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5)
        self.optimizer.step()
        self.gamma = torch.relu(self.gamma + self.dual_lr * (constraint.detach() - self.epsilon))
        return int(accepted.sum())


@pytest.mark.parametrize("dual_lr", [1e-4, 0.5])  # their own, and one that lets gamma matter in a few steps
@pytest.mark.parametrize("n_views", [1, 2])
def test_authors_preset_takes_the_steps_of_the_authors(monkeypatch, n_views, dual_lr):
    diary, preset, epsilon = Diary(monkeypatch), presets.AUTHORS_CODE, 0.8
    transforms = preset.wide()
    model = batch_norm_network().double()
    theirs = AuthorsTrainer(copy.deepcopy(model), epsilon, dual_lr, gamma=float(n_views > 1), n_views=n_views)
    constraint = Constraint(transforms, epsilon, diary.watch(metropolis_hastings))
    problem = preset.problem(constraint, n_views=n_views, dual_lr=dual_lr, finish=to_double)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    n_accepted = 0
    for images, targets in make_batches(15):
        step = problem(model, images, targets)
        optimizer.zero_grad()
        step.lagrangian.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        problem.dual_step(step.slack)

        (draw,), _, (uniforms,) = diary.tear_off()
        first, second = to_double(transforms.apply(images.repeat(2 * n_views, 1, 1, 1), draw)).chunk(2)
        n_accepted += theirs.step(to_double(images), first, second, targets, uniforms.view(-1))
        torch.testing.assert_close(model.state_dict(), theirs.model.state_dict(), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(problem.gamma[0], theirs.gamma, rtol=1e-9, atol=1e-11)
    assert model[1].num_batches_tracked == 3 * 15  # scoring, clean, kept
    assert problem.gamma > 0
    assert 0 < n_accepted < 15 * 8 * n_views
