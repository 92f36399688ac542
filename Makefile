# Every command of the project; `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
STAMP := $(VENV)/.installed
BUF_AGAINST ?= .git\#branch=main,subdir=protos

.PHONY: help
help: ## List the commands
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@echo "setting up $(VENV) with the pinned packages (under a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Create .venv with the pinned packages

.PHONY: gen
gen: $(STAMP) ## Generate the stubs from the protos
	$(BIN)/python protos/generate.py

.PHONY: verify
verify: $(STAMP) ## Fail where the committed stubs are not those of the protos
	$(BIN)/python protos/generate.py --check

.PHONY: lint
lint: $(STAMP) ## ruff, pyright, import-linter, buf, tidy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/lint-imports --no-cache
	cd protos && ../$(BIN)/buf lint && ../$(BIN)/buf format --diff --exit-code
	@if git show main:protos/buf.yaml >/dev/null 2>&1; then $(BIN)/buf breaking protos --against '$(BUF_AGAINST)'; fi
	$(PYTEST) tests/tidy -q

.PHONY: format
format: $(STAMP) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check . --fix
