# Two commands do everything on a fresh machine: `make demo` and `make test`. Each makes an environment of its own once,
# from pinned and hashed requirements, and reuses it: the demo needs the product alone, the tests need far more.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
DEMO = $(VENV)-demo
DEMO_READY = $(DEMO)/.ready

.PHONY: demo test lint types types-with-trio-typing bench soak mutants mutation docs requirements clean

demo: $(DEMO_READY)
	@$(DEMO)/bin/python -m benchmarks.demo

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# trio-typing hides trio's own types wherever it is installed, so it has an environment of its own.
types-with-trio-typing: requirements/trio-typing.txt
	$(PYTHON) -m venv $(VENV)-trio-typing
	$(VENV)-trio-typing/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/trio-typing.txt
	$(VENV)-trio-typing/bin/mypy --config-file tests/typing/with_trio_typing.ini

bench: $(READY)
	$(BIN)/python -m benchmarks

soak: $(READY)
	$(BIN)/python -m pytest -m soak --soak

# Each law's mutants, applied to a copy of the package, and the test that each must turn red.
mutants: $(READY)
	$(BIN)/python -m tests.laws.mutants

# A general mutation run over admission/; hours.
mutation: $(READY)
	rm -rf build/mutation && mkdir -p build/mutation && cp -r embedkit tests pyproject.toml tests/laws/cosmic-ray.toml build/mutation
	cd build/mutation && PATH="$(abspath $(BIN)):$$PATH" sh -c 'cosmic-ray init cosmic-ray.toml s.sqlite && cr-filter-operators s.sqlite cosmic-ray.toml && cosmic-ray exec cosmic-ray.toml s.sqlite && cr-report s.sqlite'

docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

# The interpreter is checked before anything is made, so that a machine with only an old one gets one clear line.
CHECK = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "embedkit needs Python 3.11 or later; this is " + sys.version.split()[0] + ": make PYTHON=python3.11 ...")'

# The demo runs from the clone; nothing of ours is installed.
$(DEMO_READY): requirements/demo.txt
	@$(CHECK)
	@echo "Making $(DEMO), once, with what the demo needs (about 200 MB) ..."
	@$(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/demo.txt
	@touch $@

$(READY): pyproject.toml requirements/dev.txt
	@$(CHECK)
	@echo "Making $(VENV), once, with the tools of a developer (about 630 MB) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Needs uv. What is pinned comes from pyproject.toml alone; no registry's address is written down.
requirements:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --all-extras --group dev -o requirements/dev.txt pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra local -c requirements/dev.txt -o requirements/demo.txt pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group trio-typing -o requirements/trio-typing.txt pyproject.toml

clean:
	rm -rf $(VENV) $(DEMO) $(VENV)-trio-typing docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
