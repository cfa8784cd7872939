# Every target sets itself up in .venv: a fresh clone needs Python 3.11 and nothing else.
PYTHON ?= python3
BIN := .venv/bin
# torch's OpenMP threads spin; with tests side by side one thread each is faster
TEST_ENV := OMP_NUM_THREADS=1
# the install is not compiled ahead of time; without byte code on disk every process would spend ten seconds compiling it
export PYTHONDONTWRITEBYTECODE :=

.PHONY: train test exact bench faults loggers ray long clean

train: .venv/dev
	$(BIN)/invaug train

test: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(TEST_ENV) $(BIN)/pytest -n 2 -m "not slow and not ray and not long"

exact: .venv/dev
	$(TEST_ENV) $(BIN)/pytest -n 2 -m slow tests/kernels/test_exact.py

# every fault in its full count, and the table of docs/reliability.md
faults: .venv/dev
	$(BIN)/python -m faults -o docs/reliability.md

bench: .venv/peers
	$(BIN)/python bench/ops.py
	$(BIN)/python bench/step.py
	$(BIN)/python bench/calls.py
	$(BIN)/python bench/epoch.py

# the logs of other services, which the default install leaves out
loggers: .venv/dev
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[dev,wandb,mlflow]'
	$(TEST_ENV) $(BIN)/pytest tests/lab/run/test_loggers.py

# searches and experiments that are killed, stopped and resumed; ten thousand steps under a useless set
long: .venv/dev
	$(TEST_ENV) $(BIN)/pytest -n 2 -m long

# jobs on Ray, which is too large for the default install
ray: .venv/dev
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[dev,ray]'
	$(TEST_ENV) $(BIN)/pytest -m ray

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/dev: .venv/bin/pip pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[dev]'
	touch $@

.venv/peers: .venv/dev
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[dev,peers]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
