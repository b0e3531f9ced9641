"""The field's vocabulary: names and docstrings that an outside engineer reads in one pass.

The limits are what is left to rename. Lower them when you rename something; never raise them.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent
# Words of the project's first, private English. None of them names a thing of the field.
DIALECT = {
    "foretell", "foretells", "foretold", "told", "tells", "heard", "asked", "asks", "settled",
    "strangers", "stranger", "lessons", "whoever", "nobody", "somebody", "mend", "mends",
    "mended", "kin", "signed", "begun", "entered", "spoken", "unread", "said", "judged",
    "quicken",
}  # fmt: skip
CLAUSE = re.compile(r"^(What|Whether|How|Where|Which|Who|Of|With|As)\b")
PARTICIPLE = re.compile(
    r"^[a-z]+(ed|told|said|heard|found|made|given|taken|written|drawn|grown|begun|known|held|kept|"
    r"put|cut)$"
)
# Verbs, and `padded`, which says what it returns: a Padded.
EXCEPTIONS = {"embed", "feed", "seed", "need", "put", "padded"}
MAX_DIALECT_NAMES = 0
MAX_DIALECT_DOCSTRINGS = 0
MAX_CLAUSES = 0
MAX_PARTICIPLES = 0


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            yield path.relative_to(ROOT), node


def names(node: ast.AST) -> Iterator[str]:
    for attribute in ("name", "id", "arg", "attr"):
        found = getattr(node, attribute, None)
        if isinstance(found, str):
            yield found


def words(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Za-z][a-z]*", name)}


@pytest.fixture(scope="module")
def counts() -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {
        "names": Counter(), "docstrings": Counter(), "clauses": Counter(), "participles": Counter()
    }  # fmt: skip
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    for path, node in nodes():
        where = f"{path}:{getattr(node, 'lineno', 1)}"
        for name in names(node):
            if words(name) & DIALECT:
                found["names"][f"{where}: {name}"] += 1
        if isinstance(node, documented):
            text = ast.get_docstring(node) or ""
            if set(re.findall(r"[a-z]+", text.lower())) & DIALECT:
                found["docstrings"][f"{where}: {text.splitlines()[0]}"] += 1
            if CLAUSE.match(text):
                found["clauses"][f"{where}: {text.splitlines()[0]}"] += 1
        plain = isinstance(node, ast.FunctionDef) and not node.decorator_list
        if plain and PARTICIPLE.match(node.name) and node.name not in EXCEPTIONS:
            found["participles"][f"{where}: {node.name}"] += 1
    return found


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        ("names", MAX_DIALECT_NAMES),
        ("docstrings", MAX_DIALECT_DOCSTRINGS),
        ("clauses", MAX_CLAUSES),
        ("participles", MAX_PARTICIPLES),
    ],
)
def test_vocabulary_gets_no_worse(counts, kind, limit):
    assert len(counts[kind]) <= limit, "\n".join(counts[kind])


def test_the_rules_see_what_they_should():
    assert words("_is_told") & DIALECT
    assert not words("untold_stories") & {"told"}
    assert CLAUSE.match("Whether it holds.")
    assert not CLAUSE.match("Return whether it holds.")
    assert PARTICIPLE.match("settled")
    assert not PARTICIPLE.match("settle")
