# Everything a developer types; CI calls these very targets. `make help` lists them.
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# In CI a test that fails is tried once more, and listed: two cores there carry real processes and a real cluster
RERUNS := $(if $(CI),--reruns 1 --reruns-delay 2)
PYTEST := $(BIN)/python -m pytest $(RERUNS)

.DEFAULT_GOAL := help
.PHONY: help install demo test test-local test-programs test-crash test-cluster helm lint format cluster-up cluster-down bench lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

install: $(STAMP) ## make .venv with simrun, its examples and the developer's tools

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "simrun needs Python 3.11 or newer; set PY=python3.11")'
	$(PY) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: install ## run the main job on this machine: a stability map of orbits, split over workers
	$(BIN)/simrun run examples/stability-map/workflow.yaml

lint: install ## ruff, mypy, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy simrun
	$(BIN)/lint-imports

format: install ## let ruff put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: install test-local test-programs ## the local tests, those with programs from outside, and the cluster's when one is up or CI is set
	@if [ -n "$${CI:-}" ]; then $(MAKE) cluster-up; fi
	@if [ -n "$${CI:-}$${SIMRUN_TEST_KUBECONFIG:-}" ] || tests/cluster/status >/dev/null 2>&1; then $(MAKE) test-cluster; fi

test-local: install ## the tests that need nothing but this machine
	$(PYTEST) -m "not cluster and not programs" -n auto --dist loadfile --durations=10

test-programs: install helm ## the tests with programs from outside: nginx, Prometheus, helm
	$(PYTEST) -m programs --durations=10

test-crash: install ## kill -9 of the service at every point, and again in the start after it
	SIMRUN_TEST_LIVES=2 $(PYTEST) tests/scenario/test_crash.py --durations=0

test-cluster: install helm ## the tests on a real Kubernetes (make cluster-up, or SIMRUN_TEST_KUBECONFIG)
	$(PYTEST) -m cluster --durations=10

helm: ## build the helm that the tests of the chart run (Go 1.26)
	tests/cluster/build helm

cluster-up: ## a real Kubernetes with Argo and Kueue on this machine (root, Linux, Go 1.26)
	tests/cluster/up

cluster-down: ## stop it and forget its state
	tests/cluster/down

bench: install ## all figures, as JSON
	$(BIN)/python -m benchmarks

lock: install ## renew the lock files
	$(BIN)/uv pip compile -q pyproject.toml --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --upgrade -o requirements/run.txt
	$(BIN)/uv pip compile -q pyproject.toml --extra examples --group dev --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --upgrade -o requirements/dev.txt
	echo 'setuptools>=77' | $(BIN)/uv pip compile -q - -c requirements/dev.txt --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements/build.txt

clean: ## remove what was made here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .simrun build dist
