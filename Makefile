# `make` alone lists the targets. Each one creates its environment first.
#
#   PYTHON=python3.12 make test     another interpreter than python3
#   VENV=.venv-312 make test        another environment than .venv

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?= --numprocesses=2 --dist=worksteal
# What users do first they do with the newest TensorFlow.
NEWEST_ALONE := $(addprefix --ignore=tests/,examples/test_notebooks.py \
	project/test_first_hour.py project/test_as_a_user.py)
# BENCH_ARGS=--baselines times timm and lucidrains too, where installed.
BENCH_ARGS ?=

# TPU_ARGS="--chips v4 --only LambdaResNet50" compiles those alone.
TPU_ARGS ?=

BIN := $(VENV)/bin
TPU_VENV := $(VENV)-tpu
DOCS_VENV := $(VENV)-docs
NEWEST_VENV := $(VENV)-newest
LEGACY_VENV := $(VENV)-legacy
CONSTRAINTS := requirements/constraints.txt
comma := ,
PIP := -m pip install --quiet --disable-pip-version-check
PIP_INSTALL := $(PIP) --constraint $(CONSTRAINTS)
INSTALL := $(BIN)/python $(PIP_INSTALL)
TPU_INSTALL := $(TPU_VENV)/bin/python $(PIP_INSTALL)

# Without it TensorFlow's C++ reports, among others, an error for a missing GPU.
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-slow test-newest test-legacy test-tpu \
	lint format bench tables tpu-compile docs \
	notebooks constraints clean

help:  ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' \
		$(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## Train on handwritten digits, export, predict.
	$(BIN)/python train.py
	$(BIN)/python export.py
	$(BIN)/lambdanet predict

test: lint  ## Lint, check types, test with Keras 3 and tf_keras (5 min).
	$(BIN)/python -m pytest $(PYTEST_ARGS)
	TF_USE_LEGACY_KERAS=1 $(BIN)/python -m pytest $(PYTEST_ARGS) -m "every_lane and not slow"

# The steps of .ci/run.
test-all: test test-slow test-tpu docs test-newest test-legacy  ## Test everything everywhere (25 min).

test-slow: $(VENV)/.dev  ## Run what `make test` leaves out.
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m slow $(NEWEST_ALONE)
	TF_USE_LEGACY_KERAS=1 $(BIN)/python -m pytest $(PYTEST_ARGS) \
		-m "slow or not every_lane" $(NEWEST_ALONE)

test-newest: $(NEWEST_VENV)/.wheel  ## Test the wheel alone with the newest TensorFlow.
	$(NEWEST_VENV)/bin/python -c 'from importlib.metadata import version; \
		print("TensorFlow", version("tensorflow"))'
	cd $(NEWEST_VENV)/lane && ../bin/python -m pytest $(PYTEST_ARGS) \
		-m every_lane
	@$(NEWEST_VENV)/bin/python $(PIP) "$$(echo dist/*.whl)[examples]" \
		tf_keras ipykernel nbclient
	cd $(NEWEST_VENV)/lane && TF_USE_LEGACY_KERAS=1 ../bin/python -m pytest \
		$(PYTEST_ARGS) -m every_lane \
		tests/project/test_as_a_user.py \
		tests/project/test_first_hour.py::test_the_smoke_recipe \
		tests/models/test_weights.py tests/layers/test_learning.py
	cd $(NEWEST_VENV)/lane && ../bin/python -m pytest $(PYTEST_ARGS) \
		-m every_lane tests/examples/test_notebooks.py

test-legacy: $(LEGACY_VENV)/.wheel  ## Test with TensorFlow 2.15 and its addons.
	cd $(LEGACY_VENV)/lane && ../bin/python -m pytest -W default \
		$(PYTEST_ARGS) -m "addons or every_lane"

test-tpu: $(TPU_VENV)/.tpu  ## Compile LambdaResNet-50 for TPUs; needs none.
	$(TPU_VENV)/bin/python -m benchmarks.tpu.compile --check --chips v3 $(TPU_ARGS)

lint: $(VENV)/.dev  ## Check style, spelling and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/basedpyright --level error --pythonpath $(BIN)/python

format: $(VENV)/.dev  ## Format the code and mend what ruff can mend.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev  ## Time layers, networks, training, exports anew (1 h).
	$(BIN)/python -m benchmarks.layers.speed $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.networks.speed
	$(BIN)/python -m benchmarks.training.speed
	$(BIN)/python -m benchmarks.serving.exports
	$(BIN)/python -m benchmarks.render

tables: $(VENV)/.dev  ## Recompute the paper's tables.
	$(BIN)/python -m benchmarks.networks.paper_tables
	$(BIN)/python -m benchmarks.render

