# Every target makes the environment it needs; nothing else has to be installed first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint bench docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY) ## attack the bundled classifier on bundled digits, judge every example, write a report
	$(BIN)/massmover demo --out results/demo

test: $(READY) ## the whole fast test suite
	$(BIN)/python -m pytest -n 2

test-slow: $(READY) ## the tests that take minutes and the data sets
	$(BIN)/python -m pytest -m slow

lint: $(READY) ## formatting, style and strict types
	$(BIN)/ruff format --check src tests benchmarks docs examples
	$(BIN)/ruff check src tests benchmarks docs examples
	$(BIN)/mypy

bench: $(READY) ## ratios of running times, measured interleaved in one run
	$(BIN)/python -m benchmarks.run

docs: $(READY) ## the documentation site, in the folder site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove the environment and what the commands wrote
	rm -rf .venv results site
