# The commands of the course; `make` alone lists them. For GNU make 3.81 (macOS) and later, and any POSIX shell.

PYTHON ?= python3
ARGS ?=
TORCH ?=
NOTEBOOKS ?= $(sort $(wildcard notebooks/*.ipynb notebooks/solutions/*.ipynb))

# TORCH=cpu takes PyTorch from this index. For Linux, the index that pip uses otherwise has only the build with CUDA.
TORCH_INDEX := https://download.pytorch.org/whl/cpu

# .venv is complete when INSTALLED is there, and half-made when UNFINISHED is: make or the machine was stopped.
INSTALLED := .venv/.installed
UNFINISHED := .venv/.unfinished

# TOOLS is there when .venv also has the tools of a contributor. The rules that need it come below this line, because
# make expands what a rule needs when it reads the rule.
TOOLS := .venv/.tools

# .venv first in PATH: what a notebook or a terminal starts (torchrun, python) is the course's own.
RUN := PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python -m
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 10))

.PHONY: help lab edit check test test-cuda mutants claims bench notebooks minutes script grade site clean

help:
	@echo 'make lab        open your own copy of the course, my-course, in JupyterLab'
	@echo '                (ARGS="--no-browser --port 8899" passes arguments on)'
	@echo 'make edit       open the original notebooks in JupyterLab, to change the course'
	@echo 'make check      look at the code and the text, and run the tests that need no ranks: a minute'
	@echo 'make test       run every notebook, every solution and every test but the nightly ones (ALL=1 runs these, too;'
	@echo '                NOTEBOOKS="notebooks/05*" runs all that belongs to a lesson)'
	@echo 'make mutants    break every claim on purpose, and see that its notebook refuses (NOTEBOOKS="notebooks/05*";'
	@echo '                RANDOM=20 SEED=3 tries 20 small random mistakes in each notebook instead)'
	@echo 'make claims     print each sentence of the summaries and each caption with the asserts that prove it, and'
	@echo '                count how much of the code in view is asserts, verdicts and harness'
	@echo 'make test-cuda  run every notebook and the CUDA tests on a machine with a GPU, with the torch that PYTHON has'
	@echo 'make bench      measure start, restart, memory and stop (ARGS= passes arguments on)'
	@echo 'make notebooks  run every notebook and store its outputs (NOTEBOOKS="notebooks/01*.ipynb" for a few)'
	@echo 'make minutes    write the minutes of each notebook, by their rule, wherever they are given'
	@echo 'make script     write the rank code of a notebook for torchrun (NOTEBOOK=08_data_parallel)'
	@echo 'make grade      judge the notebooks of a class (SUBMISSIONS=folder, with folder/NAME/NN_topic.ipynb in it;'
	@echo '                ARGS=--again judges again what has been judged before)'
	@echo 'make site       write all lessons with their stored outputs as a web site into build/site'
	@echo 'make canaries   see whether what the course replaces in torch and ipyparallel is still there'
	@echo 'make types      check the types of helpers/world.py, tap.py, torch_parts.py, ranks, probe, look and measure'
	@echo 'make lock       write the exact versions of all that is installed into constraints.txt'
	@echo 'make clean      remove .venv, .venv-cuda and all caches'
	@echo 'The first of them installs the course into .venv; PYTHON=python3.12 says with which Python,'
	@echo 'and TORCH=cpu takes PyTorch without CUDA.'

lab: $(INSTALLED)
	@exec env $(RUN) helpers.lab $(ARGS)

edit: $(INSTALLED)
	@exec env $(RUN) helpers.lab --originals $(ARGS)

# Code, style, and what needs no ranks.
check: $(INSTALLED)
	@failed=0; \
	$(RUN) ruff check || failed=1; \
	$(RUN) ruff format --check || failed=1; \
	$(RUN) pytest $(SIDE_BY_SIDE) tests/check || failed=1; \
	exit $$failed

# All run, whatever the others say, and each counts. Most tests wait for ranks, so four share the machine. Their
# temporary folder is a new one with a short name, for sockets, and nothing may be left there but what pytest, torch
# and torchrun keep. Hundreds of processes import the same modules, so what the first has compiled is kept.
test: $(INSTALLED)
	@folder=$$(mktemp -d "$${TMPDIR:-/tmp}/t-XXXXXX") && trap 'rm -rf "$$folder"' EXIT && trap 'exit 130' INT TERM; \
	export TMPDIR="$$folder" $(CHOICE); unset PYTHONDONTWRITEBYTECODE; failed=0; \
	$(RUN) ruff check || failed=1; \
	$(RUN) ruff format --check || failed=1; \
	$(RUN) pytest --basetemp="$$folder/pytest" $(SIDE_BY_SIDE) -m "not alone and not cuda" || failed=1; \
	$(RUN) pytest --basetemp="$$folder/pytest" -m alone || test $$? = $(NO_TESTS) || failed=1; \
	rm -rf "$$folder/pytest" "$$folder"/torchinductor_* "$$folder"/torchelastic_*; sleep $(SECONDS_TO_VANISH); left=$$(ls -A "$$folder"); \
	test -z "$$left" || { echo "make: the tests have left this in the temporary folder:" $$left >&2; failed=1; }; \
	exit $$failed

SIDE_BY_SIDE := -n 4 --dist loadscope --no-loadscope-reorder
NO_TESTS := 5  # what pytest says when none of a lesson's tests has to be alone
SECONDS_TO_VANISH := 3
# A lesson for which NOTEBOOKS asks runs whole, nightly tests included. See tests/lesson_files.py.
ASKED = $(if $(filter command environment,$(firstword $(origin NOTEBOOKS))),$(or $(FOUND),$(NO_NOTEBOOK)))
FOUND = $(wildcard $(NOTEBOOKS))
NO_NOTEBOOK = $(error there is no notebook $(NOTEBOOKS))
CHOICE = LESSONS="$(ASKED)" ALL="$(if $(ASKED),1,$(ALL))"

# On a machine with a GPU torch is there already, in a build that fits it. PYTHON's packages are seen and not changed:
# .venv-cuda gets what is missing.
test-cuda:
	@fail() { echo "make: $$*." >&2; exit 1; }; \
	packages=$$("$(PYTHON)" -c '$(TORCH_PACKAGES)' 2>/dev/null) || fail '$(NO_TORCH)'; \
	"$(PYTHON)" -m venv .venv-cuda && \
	  echo "$$packages" >"$$(.venv-cuda/bin/python -c '$(SITE_PACKAGES)')/torch-that-is-there.pth" && \
	  .venv-cuda/bin/python -m pip install -e ".[test]" || fail '$(NO_INSTALL)'; \
	PATH="$(CURDIR)/.venv-cuda/bin:$$PATH" exec .venv-cuda/bin/python -m tests.cuda_report

# Each breaks a lesson; the notebook has to notice. With RANDOM, SEED draws that many for each notebook.
mutants: $(INSTALLED)
	@env $(CHOICE) ALL=1 DRAWN="$(RANDOM)" SEED="$(SEED)" $(RUN) pytest $(SIDE_BY_SIDE) \
	  $(if $(RANDOM),tests/mutation,tests/lessons/test_mutants.py)

# A person sees which claim has no assert.
claims: $(INSTALLED)
	@$(RUN) tests.claims $(NOTEBOOKS)

bench: $(INSTALLED)
	@$(RUN) benchmarks $(ARGS)

# Streams are merged by Exporter.preprocessors: CoalesceStreamsPreprocessor.enabled would merge them before the run.
notebooks: $(INSTALLED)
	@$(RUN) nbconvert --to notebook --execute --inplace \
	  --ExecutePreprocessor.record_timing=False --ExecutePreprocessor.store_widget_state=False \
	  --Exporter.preprocessors=nbconvert.preprocessors.CoalesceStreamsPreprocessor $(NOTEBOOKS)

minutes: $(INSTALLED)
	@$(RUN) tests.minutes --write $(ARGS)

script: $(INSTALLED)
	@$(RUN) helpers.script $(NOTEBOOK)

grade: $(INSTALLED)
	@$(RUN) helpers.grade $(ARGS) $(if $(SUBMISSIONS),"$(SUBMISSIONS)")

# From what is stored: nothing is executed. What sphinx warns of, such as a link that leads nowhere, is an error. Each
# page lists all others, so all are written again.
site: $(INSTALLED)
	@rm -rf build/site
	@$(RUN) sphinx -E -q -W --keep-going -c docs/site -d build/doctrees . build/site
	@echo 'make: the site is in build/site; open build/site/index.html'

# Allowed to fail: a failure says which private name of torch, ipyparallel or Python has moved.
canaries: $(INSTALLED)
	@$(RUN) pytest --continue-on-collection-errors tests/canaries

# The types of parts of helpers; pyproject.toml says which parts and which rules.
types: $(TOOLS)
	@.venv/bin/basedpyright

# After a change of pyproject.toml, and after an upgrade of something in .venv.
lock: $(TOOLS)
	@.venv/bin/python .ci/lock.py

# A contributor needs more than a learner.
$(TOOLS): $(INSTALLED)
	@.venv/bin/python -m pip --quiet install -e ".[dev]" -c constraints.txt
	@touch $@

.PHONY: canaries types lock

clean:
	rm -rf .venv .venv-cuda .pytest_cache .ruff_cache .workspaces build *.egg-info
	find . -path ./my-course -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# An environment that is in order is kept and brought up to date; a half-made one is made again from the start.
# When pip fails by itself it leaves .venv in order, so only an interruption leaves UNFINISHED behind.
$(INSTALLED): pyproject.toml constraints.txt
	@trap 'exit 130' INT TERM; \
	fail() { echo "make: $$*." >&2; exit 1; }; \
	case "$(TORCH)" in ""|cpu);; *) fail '$(NO_SUCH_TORCH)';; esac; \
	if test -e $(UNFINISHED) || ! .venv/bin/python -c 'import pip; $(NEW_ENOUGH)' 2>/dev/null; then \
	  "$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || fail '$(NO_PYTHON)'; \
	  rm -rf .venv; mkdir .venv; touch $(UNFINISHED); \
	  "$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null && "$(PYTHON)" -m venv .venv || \
	    fail '$(NO_VENV)' "$$("$(PYTHON)" -c '$(VENV_PACKAGE)')"; \
	fi; \
	echo 'make: installing the course into .venv (once; PyTorch is large, so this takes minutes)'; \
	rm -f $@; touch $(UNFINISHED); \
	{ test -z "$(TORCH)" || \
	  .venv/bin/python -m pip install --index-url $(TORCH_INDEX) --no-deps torch -c constraints.txt; } && \
	.venv/bin/python -m pip install -e ".[test]" -c constraints.txt || \
	  { rm -f $(UNFINISHED); fail '$(NO_INSTALL)'; }; \
	mv $(UNFINISHED) $@

VENV_PACKAGE = import sys; print("python%d.%d-venv" % sys.version_info[:2])
NO_PYTHON = the course needs Python 3.10 or newer and "$(PYTHON)" is none; \
  install one, or name one that you have, as in: make lab PYTHON=python3.12
NO_SUCH_TORCH = TORCH is "$(TORCH)", and it can only be cpu; leave it out to get the build of PyTorch that pip prefers
NO_VENV = "$(PYTHON)" cannot make a virtual environment; \
  install its venv module and run the same command again, on Debian and Ubuntu with: apt install
TORCH_PACKAGES = import pathlib, torch; print(pathlib.Path(torch.__file__).parent.parent)
SITE_PACKAGES = import sysconfig; print(sysconfig.get_path("purelib"))
NO_TORCH = make test-cuda uses the torch that "$(PYTHON)" has, and it has none; \
  name a Python that has torch 2.11 or newer, as in: make test-cuda PYTHON=python3.12
NO_INSTALL = pip could not install the course (its last lines above say why); \
  check the network and run the same command again
