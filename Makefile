# `make help` lists what there is. Everything runs in .venv, which the first target that needs it makes.

BIN := .venv/bin
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
# A Python other than the first suitable one on the PATH: make setup PYTHON=/path/to/python3.12
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(SUPPORTED)' 2>/dev/null && { command -v $$p; break; }; done)
# Two workers with a thread each, and a notebook's cells stay together in one of them.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q
PARALLEL := -n 2 --dist loadfile
# Of exercises/, tests/grading/test_release.py runs each: what a solution becomes without its answers.
NBVAL := --nbval-lax --nbval-current-env --nbval-cell-timeout=300
NEXT_TRITON := 3.9.0
# make test runs every test, of its sets of parameters three, and these notebooks; make test-all runs the rest as well.
QUICK := --of-each 3
NOTEBOOKS := $(sort $(wildcard lessons/*.ipynb solutions/*.ipynb))
SAMPLE := $(wildcard $(foreach name,01_roofline 05_rmsnorm 06_online_softmax,lessons/$(name).ipynb solutions/$(name)_solution.ipynb))
# What ONLY names: a folder of the course (kernels/attention, widgets, grading), or a notebook by its number (08b).
ROOM = $(or $(wildcard tests/$(ONLY)),$(wildcard lessons/$(ONLY)_*.ipynb solutions/$(ONLY)_*.ipynb),$(error ONLY: got \
	$(ONLY), expected a folder that tests/ has, such as kernels/attention, or a notebook's number))
# On versions other than the pinned ones: what depends on the version, and of a test's parameter sets four.
FEWER := -m "not once" --of-each 4
# Last bits differ from CPU to CPU, so one pass takes the matmuls of AMD's CPUs and PyTorch without vector instructions.
OTHER_CPU := OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=default

# JupyterLab asks at its first start whether it may fetch news, over a corner of the first lesson; and it would have
# one scroll to the end of a long line of code.
# Without its widgets' state a notebook that is opened again shows an error in place of every picture.
LAB_SETTINGS := {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}, \
	"@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": true}, \
	"@jupyterlab/notebook-extension:tracker": {"codeCellConfig": {"lineNumbers": false, "lineWrap": true}}}

# $(call step,WORDS,COMMAND): says WORDS; what COMMAND says goes into TARGET.log, whose end is shown where it fails.
define step
	@echo "$(1)"
	@$(2) >$@.log 2>&1 || { tail -n 12 $@.log >&2; echo "That step failed; all that it said is in $@.log." \
		"If the network or a full disk was the cause, the same make command goes on from here afterwards." >&2; exit 1; }
endef

.DEFAULT_GOAL := help
.PHONY: help setup lab work test test-all test-rest test-colab test-triton others lessons format bench book clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/setup  ## make .venv and install the course into it
	@echo "The course is installed in .venv. Next: make lab"

lab: work  ## open JupyterLab on lesson 00 in work/ (make lab ARGS="--port 9000" passes options on)
	@screen=; if [ "$$(uname)" != Darwin ] && [ -z "$$DISPLAY$$WAYLAND_DISPLAY" ]; then screen=--no-browser; \
		echo "No screen here: open the address that JupyterLab prints below in a browser."; \
		echo "On a remote machine, forward its port first: ssh -L 8888:localhost:8888 THAT_MACHINE"; fi; \
	root=; if [ "$$(id -u)" = 0 ]; then root=--allow-root; fi; \
	first=work/lessons/00_start_here.ipynb; [ -e $$first ] || first=work; \
	exec $(BIN)/jupyter lab $$screen $$root --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/$$first $(ARGS)

work: .venv/setup  ## copy the notebooks into work/, renew those you have not changed (RESTORE=1: and those you deleted)
	@$(BIN)/python -m instruments.work $(if $(RESTORE),--restore)

test: .venv/test  ## lint, then every kernel, instrument, panel and verdict once (ONLY=kernels/attention: what belongs to it)
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check . || { echo "Run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(PYTEST) $(PARALLEL) -m "not browser" $(NBVAL) $(if $(filter %.ipynb,$(if $(ONLY),$(ROOM))),,$(QUICK)) $(if $(ONLY),$(ROOM),tests $(SAMPLE))

test-all: test test-rest test-colab test-triton  ## make test, then all the rest: every notebook, the browser, other versions

test-rest: .venv/test  # what make test leaves out, on the pinned versions
	@$(PYTEST) $(PARALLEL) -m "not browser" $(QUICK) --rest tests
	@$(PYTEST) $(PARALLEL) $(NBVAL) $(filter-out $(SAMPLE),$(NOTEBOOKS))
	@$(PYTEST) tests/browser

test-colab: .venv-colab/setup  # the kernels, the panels and every notebook, alone, with the versions that Colab ships
	@OMP_NUM_THREADS=1 $(OTHER_CPU) .venv-colab/bin/python -m pytest -q -n 2 --dist worksteal $(FEWER) tests/colab.py tests/instruments/test_interpreter.py tests/kernels tests/widgets

test-triton: .venv/triton-$(NEXT_TRITON)  # the kernels and the instruments on the newest Triton that is supported
	@PYTHONPATH=.venv/triton-$(NEXT_TRITON) $(PYTEST) -n 2 --dist worksteal $(FEWER) tests/instruments tests/kernels

others: .venv-colab/setup .venv/triton-$(NEXT_TRITON)

lessons: .venv/test  ## run lessons and solutions, store what they show; write exercises and the README's contents
	@$(BIN)/python -m instruments.release  # first, too: check reads the exercise of a new solution
	@$(BIN)/python -m instruments.notebooks $(if $(ONLY),--only $(ONLY))
	@$(BIN)/python -m instruments.release
	@$(BIN)/python -m instruments.contents

format: .venv/setup  ## write every notebook's first cell and canonical form, and the README's contents; run nothing
	@$(BIN)/python -m instruments.notebooks --format
	@$(BIN)/python -m instruments.contents

bench: .venv/setup  ## time every kernel, and the machine itself, on this GPU; write docs/results.md
	@$(BIN)/python bench/run.py
	@$(BIN)/python bench/machine.py
	@$(BIN)/python bench/table.py

book: .venv/setup .venv-book/setup  ## make a book of web pages in build/book/html, without running a notebook
	@$(BIN)/python -m book.panels build/book/panels
	@.venv-book/bin/python book/build.py

clean:  ## remove what the commands above made, .venv included; work/ stays
	rm -rf .venv .venv-colab .venv-book build bytes_first.egg-info

.venv/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "The course needs Python 3.11, 3.12 or 3.13 and found none of them:" \
		"install one, or name it: make setup PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c '$(SUPPORTED)' || { echo "$(PYTHON) is not Python 3.11, 3.12 or 3.13, which the course needs" >&2; exit 1; }
	@echo "Making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) could not make .venv;" \
		"on Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }

.venv/setup: pyproject.toml constraints.txt | .venv/bin/python
	$(call step,Installing the course into .venv: minutes the first time. To watch: tail -f $@.log,\
		$(BIN)/python -m pip install -c constraints.txt -e .)
	@mkdir -p .venv/share/jupyter/lab/settings && echo '$(LAB_SETTINGS)' >.venv/share/jupyter/lab/settings/overrides.json
	@touch $@

.venv/test: .venv/setup
	$(call step,Installing what the tests need into .venv,\
		$(BIN)/python -m pip install -c constraints.txt -e '.[test]')
	@touch $@

.venv/triton-$(NEXT_TRITON): | .venv/test
	$(call step,Installing Triton $(NEXT_TRITON) into $@,\
		{ $(BIN)/python -m pip install --no-deps --target $@ triton==$(NEXT_TRITON) || { rm -rf $@; false; }; })

.venv-colab/setup: tests/colab.txt | .venv/bin/python
	@$(BIN)/python -m venv .venv-colab
	$(call step,Installing the versions that Colab ships into .venv-colab,\
		.venv-colab/bin/python -m pip install -r tests/colab.txt)
	@touch $@

.venv-book/setup: book/requirements.txt | .venv/bin/python
	@$(BIN)/python -m venv .venv-book
	$(call step,Installing what the book needs into .venv-book,\
		.venv-book/bin/python -m pip install -r book/requirements.txt)
	@touch $@
