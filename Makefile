# Two commands: `make demo` and `make test`. Both make what they need in .venv; nothing else is installed.

PYTHON ?= python3
JOBS ?= 2
PIP_OPTIONS := --quiet --disable-pip-version-check

VENV := .venv
WHEEL := build/wheel

.DEFAULT_GOAL := help
.PHONY: help demo test checks wheel

help:
	@echo "make demo   install motley into $(VENV) and train a small federation in about a minute"
	@echo "make test   install the test tools too, and run every check, the tests, and the wheel in an empty environment"

demo: $(VENV)/.ready-demo
	$(VENV)/bin/motley demo

test: checks wheel

checks: $(VENV)/.ready-test
	@if [ -z "$${MOTLEY_DATA:-}" ]; then echo "MOTLEY_DATA is not set: tests that read real data sets are skipped"; fi
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n $(JOBS) --ignore=tests/wheel

# The wheel is built anew each time, so that no deleted file stays in it; its environment with all dependencies is made
# again when pyproject.toml changes. Torch is linked into it, not copied: twice 5 GB has filled a disk.
wheel: $(VENV)/.ready-test
	rm -rf $(WHEEL)/dist
	$(VENV)/bin/python -m build --wheel --outdir $(WHEEL)/dist .
	@$(MAKE) --no-print-directory $(WHEEL)/env/.ready
	$(WHEEL)/env/bin/python -m pip install $(PIP_OPTIONS) --no-deps --force-reinstall $(WHEEL)/dist/*.whl
	OMP_NUM_THREADS=1 MOTLEY_WHEEL=$(WHEEL) $(VENV)/bin/python -m pytest tests/wheel

$(WHEEL)/env/.ready: pyproject.toml
	rm -rf $(WHEEL)/env
	$(VENV)/bin/python -m venv $(WHEEL)/env
	$(VENV)/bin/python tests/wheel/link_torch.py $(WHEEL)/env
	@echo "installing the wheel and its dependencies into an environment that holds torch and nothing else"
	$(WHEEL)/env/bin/python -m pip install $(PIP_OPTIONS) $(WHEEL)/dist/*.whl
	touch $@

$(VENV)/.ready-demo: pyproject.toml | $(VENV)/bin/pip
	@echo "installing motley and its dependencies into $(VENV); torch makes the first time take minutes and 7 GB"
	$(VENV)/bin/python -m pip install $(PIP_OPTIONS) -e .
	touch $@

$(VENV)/.ready-test: pyproject.toml | $(VENV)/bin/pip
	@echo "installing motley with its test tools into $(VENV); torch makes the first time take minutes and 7 GB"
	$(VENV)/bin/python -m pip install $(PIP_OPTIONS) -e '.[test]'
	touch $(VENV)/.ready-demo $@

$(VENV)/bin/pip:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found; install Python 3.11 or newer, or name it: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "motley needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V); name another: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
