# Every target sets up what it needs: a fresh machine wants only make and Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
# Named after the Python, so that PYTHON=python3.12 makes the environment anew.
READY := .venv/ready-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
PUBLIC := $(wildcard __init__.py __main__.py py.typed aggregation protocols peers sims)

.PHONY: help demo test unsoaked lint types bench soak mutants clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

demo: $(READY) ## train a small model on four peers, on this machine
	$(BIN)/samovar train examples/digits.py --peers 4 --period adaptive

# Each process that a test starts would else compile the whole library.
unexport PYTHONDONTWRITEBYTECODE

# Tests of real processes wait for most of their time, so there is one worker more than the cores of a small machine.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

test: lint ## the gate: lint, types, and the tests but for the long ones
	@$(MAKE) --no-print-directory -j2 types unsoaked

unsoaked: $(READY)
	$(PYTEST) -m "not soak"

lint: $(READY) ## style and banned calls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy refuses a package whose folder is not an identifier, and a clone may be called anything: it sees links.
types: $(READY) ## mypy --strict on library, benchmarks and examples
	@mkdir -p build/typing/samovar
	@ln -sf $(addprefix ../../../,$(PUBLIC)) build/typing/samovar/
	@ln -sf ../../benchmarks/papers/gossip.py build/typing/gossip_of_papers.py
	$(BIN)/mypy

bench: $(READY) ## run every benchmark
	$(BIN)/python benchmarks/_all.py

soak: $(READY) ## tests too long for the gate, and the benchmarks in quick form
	$(PYTEST) -m soak
	$(BIN)/python benchmarks/_all.py --quick

mutants: $(READY) ## does a test notice each bug of a list? (OPTIONS=--help)
	$(BIN)/python tests/support/mutants.py $(OPTIONS)

clean: ## remove what the targets above made
	rm -rf .venv build dist samovar.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo >&2 \
	"Samovar needs Python 3.11 or newer; $(PYTHON) -V says: $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@echo "Setting up .venv: a few minutes, the first time"
	@test "$$($(BIN)/python -V 2>&1)" = "$$($(PYTHON) -V 2>&1)" && $(BIN)/python -m pip -V >/dev/null 2>&1 || \
	$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
