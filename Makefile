# What a person types. Everything is set up by itself, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STATE := .state
TESTS ?= tests

.PHONY: help audit test lint docs genconfig clean

help:
	@echo 'make audit      audit this very machine, against a Placement of its own in $(STATE)'
	@echo 'make test       all tests, against a real Placement (TESTS=tests/unit for a part)'
	@echo 'make lint       ruff, mypy --strict, import-linter'
	@echo 'make docs       the documentation, in docs/_build/html'
	@echo 'make genconfig  etc/agent.conf.sample; fails if the committed one was out of date'
	@echo 'make clean      remove what the other targets made, and the state of make audit'

# No configuration of this machine is read, because the Placement of a real cloud must not be touched.
audit: $(VENV)/embedded.stamp
	@$(BIN)/agent --config-file /dev/null --placement-backend embedded --compute_driver host --store-path $(STATE) --once

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n auto --dist loadgroup $(TESTS)

lint docs genconfig: $(VENV)/tox.stamp
	$(BIN)/tox -q -e $@

clean:
	rm -rf $(VENV) $(STATE) .tox build docs/_build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# A stamp an extra, older than setup.cfg when it has to be installed again.
$(VENV)/embedded.stamp $(VENV)/test.stamp: $(VENV)/%.stamp: setup.cfg pyproject.toml | $(VENV)
	@echo 'Installing into $(VENV); this happens only once ...' >&2
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[$*]'
	@touch $@

$(VENV)/tox.stamp: | $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'tox>=4.20,<5'
	@touch $@

$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo 'On Debian: apt-get install python3-venv' >&2; exit 1; }
