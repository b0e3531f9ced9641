"""Write the folder of an assignment: instructions, a template, examples and a notebook."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.lab.assignments.assignment import Assignment, Part
from weft.storage import write_text

ASSIGNMENT_FILE, SOLUTION_FILE = "assignment.json", "solution.py"
INSTRUCTIONS_FILE, TEST_FILE = "README.md", "test_solution.py"
NOTEBOOK_FILE = "assignment.ipynb"


def write_assignment(assignment: Assignment, folder: str | Path) -> list[Path]:
    """Write the files of an assignment; a folder with a solution in it is left alone."""
    root = Path(folder)
    if (root / SOLUTION_FILE).exists():
        raise UserError(
            f"{root / SOLUTION_FILE} exists already. Choose another folder, so that no work is "
            "lost."
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{root}: cannot be created ({error.strerror}).") from None
    files = {
        INSTRUCTIONS_FILE: format_instructions(assignment),
        SOLUTION_FILE: format_template(assignment),
        TEST_FILE: format_tests(assignment),
        NOTEBOOK_FILE: format_notebook(assignment),
        ASSIGNMENT_FILE: json.dumps({"assignment": assignment.name}) + "\n",
    }
    for name, text in files.items():
        write_text(root / name, text)
    return [root / name for name in files]


def format_instructions(assignment: Assignment) -> str:
    """Return the instructions in Markdown."""
    rows = "\n".join(f"| `{part.name}` | {part.points} |" for part in assignment.parts)
    return (
        f"# {assignment.title}\n\n{assignment.text.strip()}\n\n"
        f"Write the functions in `{SOLUTION_FILE}`; their docstrings say what they return. NumPy "
        "is allowed, torch is not needed. The order matters: later functions may call earlier "
        "ones.\n\n"
        f"| function | points |\n|---|---|\n{rows}\n\n"
        "Points of a function are given if all of its cases are right: those of "
        f"`{TEST_FILE}` and hidden ones. Floating-point numbers may differ by 1e-9, everything "
        "else must be equal. The same arguments must give the same result.\n\n"
        "```bash\n"
        f"python -m pytest {TEST_FILE}    # the examples\n"
        "weft lab grade .                    # examples and hidden cases\n"
        "```\n"
    )


def format_template(assignment: Assignment) -> str:
    """Return the module with the functions to write."""
    header = f'"""{assignment.title}. The instructions are in {INSTRUCTIONS_FILE}."""\n'
    functions = "\n\n".join(part.template() for part in assignment.parts)
    return f"{header}\n" + "\n".join(assignment.imports) + f"\n\n\n{functions}"


def format_tests(assignment: Assignment) -> str:
    """Return a module of tests with the examples, their results written out."""
    tests = [_format_test(part, number) for part in assignment.parts for number in _examples(part)]
    return (
        f'"""The examples of the assignment “{assignment.title}”."""\n\n'
        "import numpy as np\nimport solution\nfrom numpy import array\n\n\n"
        "def check(actual, expected):\n"
        "    if isinstance(expected, dict):\n"
        "        assert actual.keys() == expected.keys()\n"
        "        for key in expected:\n"
        "            check(actual[key], expected[key])\n"
        "    elif isinstance(expected, (list, tuple)):\n"
        "        assert len(actual) == len(expected)\n"
        "        for one, other in zip(actual, expected):\n"
        "            check(one, other)\n"
        "    elif isinstance(expected, str):\n"
        "        assert actual == expected\n"
        "    else:\n"
        "        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)\n\n\n"
        + "\n\n".join(tests)
    )


def _examples(part: Part) -> range:
    return range(len(part.public))


def _format_test(part: Part, number: int) -> str:
    case = part.public[number]
    arguments = "".join(f"        {_literal(one)},\n" for one in case)
    expected = _literal(part.reference(*case))
    return (
        f"def test_{part.name}_{number + 1}():\n"
        f"    actual = solution.{part.name}(\n{arguments}    )\n"
        f"    check(actual, {expected})\n"
    )


def _literal(value: Any) -> str:
    """Return Python source of a value; numbers keep every digit."""
    if isinstance(value, np.ndarray):
        empty = "" if value.size else f".reshape({value.shape})"
        return f"array({value.tolist()!r}){empty}".replace("inf", "np.inf").replace("nan", "np.nan")
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_literal(one)}' for key, one in value.items())}}}"
    if isinstance(value, np.generic):
        value = value.item()
    return (
        f"float('{value}')" if isinstance(value, float) and not np.isfinite(value) else repr(value)
    )


def format_notebook(assignment: Assignment) -> str:
    """Return a notebook with a cell per function; it writes the same solution.py."""
    cells = [("markdown", format_instructions(assignment))]
    header = f'"""{assignment.title}."""\n\n' + "\n".join(assignment.imports)
    cells.append(("code", f"%%writefile {SOLUTION_FILE}\n{header}"))
    for part in assignment.parts:
        cells.append(("markdown", f"## `{part.name}` ({part.points} points)"))
        cells.append(("code", f"%%writefile -a {SOLUTION_FILE}\n\n\n{part.template().rstrip()}"))
    cells.append(("markdown", "Run all cells from the top, then grade."))
    cells.append(("code", "!weft lab grade ."))
    notebook = {
        "cells": [
            {
                "cell_type": kind,
                "id": f"cell-{number}",
                "metadata": {},
                "source": text.splitlines(keepends=True),
                **({"execution_count": None, "outputs": []} if kind == "code" else {}),
            }
            for number, (kind, text) in enumerate(cells, 1)
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
