# Two commands do everything on a fresh machine with python3 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
MINUTES ?= 10

# Bytecode is kept: otherwise each process that the tests start compiles the library again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test quick check style types suite fuzz bench docs dist clean

demo: .venv/demo
	$(BIN)/python -m examples.demo

setup: .venv/ready

.venv/demo: pyproject.toml  # only what the demo needs
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch .venv/demo

.venv/ready: .venv/demo  # everything else
	$(BIN)/python -m pip install --quiet --editable '.[report,excel,spark,opendp,demo,examples,studio,spss,docs,test]'
	touch .venv/ready

.venv/dist:  # only the build backend
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet hatchling
	touch .venv/dist

check: style types

style: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

test: style
	$(MAKE) --jobs 2 types suite

suite: setup
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope

quick: setup  # for the inner loop: every layer, without what is slow, and few random cases of each kind
	$(BIN)/ruff check
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope -m 'not slow' --hypothesis-profile quick

fuzz: setup  # property tests on new cases for so many minutes: make fuzz MINUTES=30
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --minutes $(MINUTES)

bench: setup
	$(BIN)/python -m benchmarks.run

docs: setup  # into site/, and any warning or broken link is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env -d build/doctrees docs site

dist: .venv/dist  # wheel and sdist into dist/
	$(BIN)/python -m hatchling build

clean:
	rm -rf .venv build dist site .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
