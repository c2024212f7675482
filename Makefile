# Cube Studio. `make` alone lists what there is; `make run` starts it.
# Needs nothing but Python 3.11-3.13, git and make: everything else goes into .venv.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:

PORT ?= 8080
HOST ?= 127.0.0.1
CUBE_HOME ?= ./var
PYTHON ?=
TESTS ?=
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
UV := VIRTUAL_ENV=$(CURDIR)/$(VENV) UV_COMPILE_BYTECODE=1 $(PY) -m uv --quiet

# Without byte code every start would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONHOME

# A checkout that was moved or copied holds scripts that point to its old place: the stamp then differs.
ifneq ($(shell cat $(VENV)/.made-for 2>/dev/null),$(CURDIR))
$(VENV)/.made-for: FORCE
endif

.PHONY: help run test test-unit lint bench docs lock clean FORCE

help:  ## this list
	@echo 'make TARGET [NAME=value ...]'; echo
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do \
	    printf '  %-10s %s\n' $$name "$$what"; done
	@echo; echo '  run:   PORT=8080 HOST=127.0.0.1 CUBE_HOME=./var'
	@echo '  test:  TESTS="tests/unit/test_x.py" ARGS="-k name"'
	@echo '  all:   PYTHON=/path/to/python3.12 chooses the Python that .venv is made of'

run: $(VENV)/.base  ## set up and start everything; Ctrl-C stops it
	@CUBE_HOME='$(CUBE_HOME)' CUBE_PORT='$(PORT)' CUBE_HOST='$(HOST)' exec $(PY) -m myapp.cli up --follow-parent

test: $(VENV)/.dev  ## set up and run every test
	@$(PY) -m pytest -n 2 --dist loadgroup $(ARGS) $(TESTS)

test-unit: $(VENV)/.dev  ## the quick tests
	@$(PY) -m pytest -n 2 $(ARGS) $(if $(TESTS),$(TESTS),tests/unit)

lint: $(VENV)/.dev  ## ruff, mypy, import rules, bandit
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-cache
	@$(PY) -m bandit -q -ll -c pyproject.toml -r myapp

bench: $(VENV)/.dev  ## measure speed, memory and cost per task
	@$(PY) -m bench $(ARGS)

docs: $(VENV)/.base  ## write the reference pages that are made from the code
	@$(PY) -m myapp.cli docs docs/reference

lock: $(VENV)/.base  ## compile requirements/*.in into the lock files
	@for name in base dev; do \
	    $(UV) pip compile --universal --python-version 3.11 --no-emit-index-url --no-header \
	        requirements/$$name.in -o requirements/$$name.txt >/dev/null; done

clean:  ## remove what was built (.venv, caches); CUBE_HOME stays
	@rm -rf $(VENV) build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +

# --- set-up, once; the stamps keep a second start from doing anything -------------------------------------------------

$(VENV)/.made-for:
	@PYTHON='$(PYTHON)' install/make-venv.sh $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check "$$(grep '^uv==' requirements/base.txt | cut -d' ' -f1)"
	@printf '%s' '$(CURDIR)' > $@

$(VENV)/.base: $(VENV)/.made-for requirements/base.txt setup.py
	@echo 'Setting up: installing what Cube Studio needs into $(VENV) ...'
	@$(UV) pip install -r requirements/base.txt
	@$(UV) pip install --no-deps -C editable_mode=compat -e .
	@$(PY) -m compileall -q myapp
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.base
	@echo 'Setting up: installing what the tests need into $(VENV) ...'
	@$(UV) pip install -r requirements/dev.txt
	@touch $@

FORCE:
