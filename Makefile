# Every target sets itself up in .venv: a fresh clone needs Python 3.11 or later and nothing else.
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
# torch's OpenMP threads spin, so tests that run side by side are faster with one thread each
PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest
SPHINX := OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet
QUICK := "not slow and not ray and not long and not pages and not integrations"
# three workers on two cores: tests that wait for processes leave room for others
WORKERS := 3
# tracing takes almost half as much time again, so `make test` measures the coverage of the method by these tests alone;
# `make coverage` measures all of src by all tests
TRACED := $(addprefix tests/,test_doctests.py test_samplers.py test_halves.py test_testing.py transforms/test_draw.py)
# percent of the lines that must be executed: of the method by these, of src by all
METHOD_FLOOR := 90
FLOOR := 88
CHOOSING := cap alpha safety-rates compare-rates
PROOF := compare safety length width auto lambda-c table-synthetic compare-frozen
# packages are not compiled ahead of time; without byte code on disk every process would spend ten seconds compiling them
export PYTHONDONTWRITEBYTECODE :=
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# uv installs about five times faster; pip takes over where uv is not available or fails
install = $(BIN)/uv pip install --quiet --python $(BIN)/python -c $(CONSTRAINTS) $(1) \
	|| $(BIN)/pip install --quiet --no-compile -c $(CONSTRAINTS) $(1)

.PHONY: train test format lint types unit left-out coverage exact long faults fuzz soak ray loggers integrations adapters pages docs linkcheck notebook package \
	compare bench clean

train: .venv/dev
	$(BIN)/invaug train

test: format lint types unit left-out

format: .venv/dev
	$(BIN)/ruff format --check .

lint: .venv/dev
	$(BIN)/ruff check .

types: .venv/dev
	$(BIN)/mypy

unit: .venv/dev
	$(PYTEST) -n $(WORKERS) --dist worksteal -m $(QUICK) $(addprefix --ignore=,$(TRACED))
	$(PYTEST) -n $(WORKERS) -m $(QUICK) $(TRACED) --cov --cov-report=
	@echo "percent of the method's lines executed by these (at least $(METHOD_FLOOR)); make coverage measures everything:"
	@$(BIN)/coverage report --format=total --omit='*/lab/*,*/integrations/*,*/by_numba.py' --fail-under=$(METHOD_FLOOR)

left-out:
	@echo "make test leaves out these suites:"
	@echo "  make exact      every operation, level and size against Pillow, byte for byte"
	@echo "  make long       searches and experiments that are killed and resumed; long trainings"
	@echo "  make faults     crashes, damaged files and hostile input, each many times"
	@echo "  make fuzz       mutated files of every format, for SECONDS=600"
	@echo "  make soak       one run of 20,000 steps, stopped and resumed 30 times"
	@echo "  make adapters   torchvision, kornia, albumentations and timm (installs them)"
	@echo "  make integrations  trainings with Lightning, Hugging Face and timm (installs them)"
	@echo "  make pages      the report in a real browser (needs chromium and chromedriver)"
	@echo "  make ray        jobs on Ray (installs it)"
	@echo "  make loggers    Weights & Biases and MLflow (installs them)"
	@echo "  make docs       the documentation site with its gallery; warnings are errors (installs Sphinx)"
	@echo "  make notebook   executes the notebook (installs a Jupyter kernel)"
	@echo "  make package    builds the wheel and installs it into an empty environment"
	@echo "  make compare    the experiments behind docs/compare.md (days on two cores; resumable)"
	@echo "  make bench      speed next to the peers (installs them)"

# the lines that no test executes, file by file; slower than `make test`, because it traces every test
coverage: .venv/dev
	$(PYTEST) -n $(WORKERS) -m $(QUICK) --cov --cov-report=term-missing:skip-covered --cov-fail-under=$(FLOOR)

exact: .venv/dev
	$(PYTEST) -n $(WORKERS) -m slow tests/kernels/test_exact.py

long: .venv/dev
	$(PYTEST) -n $(WORKERS) -m long

