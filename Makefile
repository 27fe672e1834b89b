# Everything a newcomer, the README and CI call. Each target makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
# LiteLLM's proxy brings a hundred packages, some at versions that the others do not want.
GATEWAY_VENV := .venv-gateway

.PHONY: demo demo-api test test-install check accuracy gateway clean

## demo: measure a small real model on a real llama-server, no key and no server needed
demo: $(VENV)/.demo
	$(PY) local_cache.py --demo --plot --report

## demo-api: the same server seen from outside, as a cloud API is
demo-api: $(VENV)/.demo
	$(PY) api_timing.py --demo

## test: static checks, then every test, a file at a time on each of two cores
test: check gateway test-install
	$(PY) -m pytest -n 2 --dist loadfile

## check: ruff and mypy --strict
check: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m mypy .

## test-install: build a wheel, install it in a fresh environment, and run its three commands
test-install: $(VENV)/.python
	rm -rf $(VENV)/wheel $(VENV)/installed
	$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps -w $(VENV)/wheel .
	$(PYTHON) -m venv $(VENV)/installed
	$(VENV)/installed/bin/python -m pip install --quiet --disable-pip-version-check $(VENV)/wheel/*.whl
	cd $(VENV) && installed/bin/local-cache --help > wheel/help.txt
	cd $(VENV) && installed/bin/api-timing --help > wheel/help.txt
	cd $(VENV) && for command in show plot report compare explain; do \
		installed/bin/request-timing $$command --help > wheel/help.txt || exit 1; done
	for run in sample_output/demo_*.json; do \
		$(VENV)/installed/bin/local-cache --show $$run > $(VENV)/wheel/shown.txt || exit 1; done
	cd $(VENV) && installed/bin/python -c "import importlib.util as u, sys; sys.exit([n for n in ('common', 'tables', 'report', 'local_cache', 'api_timing', 'tests') if u.find_spec(n)] or 0)"

## gateway: LiteLLM's proxy, which the tests put in front of a model (750 MB, two minutes, once)
gateway: $(GATEWAY_VENV)/.installed

## accuracy: clock, statistics, verdict, recorder held to known truths (15 idle minutes)
accuracy: $(VENV)/.dev
	PYTHONPATH=tests:tests/support $(PY) -m accuracy.clock
	PYTHONPATH=tests:tests/support $(PY) -m accuracy.statistics
	PYTHONPATH=tests:tests/support $(PY) -m accuracy.verdict
	PYTHONPATH=tests:tests/support $(PY) -m accuracy.recorder
	PYTHONPATH=tests:tests/support $(PY) -m accuracy.physics
	PYTHONPATH=tests:tests/support $(PY) -m accuracy.shapes

clean:
	rm -rf $(VENV) $(GATEWAY_VENV) .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "expected Python 3.11 or newer, found " + sys.version.split()[0] + "; run: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.python requirements.txt requirements-demo.txt requirements-plot.txt requirements-report.txt
	$(PIP) -r requirements.txt -r requirements-plot.txt -r requirements-report.txt
	$(PIP) --no-deps -r requirements-demo.txt
	touch $@

$(VENV)/.dev: $(VENV)/.demo requirements-record.txt requirements-dev.txt
	$(PIP) -r requirements-record.txt -r requirements-dev.txt
	touch $@

$(GATEWAY_VENV)/.installed: $(VENV)/.python requirements-gateway.txt
	$(PYTHON) -m venv $(GATEWAY_VENV)
	$(GATEWAY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-gateway.txt
	touch $@
