"""Files of matrices: what the doctor finds in them, and where."""

import json

import numpy as np
import pytest

from tests.fixtures.command import command, fails, ok, says
from tests.fixtures.examinations import found
from weft.doctor.diagnose import diagnose
from weft.doctor.formats.features import reference_matrices
from weft.doctor.formats.files import open_files
from weft.doctor.survey import survey_sources
from weft.text.example import Example
from weft.text.read import Columns

GOOD = {f"g{i}": np.full((i + 1, 3), float(i)) for i in range(7)}
NAN = np.where(np.arange(6).reshape(2, 3) == 4, np.nan, 1.0)
BAD = {
    "n": NAN, "w": np.ones((2, 5)), "e": np.ones((0, 3)), "f": np.ones(3), "s": np.array([["a"]])
}  # fmt: skip
KINDS = {
    "not finite": ("1 matrix of data has non-finite numbers.", 8, "number 2 is nan"),
    "other width": (
        "1 matrix of data has vectors of a different width than the first.", 9,
        "vectors of 5 numbers; the first has 3",
    ),
    "empty matrix": ("1 matrix of data is empty.", 10, "empty matrix (0 × 3)"),
    "other axes": ("1 matrix of data does not have two axes.", 11, "found 3. Reshape it."),
    "no numbers": ("1 matrix of data contains values other than numbers.", 12, "holds <U1"),
}  # fmt: skip


def examined(*paths):
    files = open_files([str(path) for path in paths], Columns())
    seen = survey_sources(files.sources)
    return diagnose(seen, files.paths, 512, False, files.tallies, files.findings)[0]


def archive(folder):
    np.savez(folder / "a.npz", **GOOD, **BAD)
    return folder / "a.npz"


def lines(folder):
    for name, rows in (GOOD | BAD).items():
        np.save(folder / f"{name}.npy", rows)
    rows = [json.dumps({"text": f"{name}.npy", "target": "a b c"}) for name in GOOD | BAD]
    (folder / "a.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    return folder / "a.jsonl"


def pair(folder):
    (folder / "a.txt").write_text("".join(f"word {name}\n" for name in GOOD | BAD), "utf-8")
    return f"{archive(folder)},{folder / 'a.txt'}"


@pytest.mark.parametrize("made", [archive, lines, pair])
@pytest.mark.parametrize("kind", KINDS)
def test_bad_matrices_are_found_with_their_line(tmp_path, made, kind):
    title, line, told = KINDS[kind]
    path = made(tmp_path)
    one = found(examined(path), kind)
    assert (one.level, one.title, one.count) == ("error", title, 1)
    assert one.places[0].where == f"{str(path).split(',')[0]}:{line}"
    assert told in one.places[0].detail


def test_sound_matrices_have_nothing_wrong(tmp_path):
    np.savez(tmp_path / "train.npz", **GOOD)
    np.save(tmp_path / "test.npy", np.ones((3, 5, 3)))
    diagnosis = examined(tmp_path / "train.npz", tmp_path / "test.npy")
    assert diagnosis.findings == ()  # their names are no words that could be new
    assert diagnosis.rows == {"train": 7, "test": 3}


def test_all_files_are_as_wide_as_the_first(tmp_path):
    np.savez(tmp_path / "train.npz", bad=BAD["e"], **GOOD)
    np.save(tmp_path / "test.npy", np.ones((3, 5, 4)))
    one = found(examined(tmp_path / "train.npz", tmp_path / "test.npy"), "other width")
    assert one.title == "3 matrices of test have vectors of a different width than the first."
    assert one.places[0].where == f"{tmp_path / 'test.npy'}:1"


def test_a_matrix_that_is_not_there(tmp_path):
    path = lines(tmp_path)
    (tmp_path / "g2.npy").unlink()
    one = found(examined(path), "unreadable matrix")
    assert one.places[0].where == f"{path}:3"
    assert one.places[0].detail.startswith(f"{tmp_path / 'g2.npy'}: no such file. Did you ")


def test_references_to_matrices_are_distinguished_from_texts():
    assert reference_matrices([Example("a.npz:1"), Example("a.npy"), Example("a sentence")])
    assert reference_matrices([Example("[[1, 2.5], [3, 4]]")])
    for text in ("a sentence", "[[link]] text", "what is a .npy file?", "[[]]", ""):
        assert not reference_matrices([Example(text)])
    assert not reference_matrices([])


def test_check_command_reports_matrices(tmp_path):
    done = command("check", archive(tmp_path))
    assert done.status == 1
    says(done.out, "1 matrix of data has non-finite numbers.", "a.npz:8  a.npz:n  ← ")
    says(fails("check", tmp_path / "a.npz", "--fix", tmp_path / "out"), "--fix cannot write mat")
    np.savez(tmp_path / "good.npz", **GOOD)
    says(ok("check", tmp_path / "good.npz").out, "No problems found.")