tpu-compile: $(TPU_VENV)/.tpu  ## Compile all for TPUs, go on if stopped (hours).
	$(TPU_VENV)/bin/python -m benchmarks.tpu.compile $(TPU_ARGS)

docs: $(DOCS_VENV)/.docs  ## Build the site of the pages and docstrings, strictly.
	$(DOCS_VENV)/bin/python -m website.stage build/pages
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build \
		--config-file website/mkdocs.yml
	@echo "Open build/site/index.html"

notebooks: $(VENV)/.dev  ## Execute the notebooks of examples/ in place.
	$(BIN)/python -m examples.notebooks

constraints: $(VENV)/.pip  ## Resolve the pinned versions anew.
	$(INSTALL) uv
	$(BIN)/uv pip compile --universal --python-version 3.10 --upgrade \
		--no-annotate --custom-compile-command "make constraints" --quiet \
		--extra dev pyproject.toml requirements/constraints.in \
		--output-file $(CONSTRAINTS)

clean:  ## Remove the environment and all caches; keep runs/ and exported/.
	rm -rf $(VENV) $(DOCS_VENV) $(TPU_VENV) $(NEWEST_VENV) $(LEGACY_VENV) build dist *.egg-info
	rm -rf .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp in the environment says what is installed. A changed requirement
# makes it out of date.

$(VENV)/.demo: $(VENV)/.pip pyproject.toml $(CONSTRAINTS)
	@echo "Installing TensorFlow and what the demo needs ..."
	@$(INSTALL) --build-constraint $(CONSTRAINTS) --editable ".[data,plot]"
	@touch $@

$(VENV)/.dev: $(VENV)/.pip pyproject.toml $(CONSTRAINTS)
	@echo "Installing TensorFlow and the development tools ..."
	@$(INSTALL) --build-constraint $(CONSTRAINTS) --editable ".[dev]"
	@touch $@ $(VENV)/.demo

# The lanes of other versions have the wheel, and the tests without the package
# beside them.
LANE_FILES := tests benchmarks docs results examples README.md pyproject.toml

SOURCES := $(shell find lambdanet_tf $(LANE_FILES) -type f -not -name '*.pyc')

dist/.wheel: $(VENV)/.pip $(SOURCES)
	@rm -rf dist
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--build-constraint $(CONSTRAINTS) --wheel-dir dist .
	@touch $@

# $(call install_lane,ENVIRONMENT,REQUIREMENTS)
define install_lane
	@echo "Installing the wheel in $(1) ..."
	@rm -rf $(1)
	@$(PYTHON) -m venv $(1)
	@$(1)/bin/python $(PIP) $(2)
	@mkdir $(1)/lane
	@cp -R $(LANE_FILES) $(1)/lane
	@touch $(1)/.wheel
endef

$(NEWEST_VENV)/.wheel: dist/.wheel
	$(call install_lane,$(NEWEST_VENV),dist/*.whl pytest pytest-xdist hypothesis)

$(LEGACY_VENV)/.wheel: dist/.wheel requirements/legacy.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 12))' || { \
		echo "TensorFlow 2.15 needs Python 3.10 or 3.11. Name one:" \
		"PYTHON=python3.11 make $(MAKECMDGOALS)" >&2; exit 1; }
	$(call install_lane,$(LEGACY_VENV),"$$(echo dist/*.whl)[data$(comma)plot]" \
		--requirement requirements/legacy.txt)

$(TPU_VENV)/.tpu: pyproject.toml $(CONSTRAINTS) requirements/tpu-compile.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "The TPU's compiler needs Python 3.11 to 3.13. Name one:" \
		"PYTHON=python3.12 make $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Installing TensorFlow and the compiler of TPUs ..."
	@$(PYTHON) -m venv $(TPU_VENV)
	@$(TPU_INSTALL) --upgrade pip
	@$(TPU_INSTALL) --build-constraint $(CONSTRAINTS) --editable . tf_keras \
		--requirement requirements/tpu-compile.txt
	@touch $@

# The reference is read from the sources: TensorFlow is not needed.
$(DOCS_VENV)/.docs: pyproject.toml
	@echo "Installing MkDocs ..."
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet \
		--disable-pip-version-check --upgrade "pip>=25.1"
	@$(DOCS_VENV)/bin/python -m pip install --quiet --group docs
	@touch $@

$(VENV)/.pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
		sys.exit(None if (3, 10) <= v <= (3, 13) else "This is Python %d.%d." % v)' \
		|| { echo "lambdanet_tf needs Python 3.10 to 3.13. Name one:" \
		"PYTHON=python3.12 make $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --upgrade pip
	@touch $@
