# Every command of the project; `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
STAMP := $(VENV)/.installed
DB ?= sqlite
MODULE ?=
SEED ?= 1
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

# PostgreSQL's server programs: installed where root and apt are there, else named by whatever needs them.
.PHONY: postgres
postgres:
	@deploy/postgres/ensure.sh

# strace, by which the fault suite lets syncs fail.
.PHONY: strace
strace:
	@tests/faults/ensure.sh

.PHONY: demo
demo: $(STAMP) ## An order survives kill -9 of its executor, on SQLite (DB=postgres: on PostgreSQL)
	@if [ "$(DB)" = postgres ]; then deploy/postgres/ensure.sh; fi
	@PYTHONPATH=clients/python/examples $(BIN)/python -m order.demo --db $(DB)

.PHONY: test
test: $(STAMP) postgres ## All tests that a fresh machine can run, but for the fault suite
	$(PYTEST) tests/tidy -q
	$(PYTEST) tests --ignore=tests/bench --ignore=tests/tidy --ignore=tests/faults

# The tiers, each alone (docs/guides/testing.md).
TIERS := tidy unit contract vectors simulation integration migration acceptance faults
.PHONY: $(addprefix test-,$(TIERS))
test-tidy: ## Style as tests
test-unit: ## The pure parts and the application layers over fakes: no sockets, no sleeps
test-contract: ## One suite over every adapter of a port: SQLite and PostgreSQL
test-vectors: ## Byte formats against protos/vectors
test-simulation: export LANTERN_TEST_SIMULATIONS ?= 1000
test-simulation: ## All services in one simulated world, 1,000 seeds of it: time, network, database, crashes
test-integration: ## Real services, real databases
test-migration: ## The journal of the release before beside the new schema, and the reverse
test-acceptance: ## Separate processes, kill -9, resume
test-faults: ## Databases, journals and workers killed, cut off and starved under load (LANTERN_TEST_FAULTS=0.2 for a quick look)
test-faults: strace
$(addprefix test-,$(TIERS)): test-%: $(STAMP) postgres
	$(PYTEST) tests/$*

.PHONY: simulate
simulate: $(STAMP) ## Repeat one seed of the simulation with its whole trace (SEED=n)
	@PYTHONPATH=tests $(BIN)/python -m simulation $(SEED)

.PHONY: bench
bench: $(STAMP) postgres ## Benchmarks in a few minutes, one JSON object a line
	@for file in $(filter-out %/bench_journal.py %/bench_peers.py,$(wildcard tests/bench/bench_*.py)); do $(BIN)/python $$file; done
	@$(BIN)/python tests/bench/bench_journal.py --quick

.PHONY: bench-journal
REFERENCE ?=
ABLATION ?=
QUICK ?=
SIZES ?=
RUNS ?=
ROUNDS ?=
DATABASE ?=
bench-journal: $(STAMP) postgres ## The journal with up to 10 million events (options: docs/guides/benchmarks.md)
	@$(BIN)/python tests/bench/bench_journal.py $(if $(REFERENCE),--reference "$(REFERENCE)") \
		$(if $(ABLATION),--ablation) $(if $(QUICK),--quick) $(if $(SIZES),--sizes $(SIZES)) \
		$(if $(RUNS),--runs $(RUNS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(DATABASE),--database $(DATABASE))

.PHONY: bench-peers
PEERS ?=
ONLY ?=
CACHE ?=
bench-peers: $(STAMP) postgres ## Lantern beside other engines (PEERS=directory of their scripts; docs/guides/benchmarks.md)
	@$(BIN)/python tests/bench/bench_peers.py --peers "$(PEERS)" $(if $(ONLY),--only "$(ONLY)") \
		$(if $(CACHE),--cache "$(CACHE)") $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(RUNS),--runs $(RUNS))

.PHONY: up
up: $(STAMP) ## Start all services in the background (state in .lantern; MODULE=... loads workflows, DB=postgres)
	@mkdir -p .lantern
	@$(BIN)/python -c 'import fcntl; fcntl.flock(open(".lantern/lock", "a"), fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null || { \
		echo "already up; stop it with make down" >&2; exit 1; }
	@rm -f .lantern/endpoints.json
	@nohup $(BIN)/lantern up --db "$(if $(filter postgres,$(DB)),postgres,sqlite:.lantern/lantern.db)" \
		$(foreach module,$(MODULE),--module $(module)) > .lantern/up.log 2>&1 & echo $$! > .lantern/up.pid
	@while [ ! -f .lantern/endpoints.json ]; do \
		kill -0 $$(cat .lantern/up.pid) 2>/dev/null || { cat .lantern/up.log; rm -f .lantern/up.pid; exit 1; }; \
		sleep 0.1; done
	@cat .lantern/up.log

.PHONY: down
down: ## Stop what `make up` started
	@if [ -f .lantern/up.pid ]; then kill -TERM $$(cat .lantern/up.pid) 2>/dev/null || true; \
		while [ -f .lantern/endpoints.json ] && kill -0 $$(cat .lantern/up.pid) 2>/dev/null; do sleep 0.1; done; \
		rm -f .lantern/up.pid; fi

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

UV_COMPILE = uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -q
.PHONY: lock
lock: ## Resolve the pins anew (needs uv)
	$(UV_COMPILE) --upgrade --extra dev pyproject.toml -o requirements.lock
	$(UV_COMPILE) --extra journal --extra executor --extra recovery -c requirements.lock pyproject.toml -o deploy/requirements.lock

.PHONY: format
format: $(STAMP) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check . --fix
