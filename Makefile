# Two commands do everything: `make demo` and `make test`. Both install what they need.
SHELL := /bin/bash
PY := .venv/bin/python
PYTEST := $(PY) -m pytest
TALLY_REQUIRE_ALL ?=
export TALLY_REQUIRE_ALL
export CBOR_C_EXTENSION := 1
# The tests start some hundred processes: each would compile all that it imports, which takes it seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test prove nightly nightly-unit nightly-integration nightly-e2e nightly-alone compat install generator stacks docker packages lint types test-types style sdk wheel unit integration e2e gpu lock clean

demo: .venv/product docker
	.venv/bin/tally demo

test: install docker packages lint unit integration e2e

# ---- what is needed ---------------------------------------------------------------------------
install: .venv/installed

# What runs the product: all that `make demo` and `tally up` need. What checks it comes on top, below.
.venv/product: requirements.lock pyproject.toml contracts/devnet/package-lock.json web/package-lock.json
	test -x $(PY) || python3 -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25' uv
	npm ci --silent --no-audit --no-fund --ignore-scripts --prefix web
	$(PY) -m uv pip install --quiet --python $(PY) --constraints requirements.lock --editable '.[all]'
	npm ci --silent --no-audit --no-fund --prefix contracts/devnet
	touch $@

.venv/installed: .venv/product tests/contracts/aiken/package-lock.json tests/browser/package-lock.json tests/clients/package-lock.json tests/ledger/package-lock.json tests/ouroboros/package-lock.json tests/s3/package-lock.json tests/lint/package-lock.json web/sdk/package-lock.json
	$(PY) -m uv pip install --quiet --python $(PY) --requirements requirements.lock
	npm ci --silent --no-audit --no-fund --prefix tests/contracts/aiken
	npm ci --silent --no-audit --no-fund --prefix tests/browser
	npm ci --silent --no-audit --no-fund --prefix tests/ledger
	npm ci --silent --no-audit --no-fund --ignore-scripts --prefix tests/ouroboros
	npm ci --silent --no-audit --no-fund --ignore-scripts --prefix tests/s3
	npm ci --silent --no-audit --no-fund --ignore-scripts --prefix tests/lint
	npm ci --silent --no-audit --no-fund --ignore-scripts --prefix web/sdk
	# Not ci: it wants the lock to hold prebuilt binaries for every platform, and not all are published.
	npm install --no-save --omit=optional --silent --no-audit --no-fund --ignore-scripts --prefix tests/clients
	touch $@

# Makes a Python client of the API's document, for `make prove` only; apart, since it needs an older typer.
generator: .venv/generator/installed

.venv/generator/installed: tests/clients/generator.lock .venv/installed
	$(PY) -m uv venv --quiet --clear --python $(PY) .venv/generator
	$(PY) -m uv pip sync --quiet --python .venv/generator/bin/python tests/clients/generator.lock
	touch $@

# Frameworks that examples/clusters run by, for `make prove` and `make nightly` only; apart, since nothing of the product
# needs them. torch by pip, which takes a wheel for CPUs where its own settings name one (--find-links); the lock leaves
# out what a wheel for CUDA needs beside, which that one says itself. The rest by uv, which is several times as fast.
# Members see the folder read-only: what they import is compiled here, or each of their processes would compile it;
# of Ray all, which starts processes of its own.
STACK := .venv/stacks/frameworks
IMPORTED := hivemind, optuna, ray.dashboard.agent, ray.data, ray.train.torch, ray.tune.search.optuna, sklearn.datasets, \
  torch._dynamo, torch.distributed.fsdp, torch.distributed.run

stacks: $(STACK)/installed

$(STACK)/installed: tests/stacks/frameworks.lock | .venv/product
	rm -rf $(@D)
	$(PY) -m uv venv --quiet --python $(PY) $(@D)
	$(PY) -m pip --python $(@D) install --quiet --no-compile --no-deps $$(grep ^torch== $<)
	$(PY) -m uv pip install --quiet --python $(@D)/bin/python --requirement $<
	$(@D)/bin/python -c 'import $(IMPORTED)'
	$(@D)/bin/python -m compileall -q -j 2 -x 'ray/rllib|/tests?/' $(@D)/lib/python*/site-packages/ray
	touch $@

docker:
	@bash packaging/docker.sh

packages:
	@bash packaging/debian.sh

lock:
	$(PY) -m uv pip compile --quiet --python-version 3.11 --extra dev --no-header --no-emit-index-url -o requirements.lock pyproject.toml
	$(PY) -m uv pip compile --quiet --python-version 3.11 --no-header --no-emit-index-url -o tests/clients/generator.lock tests/clients/generator.in
	$(PY) -m uv pip compile --quiet --python-version 3.11 --no-header --no-emit-index-url \
	  --override tests/stacks/cpu.txt -o tests/stacks/frameworks.lock tests/stacks/frameworks.in
	for name in jupyter gradio; do $(PY) -m uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	  -o marketplace/client/jobs/packages/$$name.lock marketplace/client/jobs/packages/$$name.in; done

