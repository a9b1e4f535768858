# `make test` and `make demo` set everything up by themselves in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: test demo check benchmark clean
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
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

demo: .venv/ready
	$(BIN)/dualtemp demo

benchmark: .venv/peers
	$(BIN)/python benchmarks/loss.py
	$(BIN)/python benchmarks/views.py
	$(BIN)/python benchmarks/step.py

clean:
	rm -rf .venv build dist
