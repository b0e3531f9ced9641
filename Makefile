# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
READY := $(VENV)/.ready
RUN := $(VENV)/bin

.PHONY: demo test lint docs bench clean

demo: $(READY)
	PYTHONDONTWRITEBYTECODE= $(RUN)/weft demo -o demo

# Tests that mostly wait for other processes share a lane with mypy, beside two workers for the rest.
# A shell starts what runs in the background with SIGINT ignored: tests of Ctrl-C do not go there, and
# the trap ends it, with SIGKILL because Ray handles SIGTERM.
# Byte code is written: tests start about a hundred processes, which would each compile the package.
WAITING := tests/jobs tests/serve tests/train/test_parallel.py
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(RUN)/pytest --durations=10

test: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	@mkdir -p build
	trap 'kill -KILL 0' INT TERM; \
	($(RUN)/mypy && $(PYTEST) $(WAITING)) > build/waiting.log 2>&1 & waiting=$$!; \
	$(PYTEST) -n 2 --dist worksteal $(addprefix --ignore=,$(WAITING)); tests=$$?; \
	wait $$waiting; waiting=$$?; cat build/waiting.log; exit $$((tests + waiting))

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
	$(RUN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) demo runs build site *.egg-info