# What is installed where there is no checkout: dist/tally_compute-VERSION-py3-none-any.whl.
wheel: .venv/product
	$(PY) -m uv build --quiet --wheel --out-dir dist .
	@ls dist/*.whl

# ---- what is checked --------------------------------------------------------------------------
# The types of the product and of its tests take a core each for half a minute: both at once, and the rest beside.
lint: install
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types test-types style

types:
	.venv/bin/pyright

test-types:
	.venv/bin/pyright --project tests

style:
	.venv/bin/ruff check .
	.venv/bin/ruff format --check --quiet .
	.venv/bin/lint-imports --no-cache
	tests/lint/node_modules/.bin/eslint --config tests/lint/eslint.config.js web/assets
	tests/lint/node_modules/.bin/tsc --project tests/lint
	npm run --silent --prefix web/sdk generate > /dev/null
	web/sdk/node_modules/.bin/tsc --project web/sdk --noEmit

# The TypeScript client as a package: web/sdk/dist.
sdk: install
	npm run --silent --prefix web/sdk build

# A file's tests share what they started, and much of their time is waiting: three files at a time on two cores, those
# that take longest first (tests/schedule.py).
# The browser's tests are a run of their own: the browser's loop stays in their process, and others start loops of
# their own. Two at a time there, as of the unit tests: they keep both cores busy.
BY_FILE := --dist loadfile --no-loadscope-reorder -p tests.schedule

# Warnings are errors (pyproject.toml) in `make test` and `make prove`. The rarer runs that are marked with this show
# theirs, mostly of sockets that a test leaves open.
SHOWN := -W default

# Unit tests write journals by the thousand, each row with an fsync that waits for the disk; none asks whether the
# disk remembers. Their folders are in memory where there is plenty of it, and those of passed tests go at once.
IN_MEMORY := $(shell avail=$$(df --output=avail /dev/shm 2>/dev/null | tail -1); \
  test "$${avail:-0}" -gt 2000000 && echo PYTEST_DEBUG_TEMPROOT=/dev/shm)
UNIT := $(IN_MEMORY) $(PYTEST) tests/unit tests/contracts tests/benchmarks -n 2 -o tmp_path_retention_policy=failed

unit: install
	$(UNIT) -m 'not prove and not nightly and not gpu'

integration: install docker packages
	$(PYTEST) tests/integration -n 3 $(BY_FILE) -m 'not prove and not nightly and not gpu'

e2e: install docker packages
	$(PYTEST) tests/e2e -n 3 $(BY_FILE) -m 'not prove and not nightly and not gpu'
	$(PYTEST) tests/browser -n 2 $(BY_FILE) -m 'not prove and not nightly and not gpu'

# Which take longest, by name: CI's limit is for all of them. Where several fail, each of the others may wait as long
# as it is allowed to for what never comes: five are enough to know.
SLOWEST := --durations 10 --durations-min 20 --maxfail 5

# Some keep time; and three members of Ray keep two cores busy, and end when they do not get them for half a minute:
# those that are marked `alone` run one at a time.
prove: install docker packages generator stacks
	$(UNIT) -m prove --timeout 1500 -rs $(SLOWEST)
	$(PYTEST) tests/integration -n 3 $(BY_FILE) -m 'prove and not gpu' --timeout 900 $(SLOWEST)
	$(PYTEST) tests/e2e -n 3 $(BY_FILE) -m 'prove and not alone and not gpu' --timeout 900 $(SLOWEST)
	$(PYTEST) tests/e2e -m 'prove and alone and not gpu' --timeout 900 $(SLOWEST)
	$(PYTEST) tests/browser -n 2 $(BY_FILE) -m 'prove and not gpu' --timeout 900 $(SLOWEST)

# What is longer or rarer than CI's limit allows: the full counts of what `make prove` runs a tenth of.
# By `make -k` all of it, whatever fails.
nightly: nightly-unit nightly-integration nightly-e2e nightly-alone

RARELY := nightly and not alone and not gpu
# Nearly each of them is alone in its file: they go to whoever is free, the longest first.
TO_THE_FREE := --dist worksteal -p tests.schedule

nightly-unit: install docker packages stacks
	$(PYTEST) tests/unit tests/contracts tests/benchmarks -n 2 $(TO_THE_FREE) -m '$(RARELY)' --timeout 10800 -rs $(SHOWN) --durations 0

nightly-integration: install docker packages
	$(PYTEST) tests/integration -n 3 $(TO_THE_FREE) -m '$(RARELY)' --timeout 10800 -rs $(SHOWN) --durations 0

nightly-e2e: install docker packages
	$(PYTEST) tests/e2e -n 3 $(BY_FILE) -m '$(RARELY)' --timeout 10800 -rs $(SHOWN) --durations 0

nightly-alone: install docker packages stacks
	$(PYTEST) tests -m 'nightly and alone and not gpu' --timeout 10800 -rs $(SHOWN) --durations 0

# Today's adapter, payer and market with those of each version in tests/e2e/compat/versions.toml; part of `nightly`.
compat: install packages
	$(PYTEST) tests/e2e/compat -m nightly -rs $(SHOWN)

gpu: install
	$(PYTEST) tests -m gpu $(SHOWN)

clean:
	rm -rf .venv contracts/devnet/node_modules tests/contracts/aiken/node_modules tests/lint/node_modules
