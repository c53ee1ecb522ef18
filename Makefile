# Every target sets up .venv by itself; the first time takes a few minutes.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo learn test test-slow test-browser test-all structure bench scoreboard laikago peers lint docs clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

demo: $(VENV)/.installed-cli ## a chain's mass, learned from the motion of a ball that hits it
	@$(BIN)/backdrive run chain-mass --quick $(ARGS)

learn: $(VENV)/.installed-learn ## an Ant learns to run, in two minutes; then it runs in MuJoCo, and on a film
	@$(BIN)/backdrive run locomotion --env Ant --seconds 120 $(ARGS)

test: $(VENV)/.installed-dev ## run the tests, without the long ones (ARGS="-k name" selects)
	@$(BIN)/python -m pytest -n auto -m "not slow and not browser" $(ARGS)

test-slow: $(VENV)/.installed-dev ## run the long tests: campaigns, experiments, training
	@$(BIN)/python -m pytest -n auto -m "slow and not browser" $(ARGS)

test-browser: $(VENV)/.installed-dev ## run the tests of pages, one after another, in a Chromium
	@$(BIN)/python -m pytest -m browser $(ARGS)

test-all: test test-slow ## run all tests

structure: $(VENV)/.installed-dev ## count what makes the source hard to read: parameters, names, layers
	@$(BIN)/python -m benchmarks.structure $(ARGS)

bench: $(VENV)/.installed-dev ## time backdrive and its peers
	@$(BIN)/python -m benchmarks $(ARGS)

scoreboard: $(VENV)/.installed-dev ## write docs/benchmarks.md from measurements (after `make peers`, with the peers)
	@$(BIN)/python -m benchmarks --scoreboard $(ARGS)

laikago: $(VENV)/.installed-dev ## the table of a falling Laikago beside other tools, into docs/laikago_table.md
	@$(BIN)/backdrive run laikago-table --out results/laikago-table $(ARGS)
	@$(BIN)/python -m benchmarks.scoreboard results/laikago-table

peers: .venv-peers/.installed .venv-nimble/.installed ## an environment for the peers that need their own: MJX, brax, newton, Nimble, JAX, CasADi, CppAD

lint: $(VENV)/.installed-dev ## ruff, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: $(VENV)/.installed-docs ## build the pages of docs/ as a site, in build/site
	@$(BIN)/mkdocs build --strict

clean: ## remove .venv, caches and results
	rm -rf $(VENV) .venv-peers .venv-nimble .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist results MUJOCO_LOG.TXT
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# .installed-cli, .installed-dev: the package with that extra, again when the requirements change
$(VENV)/.installed-%: pyproject.toml constraints.txt
	@echo "setting up $(VENV) [$*]"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@

.venv-peers/.installed: benchmarks/peers/requirements.txt
	@echo "setting up .venv-peers"
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip install -qq --disable-pip-version-check -r benchmarks/peers/requirements.txt
	@touch $@

# Nimble's wheel ends with a segmentation fault where numpy is 2; its torch layer is not used, so torch is left out
.venv-nimble/.installed:
	@echo "setting up .venv-nimble"
	@$(PYTHON) -m venv .venv-nimble
	@.venv-nimble/bin/python -m pip install -qq --disable-pip-version-check 'numpy<2' mujoco
	@.venv-nimble/bin/python -m pip install -qq --disable-pip-version-check --no-deps nimblephysics
	@touch $@
