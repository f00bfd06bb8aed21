# Needs python3 (3.11 or newer) with pip and venv, and make. All else is set up in .venv.

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types pytest format bench docs clean distclean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile

install: $(INSTALLED) ## Set up .venv (every other target does this itself)

# The stamp is written last, so that an interrupted installation is redone.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "dagnn needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)"; \
		echo "Name another one with: make PYTHON=python3.11 ..."; \
		exit 1; }
	@rm -f $(INSTALLED)
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --disable-pip-version-check --quiet -c constraints.txt setuptools
	$(PY) -m pip install --disable-pip-version-check --quiet -c constraints.txt --no-build-isolation -e '.[test,docs,dev]'
	@touch $(INSTALLED)

demo: $(INSTALLED) ## Learn names and longest paths of Python functions: DAGNN and a GCN, minutes
	$(PY) examples/code_demo.py

test: lint types pytest ## Check style and types, then run the tests

lint: $(INSTALLED) ## Check style
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(INSTALLED) ## Check types
	$(PY) -m mypy

pytest: $(INSTALLED) ## Run the tests and doctests
	$(PY) -m pytest -n $(WORKERS)

format: $(INSTALLED) ## Format the code and mend what can be mended
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(INSTALLED) ## Measure speed and memory
	$(PY) benchmarks/run.py

docs: $(INSTALLED) ## Build the documentation, to be read without a network
	$(PY) -m sphinx --quiet --fresh-env --fail-on-warning --keep-going -d build/docs docs site
	@echo "Open site/index.html in a browser."

clean: ## Remove caches and build outputs
	rm -rf build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## Remove .venv too
	rm -rf $(VENV)
