"""Mutation testing: change one line of weft/, run the tests nearest to it, count what they miss.

    python bench/mutants.py --count 100 --workers 15 -o mutants.jsonl
    python bench/mutants.py --kinds edge --only weft/doctor --count 20

Each worker has a copy of the tree. Tests run until one fails, within `--seconds` per mutant: the
mirrored test file, the test files that import the module, then the mirrored folders.
"""

import argparse
import ast
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COPIED = ("weft", "tests", "bench", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
# Code that only a GPU runs, and data.
EXCLUDED = re.compile(r"triton|cuda_graphs|vectors/gpu\.py|synthetic|__main__|protocols")
OPERATORS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-",
    ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "+", ast.Pow: "*",
    ast.And: "or", ast.Or: "and",
}  # fmt: skip
TEST_SECONDS = 20  # of one test; a mutant that makes it hang is killed


@dataclass(frozen=True)
class Mutant:
    """One change of one line: the bytes from `start` to `stop` become `text`."""

    file: str
    line: int
    start: int
    stop: int
    text: str
    kind: str  # edge, comparison, arithmetic, constant, boolean, default or removed

    def apply(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        raw = lines[self.line - 1].encode()  # ast counts bytes
        changed = (raw[: self.start] + self.text.encode() + raw[self.stop :]).decode()
        return "".join([*lines[: self.line - 1], changed, *lines[self.line :]])


def find_mutants(file: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    tree = ast.parse(source)
    skipped: set[ast.AST] = set()  # annotations, decorators and the texts of errors
    defaults: set[ast.AST] = set()
    for node in ast.walk(tree):
        fields = [getattr(node, name, None) for name in ("annotation", "returns", "exc", "msg")]
        values: list[Any] = []
        if isinstance(node, ast.arguments):
            values = [*node.defaults, *node.kw_defaults]
        elif isinstance(node, ast.ClassDef):  # the fields of dataclasses
            values = [n.value for n in node.body if isinstance(n, ast.AnnAssign)]
        elif isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: never used
            fields.append(node)
        defaults.update(inner for part in filter(None, values) for inner in ast.walk(part))
        fields += getattr(node, "decorator_list", [])
        skipped.update(inner for part in filter(None, fields) for inner in ast.walk(part))
    lines = source.encode().split(b"\n")
    for node in set(ast.walk(tree)) - skipped:
        if getattr(node, "lineno", 0) == getattr(node, "end_lineno", -1):
            for start, stop, text, kind in _changes(node, lines[node.lineno - 1]):
                kind = "default" if node in defaults else kind
                yield Mutant(file, node.lineno, start, stop, text, kind)


def _changes(node: Any, line: bytes) -> Iterator[tuple[int, int, str, str]]:
    """Yield (start, stop, text, kind) of every change of one node, which stands on one line."""

    def between(left: ast.expr, right: ast.expr, op: ast.AST, kind: str) -> Iterator[Any]:
        start, stop = left.end_col_offset or 0, right.col_offset
        if not re.search(rb"[()]", line[start:stop]):
            yield start, stop, f" {OPERATORS[type(op)]} ", kind

    whole = (getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0))
    if isinstance(node, ast.Compare):
        sides = pairwise((node.left, *node.comparators))
        for (left, right), op in zip(sides, node.ops, strict=True):
            edge = isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
            yield from between(left, right, op, "edge" if edge else "comparison")
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield from between(node.left, node.right, node.op, "arithmetic")
    elif isinstance(node, ast.BoolOp):
        yield from between(*node.values[:2], node.op, "boolean")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.col_offset, node.operand.col_offset, "", "boolean"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield *whole, str(not node.value), "constant"
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        new = node.value + 1 if isinstance(node.value, int) else node.value * 2 or 1.0
        yield *whole, str(new), "constant"
    elif isinstance(node, (ast.AugAssign, ast.Expr)) and not isinstance(node.value, ast.Constant):
        yield *whole, "pass", "removed"


def nearest_tests(root: Path, mutant: Mutant) -> list[list[str]]:
    """Return the tests to run, in groups: the mirrored file, importers and the mirrored folders."""
    path = Path(mutant.file).relative_to("weft")
    mirrored = Path("tests") / path.parent / f"test_{path.stem}.py"
    module = ".".join(("weft", *path.with_suffix("").parts)).removesuffix(".__init__")
    package, _, name = module.rpartition(".")
    uses = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import .*\b{name}\b")
    importers = [
        str(test.relative_to(root))
        for test in sorted((root / "tests").rglob("test_*.py"), key=lambda p: p.stat().st_size)
        if uses.search(test.read_text("utf-8"))
    ]
    folders = [str(p) for p in mirrored.parents if (root / p).is_dir() and len(p.parts) > 1]
    first = [str(mirrored)] if (root / mirrored).is_file() else importers[:1]
    rest = [*importers, *folders]
    table = ["tests/test_defaults.py"] if mutant.kind == "default" else []
    return [g for g in (table, first, [t for t in rest if t not in first]) if g]


def run_tests(tree: str, tests: list[str], broken: list[str], seconds: float) -> tuple[str, str]:
    """Return "killed", "survived" or, out of time, "unfinished"; and the first test that failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-o", f"timeout={TEST_SECONDS}", *tests]
    command += [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in broken]
    environment = {**os.environ, "PYTHONPATH": tree, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            command, cwd=tree, stdout=out, stderr=out, env=environment, start_new_session=True
        )
        try:
            code = process.wait(max(seconds, 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return "unfinished", ""
        out.seek(0)
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", out.read(), re.MULTILINE)
    status = "survived" if code in (0, 5) else "killed"  # 5: no tests
    return status, failed[1] if failed else ""


def test_mutant(mutant: Mutant, trees: Any, checked: Any, seconds: float) -> dict[str, Any]:
    """Run the nearest tests on a mutant in a tree that is free.

    `checked` says of tests that failed whether they pass without the mutant, too: where a library
    is missing some never do.
    """
    tree, began, status, killer = trees.get(), time.time(), "survived", ""
    path = Path(tree) / mutant.file
    source = path.read_text("utf-8")
    changed = mutant.apply(source)

    def run(text: str, tests: list[str]) -> tuple[str, str]:
        path.write_text(text, "utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()  # it may look as new as the mutant
        broken = [name for name, passes in checked.items() if not passes]
        left = seconds - (time.time() - began) if text == changed else 3 * TEST_SECONDS
        tests = [name for name in tests if name not in broken]
        return run_tests(tree, tests, broken, left) if tests else ("survived", "")

    try:
        groups = nearest_tests(Path(tree), mutant)
        while groups and status == "survived":
            status, killer = run(changed, groups[0])
            if status == "killed" and killer and killer not in checked:
                checked[killer] = run(source, [killer])[0] == "survived"
            if status == "killed" and not checked.get(killer, True):
                status = "survived"  # again, without it
            else:
                groups.pop(0)
    finally:
        path.write_text(source, "utf-8")
        trees.put(tree)
    lines = [text.splitlines()[mutant.line - 1].strip() for text in (source, changed)]
    found = {"status": status, "seconds": round(time.time() - began, 1), "killer": killer}
    return {**asdict(mutant), **found, "before": lines[0], "after": lines[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="per mutant")
    parser.add_argument("--only", default="weft", help="a folder or file")
    parser.add_argument("--kinds", default="", help="edge,constant,…; default: all")
    parser.add_argument("-o", "--output", default="mutants.jsonl")
    options = parser.parse_args()
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "weft").rglob("*.py"))]
    files = [file for file in files if file.startswith(options.only) and not EXCLUDED.search(file)]
    every = [m for file in files for m in find_mutants(file, (ROOT / file).read_text("utf-8"))]
    every = [m for m in every if not options.kinds or m.kind in options.kinds.split(",")]
    every.sort(key=lambda m: (m.file, m.line, m.start, m.kind))
    drawn = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"{len(drawn)} of {len(every)} mutants", flush=True)
    results = []
    with tempfile.TemporaryDirectory() as folder, multiprocessing.Manager() as manager:
        trees, checked = manager.Queue(), manager.dict()
        for tree in (Path(folder) / str(i) for i in range(options.workers)):
            tree.mkdir()
            for name in COPIED:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, tree / name)
            trees.put(str(tree))
        run = partial(test_mutant, trees=trees, checked=checked, seconds=options.seconds)
        with multiprocessing.Pool(options.workers) as pool, open(options.output, "w") as out:
            for result in pool.imap_unordered(run, drawn):
                out.write(json.dumps(result) + "\n")
                out.flush()
                where = f"{result['file']}:{result['line']}"
                print(f"{result['status']:<10} {result['seconds']:5.1f}s {where}", flush=True)
                results.append(result)
        broken = [name for name, passes in checked.items() if not passes]
    for r in (r for r in results if r["status"] != "killed"):
        where = f"{r['status']}: {r['file']}:{r['line']} {r['kind']}"
        print(f"\n{where}\n  - {r['before']}\n  + {r['after']}")
    print(f"\n{dict(Counter(r['status'] for r in results))}")
    if broken:
        print("fail without a mutant, too:", ", ".join(broken))


if __name__ == "__main__":
    main()
