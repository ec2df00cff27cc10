# Everything a contributor runs. Python ≥ 3.11, pip and make are enough: the virtual environment is made on demand.
#
#   make test                       lint, types, import layers and the fast tests
#   PYTHON=python3.12 make test     the same with another interpreter, in an environment of its own

ifeq ($(origin PYTHON), undefined)
  PYTHON := python3
  VENV ?= .venv
else
  VENV ?= .venv-$(notdir $(PYTHON))
endif
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
WORKERS ?= 2
# Without compiled modules on disk, both workers and every process that a test starts would compile natgrad and the tests anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test tests test-bare kernels coverage oldest lint format docs bench slow examples notebooks gallery clean

help:
	@echo "make demo    fit a model and show the result"
	@echo "make test    lint, types, import layers and the fast tests"
	@echo "make coverage  the fast tests, and which lines they do not run (slower)"
	@echo "make test-bare  the fast tests of the engine without pandas, PyArrow, AnnData, Dask: what a plain installation has"
	@echo "make oldest  the fast tests with the lowest versions that pyproject.toml allows"
	@echo "make slow    the statistical and large tests (hours); make slow PART=2/8 is the second of eight parts, which together are all"
	@echo "make lint    style, types and import layers only"
	@echo "make format  rewrite the sources in the house style"
	@echo "make docs    build the documentation into site/"
	@echo "make bench   seconds per sweep against other engines (minutes)"
	@echo "make examples  run the examples; their output and pictures go into the tutorials"
	@echo "make notebooks  execute the tutorials as notebooks, with their pictures (minutes)"
	@echo "make gallery draw the pictures of the gallery"
	@echo "make clean   remove what the other targets made"

# Without the tools, unless they are there: half of the set-up.
demo: $(if $(wildcard $(VENV)/.dev),,$(VENV)/.base)
	@$(BIN)/natgrad demo

# Two cores are never idle: the types are checked beside everything else, and the kernels are compiled in two halves before the
# tests, so that no two workers compile the same. `make coverage` says which statements they run.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs=2 lint tests

# Each worker has a core, and so one thread of the matrix library.
tests test-bare coverage oldest slow: export OPENBLAS_NUM_THREADS ?= 1

tests: kernels
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# What is compiled already is read from disk, which takes two seconds.
kernels: $(VENV)/.dev
	@PYTHONPATH=tests $(BIN)/python tests/kernels/without_compiler.py --half 0 & first=$$!; \
	  PYTHONPATH=tests $(BIN)/python tests/kernels/without_compiler.py --half 1 && wait $$first

# Python 3.11 traces every line, which takes 40 % more processor time; 3.12 and newer are asked by the interpreter itself.
coverage: $(VENV)/.dev
	COVERAGE_CORE=$$($(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")') \
	  $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term

# A plain installation, as `pip install natgrad` makes it: what needs more is skipped, or says what is missing.
BARE := families inference kernels mistakes network posterior promises report
test-bare: $(VENV)-bare/.dev
	$(VENV)-bare/bin/python -m pytest -n $(WORKERS) --dist worksteal $(addprefix tests/,$(BARE))

# Without the linters, whose own needs are newer. PYTHON=python3.12 make test tries the newest versions with another interpreter.
oldest: $(VENV)-oldest/.dev
	$(VENV)-oldest/bin/python -m pytest -n $(WORKERS) --dist worksteal

# With kernels that are kept: a process that compiles them may differ from its workers, which load them, in the last digit.
# A part is chosen by the names of the tests (tests/conftest.py); `NATGRAD_TEST_PART=2/8 pytest -m slow --collect-only -q` lists it.
slow: kernels $(VENV)/.release
	NATGRAD_TEST_PART=$(PART) JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
	  -m "slow or hypothesis" --hypothesis-profile=explore   # new random examples every time

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

examples: $(VENV)/.dev
	@for program in examples/*.py; do name=$$(basename $$program .py); \
	  $(BIN)/python $$program --figure docs/figures/examples/$$name.png > docs/tutorials/output/$$name.txt || exit 1; done

notebooks: $(VENV)/.notebooks
	$(BIN)/python tools/notebooks.py

gallery: $(VENV)/.dev
	$(BIN)/python docs/figures/gallery.py

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/engine.py

clean:
	rm -rf .coverage .venv .venv-* .bench .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist site
	find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamps are renewed when pyproject.toml changes; an environment that exists is kept and brought up to date.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("natgrad needs Python 3.11 or newer, got " + sys.version.split()[0] + ": call PYTHON=python3.12 make ..." if sys.version_info < (3, 11) else 0)'
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	@echo "installing natgrad into $(VENV)"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing natgrad and its tools into $(VENV)"
	@$(PIP) install --editable ".[dev]"
	@touch $@

$(VENV)-oldest/.dev: pyproject.toml tools/lowest.py
	@$(PYTHON) -m venv $(VENV)-oldest
	@$(VENV)-oldest/bin/python tools/lowest.py > $(VENV)-oldest/lowest.txt
	@$(VENV)-oldest/bin/python -m pip --quiet --disable-pip-version-check install -r $(VENV)-oldest/lowest.txt --editable .
	@touch $@

$(VENV)-bare/.dev: pyproject.toml
	@$(PYTHON) -m venv $(VENV)-bare
	@$(VENV)-bare/bin/python -m pip --quiet --disable-pip-version-check install --editable . "pytest>=8.3" "pytest-xdist>=3.6.1" "hypothesis>=6.150"
	@touch $@

$(VENV)/.release: $(VENV)/.dev
	@$(PIP) install --editable ".[dev,release]"
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@$(PIP) install --editable ".[dev,docs]"
	@touch $@

$(VENV)/.notebooks: $(VENV)/.dev
	@$(PIP) install --editable ".[dev,notebooks]"
	@touch $@