# every fault in its full count, and the table of docs/reliability.md
faults: .venv/dev
	$(BIN)/python -m faults -o docs/reliability.md

# mutated files of every format that is read from others, or of FORMATS="npz,state"; SEED= makes a run repeatable
SECONDS ?= 600
fuzz: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m faults.fuzz --seconds $(SECONDS) --formats "$(FORMATS)" $(if $(SEED),--seed $(SEED))

# the long haul: memory, open files, the record and the report of one run through many stops
soak: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m faults.haul

# the tests that are skipped without the peers
adapters: .venv/peers
	$(PYTEST) -n $(WORKERS) -m "not slow" tests/transforms/test_adapters.py tests/transforms/test_ops.py tests/lab/models tests/lab/baselines tests/test_docs.py::test_python_blocks_of_the_page_run

pages: .venv/dev
	@command -v chromedriver >/dev/null || { echo "make pages needs chromium and chromedriver (apt-get install chromium-driver)"; exit 1; }
	$(PYTEST) -m pages

# the site, offline; the gallery is executed, and a broken link or reference is an error
docs: .venv/docs
	rm -rf docs/generated
	$(SPHINX) -b html -E -W --keep-going docs build/docs
	@echo "open build/docs/index.html"

# links to other sites; needs the network
linkcheck: .venv/docs
	$(SPHINX) -b linkcheck -D plot_gallery=0 docs build/linkcheck

notebook: .venv/dev
	$(call install,-e '.[notebook]')
	OMP_NUM_THREADS=1 $(BIN)/python .ci/notebook.py examples/which_symmetries.ipynb

ray: .venv/dev
	$(call install,-e '.[ray]')
	$(PYTEST) -m ray

# in an environment of their own, where the versions of the frameworks can differ from those of the other tests
integrations .venv-integrations/ready: BIN := .venv-integrations/bin
integrations: .venv-integrations/ready
	@$(BIN)/pip list 2>/dev/null | grep -E "^(torch|torchvision|lightning|transformers|datasets|accelerate|timm) "
	$(PYTEST) tests/integrations tests/test_examples.py
	$(PYTEST) tests/test_doctests.py tests/test_docs.py::test_python_blocks_of_the_page_run -k "integrations or lightning or huggingface or timm or own-loop"

loggers: .venv/dev
	$(call install,-e '.[wandb]' -e '.[mlflow]')
	$(PYTEST) tests/lab/run/test_loggers.py

package:
	$(PYTHON) .ci/package.py $(CONSTRAINTS)

# the experiments of docs/protocol.md; runs that have a row in results/ are skipped. Settings are chosen on held-out images
# and must be in proof.toml before anything reads test images
compare: .venv/dev
	for name in $(CHOOSING); do nice $(BIN)/invaug reproduce $$name --jobs 2 || exit 1; done
	$(PYTEST) -q tests/lab/reproduce/test_proof.py -k chosen
	for name in $(PROOF); do nice $(BIN)/invaug reproduce $$name --jobs 2 || exit 1; done
	$(BIN)/python -m invaug.lab.reproduce --proof -o docs/compare.md

bench: .venv/peers
	$(BIN)/python bench/ops.py
	$(BIN)/python bench/step.py
	$(BIN)/python bench/calls.py
	$(BIN)/python bench/epoch.py

.venv/bin/pip:
	$(PYTHON) -m venv .venv
	-$(BIN)/pip install --quiet uv

.venv/dev: .venv/bin/pip pyproject.toml constraints.txt
	$(call install,-e '.[dev]')
	$(BIN)/python -m invaug.lab.train.compiled
	touch $@

.venv/docs: .venv/dev
	$(call install,-e '.[docs]')
	touch $@

.venv/peers: .venv/dev
	$(call install,-e '.[peers]' -e '.[timm]')
	touch $@

.venv-integrations/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-integrations
	-$(BIN)/pip install --quiet uv
	$(call install,-e '.[dev]' -e '.[huggingface]' -e '.[timm]')
	touch $@

clean:
	rm -rf .venv .venv-integrations build dist docs/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
