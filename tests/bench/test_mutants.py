"""Mutants: each changes one line, still compiles, and finds the tests nearest to it."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import mutants

ROOT = Path(__file__).parents[2]

SOURCE = '''
from dataclasses import dataclass

@dataclass(frozen=True)
class A:
    """Text 3 < 4."""
    size: int = 5

def f(x: "1 + 2", y=0.5, *, z=True):
    total = 0
    for a, b in zip(x, x, strict=True):
        total += a * b
    if y <= 3 < total and not z:
        print("é", x == y)
    if x in y:
        raise ValueError("no" + x)
    return total - (1 + y)
'''


def found():
    return sorted(mutants.find_mutants("weft/a.py", SOURCE), key=lambda m: (m.line, m.start))


def test_every_kind_of_change_is_found_once():
    after = {m.apply(SOURCE).splitlines()[m.line - 1].strip() for m in found()}
    assert after == {
        "size: int = 6",
        'def f(x: "1 + 2", y=1.0, *, z=True):',
        'def f(x: "1 + 2", y=0.5, *, z=False):',
        "total = 1",
        "total += a / b",
        "pass",
        "if y < 3 < total and not z:",
        "if y <= 3 <= total and not z:",
        "if y <= 4 < total and not z:",
        "if y <= 3 < total or not z:",
        "if y <= 3 < total and z:",
        'print("é", x != y)',
        "if x not in y:",
        "return total - (1 - y)",
        "return total - (2 + y)",
    }
    kinds = {(m.line, m.kind) for m in found()}
    assert {(7, "default"), (9, "default"), (13, "edge"), (13, "boolean"), (12, "removed")} <= kinds


def test_mutants_compile_and_differ():
    for mutant in found():
        changed = mutant.apply(SOURCE)
        assert changed != SOURCE
        ast.parse(changed)


@pytest.mark.parametrize(
    ("file", "first"),
    [
        ("weft/batch/token_store.py", "tests/batch/test_token_store.py"),
        ("weft/registry.py", "tests/test_registry.py"),
    ],
)
def test_the_mirrored_tests_come_first(file, first):
    groups = mutants.nearest_tests(ROOT, mutants.Mutant(file, 1, 0, 0, "", "edge"))
    assert groups[0] == [first]
    assert first not in groups[1]
    assert all((ROOT / path).exists() for group in groups for path in group)


def test_changed_defaults_are_looked_up_in_the_table_first():
    default = mutants.Mutant("weft/registry.py", 1, 0, 0, "", "default")
    assert mutants.nearest_tests(ROOT, default)[0] == ["tests/test_defaults.py"]
