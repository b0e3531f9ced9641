"""Grade an assignment: run the student's functions beside the reference and count points.

The student's code is executed, in a process of its own per function with limits of time and
memory. That keeps mistakes from doing harm; it is no sandbox against malice.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.errors import UserError, escape_control
from weft.jsonio import parse
from weft.lab.assignments import runner
from weft.lab.assignments.assignment import (
    FLOAT_TOLERANCE,
    Assignment,
    Part,
    load_assignment,
)
from weft.lab.assignments.compare import describe_difference
from weft.lab.assignments.write import ASSIGNMENT_FILE, SOLUTION_FILE

MEMORY_BYTES = 2 << 30  # of a student's process, address space
MAX_RESULT_BYTES = 32 << 20  # of the results of a part
MAX_FILE_BYTES = 1 << 20  # of assignment.json and solution.py
STARTUP_SECONDS = 20.0  # for Python and NumPy, added to the limit of a part


@dataclass(frozen=True)
class PartGrade:
    """The points of one function, and why it has not all of them."""

    name: str
    points: int
    possible: int
    message: str = ""  # the first failure


@dataclass(frozen=True)
class Grade:
    """The points of an assignment."""

    assignment: str
    parts: tuple[PartGrade, ...]

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)

    @property
    def possible(self) -> int:
        return sum(part.possible for part in self.parts)

    def to_json(self) -> dict[str, object]:
        parts = [asdict(part) for part in self.parts]
        sums = {"points": self.points, "possible": self.possible}
        return {"assignment": self.assignment, **sums, "parts": parts}


def grade(folder: str | Path, seed: int = 0, public_only: bool = False) -> Grade:
    """Grade the solution in a folder that `weft lab assignment` wrote.

    Another seed draws other hidden cases.
    """
    root = Path(folder)
    assignment = _read_name(root)
    path = root / SOLUTION_FILE
    if not path.is_file():
        raise UserError(f"{path}: no such file. `weft lab assignment` writes a template.")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UserError(f"{path}: larger than {MAX_FILE_BYTES:,} bytes; no solution needs that.")
    grades = (grade_part(part, path, seed, public_only) for part in assignment.parts)
    return Grade(assignment.name, tuple(grades))


def grade_part(part: Part, path: Path, seed: int = 0, public_only: bool = False) -> PartGrade:
    """Grade one function of a student's file."""
    cases = list(part.public) if public_only else part.cases(seed)
    results, stopped = _run(part, path, cases)
    message = _first_failure(part, cases, results, stopped)
    return PartGrade(part.name, 0 if message else part.points, part.points, message)


def _read_name(root: Path) -> Assignment:
    path = root / ASSIGNMENT_FILE
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path}: too large for the file of an assignment.")
        data = path.read_bytes()
    except OSError:
        raise UserError(
            f"{root}: no {ASSIGNMENT_FILE}, so this is not the folder of an assignment. "
            "`weft lab assignment NAME -o FOLDER` writes one."
        ) from None
    saved = parse(data, path)
    name = saved.get("assignment") if isinstance(saved, dict) else None
    if not isinstance(name, str):
        raise UserError(f'{path}: should hold {{"assignment": NAME}}.')
    return load_assignment(name)


def _run(part: Part, path: Path, cases: Sequence[list[Any]]) -> tuple[list[dict[str, Any]], str]:
    """Run all cases in a process; return the results of those that ended, and why it stopped."""
    with tempfile.TemporaryDirectory() as folder:
        job, out = Path(folder) / "job.json", Path(folder) / "results.jsonl"
        values = {
            "path": str(path.resolve()),
            "function": part.name,
            "cases": [runner.encode(case) for case in cases],
            "memory": MEMORY_BYTES,
            "seconds": part.seconds + STARTUP_SECONDS,
        }
        job.write_text(json.dumps(values), "utf-8")
        process = subprocess.Popen(
            [sys.executable, "-I", runner.__file__, str(job), str(out)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
        stopped = ""
        try:
            status = process.wait(part.seconds + STARTUP_SECONDS)
            if status:
                stopped = f"the process ended with status {status}"
        except subprocess.TimeoutExpired:
            stopped = f"takes longer than {part.seconds:g} s"
        finally:
            _end(process)
        return _read_results(out), stopped


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _read_results(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a file that the student's process wrote."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_RESULT_BYTES)
    except OSError:
        return []
    found = []
    for line in data.split(b"\n"):
        try:
            value = parse(line, path)
        except UserError:
            break  # the end, or a line that was cut
        if not isinstance(value, dict):
            break
        found.append(value)
    return found


def _first_failure(
    part: Part, cases: Sequence[list[Any]], results: Sequence[dict[str, Any]], stopped: str
) -> str:
    for number, case in enumerate(cases, 1):
        kind = "example" if number <= len(part.public) else "hidden case"
        index = number if number <= len(part.public) else number - len(part.public)
        where = f"{kind} {index}"
        if number > len(results):
            return f"{where}: {stopped or 'no result'}"
        message = _judge(part, case, results[number - 1])
        if message:
            fatal = "fatal" in results[number - 1]
            return message if fatal else f"{where}: {message}"
    return ""


def _judge(part: Part, case: list[Any], result: dict[str, Any]) -> str:
    """Return why a result is wrong, or ""."""
    for key in ("fatal", "error"):
        if key in result:
            return escape_control(str(result[key]))
    expected = part.reference(*runner.decode(runner.encode(case)))
    try:
        actual = runner.decode(result["value"])
    except (KeyError, TypeError, ValueError):
        return "the result is no array, number, text or list"
    difference = describe_difference(expected, actual, FLOAT_TOLERANCE)
    if not difference and not result.get("same"):
        return "a second call with the same arguments returned something else"
    return difference
