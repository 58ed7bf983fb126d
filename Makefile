# `make lab` opens the laboratory, `make test` proves all of it, `make check` what changed.
# All work in .venv, which is built once and again only when pyproject.toml or constraints.txt changes.

PYTHON ?= python3
LAB_OPTIONS ?=
WORKERS ?= 2
SINCE ?= main

VENV := .venv
INSTALLED := $(VENV)/.installed
RUN := $(VENV)/bin/python
# No test reads logged records, and keeping them takes half a millisecond of each of 40,000 tests.
# In CI the temporary folders of earlier runs are kept: to delete 8,000 of them can take a minute.
PYTEST := $(RUN) -m pytest -n $(WORKERS) --durations=15 --durations-min=5 -p no:nbval -p no:logging \
	$(if $(CI),-o tmp_path_retention_count=99)
PIP := $(RUN) -m pip --disable-pip-version-check
TORCH := $(shell sed -n '/^torch==/p' constraints.txt)
CPU_WHEELS := https://download.pytorch.org/whl/cpu
ALLOW_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Say what can be asked for
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: lab
# The root is the repository, so that a lesson can link to the pages of the library.
lab: $(INSTALLED) ## Open JupyterLab on the first lesson
	$(RUN) -m jupyterlab $(ALLOW_ROOT) --ServerApp.root_dir="$(CURDIR)" $(LAB_OPTIONS) notebooks/00_start_here.ipynb

# What Python compiles is kept, whatever the shell says: hundreds of processes import the same files.
export PYTHONDONTWRITEBYTECODE =
# A file is compiled when it is first imported: of 19,000 in the environment, few ever are.
export PIP_NO_COMPILE = 1

# Every check runs, whatever the ones before it said; one failure is enough to fail.
# What takes one core runs beside the rest: front ends, which need no environment, while it is built,
# types beside the versions that are tried at the end and the first tests.
EACH := --no-print-directory --keep-going
.PHONY: test
test: ## Run every check: format, lint, types, tests, lessons
	@code=0; $(MAKE) $(EACH) -j 2 $(INSTALLED) check-widgets || code=1; \
	[ -e $(INSTALLED) ] || exit 1; \
	$(MAKE) $(EACH) check-format check-lint || code=1; \
	$(MAKE) $(EACH) -j 2 check-types $(VENV)/colab $(VENV)/lowest check-tests || code=1; \
	$(MAKE) $(EACH) check-browser check-colab check-lowest || code=1; \
	exit $$code
	@echo "Every check passed."

.PHONY: check
check: $(INSTALLED) ## In a minute or two: format, lint, types, rooms, the tests and claims of what changed since main
	@$(MAKE) --no-print-directory --keep-going check-format check-lint check-types check-changed \
		$$($(RUN) .ci/changed.py goals $(SINCE)) check-changed-browser
	@echo "What changed is sound; \`make test\` runs every check."

# A changed page brings its claims and its mirror test, core the claims of one page of each family.
.PHONY: check-changed
check-changed: $(INSTALLED)
	@tests=$$($(RUN) .ci/changed.py tests $(SINCE)) && echo "pytest $$tests" && $(PYTEST) $$tests

# A lesson runs where something has changed that its last green run on this machine read.
.PHONY: check-changed-browser
check-changed-browser: $(INSTALLED)
	@tests=$$($(RUN) .ci/changed.py browser $(SINCE)) && \
		if [ -n "$$tests" ]; then echo "pytest $$tests"; $(PYTEST) $$tests || $(PYTEST) $(FAILED_ONES) $$tests; fi

.PHONY: check-format
check-format: $(INSTALLED)
	$(RUN) -m ruff format --check .

.PHONY: check-lint
check-lint: $(INSTALLED)
	$(RUN) -m ruff check .

.PHONY: check-types
check-types: $(INSTALLED)
	$(RUN) -m mypy

# The front ends need Node only here: what they are built into is committed, so that users need none.
# tests/browser serves bertviz from npm packages what it would ask a CDN for.
.PHONY: check-widgets
check-widgets: ## Rebuild the widgets' front ends, compare with what is committed, test their logic
	@if command -v node >/dev/null && command -v npm >/dev/null; then set -e; \
		for folder in widgets tests/browser; do npm ci --prefix $$folder --silent --no-audit --no-fund; done; \
		npm run --prefix widgets --silent check; \
		npm run --prefix widgets --silent test; \
	elif [ "$$CI" = true ]; then \
		echo "The widgets' front ends cannot be rebuilt and compared: node and npm are missing." >&2; exit 1; \
	else \
		echo "Skipped: node and npm are missing, so the widgets' front ends are not rebuilt and compared."; \
	fi

# What the tests of a file share is made once, by the one worker that runs the file. Widgets are tried
# as a whole in the browser and with the lowest versions; here and on Colab's, what each is asked.
OF_WIDGETS := tests/widgets/test_every_widget.py
.PHONY: check-tests
check-tests: $(INSTALLED)
	$(PYTEST) --dist loadfile --ignore=tests/browser --ignore=tests/widgets tests $(OF_WIDGETS)

