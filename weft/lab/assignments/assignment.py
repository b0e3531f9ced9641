"""An assignment: functions to write, the cases that test them, and the points they earn.

A file of this folder holds one ASSIGNMENT. Its reference functions are the solution; the template
that students get has their signatures and docstrings only.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import unknown_name

FLOAT_TOLERANCE = 1e-9  # absolute and relative; sums in another order differ by less
HIDDEN_CASES = 12  # of a part
FILES = Path(__file__).parent
NOT_ASSIGNMENTS = {"__init__", "assignment", "compare", "grade", "runner", "write"}

Arguments = list[Any]


@dataclass(frozen=True)
class Part:
    """A function to write; all its cases must be right to earn its points."""

    reference: Callable[..., Any]
    points: int
    draw: Callable[[np.random.Generator], Arguments]  # the arguments of a hidden case
    public: tuple[Arguments, ...]  # cases that students see, with their results
    seconds: float = 10.0  # of all cases

    @property
    def name(self) -> str:
        return self.reference.__name__

    def cases(self, seed: int) -> list[Arguments]:
        """Return the arguments of the public cases and of the hidden ones of a seed."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        return [*self.public, *(self.draw(rng) for _ in range(HIDDEN_CASES))]

    def template(self) -> str:
        """Return the function without its body."""
        source = textwrap.dedent(inspect.getsource(self.reference))
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        end = function.body[0].end_lineno  # of the docstring
        head = "\n".join(source.splitlines()[:end])
        return f'{head}\n    raise NotImplementedError("your code here")\n'


@dataclass(frozen=True)
class Assignment:
    """Functions of one topic, in the order in which they build on each other."""

    name: str
    title: str
    decks: tuple[str, ...]  # of the lectures
    text: str  # what it is about, in Markdown
    parts: tuple[Part, ...]
    imports: Sequence[str] = ("import numpy as np",)

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)


def assignment_names() -> list[str]:
    """Return the names of all assignments."""
    files = (path.stem for path in FILES.glob("*.py"))
    return sorted(stem.replace("_", "-") for stem in files if stem not in NOT_ASSIGNMENTS)


def load_assignment(name: str) -> Assignment:
    """Return an assignment by its name."""
    if name not in assignment_names():
        raise unknown_name("assignment", name, assignment_names())
    module = importlib.import_module(f"weft.lab.assignments.{name.replace('-', '_')}")
    assignment: Assignment = module.ASSIGNMENT
    return assignment
