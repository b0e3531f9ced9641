"""Build the notebooks of this folder from sources/*.py, plain Python in percent format.

python examples/build.py            # writes examples/*.ipynb, without outputs

A line "# %%" begins a code cell, "# %% [markdown]" a cell of text in comments.
"""

import json
from pathlib import Path

FOLDER = Path(__file__).parent
INSTALL = """\
# Installs Weft where it is missing, as on Colab.
import importlib.util

if importlib.util.find_spec("weft") is None:
    %pip install --quiet weft"""


def split_cells(source: str) -> list[tuple[str, str]]:
    """Return the kind, "markdown" or "code", and the text of each cell."""
    cells = []
    for part in source.split("\n# %%")[1:]:
        header, _, body = part.partition("\n")
        lines = body.strip("\n").splitlines()
        if header.strip() == "[markdown]":
            wrong = [line for line in lines if line != "#" and not line.startswith("# ")]
            assert not wrong, f"not a comment in a cell of text: {wrong[0]!r}"
            cells.append(("markdown", "\n".join(line[2:] for line in lines)))
        else:
            assert not header.strip(), f"unknown kind of cell: {header!r}"
            cells.append(("code", "\n".join(lines)))
    return cells


def build_notebook(source: str) -> str:
    """Return a notebook as JSON; the cell that installs Weft comes after the title."""
    cells = split_cells("\n" + source)
    assert cells[0][0] == "markdown", "a notebook begins with its title"
    cells.insert(1, ("code", INSTALL))
    notebook = {
        "cells": [
            {
                "cell_type": kind,
                **({"execution_count": None} if kind == "code" else {}),
                "id": f"cell-{number}",
                "metadata": {},
                **({"outputs": []} if kind == "code" else {}),
                "source": text.splitlines(keepends=True),
            }
            for number, (kind, text) in enumerate(cells, 1)
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def sources() -> list[Path]:
    return sorted((FOLDER / "sources").glob("*.py"))


if __name__ == "__main__":
    for path in sources():
        target = FOLDER / f"{path.stem}.ipynb"
        target.write_text(build_notebook(path.read_text("utf-8")), "utf-8")
        print(target.name)
