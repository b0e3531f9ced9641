# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
READY := $(VENV)/.ready
RUN := $(VENV)/bin

.PHONY: demo test lint bench clean

demo: $(READY)
	$(RUN)/weft demo -o demo

test: lint
	OMP_NUM_THREADS=1 $(RUN)/pytest -n 2 --dist worksteal --durations=10

lint: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

# Figures that need no data set; the others are run by hand (docs/benchmarks.md says how).
bench: $(READY)
	$(RUN)/python bench/overhead.py
	$(RUN)/python bench/start.py
	$(RUN)/python bench/memory.py --megabytes 200

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) demo runs build *.egg-info
