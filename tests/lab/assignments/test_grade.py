"""Grading: the reference gets all points, and every kind of mistake a clear message."""

import ast
import inspect
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from weft.errors import UserError
from weft.lab.assignments import runner
from weft.lab.assignments.assignment import assignment_names, load_assignment
from weft.lab.assignments.compare import describe_difference
from weft.lab.assignments.grade import grade, grade_part
from weft.lab.assignments.write import format_template, write_assignment

IMPORTS = """\
from collections import Counter
from itertools import pairwise

import numpy as np

"""


def solution(assignment):
    return IMPORTS + "\n\n".join(inspect.getsource(part.reference) for part in assignment.parts)


@pytest.fixture
def folder(tmp_path):
    write_assignment(load_assignment("ngram-smoothing"), tmp_path / "work")
    return tmp_path / "work"


def first_part(folder, code, **changes):
    """Grade `count_bigrams` as the code has it."""
    (folder / "solution.py").write_text(code, "utf-8")
    part = load_assignment("ngram-smoothing").parts[0]
    return grade_part(replace(part, **changes), folder / "solution.py")


def test_there_are_at_least_five_assignments():
    assert {"skip-gram", "lstm-cell", "viterbi", "attention", "beam-search"} <= set(
        assignment_names()
    )


@pytest.mark.parametrize("name", assignment_names())
def test_the_reference_gets_all_points_and_the_template_none(name, tmp_path):
    assignment = load_assignment(name)
    write_assignment(assignment, tmp_path)
    empty = grade(tmp_path, public_only=True)
    assert (empty.points, empty.possible) == (0, assignment.points)
    assert {part.message for part in empty.parts} == {"not written yet"}
    (tmp_path / "solution.py").write_text(solution(assignment), "utf-8")
    full = grade(tmp_path)
    assert [part.message for part in full.parts] == [""] * len(assignment.parts)
    assert full.points == full.possible


@pytest.mark.parametrize("name", assignment_names())
def test_the_folder_holds_no_solution(name, tmp_path):
    assignment = load_assignment(name)
    write_assignment(assignment, tmp_path)
    template = ast.parse(format_template(assignment))
    functions = [node for node in template.body if isinstance(node, ast.FunctionDef)]
    assert [one.name for one in functions] == [part.name for part in assignment.parts]
    assert all(len(one.body) == 2 and isinstance(one.body[1], ast.Raise) for one in functions)
    written = "".join(path.read_text("utf-8") for path in tmp_path.iterdir())
    for part in assignment.parts:
        body = ast.parse(inspect.getsource(part.reference)).body[0].body[1:]
        lines = [ast.unparse(node) for node in body]
        assert not any(line in written for line in lines if len(line) > 12)


@pytest.mark.parametrize("name", assignment_names())
def test_the_examples_are_tests_that_the_reference_passes(name, tmp_path, monkeypatch):
    assignment = load_assignment(name)
    write_assignment(assignment, tmp_path)
    (tmp_path / "solution.py").write_text(solution(assignment), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "solution", raising=False)
    names: dict = {}
    exec(compile((tmp_path / "test_solution.py").read_text("utf-8"), name, "exec"), names)
    tests = [value for key, value in names.items() if key.startswith("test_")]
    assert len(tests) == sum(len(part.public) for part in assignment.parts)
    for test in tests:
        test()
    part = assignment.parts[0]
    monkeypatch.setattr(sys.modules["solution"], part.name, lambda *given: np.array([17.5]))
    with pytest.raises((AssertionError, TypeError, AttributeError)):
        names[f"test_{part.name}_1"]()
    sys.modules.pop("solution")


@pytest.mark.parametrize("name", assignment_names())
def test_hidden_cases_depend_on_the_seed_and_on_nothing_else(name):
    for part in load_assignment(name).parts:
        once, again, other = (
            json.dumps([runner.encode(case) for case in part.cases(seed)]) for seed in (0, 0, 1)
        )
        assert once == again
        assert once != other
        before = json.dumps([runner.encode(case) for case in part.public])
        for case in part.public:
            part.reference(*case)
        assert json.dumps([runner.encode(case) for case in part.public]) == before


