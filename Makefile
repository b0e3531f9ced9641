# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
READY := $(VENV)/.ready
RUN := $(VENV)/bin

.PHONY: demo test lint docs bench clean

demo: $(READY)
	$(RUN)/weft demo -o demo

# Two workers leave a fifth of two cores idle while they wait, which mypy uses. Byte code is written:
# tests start about a hundred processes, which would each compile the package.
test: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy & types=$$!; \
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(RUN)/pytest -n 2 --dist worksteal --durations=10; \
	tests=$$?; wait $$types && exit $$tests

lint: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

# The documentation site, in site/; offline, and an error on any warning.
docs: $(READY)
	$(RUN)/python docs/build.py

# Benchmarks that need no data set; docs/benchmarks/index.md says how to run the others.
bench: $(READY)
	$(RUN)/python bench/overhead.py
	$(RUN)/python bench/start.py
	$(RUN)/python bench/memory.py --megabytes 200

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) demo runs build site *.egg-info
