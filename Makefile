# What a person types. Everything is set up by itself, in .venv.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STATE := .state
TESTS ?= tests
# More than the cores, because tests on real servers wait for these; the long ones mostly wait, for processes that they have started,
# killed or held.
WORKERS = $(shell echo $$(($$(nproc) + 1)))
test-long: WORKERS = $(shell echo $$(($$(nproc) * 2)))
# The binding of libvirt is built from source. Where that cannot be, the tests that need it are left out; once it can be, it is installed.
LIBVIRT := $(shell pkg-config --exists libvirt 2>/dev/null && command -v cc >/dev/null \
	&& $(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null && echo -libvirt)

# Large, and of no use without a browser.
BROWSER := $(shell command -v chromium >/dev/null && echo -browser)

.PHONY: help audit test test-long test-deb lint pip-audit docs genconfig lowest bench deb clean

help:
	@echo 'make audit      audit this very machine, against a Placement of its own in $(STATE)'
	@echo 'make test       the tests, against a real Placement (TESTS=tests/unit for a part)'
	@echo 'make test-long  the tests that make test leaves out because they take long (TESTS= as above)'
	@echo 'make lint       ruff, bandit, mypy --strict, import-linter, vulture, codespell'
	@echo 'make pip-audit  known vulnerabilities of the libraries; needs the network'
	@echo 'make docs       the documentation, in docs/_build/html'
	@echo 'make genconfig  etc/agent.conf.sample, man pages, completion; fails if the committed ones were out of date'
	@echo 'make lowest     tests with the oldest versions of the libraries that setup.cfg allows'
	@echo 'make deb        a Debian package, in build/deb (DEB_VERSION=1.2 for another version)'
	@echo 'make test-deb   installs, starts, upgrades and purges the package in a container; as root'
	@echo 'make bench      what passes cost, the sizes that take seconds, in build/bench; tox -e bench: beside nova'
	@echo 'make clean      remove what the other targets made, and the state of make audit'

# No configuration of this machine is read, because the Placement of a real cloud must not be touched.
AUDIT := $(BIN)/agent --config-file /dev/null --placement-backend embedded --compute_driver host --store-path $(STATE)
audit: $(VENV)/embedded.stamp
	@$(AUDIT) --once
	@echo
	@echo 'next: the same as a page for a browser:'
	@echo '  $(AUDIT) --once --report $(STATE)/report.html'
	@echo 'next: would a guest fit, and if not, why?'
	@echo '  $(AUDIT) explain --vcpus 2 --ram 2048 --suggest'

# The tests' files are in memory where a program may be started there and 4 GiB are free, because the tests would wait for a disk a third of
# their time. They stay if a test fails. TMPDIR puts them elsewhere.
MEMORY := /dev/shm
define temporary_folder
$${TMPDIR:-$$(trial=$$(mktemp -p $(MEMORY) 2>/dev/null) && printf '#!/bin/sh\n' > $$trial && chmod 700 $$trial && $$trial 2>/dev/null \
	&& (( $$(df --output=avail $(MEMORY) | tail -n 1) > 4 * 1024 * 1024 )) && echo $(MEMORY) || echo /tmp; rm -f "$$trial")}
endef

# Each test is in one of the two, but for those of tox -e soak.
test: MARKED := not long
test-long: MARKED := long
# What the seed of a random walk does depends on the order of sets.
test-long: export PYTHONHASHSEED ?= 0
test test-long: $(VENV)/test$(LIBVIRT)$(BROWSER).stamp
	@folder=$$(mktemp -d -p "$(temporary_folder)" t-XXXXXX) && chmod 1777 $$folder && (set -x; TMPDIR=$$folder \
		$(BIN)/python -m pytest --basetemp=$$folder/t -n $(WORKERS) --dist loadgroup -m '$(MARKED) and not soak' $(TESTS)) && rm -rf $$folder

bench: $(VENV)/test$(LIBVIRT)$(BROWSER).stamp
	$(BIN)/python -m bench.run --quick --without-nova --output build/bench

lint pip-audit docs genconfig lowest: $(VENV)/tox.stamp
	$(BIN)/tox -q -e $@

# Debian's own Python, because the package is for it.
DEB_PYTHON := /usr/bin/python3
DEB_VERSION ?= $(shell sed -n 's/^version = //p' setup.cfg)
DEB := build/deb
deb:
	@command -v dh >/dev/null && $(DEB_PYTHON) -m pip --version >/dev/null || { echo 'apt-get install dpkg-dev debhelper python3-pip' >&2; exit 1; }
	rm -rf build/lib build/bdist.* $(DEB)/tree $(DEB)/*.deb
	mkdir -p $(DEB)/tree
	$(DEB_PYTHON) -m pip wheel --quiet --wheel-dir $(DEB)/tree/wheels . 'psycopg>=3.2.13'
	cp -r systemd/debian $(DEB)/tree/debian
	for kind in service sysusers tmpfiles; do cp systemd/compute-node-agent.$$kind $(DEB)/tree/debian/; done
	printf 'compute-node-agent (%s) unstable; urgency=medium\n\n  * The release notes of the documentation tell what is new.\n\n -- %s  %s\n' \
		'$(DEB_VERSION)' "$$(sed -n 's/^Maintainer: //p' systemd/debian/control)" "$$(date -R)" > $(DEB)/tree/debian/changelog
	cd $(DEB)/tree && DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage -b -us -uc
	@ls $(DEB)/*.deb

# A part that is missing fails it, because nothing else is asked for here.
test-deb: $(VENV)/test$(LIBVIRT)$(BROWSER).stamp
	REQUIRE_BACKENDS=1 $(BIN)/python -m pytest -n0 -m soak tests/functional/test_debian_package.py

clean:
	rm -rf $(VENV) $(STATE) .tox build docs/_build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# A dot for each package; all that pip says only if it fails.
define install
	@printf 'installing %s into $(VENV), once ' '$(1)' >&2
	@$(BIN)/python -m pip install --disable-pip-version-check $(1) 2>&1 | tee $(VENV)/pip.log | awk '/^Collecting/ { printf "."; fflush() }' >&2 \
		|| { echo >&2; tail -n 40 $(VENV)/pip.log >&2; exit 1; }
	@echo ' done' >&2
	@touch $@
endef

comma := ,
# A stamp for each set of extras, older than setup.cfg when it has to be installed again.
$(VENV)/embedded.stamp $(foreach some,test test-libvirt test-browser test-libvirt-browser,$(VENV)/$(some).stamp): $(VENV)/%.stamp: setup.cfg pyproject.toml | $(BIN)/pip
	$(call install,-e '.[$(subst -,$(comma),$*)]')

$(VENV)/tox.stamp: | $(BIN)/pip
	$(call install,'tox~=4.20')

# What a virtual environment gets last, so that one whose making was interrupted is made anew.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo 'On Debian: apt-get install python3-venv' >&2; exit 1; }
