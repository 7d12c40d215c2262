# Everything here works on a machine with Python 3.11 and make: the first run sets up .venv, later ones reuse it.

VENV     ?= .venv
OUT      ?= vflpriv-report
WORKERS  ?= 2
SECONDS_EACH ?= 60
PYTHON   ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
BIN      := $(VENV)/bin
PIP      := $(BIN)/python -m pip --disable-pip-version-check --no-input -q
ONE      := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# Tests start interpreters: modules that are compiled once are kept, whatever the environment says.
TESTED   := $(ONE) PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help locked audit test test-cpus test-slow test-cuda test-browser mutations mutants chaos lint types format fuzz bench results docs dist clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, found {v[0]}.{v[1]}.")'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

locked: $(BIN)/python  ## before all else, as CI does: packages by the hashes of hashes.txt (Linux, Python 3.11)
	@$(PIP) install --require-hashes --no-deps -r hashes.txt

$(VENV)/.test: pyproject.toml constraints.txt vflpriv/common/_philox.c | $(BIN)/python
	@echo "Installing (once; a few minutes)"
	@$(PIP) install -c constraints.txt -e '.[test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

audit: $(VENV)/.test  ## the default audit, on data that ships with the packages; OUT=folder, AUDIT_FLAGS='--quiet …'
	@code=0; $(BIN)/vflpriv audit --out '$(OUT)' $(AUDIT_FLAGS) || code=$$?; \
	case $$code in 0|1) echo "Report: $(OUT)/" ;; esac; \
	case $$code in \
	  0) ;; \
	  1) echo "The audit's own exit code was 1: a published claim is violated." ;; \
	  *) exit $$code ;; \
	esac

test: $(VENV)/.test  ## all tests but the slow ones
	@$(TESTED) $(BIN)/python -m pytest -q -m 'not slow' -n $(WORKERS) --dist loadfile --durations=10

$(VENV)/.ray: $(VENV)/.test
	@$(PIP) install -c constraints.txt -e '.[ray]'
	@touch $@

test-slow: $(VENV)/.ray  ## the slow tests, those on clusters of Ray included
	@$(TESTED) $(BIN)/python -m pytest -q -m slow -n $(WORKERS)

test-cpus: $(VENV)/.test  ## the tests as other CPUs run them, and the smallest margins; TESTS='tests/audits …'
	@$(BIN)/python -m tools.cpus --workers $(WORKERS) $(TESTS)

test-cuda: $(VENV)/.test  ## the tests that need a CUDA device
	@$(ONE) $(BIN)/python -m pytest -q -m cuda

mutations: $(VENV)/.test  ## audits of systems that are broken on purpose, and of sound ones; writes docs/mutations.md
	@$(ONE) $(BIN)/python -m tests.mutations

mutants: $(VENV)/.test  ## one change at a time in modules whose numbers matter: do their own tests notice? MUTANTS='accountants/gdp.py --missed'
	@$(ONE) nice -n 15 $(BIN)/python -m tools.mutants --workers $(WORKERS) $(MUTANTS)

$(VENV)/.browser: $(VENV)/.test
	@$(PIP) install -c constraints.txt -e '.[browser]'
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name >/dev/null && exit; done; \
	$(BIN)/playwright install chromium
	@touch $@

chaos: $(VENV)/.test  ## kills, full disks, damaged and doctored files, clocks, pipes: what was tried and what failed; CHAOS='--kills 40'
	@nice -n 15 $(BIN)/python -m tools.chaos $(CHAOS)

test-browser: $(VENV)/.browser  ## the HTML pages in Chromium: the system's, or one that is downloaded
	@$(ONE) VFLPRIV_BROWSER=required $(BIN)/python -m pytest -q tests/browser

lint: $(VENV)/.dev types  ## style, format and types
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .

types: $(VENV)/.dev  ## mypy --strict on every package
	@$(BIN)/python tools/typecheck.py

format: $(VENV)/.dev  ## rewrite the files in the one format
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .

$(VENV)/.fuzz: $(VENV)/.test
	@$(PIP) install -c constraints.txt -e '.[fuzz]'
	@touch $@

fuzz: $(VENV)/.fuzz  ## every reader of files, and whole audits, on what a fuzzer makes up (Linux); SECONDS_EACH=60
	@for target in shard head answers ledger config yaml report attacks csv audit; do \
	  echo "== $$target"; $(ONE) $(BIN)/python -m tools.fuzz $$target -max_total_time=$(SECONDS_EACH) -verbosity=0 || exit 1; \
	done

bench: $(VENV)/.test  ## speed, memory, tightness
	@set -e; for file in benchmarks/[!_]*.py; do \
	  test -e "$$file" || { echo "No benchmarks yet."; break; }; \
	  echo "== $$file"; $(BIN)/python "$$file"; \
	done

$(VENV)/.docs: $(VENV)/.test
	@$(PIP) install -c constraints.txt -e '.[docs]'
	@touch $@

results: $(VENV)/.test  ## the pages of committed results, and what other pages and the README show of them
	@$(ONE) $(BIN)/python -m tools.docs_results
	@$(ONE) $(BIN)/python -m tools.docs_sentences
	@$(ONE) $(BIN)/python -m tools.docs_readme

docs: $(VENV)/.docs  ## the documentation, in site/index.html
	@rm -rf site
	@$(ONE) $(BIN)/python -m tools.docs_source build/docs
	@$(ONE) $(BIN)/python -m sphinx -q -W --keep-going -d build/doctrees build/docs site
	@echo "Documentation: site/index.html"

$(VENV)/.release: $(VENV)/.test
	@$(PIP) install -c constraints.txt -e '.[release]'
	@touch $@

dist: $(VENV)/.release  ## the sdist and a wheel built from it, checked, in dist/
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist . >/dev/null
	@$(BIN)/python -m twine check --strict dist/*

clean:  ## everything that was built, except reports and data
	@rm -rf $(VENV) build dist site *.egg-info .typecheck .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage htmlcov vflpriv/common/*.so
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
