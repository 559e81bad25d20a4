# make demo, make test: both create what they need, can be run again, and say what they do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes of pytest. Some tests wait for other processes, so there is one more than a small machine has cores.
WORKERS ?= 3
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: demo studio browser test types units slow coverage package bench reproduce docs docs-serve clean help

help:
	@echo "make demo   install into $(VENV) and stylise a sample photo with a sample painting"
	@echo "make studio  install what the page needs and open it in the browser"
	@echo "make test   install what tests need and run everything: ruff, mypy, import-linter, pytest"
	@echo "make slow   endurance: 1,000 kills, 20,000 damaged files for each reader, half an hour of random calls (two hours in all)"
	@echo "make coverage  the tests again, with the share of lines they run; fails below the floor in pyproject.toml"
	@echo "make package   build the wheel and the sdist, and try each in a clean environment"
	@echo "make bench  measure speed compared with peers and write benchmarks/results/*.json"
	@echo "make reproduce  the figures and tables of the paper on one page, quick version: out/report/index.html"
	@echo "make docs   build the documentation into out/site; make docs-serve shows it on this machine"
	@echo "make clean  remove $(VENV) and caches"

# torch first and alone: whatever asks for torch later finds this one and pulls no other.
$(VENV)/torch: constraints.txt
	@echo "== creating $(VENV) and installing torch"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install "$$(grep '^torch==' constraints.txt)"
	@touch $@

$(VENV)/run: $(VENV)/torch pyproject.toml
	@echo "== installing glocal"
	$(PIP) install -e .
	@touch $@

$(VENV)/tests: $(VENV)/run
	@echo "== installing what the tests need"
	$(PIP) install -e ".[test]"
	@touch $@

demo: $(VENV)/run
	@echo "== demo: the sample bridge.jpg in the style of van_gogh_auvers.jpg"
	$(BIN)/python examples/demo.py -o out --size 448
	@echo "== see out/style.png and out/style_side_by_side.png"

$(VENV)/studio: $(VENV)/run
	@echo "== installing what the page needs"
	$(PIP) install -e ".[studio]"
	@touch $@

studio: $(VENV)/studio
	$(BIN)/glocal studio

# The tests of the page need a Chromium. It is installed where that is allowed; else those tests say that they were left out.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && echo "== installing chromium" && apt-get -qq update && apt-get -qq install -y chromium >/dev/null; } \
	  || echo "== no chromium here and none can be installed: the tests of the page are left out"

test: $(VENV)/tests browser
	@echo "== ruff"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "== import-linter"
	PYTHONPATH=src $(BIN)/lint-imports
	@echo "== mypy and pytest at the same time"
	@$(MAKE) --no-print-directory -j 2 types units

types: $(VENV)/tests
	$(BIN)/mypy

units: $(VENV)/tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

slow: $(VENV)/tests
	$(BIN)/python -m pytest -m slow

coverage: $(VENV)/tests
	$(PIP) install "pytest-cov>=7" "coverage>=7.10"
	rm -rf out/coverage && mkdir -p out/coverage
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --cov --cov-report=term

package: $(VENV)/tests
	rm -rf out/dist
	$(BIN)/python -m build --outdir out/dist .
	$(BIN)/python -m twine check --strict out/dist/*
	for package in out/dist/*; do \
	  echo "== $$package in a clean environment"; \
	  rm -rf out/clean && $(PYTHON) -m venv out/clean \
	  && out/clean/bin/python -m pip --disable-pip-version-check -q install $$package \
	  && (cd out/clean && bin/glocal doctor && bin/python -c "import glocal; glocal.denoise(glocal.samples.path('temple.jpg'))") \
	  || exit 1; \
	done

bench: $(VENV)/tests
	$(PIP) install -e ".[bench]"
	$(BIN)/glocal bench graph -o benchmarks/results/graph.json
	$(BIN)/glocal bench conv -o benchmarks/results/conv.json
	$(BIN)/glocal bench style -o benchmarks/results/style.json
	$(BIN)/python benchmarks/table.py README.md docs/*.md
	$(BIN)/python benchmarks/chart.py docs/pictures

reproduce: $(VENV)/run
	$(PIP) install -e ".[plot]"
	$(BIN)/glocal reproduce --quick --overwrite -o out/report

docs: $(VENV)/run
	$(PIP) install -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: docs
	@echo "== http://127.0.0.1:8000"
	$(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory out/site

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache out
