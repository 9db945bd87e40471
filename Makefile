# `make help` lists what there is. Every target sets up first, which takes no time when nothing has changed.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
FIRST ?= 0
SEEDS ?= 5000
BENCHMARKS := $(filter-out benchmarks/side_by_side.py,$(wildcard benchmarks/*.py))

.PHONY: help setup test lint format demo dev fuzz bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/.packages.stamp $(VENV)/.jars.stamp ## virtualenv, packages, Java, Delta's jars
	@# Java and the jars lie outside the virtualenv and may go without it noticing: both looks are quick.
	@deploy/setup.sh java $(VENV)
	@$(BIN)/python -m velo_dagster.engine.jars >/dev/null

$(BIN)/python:
	@deploy/setup.sh python $(VENV)

$(VENV)/.packages.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing packages into $(VENV) (once, some 600 MB)." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

$(VENV)/.jars.stamp: $(VENV)/.packages.stamp
	@deploy/setup.sh java $(VENV)
	@echo "Fetching Delta's jars into your cache, unless they are there." >&2
	@$(BIN)/python -m velo_dagster.engine.jars >/dev/null
	@touch $@

test: setup ## all tests; PYTEST_ARGS='-k name' for some
	@deploy/setup.sh browser
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal $(PYTEST_ARGS)

lint: setup ## style, types and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

format: setup ## put the code into the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

demo: setup ## the project in definitions/: bulk load, increments, a join, a file that turns up late
	@$(BIN)/python definitions/demo.py

dev: setup ## the same project in Dagster's UI, at http://127.0.0.1:3000
	@$(BIN)/velo-dagster dev definitions

fuzz: setup ## random histories against a full reload, longer than in the tests; SEEDS=5000 FIRST=0
	@FIRST=$(FIRST) SEEDS=$(SEEDS) $(BIN)/python -m pytest -q -rP -m fuzz $(PYTEST_ARGS)

bench: setup ## every benchmark; each prints ratios to a peer measured in the same run, and ends with 1 on a missed limit
	@failed=0; for script in $(BENCHMARKS); do echo "$$script"; $(BIN)/python "$$script" || failed=1; done; exit $$failed

clean: ## remove what was built here, the virtualenv included
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis .velo
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
