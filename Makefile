# Each target sets up what it needs: a virtual environment in .venv with the package and its tools.
PYTHON ?= python3.11
VENV ?= .venv
# Pins for a fresh machine; empty it (make CONSTRAINTS= test) to take what the package allows.
CONSTRAINTS ?= .ci/constraints.txt

BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: demo test lint bench clean

demo: $(INSTALLED)
	$(BIN)/reclaim demo

test: $(INSTALLED)
	$(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy reclaim

bench: $(INSTALLED)
	$(BIN)/python -m pytest tests/benchmarks --benchmark-enable --benchmark-only

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist demo-output *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
