"""Find the experiments: one folder per theme, one file per claim."""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from weft.errors import unknown_name
from weft.lab.experiment import Experiment

FOLDER = Path(__file__).parent / "experiments"
THEMES = {
    "order": "Order and composition",
    "memory": "Memory and gradients",
    "words": "Words and vectors",
    "seq2seq": "Sequence to sequence and attention",
    "generation": "Writing text",
    "transformer": "Self-attention",
    "pretraining": "Pre-training",
    "training": "Training",
    "structure": "Structure",
}


def experiment_names() -> list[str]:
    """Return the names of all experiments, theme by theme; imports none of them."""
    return [name for theme in THEMES for name in _names(theme)]


def find_experiments(wanted: Sequence[str]) -> list[Experiment]:
    """Return experiments by name, by theme, or all of them for "all", in the order of the page."""
    known = experiment_names()
    names: set[str] = set()
    for name in wanted:
        if name == "all":
            names.update(known)
        elif name in THEMES:
            names.update(_names(name))
        elif name in known:
            names.add(name)
        else:
            raise unknown_name("experiment", name, ["all", *THEMES, *known])
    return [load_experiment(name) for name in known if name in names]


@cache
def load_experiment(name: str) -> Experiment:
    """Import the file of an experiment and return it with its name and theme."""
    path = _path(name)
    theme = path.parent.name
    module = importlib.import_module(f"weft.lab.experiments.{theme}.{path.stem}")
    experiment: Experiment = module.EXPERIMENT
    return replace(experiment, name=name, theme=theme)


def source_of(name: str) -> bytes:
    """Return the source code of an experiment."""
    return _path(name).read_bytes()


def _path(name: str) -> Path:
    stem = name.replace("-", "_")
    for theme in THEMES:
        path = FOLDER / theme / f"{stem}.py"
        if path.is_file():
            return path
    raise unknown_name("experiment", name, experiment_names())


def _names(theme: str) -> list[str]:
    files = sorted((FOLDER / theme).glob("*.py"))
    return [path.stem.replace("_", "-") for path in files if path.stem != "__init__"]