HEAD = "import numpy as np\n\n\ndef count_bigrams(sentences, vocabulary):\n"
MISTAKES = {
    "    return np.zeros((vocabulary, vocabulary), int)\n":
        "example 1: the result[0, 1] should be 1, not 0 (3 of 9 values differ)",
    "    return np.zeros(vocabulary)\n": "example 1: the result should have shape (3, 3), not (3,)",
    "    return sentences[9]\n": "example 1: IndexError, line 5: list index out of range",
    "    return object()\n":
        "example 1: TypeError: returned object; return arrays, numbers, texts or lists",
    "    return np.random.rand(3, 3)\n": "example 1: the result[0, 0] should be 0, not ",
    "    return 'text'\n": "example 1: the result should have shape (3, 3), not ()",
    "    return [[1], [2, 3]]\n":
        "example 1: the result should be an array of shape (3, 3); rows differ in length",
    "    import os; os._exit(3)\n": "example 1: the process ended with status 3",
    "    return np.ones((1 << 31, 4))\n": "example 1: MemoryError, line 5: ",
    "    return input()\n": "example 1: EOFError, line 5: ",
    "    import weft.lab.assignments\n": "example 1: ModuleNotFoundError, line 5: ",
}  # fmt: skip


@pytest.mark.parametrize("body", MISTAKES)
def test_every_mistake_has_a_clear_message(folder, body):
    if "1 << 31" in body and sys.platform != "linux":
        pytest.skip("only Linux limits the address space")
    found = first_part(folder, HEAD + body)
    assert found.points == 0
    assert found.message.startswith(MISTAKES[body]), found.message


def test_a_file_that_cannot_be_imported(folder):
    assert first_part(folder, "def count_bigrams(:\n").message.startswith("SyntaxError, line 1: ")
    assert (
        first_part(folder, "x = 1 / 0\n").message == "ZeroDivisionError, line 1: division by zero"
    )
    assert first_part(folder, "x = 1\n").message == "no function count_bigrams in the file"


def test_an_endless_loop_ends_and_costs_one_part_only(folder, monkeypatch):
    monkeypatch.setattr("weft.lab.assignments.grade.STARTUP_SECONDS", 1.5)
    found = first_part(folder, HEAD + "    while True:\n        pass\n", seconds=0.5)
    assert found.message == "example 1: takes longer than 0.5 s"


def test_answers_that_change_are_no_answers(folder):
    code = HEAD.replace("\n\n\ndef", "\n\ncalls = []\n\n\ndef") + (
        "    calls.append(1)\n    counts = np.zeros((vocabulary, vocabulary), int)\n"
        "    for one in sentences:\n        for a, b in zip(one, one[1:]):\n"
        "            counts[a, b] += 1\n    return counts + (len(calls) == 2)\n"
    )
    message = first_part(folder, code).message
    assert message == "example 1: a second call with the same arguments returned something else"


def test_a_solution_that_learned_the_examples_fails_on_hidden_cases(folder):
    part = load_assignment("ngram-smoothing").parts[0]
    expected = part.reference(*part.public[0]).tolist()
    code = HEAD + f"    return np.array({expected})\n"
    (folder / "solution.py").write_text(code, "utf-8")
    assert grade_part(part, folder / "solution.py", public_only=True).points == part.points
    found = grade_part(part, folder / "solution.py")
    assert found.points == 0
    assert found.message.startswith("hidden case 1: ")


def test_modules_beside_the_solution_can_be_imported(folder):
    source = inspect.getsource(load_assignment("ngram-smoothing").parts[0].reference)
    (folder / "mine.py").write_text(IMPORTS + source, "utf-8")
    assert first_part(folder, "from mine import count_bigrams\n").message == ""


def test_a_folder_that_is_no_assignment(tmp_path, folder):
    with pytest.raises(UserError, match=r"no assignment\.json, so this is not the folder"):
        grade(tmp_path)
    with pytest.raises(UserError, match=r"exists already\. Choose another folder"):
        write_assignment(load_assignment("viterbi"), folder)
    (folder / "assignment.json").write_text('{"assignment": "viterbo"}')
    with pytest.raises(UserError, match="Did you mean 'viterbi'"):
        grade(folder)
    for text in ("[]", '{"assignment": 3}'):
        (folder / "assignment.json").write_text(text)
        with pytest.raises(UserError, match="should hold"):
            grade(folder)
    (folder / "assignment.json").write_text('{"assignment": "viterbi"}')
    (folder / "solution.py").unlink()
    with pytest.raises(UserError, match="writes a template"):
        grade(folder)