.PHONY: check-claims
check-claims: $(INSTALLED) ## Run the claims of every mechanism and the tests of core, as on other Pythons
	$(PYTEST) tests/test_claims.py tests/test_precision_claims.py tests/test_position_claims.py \
		tests/test_catalog.py tests/core tests/structures tests/models

# `TESTS="tests --ignore=tests/browser"` is all of them, `TESTS=--lessons` the lessons.
.PHONY: check-machines
check-machines: $(INSTALLED) ## Run a selection of TESTS as other processors and numbers of threads compute
	$(RUN) .ci/machines.py $(TESTS)

# Each lesson is executed once: in the browser, or without one where there is none. Cells tagged
# nbval-check-output are compared strictly, the others must run without an error.
# Their trainings are rehearsed: `make check` and `make check-lessons` take every step.
# A page may be late where the machine is busy: tests that fail are tried once more, in a new browser.
FAILED_ONES := --last-failed --last-failed-no-failures none
.PHONY: check-browser
check-browser: $(INSTALLED)
	@if { command -v chromium-headless-shell || command -v chromium; } >/dev/null || [ "$$CI" = true ]; then set -x; \
		export ATTNLAB_REHEARSED_TRAINING=1; \
		$(PYTEST) tests/browser || $(PYTEST) $(FAILED_ONES) tests/browser; \
	else \
		echo "Skipped: chromium is missing, so the widgets are not tried; the lessons run without it."; \
		set -x; $(LESSONS) notebooks; \
	fi

.PHONY: check-lessons
check-lessons: $(INSTALLED) ## Run every lesson in the browser with all steps of its trainings
	$(PYTEST) tests/browser/test_lessons.py

# The widgets with the lowest versions that pyproject.toml allows; then, with what shows a widget on
# Colab, which lies between those and the pinned ones, what every widget is asked, and four lessons.
# PYTHONPATH (whole, as kernels start elsewhere) lays these versions over; torch stays.
# ipywidgets 7 itself uses what traitlets 5.7 calls deprecated, and transformers 4.48 what torch does.
OLD_WIDGETS := -W "ignore:Deprecated in traitlets 4.1:DeprecationWarning" \
	-W 'ignore:`torch.jit.script` is deprecated:DeprecationWarning'
ON_COLAB := 00_start_here 04_reading_attention 08_experts 60_query_key_space
LESSONS := ATTNLAB_TRY_PREDICTIONS=1 $(RUN) -m pytest -n $(WORKERS) --dist loadfile -p no:cacheprovider \
	--nbval-lax --nbval-current-env --nbval-cell-timeout=600 --nbval-kernel-startup-timeout=300
.PHONY: check-colab
check-colab: $(VENV)/colab ## Try every widget and four lessons on Colab's versions of what shows a widget
	PYTHONPATH=$(CURDIR)/$< $(PYTEST) $(OLD_WIDGETS) $(OF_WIDGETS)
	PYTHONPATH=$(CURDIR)/$< $(LESSONS) $(ON_COLAB:%=notebooks/%.ipynb)

.PHONY: check-lowest
check-lowest: $(VENV)/lowest ## Try the widgets on the lowest versions that pyproject.toml allows
	PYTHONPATH=$(CURDIR)/$< $(PYTEST) $(OLD_WIDGETS) tests/widgets

$(VENV)/colab $(VENV)/lowest: .ci/overlay.py tests/house/colab_versions.txt $(INSTALLED)
	rm -rf $@
	$(RUN) .ci/overlay.py $(@F) $@ || { rm -rf $@; exit 1; }
	@touch $@

.PHONY: notebooks
notebooks: $(INSTALLED) ## Run the lessons; print the seconds and the memory of each
	$(RUN) -m tools.notebooks

# What has PyTorch with support for the GPU is used as it is; else .venv is built.
.PHONY: gpu
gpu: ## On a machine with a GPU: the tests that need one, then every form timed beside other kernels
	@if $(PYTHON) -c 'import anywidget, jaxtyping, plotly, pytest, pytest_timeout, sympy, torch, tqdm; \
		raise SystemExit(not torch.accelerator.is_available())' 2>/dev/null; \
	then python="$(PYTHON)"; else $(MAKE) --no-print-directory $(INSTALLED) || exit; python="$(RUN)"; fi; \
	$$python -m pytest -p no:nbval -q -m gpu $$(grep -rl 'mark\.gpu' tests --include='*.py'); code=$$?; \
	export PYTHONPATH="widgets:$$PYTHONPATH"; $$python -m attnlab.measure gpu --json gpu.jsonl && \
	$$python -m attnlab_widgets.survey --picture gpu.jsonl gpu.svg && exit $$code

