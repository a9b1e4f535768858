# `make test` and `make demo` set everything up by themselves in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: test test-slow test-all demo check benchmark clean
# The package alone: all that the demo needs.
.venv/demo-ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

# What checks and tests need beside it.
.venv/ready: .venv/demo-ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

.venv/peers: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt ".[peers]"
	touch $@

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: check
	$(BIN)/pytest -n 2

test-slow: .venv/ready
	$(BIN)/pytest -n 2 -m slow

test-all: test test-slow

demo: .venv/demo-ready
	$(BIN)/dualtemp demo

benchmark: .venv/peers
	$(BIN)/python benchmarks/loss.py
	$(BIN)/python benchmarks/views.py
	$(BIN)/python benchmarks/step.py

clean:
	rm -rf .venv build dist
