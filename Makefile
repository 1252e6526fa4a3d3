# Slipstream. `make help` lists what there is; PYTHON=python3.12 make up chooses another Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# Prints a line per step and writes pip's output to the file. pip would compile one file after another, which takes 30 s,
# so it compiles nothing. COMPILE compiles in parallel; UNUSED modules compile when they are imported.
INSTALL := $(BIN)/python -m infra.installation $(VENV)/install.log
# The versions that CI tests, so that no new release of a package breaks a fresh clone; `TESTED=` installs the newest.
TESTED ?= --versions-of requirements/dev-cpu.lock
UNUSED := /(tests?|testing|sympy|networkx|mpmath|_dynamo|_inductor|onnx)/
COMPILE = $(BIN)/python -m compileall -q -j 0 -x '$(UNUSED)' $(VENV)/lib >/dev/null || true
CODE := benchmarks contracts control engines evals gateway infra migrations router slipstream speculative storage telemetry tests tools
ENGINE := $(VENV)/.installed-engine
DEV := $(VENV)/.installed-dev
# Parallel test processes; each has its own PostgreSQL, Valkey and ports.
WORKERS ?= 2
# In a fresh clone, `LOCKED=1 make test` installs exactly the packages of requirements/dev-cpu.lock and checks their hashes.

# Keep byte code: without it, every process compiles all of its modules when it starts.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up test test-system test-billing test-sglang test-vllm check format bench nightly docs console console-types lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(ENGINE)  ## install what is missing and start everything here; Ctrl-C stops it (ARGS="--port 9000")
	@$(BIN)/slipstream up $(ARGS)

test: $(DEV)  ## the gate: run the tests of every package, in minutes (ARGS="tests/gateway -x", WORKERS=8)
	$(BIN)/python -m pytest -rs --numprocesses $(WORKERS) --dist loadgroup --durations=10 $(ARGS)

test-system: $(DEV)  ## tests that need deployments, a browser, Node, nginx, Redis or Prometheus (ARGS="tests/console -x")
	$(BIN)/python -m tests.once_more -rs -m 'system and not nightly and not sglang and not vllm and not gpu' \
	  --numprocesses $(WORKERS) --dist loadgroup --durations=10 $(ARGS)

test-billing: $(DEV)  ## bill 20,000 requests while services are killed, compare the ledger with the engines (REQUESTS=200000)
	SLIPSTREAM_TEST_BILLING_REQUESTS=$(or $(REQUESTS),20000) $(BIN)/python -m pytest -m nightly tests/billing/test_billing.py \
	  -s --durations=1 $(ARGS)

test-sglang: $(DEV)  ## against the real SGLang, until the first failure (SGLANG_VENV=... SGLANG_SERVE=script TIMES=10)
	for time in $$(seq $(or $(TIMES),1)); do \
	  SLIPSTREAM_TEST_SGLANG_VENV=$(SGLANG_VENV) SLIPSTREAM_TEST_SGLANG_SERVE=$(SGLANG_SERVE) \
	    $(BIN)/python -m pytest -rs -m sglang --timeout 1800 tests/sglang tests/e2e/test_real_sglang.py tests/e2e/test_mixed_pools.py \
	      $(ARGS) || exit 1; \
	done

test-vllm: $(DEV)  ## against the real vLLM, until the first failure (VLLM_VENV=... TIMES=3)
	for time in $$(seq $(or $(TIMES),1)); do \
	  SLIPSTREAM_TEST_VLLM_VENV=$(VLLM_VENV) \
	    $(BIN)/python -m pytest -rs -m vllm --timeout 1800 tests/vllm $(ARGS) || exit 1; \
	done

check: $(DEV)  ## format, lint, types and import layers: the first part of CI
	$(BIN)/ruff format --check $(wildcard $(CODE))
	$(BIN)/ruff check $(wildcard $(CODE))
	$(BIN)/mypy $(wildcard $(CODE))
	$(BIN)/lint-imports

format: $(DEV)  ## rewrite the code in our format
	$(BIN)/ruff format $(wildcard $(CODE))
	$(BIN)/ruff check --fix $(wildcard $(CODE))

bench: $(DEV)  ## gateway overhead, compared with calling the engine directly
	$(BIN)/python -m benchmarks.gateway_overhead $(ARGS)

nightly: $(DEV)  ## slow tests, property tests with many new examples, and real engines (SGLANG_VENV=..., VLLM_VENV=...)
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -rs -m '(nightly or hypothesis) and not sglang and not vllm and not gpu' \
	  --timeout 1800 $(ARGS)
	$(if $(SGLANG_VENV),$(MAKE) test-sglang)
	$(if $(VLLM_VENV),$(MAKE) test-vllm)

docs: $(DEV)  ## write docs/reference, Grafana's boards and the output of commands on pages from the code
	$(BIN)/python -m slipstream.reference docs/reference
	$(BIN)/python -m infra.grafana
	$(BIN)/python -m slipstream.printed_page docs/guides/plan.md docs/guides/launch-engines.md
	$(BIN)/python -m tests.costs --page

console: $(DEV)  ## check, test and build the console into control/console/dist (Node of the virtual environment)
	PATH="$(CURDIR)/$(BIN):$$PATH" console/build.sh $(ARGS)

console-types: $(DEV)  ## write the console's types of the admin API
	PATH="$(CURDIR)/$(BIN):$$PATH" console/openapi/generate.sh

lock: $(DEV)  ## renew requirements/*.lock, the hash-pinned dependencies of CI and deployments
	$(PIP) --quiet 'uv>=0.9,<1'
	$(BIN)/python -m infra.locks

clean:  ## remove the virtual environment and caches; the data folder stays
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@echo "making the virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit("Slipstream needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

# Editable, because the code runs from here and finds the models next to it.
$(ENGINE): pyproject.toml requirements/dev-cpu.lock | $(BIN)/python
	@echo "installing Slipstream and its engine (torch is the big one; a few minutes the first time)"
	@$(INSTALL) $(TESTED) -e '.[engine]'
	@$(COMPILE)
	@touch $@

$(DEV): pyproject.toml requirements/dev-cpu.lock | $(BIN)/python
	@echo "installing Slipstream, its engine and the tools for tests (a few minutes the first time)"
ifdef LOCKED
	@$(INSTALL) --require-hashes -r requirements/dev-cpu.lock
	@$(PIP) --no-deps --no-build-isolation -e .
else
	@$(INSTALL) $(TESTED) -e '.[engine,lsp,dev]'
endif
	@$(COMPILE)
	@touch $@ $(ENGINE)