.PHONY: measure-widgets
measure-widgets: $(INSTALLED) ## Measure the widgets in the browser, beside bertviz (needs npm once)
	npm ci --prefix tests/browser --silent --no-audit --no-fund
	$(RUN) tests/browser/measure_widgets.py $(MEASURE_OPTIONS)

.PHONY: readme
readme: $(INSTALLED) ## Write the tables of MECHANISMS.md and of the course's page anew, from cards and lessons
	$(RUN) -m tools.readme
	$(RUN) -m tools.course.page

.PHONY: derived
derived: readme ## Write every file that follows from the cards: tables, and rows of the survey that are missing
	$(RUN) -m attnlab_widgets.survey --missing

.PHONY: new
new: $(INSTALLED) ## Begin a mechanism from one that is like it: make new NAME=hartley FAMILY=convolution LIKE=fnet
	@$(RUN) .ci/new.py $(NAME) $(FAMILY) $(LIKE)

.PHONY: pictures
pictures: $(INSTALLED) ## Draw the pictures in README.md anew, in a browser
	$(RUN) -m pytest -p no:nbval tests/browser/test_pictures.py --pictures docs/images

.PHONY: site
site: $(INSTALLED) ## Build the web site in site/, which opens from disk: lessons, mechanisms, reference
	$(RUN) -m docs

.PHONY: course
course: $(INSTALLED) ## Write the lessons as a course: editions for students and teachers, assignments, pages to print
	$(RUN) -m tools.course course

.PHONY: format
format: $(INSTALLED) ## Format the code and mend what the linter can mend
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

.PHONY: clean
clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist site screenshots widgets/node_modules tests/browser/node_modules *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What Binder does, in an environment of its own.
.PHONY: binder-check
binder-check: ## Install binder/ in an empty environment and use it
	@set -e; empty=$$(mktemp -d); trap 'rm -rf "$$empty"' EXIT; \
	$(PYTHON) -m venv "$$empty"; \
	"$$empty/bin/pip" install -qq --no-cache-dir --retries 1 --timeout 30 -r binder/requirements.txt; \
	"$$empty/bin/pip" check; \
	"$$empty/bin/python" -c 'import attnlab, attnlab.figures, attnlab_widgets, sklearn, tokenizers; \
		assert attnlab.cards(), "the shelf is empty"'; \
	"$$empty/bin/python" -c 'import torch; assert torch.version.cuda is None, torch.__version__'; \
	du -sh "$$empty" | awk '{ print "The environment takes " $$1 "." }'

.PHONY: constraints
constraints: ## Write constraints.txt anew from the newest versions that fit pyproject.toml
	@set -e; empty=$$(mktemp -d); trap 'rm -rf "$$empty"' EXIT; \
	$(PYTHON) -m venv "$$empty"; \
	"$$empty/bin/pip" install -qq --extra-index-url $(CPU_WHEELS) '.[test,peers,site]'; \
	sed -n '/^#/p' constraints.txt > "$$empty/constraints.txt"; \
	"$$empty/bin/pip" freeze --all | grep -vE '^(pip|attnlab)( |==)' | sed 's/+cpu$$//' | sort -f \
		>> "$$empty/constraints.txt"; \
	cp "$$empty/constraints.txt" constraints.txt

# uv installs 200 packages far sooner than pip. It reads none of pip's settings: where it fails, pip goes on
# from what is there.
UV := uv==0.13.9
EVERYTHING := -c constraints.txt -e '.[test,peers,site]'

# Without an NVIDIA GPU the CPU build of PyTorch comes first: 200 MB in place of 3 GB. Where that host cannot
# be reached pip's usual index serves; should it hold the CUDA build, that is said before it is downloaded.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "attnlab needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name a newer one, for example: make PYTHON=python3.12 $(or $(MAKECMDGOALS),lab)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make a virtual environment, because its venv module is not installed." >&2; \
		echo "On Debian and Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; }
	@echo "Building $(VENV): about 2 GB and a few minutes, once."
	@$(PYTHON) -m venv --clear $(VENV)
	@if nvidia-smi -L >/dev/null 2>&1; then \
		$(PIP) install -qq '$(TORCH)'; \
	elif $(PIP) install -qq --no-deps --retries 0 --timeout 5 --index-url $(CPU_WHEELS) \
			'$(TORCH)+cpu' >/dev/null 2>&1; then :; \
	else \
		if $(PIP) install -qq --no-deps --dry-run --report - '$(TORCH)' 2>/dev/null \
				| grep -qE '"(nvidia|cuda)-'; then \
			echo "No NVIDIA GPU is seen and $(CPU_WHEELS) cannot be reached:"; \
			echo "PyTorch comes in its CUDA build, about 3 GB. It works without a GPU; Ctrl-C stops here."; \
		fi; \
		$(PIP) install -qq '$(TORCH)'; \
	fi
	@{ $(PIP) install -qq '$(UV)' && $(RUN) -m uv pip install -qq $(EVERYTHING); } 2>/dev/null || \
		$(PIP) install -qq $(EVERYTHING)
	@touch $@
