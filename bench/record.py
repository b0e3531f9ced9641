"""What every script here does with its figures: print one JSON line each, and keep them on request.

A kept file is bench/results/NAME.jsonl: first a line that says on what it ran, then the figures.
`bench/summary.py` makes docs/benchmarks.md of them.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# Options that are paths.
PLACES = (
    *("--checkpoint", "--data", "--folder", "--corpus", "--lists", "--peers", "--pretrained"),
    *("--vectors", "--runs", "-o"),
)
LIBRARIES = ("weft", "torch", "numpy", "tokenizers", "scikit-learn")


class Record:
    """Prints figures as they come; with a name, also writes them to the results folder."""

    def __init__(self, name: str = ""):
        self.path = RESULTS / f"{name}.jsonl" if name else None
        if self.path is not None:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(json.dumps(circumstances()) + "\n", "utf-8")

    def line(self, question: str, **values: Any) -> None:
        """One figure."""
        text = json.dumps({"question": question, **values}, ensure_ascii=False)
        print(text, flush=True)
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(text + "\n")


def options(description: str | None, repeats: int) -> argparse.ArgumentParser:
    """The options that all scripts share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    return parser


def circumstances() -> dict[str, Any]:
    """Machine, versions, date and command: what a figure means nothing without."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "machine": _machine(),
        "versions": versions,
        "date": time.strftime("%Y-%m-%d"),
        "command": _command(),
        "load": round(os.getloadavg()[0], 2),  # others' work on this machine as we began
    }


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.machine()}, {platform.system()}"
    return f"{cores} cores, {memory:.0f} GB memory, {system}, {_graphics()}"


def _graphics() -> str:
    return "GPU" if Path("/proc/driver/nvidia").exists() else "no GPU"


def _command() -> str:
    words = ["python", f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]]
    for i, word in enumerate(words):
        if words[i - 1] in PLACES:
            words[i] = words[i - 1].lstrip("-").upper()  # where it lies on this machine
        elif word.startswith(tuple(f"{place}=" for place in PLACES)):
            words[i] = f"{word.split('=')[0]}=…"
    return " ".join(words)


def interleaved(
    ways: Mapping[str, Callable[[], float]], repeats: int, warm: int = 1
) -> dict[str, list[float]]:
    """Seconds of each way in each repeat.

    The ways take turns, and each repeat begins with another one, so that what else the machine
    does falls on all of them alike. `warm` repeats come first and are not counted.
    """
    names = list(ways)
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warm + repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            seconds = ways[name]()
            if turn >= warm:
                found[name].append(seconds)
    return found


def spread(values: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """Median, smallest and largest of repeated measurements."""
    middle = statistics.median(values)
    return {
        "median": round(middle, digits),
        "low": round(min(values), digits),
        "high": round(max(values), digits),
        "n": len(values),
    }


def ratios(above: Sequence[float], below: Sequence[float]) -> dict[str, Any]:
    """The spread of above/below, taken within each repeat."""
    return spread([a / b for a, b in zip(above, below, strict=True)])
