# `make demo` and `make test` are all that a fresh machine needs: both set up ./.venv first.
# Needs make, a shell, and Python >= 3.12 (through pyenv or on the PATH; or make PYTHON=... <target>).

VENV := .venv
EXTRAS := dev
READY := $(VENV)/.ready
# The demos run in an environment for development too, but do not ask for one.
DEMO_READY := $(if $(wildcard $(READY)),$(READY),$(VENV)/.ready-for-demos)
RUN := $(VENV)/bin/python
WORKERS ?= 2
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PYTEST = $(RUN) -m pytest $(SIDE_BY_SIDE)
DEMO_FLAGS ?=
TEST_FLAGS ?=
# Loops that a process has compiled are never freed: those of these tests end with processes of their own.
# Some may have none of the tests that TEST_FLAGS choose, which pytest calls 5.
MANY_LOOPS := tests/models tests/loops
MORE_LOOPS := tests/statistical pymc_coresets
OTHERS := tests/unit
SOURCES := pymc_coresets tests examples benchmarks scripts docs
# The site has an environment of its own: Sphinx and its themes are of no use elsewhere.
DOCS_VENV := .venv-docs
DOCS_READY := $(DOCS_VENV)/.ready
SITE := docs/_build/html
DOCS_FLAGS ?=
SPHINX = MPLBACKEND=Agg OMP_NUM_THREADS=$(THREADS) $(DOCS_VENV)/bin/python -m sphinx --builder html --fail-on-warning \
	--keep-going --quiet --jobs auto --doctree-dir docs/_build/doctrees $(DOCS_FLAGS) docs $(SITE)
# Small matrices, several processes: more BLAS threads than that only compete.
THREADS ?= 1
# Other random numbers for the statistical tests.
SEEDS ?= 1 2 3
export PYTHON

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo demo-full demo-big test test-all test-processors test-lowest test-neighbours mutants coverage lint types format bench docs docs-test docs-tools site figures gallery prose tables dist wheel clean

help: ## show this list
	@echo "Targets (each sets up .venv first where it needs it):"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with the project and everything needed to work on it

$(READY): pyproject.toml
	@sh scripts/setup_venv.sh $(VENV) $(EXTRAS)
	@touch $@

$(VENV)/.ready-for-demos: pyproject.toml
	@sh scripts/setup_venv.sh $(VENV) examples
	@touch $@

demo: $(DEMO_READY) ## a coreset of 327,346 flights, its posterior, and whether to believe it
	@$(RUN) examples/flights.py $(DEMO_FLAGS)

demo-full: $(DEMO_READY) ## the same, and the posterior of all flights beside it (slow)
	@$(RUN) examples/flights.py --full $(DEMO_FLAGS)

demo-big: $(DEMO_READY) ## ten million flights in files, with 2 GB of memory (5 to 10 minutes)
	@OMP_NUM_THREADS=$(THREADS) $(RUN) examples/flights_big.py $(DEMO_FLAGS)

test: $(READY) ## all tests but the slow ones, and the examples in the docstrings
	@status=0; for part in "$(MANY_LOOPS)" "$(MORE_LOOPS)" "$(OTHERS)" \
		"tests $(patsubst %,--ignore=%,$(MANY_LOOPS) $(MORE_LOOPS) $(OTHERS))"; do \
		OMP_NUM_THREADS=$(THREADS) $(PYTEST) $$part $(TEST_FLAGS) \
			|| [ $$? -eq 5 ] || status=1; \
	done; exit $$status

test-all: $(READY) ## every test, with all loops compiled
	@OMP_NUM_THREADS=$(THREADS) PYMC_CORESETS_TEST_COMPILED=1 $(PYTEST) -m "slow or not slow" $(TEST_FLAGS)

test-processors: $(READY) ## the tests as other processors compute, and the statistical ones with other seeds
	@OMP_NUM_THREADS=$(THREADS) NPY_DISABLE_CPU_FEATURES=$$($(RUN) scripts/processor_features.py AVX512) \
		PYMC_CORESETS_TEST_COMPILED=1 OPENBLAS_CORETYPE=Haswell NUMBA_CPU_NAME=generic $(PYTEST) $(TEST_FLAGS)
	@OMP_NUM_THREADS=$(THREADS) NPY_DISABLE_CPU_FEATURES=$$($(RUN) scripts/processor_features.py) \
		PYMC_CORESETS_TEST_COMPILED=1 OPENBLAS_CORETYPE=Nehalem NUMBA_CPU_NAME=generic $(PYTEST) $(TEST_FLAGS)
	@for seed in $(SEEDS); do \
		OMP_NUM_THREADS=$(THREADS) PYMC_CORESETS_TEST_SEED=$$seed $(PYTEST) \
			tests/statistical tests/properties $(TEST_FLAGS) \
			|| exit 1; \
	done

