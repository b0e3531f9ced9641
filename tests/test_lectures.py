"""The table of the lectures: every row has what it promises, and every name in it exists."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from tests.fixtures.documented_commands import run_command, settings, shorten_training

ROOT = Path(__file__).parent.parent
COUNTS = {"W": 13, "E": 10, "A": 5, "D": 9, "P": 7, "T": 10, "N": 9}
PLANNED: set[str] = set()


def load_build():
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = load_build()
ROWS = BUILD.read_lectures()


def test_table_has_every_row_once_and_in_order():
    expected = [f"{letter}{i}" for letter, n in COUNTS.items() for i in range(1, n + 1)]
    assert [row["id"] for row in ROWS] == expected


def test_every_row_is_complete_or_planned():
    assert {row["id"] for row in ROWS if "planned" in row} == PLANNED
    for row in ROWS:
        if "planned" not in row:
            missing = [name for name in ("equation", "file", "command", "test") if not row[name]]
            assert not missing, f"{row['id']}: {missing}"
        text = row.get("planned") or row["summary"]
        assert re.fullmatch(r"[A-Z`\[].{10,300}\.", text, re.S), f"{row['id']}: {text!r}"


def test_decks_of_the_table_are_the_five_lectures():
    for row in ROWS:
        assert set(row["decks"]) <= set(BUILD.DECKS), row["id"]
        assert row["decks"] or row["id"].startswith("N") or row["id"] in {"P5"}, row["id"]


def test_files_of_the_table_exist():
    for row in ROWS:
        for name in row["file"]:
            assert (ROOT / name).is_file(), f"{row['id']}: {name}"


def test_settings_of_the_table_exist():
    known = settings()
    for row in ROWS:
        for key in row["key"]:
            assert key in known, f"{row['id']}: no setting {key}"


def test_tests_of_the_table_exist():
    for row in ROWS:
        for name in row["test"]:
            path, _, function = name.partition("::")
            assert (ROOT / path).is_file(), f"{row['id']}: {name}"
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert not function or function in functions, f"{row['id']}: {name}"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The synthetic files that the page starts from, shortened."""
    folder = tmp_path_factory.mktemp("lectures")
    with pytest.MonkeyPatch.context() as patch:
        shorten_training(patch)
        patch.chdir(folder)
        for name in ("reviews", "treebank", "pairs"):
            run_command(f"weft demo --{name} {name} --quiet", patch)
    return folder


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_commands_of_a_row_run(row, data, tmp_path, monkeypatch):
    shorten_training(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for folder in data.iterdir():
        (tmp_path / folder.name).symlink_to(folder)
    for line in row["command"].replace("\\\n", " ").strip().splitlines():
        run_command(line, monkeypatch)


def test_page_of_the_lectures_has_every_row():
    page = BUILD.format_lectures()
    for row in ROWS:
        assert f"### {row['id']} · {row['title']} {{ #{row['id'].lower()} }}" in page
        words = page.replace("; ", " ").split()
        assert all(word.rstrip(";") in words or word in words for word in row["equation"].split())
        assert all(f"`{name}`" in page for name in (*row["file"], *row["test"], *row["key"]))
