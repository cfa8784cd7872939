"""timm's own train.py in processes of its own, with the wrapper of examples/timm_train.py and without."""

from __future__ import annotations

import csv
import re
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.problems import same_bits

if find_spec("timm") is None:
    pytest.skip("NOT TESTED WITH TIMM: `make integrations` installs it", allow_module_level=True)

from tests.support import timm_training as support

pytestmark = pytest.mark.integrations

STAND_IN = """
import sys
from pathlib import Path
from timm.task import ClassificationTask
from tests.support.timm_training import fit
task = fit(Path(sys.argv[1]), ClassificationTask)
print(type(task).__name__, task.problem.gamma.item())
"""
PAGE = support.ROOT / "docs" / "timm.md"
WRAPPER = support.ROOT / "examples" / "timm_train.py"
OPTIONS = f"--model {support.MODEL} --num-classes 10 --img-size 28 --crop-pct 1 --device cpu --no-aug --lr 0.02".split()
OPTIONS += ["-j", "0", "-b", "32", "--warmup-epochs", "0"]
SEEDED = "import timm.data, torch\ntimm.data.ImageDataset.set_epoch = lambda self, epoch: torch.manual_seed(epoch)\n"


@pytest.fixture(scope="module")
def train_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return support.find_train_script(tmp_path_factory.mktemp("timm"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return support.write_digits(tmp_path_factory.mktemp("digits"), n_train=512, n_test=128)


def words(folder: Path, output: Path, *others: str) -> list[str]:
    return ["--data-dir", str(folder), *OPTIONS, "--output", str(output.parent), "--experiment", output.name, *others]


def train(train_script: Path, folder: Path, output: Path, *others: str, wrapper: Path | None = WRAPPER) -> dict:
    """Run train.py, through the wrapper if there is one, and return its last checkpoint."""
    scripts = [wrapper, str(train_script)] if wrapper else [train_script]
    support.run(*scripts, *words(folder, output, *others))
    return support.read_checkpoint(output / "last.pth.tar")


def rewrite_wrapper(place: Path, old: str, new: str) -> Path:
    """Write the wrapper with one change, and return where it is."""
    text = WRAPPER.read_text(encoding="utf-8")
    assert text.count(old) == 1
    place.write_text(text.replace(old, new), encoding="utf-8")
    return place


def test_the_page_names_options_that_train_py_has(train_script):
    page, known = (path.read_text(encoding="utf-8") for path in (PAGE, train_script))
    named = set(re.findall(r"--[a-z]+[a-z-]*", page))
    assert len(named) > 15
    assert [option for option in named if f"'{option}'" not in known] == []


def test_the_wrapper_puts_the_task_into_any_script_that_takes_it_from_timm(folder, tmp_path):
    """Where train.py is not at hand: a script that imports the task as it does, and trains with timm's parts."""
    script = tmp_path / "script.py"
    script.write_text(STAND_IN, encoding="utf-8")
    name, gamma = support.run(WRAPPER, str(script), str(folder)).split()[-2:]
    assert name == "InvarianceTask"
    assert float(gamma) > 0


def test_the_page_shows_the_wrapper():
    assert f"```py\n{WRAPPER.read_text(encoding='utf-8')}```" in PAGE.read_text(encoding="utf-8")


def test_with_an_infinite_epsilon_train_py_trains_to_the_same_bits(train_script, folder, tmp_path):
    unbound = 'Constraint(sets.wide(), float("inf"))'
    wrapper = rewrite_wrapper(tmp_path / "wrapper.py", "Constraint(sets.wide())", unbound)
    plain, ours = (
        train(train_script, folder, tmp_path / name, "--epochs", "2", "--model-ema", wrapper=each)
        for name, each in {"plain": None, "ours": wrapper}.items()
    )
    assert same_bits(plain["state_dict"], ours["state_dict"])
    assert same_bits(plain["state_dict_ema"], ours["state_dict_ema"])
    assert ours["task_state"]["gamma"] == 0


def test_a_killed_training_resumes_to_the_same_bits_with_ema_and_accumulation(train_script, folder, tmp_path):
    """With the line of docs/timm.md that makes the order of images depend on the epoch alone."""
    wrapper = rewrite_wrapper(
        tmp_path / "wrapper.py", "sys.argv = sys.argv[1:]\n", f"sys.argv = sys.argv[1:]\n{SEEDED}"
    )
    others = ["--epochs", "3", "--model-ema", "--model-ema-decay", "0.9", "--grad-accum-steps", "2"]
    whole = train(train_script, folder, tmp_path / "whole", *others, wrapper=wrapper)
    first = tmp_path / "killed" / "last.pth.tar"
    with support.start(wrapper, str(train_script), *words(folder, tmp_path / "killed", *others)) as process:
        while not first.exists() and process.poll() is None:
            time.sleep(0.05)
        process.kill()
    resumed = train(train_script, folder, tmp_path / "resumed", *others, "--resume", str(first), wrapper=wrapper)
    assert resumed["task_state"]["n_batches"] == 3 * 16
    assert resumed["task_state"]["gamma"] > 0
    for part in ("state_dict", "state_dict_ema", "task_state"):
        assert same_bits(whole[part], resumed[part])


def test_with_its_usual_sampler_train_py_itself_does_not_resume_to_the_same_bits(train_script, folder, tmp_path):
    """The order of images then depends on how many numbers the process has drawn: a limit of timm, not of the task."""
    whole = train(train_script, folder, tmp_path / "whole", "--epochs", "2", wrapper=None)
    first = str(tmp_path / "whole" / "checkpoint-0.pth.tar")
    resumed = train(train_script, folder, tmp_path / "resumed", "--epochs", "2", "--resume", first, wrapper=None)
    assert not same_bits(whole["state_dict"], resumed["state_dict"])


def test_gamma_rises_and_train_py_reports_a_reasonable_accuracy(train_script, folder, tmp_path):
    saved = train(train_script, folder, tmp_path / "ours", "--epochs", "8")
    with (tmp_path / "ours" / "summary.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert saved["task_state"]["gamma"] > 0.1
    assert max(float(row["eval_top1"]) for row in rows) > 75