def test_results_that_are_no_values_are_refused(folder):
    """A student's process writes its own results; none of them may break the grader."""
    code = (
        "import json, sys\n"
        + HEAD
        + (
            "    path = sys.argv[-1]\n    with open(path, 'w') as file:\n"
            "        file.write(json.dumps({'value': {'array': [1], 'shape': [99, 99]}}) + '\\n')\n"
            "    import os; os._exit(0)\n"
        )
    )
    assert first_part(folder, code).message == (
        "example 1: the result is no array, number, text or list"
    )
    code = code.replace("json.dumps({'value': {'array': [1], 'shape': [99, 99]}})", "'[' * 99999")
    assert first_part(folder, code).message == "example 1: no result"


@pytest.mark.parametrize(
    ("expected", "actual", "message"),
    [
        (1.0, 1.0 + 1e-12, ""),
        (1.0, 1, ""),
        (1, 1.0, ""),
        (1, True, "the result should be 1, not True"),
        (1.0, 1.1, "the result should be 1, not 1.1"),
        (float("inf"), float("inf"), ""),
        ("a", "b", "the result should be 'a', not 'b'"),
        ((1, [2]), [1, (2,)], ""),
        ((1, [2]), [1, [3]], "the result[1][0] should be 2, not 3"),
        ([1], [1, 2], "the result should have 1 values, not 2"),
        ({"a": 1}, {}, "the result has no key 'a'"),
        ({}, {"a": 1}, "the result has the key 'a' too many"),
        ({"a": 1}, {"a": 2}, "the result['a'] should be 1, not 2"),
        (np.array([1, 2]), np.array([1, 2 + 1e-12]), "the result[1] should be 2, not 2 (1 of 2"),
        (np.array([True]), np.array([1]), ""),
        (np.array([1.0]), ["x"], "the result should hold numbers"),
        ("\x1b[2J", "x", "the result should be '\\x1b[2J', not 'x'"),
    ],
)
def test_differences_in_one_sentence(expected, actual, message):
    found = describe_difference(expected, actual, 1e-9)
    assert found.startswith(message)
    assert bool(found) == bool(message)


def test_values_survive_the_way_to_the_student_and_back():
    for value in (
        np.arange(6.0).reshape(2, 3), np.zeros((0, 3)), (1, "a", None), [True, 2.5],
        {("a", "b"): 1}, float("inf"), np.array([[True], [False]]),
    ):  # fmt: skip
        back = runner.decode(json.loads(json.dumps(runner.encode(value))))
        assert describe_difference(value, back, 0.0) == ""
        assert np.shape(back) == np.shape(value) or isinstance(value, dict)


def test_the_notebook_writes_the_template(tmp_path):
    assignment = load_assignment("attention")
    write_assignment(assignment, tmp_path)
    cells = json.loads((tmp_path / "assignment.ipynb").read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    parts = [one.partition("\n")[2] for one in code if one.startswith("%%writefile")]
    assert len(parts) == len(assignment.parts) + 1
    names = [n.name for n in ast.parse("\n".join(parts)).body if isinstance(n, ast.FunctionDef)]
    assert names == [part.name for part in assignment.parts]
    assert code[-1] == "!weft lab grade ."


def test_the_command_line(tmp_path, capsys):
    from weft.cli.main import app

    app(["lab", "assignment"], standalone_mode=False)
    assert "viterbi            Viterbi and the partition function (10 points)" in (
        capsys.readouterr().out
    )
    target = tmp_path / "bpe"
    app(["lab", "assignment", "bpe-merges", "-o", str(target)], standalone_mode=False)
    assert "next: write" in capsys.readouterr().out
    part = load_assignment("bpe-merges").parts[1]
    (target / "solution.py").write_text(inspect.getsource(part.reference), "utf-8")
    status = app(["lab", "grade", str(target)], standalone_mode=False)
    out = capsys.readouterr().out
    assert status == 1
    assert "  2 of 2  merge: right\n" in out
    assert "  0 of 4  learn_merges: no function learn_merges in the file\n" in out
    assert out.endswith("2 of 10 points\n")
    app(["lab", "grade", str(target), "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert (found["points"], found["possible"]) == (2, 10)


def test_the_runner_imports_nothing_of_weft():
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]);"
        "print([n for n in sys.modules if n.startswith('weft')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, runner.__file__], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
