# Everything a newcomer, the README and CI call. Each target makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check

.PHONY: demo demo-api test check accuracy clean

## demo: measure a small real model on a real llama-server, no key and no server needed
demo: $(VENV)/.demo
	$(PY) local_cache.py --demo

## demo-api: the same server seen from outside, as a cloud API is
demo-api: $(VENV)/.demo
	$(PY) api_timing.py --demo

## test: static checks, then every test
test: check
	$(PY) -m pytest

## check: ruff and mypy --strict
check: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m mypy .

## accuracy: clock, statistics and verdict held to known truths (15 minutes, an idle machine)
accuracy: $(VENV)/.dev
	PYTHONPATH=. $(PY) tests/accuracy_clock.py
	PYTHONPATH=. $(PY) tests/accuracy_statistics.py
	PYTHONPATH=. $(PY) tests/accuracy_verdict.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "expected Python 3.11 or newer, found " + sys.version.split()[0] + "; run: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.python requirements.txt requirements-demo.txt
	$(PIP) -r requirements.txt
	$(PIP) --no-deps -r requirements-demo.txt
	touch $@

$(VENV)/.dev: $(VENV)/.demo requirements-dev.txt
	$(PIP) -r requirements-dev.txt
	touch $@