test-lowest: $(READY) ## the tests with the lowest versions that pyproject.toml allows
	@OMP_NUM_THREADS=$(THREADS) sh scripts/try_lowest.sh $(VENV) $(SIDE_BY_SIDE) $(TEST_FLAGS)

test-neighbours: $(READY) ## the tests beside pymc-marketing, and beside Bambi and HSSM, in environments of their own
	@OMP_NUM_THREADS=$(THREADS) sh scripts/try_neighbours.sh $(RUN) $(TEST_FLAGS)

mutants: $(READY) ## planted bugs that the tests must catch, as many as MUTANTS_SECONDS allow
	@$(RUN) -m tests.mutants

coverage: $(READY) ## the tests with a report of the lines that they do not reach
	@OMP_NUM_THREADS=$(THREADS) $(PYTEST) --cov $(TEST_FLAGS)

lint: $(READY) ## ruff: rules and formatting
	@$(RUN) -m ruff check $(wildcard $(SOURCES))
	@$(RUN) -m ruff format --check $(wildcard $(SOURCES))

types: $(READY) ## mypy --strict
	@$(RUN) -m mypy

format: $(READY) ## rewrite the sources in ruff's format
	@$(RUN) -m ruff check --fix-only --quiet $(wildcard $(SOURCES))
	@$(RUN) -m ruff format $(wildcard $(SOURCES))

bench: $(READY) ## measure the published tables of other commits anew (hours)
	@$(RUN) -m benchmarks

$(DOCS_READY): pyproject.toml
	@sh scripts/setup_venv.sh $(DOCS_VENV) docs
	@touch $@

docs: $(DOCS_READY) ## the site, in docs/_build/html; warnings are errors
	@$(SPHINX)
	@echo "$(SITE)/index.html"

docs-test: docs docs-tools ## the site in a browser: links, errors, widths, light and dark, accessibility, search
	@$(DOCS_VENV)/bin/python -m pytest tests/site --confcutdir tests/site $(TEST_FLAGS)

site: ## the site as it is published: with the gallery run, and every page tested
	@GALLERY=run $(MAKE) docs-test

docs-tools: $(DOCS_READY) ## what docs-test needs besides Python: Chromium (by apt) and axe-core (by npm)
	@sh scripts/setup_browser.sh $(DOCS_VENV)/node

tables: $(READY) ## bring the figures that the documentation quotes up to date with docs/tables
	@$(RUN) scripts/fill_tables.py

prose: ## look for phrases that readers of the documentation stumbled over
	@python3 scripts/prose.py

figures: $(DOCS_READY) ## draw the pictures of "How it works", "Many parameters" and the comparison with other ways
	@MPLBACKEND=Agg OMP_NUM_THREADS=$(THREADS) $(DOCS_VENV)/bin/python docs/figures/how_it_works.py
	@MPLBACKEND=Agg OMP_NUM_THREADS=$(THREADS) $(DOCS_VENV)/bin/python docs/figures/opponents.py
	@MPLBACKEND=Agg OMP_NUM_THREADS=$(THREADS) $(DOCS_VENV)/bin/python docs/figures/many_parameters.py
	@MPLBACKEND=Agg OMP_NUM_THREADS=$(THREADS) $(DOCS_VENV)/bin/python docs/figures/choosing.py

gallery: $(DOCS_READY) ## run the scripts of examples/gallery that have changed, and build the site with what they draw
	@GALLERY=run $(SPHINX)
	@echo "$(SITE)/gallery/index.html"

dist: $(READY) ## build the sdist and the wheel, and check what their pages on an index will show
	@rm -rf dist
	@$(RUN) -m build --outdir dist . >/dev/null
	@$(RUN) -m twine check --strict dist/*

wheel: dist ## try the wheel in environments of their own, with each Python that is supported and here
	@sh scripts/try_wheel.sh $(abspath $(RUN)) dist/*.whl

clean: ## remove what the other targets made
	rm -rf $(VENV) $(DOCS_VENV) docs/_build docs/gallery docs/reference/generated docs/reference/backreferences
	rm -rf dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
