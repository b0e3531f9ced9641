"""Matrices that texts name: every way to name one, and what is told of a bad one."""

import numpy as np
import pytest

from weft.errors import UserError
from weft.text.example import Example
from weft.text.formats.features import format_matrix, list_matrices, load_matrix
from weft.text.formats.parallel import read_parallel
from weft.text.read import read
from weft.text.synthetic.digits import (
    HEIGHT,
    WORDS,
    draw_glyph,
    draw_picture,
    generate_numbers,
    write_digits,
)

ONE = np.arange(15.0).reshape(5, 3)
TWO = np.arange(6.0).reshape(2, 3) / 7


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "one.npy", ONE)
    np.save(tmp_path / "stack.npy", np.stack([ONE, 2 * ONE]))
    np.savez(tmp_path / "both.npz", a=ONE, b=TWO)
    np.savez(tmp_path / "alone.npz", x=TWO)
    return tmp_path


def named(folder, text, features=0):
    return load_matrix(Example(text, file=str(folder / "list.txt"), line=7), features)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one.npy", ONE), ("stack.npy:1", 2 * ONE), ("both.npz:b", TWO), ("alone.npz", TWO),
        ("[[0, 1.5], [2, -3]]", [[0, 1.5], [2, -3]]),
    ],
)  # fmt: skip
def test_every_name_leads_to_its_matrix(folder, text, expected):
    found = named(folder, text)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_matrix_round_trips_through_text():
    found = load_matrix(Example(format_matrix(TWO.astype(np.float32))))
    np.testing.assert_allclose(found, TWO, rtol=1e-5)


def test_the_matrices_of_a_file_are_listed(folder):
    assert [e.text for e in list_matrices(folder / "both.npz")] == ["both.npz:a", "both.npz:b"]
    assert [e.text for e in read(folder / "stack.npy")] == ["stack.npy:0", "stack.npy:1"]
    (only,) = list_matrices(folder / "one.npy")
    np.testing.assert_allclose(load_matrix(only), ONE)
    (folder / "both.txt").write_text("first\nsecond\n", "utf-8")
    pairs = list(read_parallel(folder / "both.npz", folder / "both.txt"))
    assert [(e.text, e.label) for e in pairs] == [("both.npz:a", "first"), ("both.npz:b", "second")]
    np.testing.assert_allclose(load_matrix(pairs[1]), TWO, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gone.npy", r"list\.txt:7: .*gone\.npy: no such file"),
        ("one.npy:3", r"list\.txt:7: no matrix '3' in one\.npy, which has one matrix"),
        ("stack.npy:2", r"no matrix '2' in stack\.npy, which has matrices 0 to 1"),
        ("both.npz:c", r"no matrix 'c' in both\.npz; it has a, b\. Write both\.npz:KEY"),
        ("both.npz", r"several matrices in both\.npz; it has a, b"),
        (
            "a sentence",
            r"list\.txt:7: 'a sentence' is not a matrix reference\. Pass a \.npy file, FILE",
        ),
        ("[[1, 2], [3]]", r"list\.txt:7: not a JSON matrix of numbers"),
        ("[1, 2]", r"a matrix needs two axes, vectors by numbers; found 2\. Reshape it"),
        ("bad.npy", r"list\.txt:7: .*bad\.npy: not a readable matrix file"),
        ("words.npy", r"list\.txt:7: the matrix holds <U1, not numbers"),
        ("empty.npy", r"list\.txt:7: empty matrix \(0 × 3\)"),
        ("nan.npy", r"list\.txt:7: vector 2 of the matrix is not finite: number 3 is nan"),
        ("inf.npy", r"list\.txt:7: vector 1 of the matrix is not finite: number 1 is -inf"),
        ("wide.npy", r"list\.txt:7: vectors of 4 numbers; this model reads 3"),
    ],
)
def test_invalid_matrix_raises_user_error(folder, text, message):
    (folder / "bad.npy").write_bytes(b"no numpy")
    np.save(folder / "words.npy", np.array([["a"]]))
    np.save(folder / "empty.npy", np.zeros((0, 3)))
    np.save(folder / "nan.npy", np.where(np.arange(15).reshape(5, 3) == 5, np.nan, 1.0))
    np.save(folder / "inf.npy", np.where(np.arange(15).reshape(5, 3) == 0, -np.inf, 1.0))
    np.save(folder / "wide.npy", np.ones((2, 4)))
    with pytest.raises(UserError, match=message):
        named(folder, text, 3)


def test_nothing_in_a_matrix_is_run(folder):
    np.save(folder / "object.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match=r"object\.npy: not a readable matrix file"):
        named(folder, "object.npy")
    np.savez(folder / "some.npz", a=ONE, b=np.array([{"a": 1}], dtype=object))
    with pytest.raises(
        UserError,
        match=r"list\.txt:7: matrix 'b' of some\.npz cannot be read: it contains Python obj",
    ):
        named(folder, "some.npz:b")


@pytest.mark.filterwarnings("error")
def test_float_overflow_is_reported_once(folder):
    np.save(folder / "large.npy", np.full((2, 3), 1e300))
    with pytest.raises(UserError, match="number 1 is inf"):
        named(folder, "large.npy")


def test_damaged_archive_raises_user_error(folder):
    whole = (folder / "both.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"list\.txt:7: .*cut\.npz: not a readable matrix file"):
        named(folder, "cut.npz:a")


def test_made_pictures_show_their_digits(tmp_path):
    draw = np.random.default_rng(3)
    seen = {digit: draw_picture([digit], draw, noise=0.0) for digit in range(10)}
    assert all(found.shape[1] == HEIGHT for found in seen.values())
    assert all(found.max() > 0.5 and found.min() == 0 for found in seen.values())
    assert len({draw_glyph(digit).tobytes() for digit in range(10)}) == 10
    assert draw_picture([1, 1, 1], draw).shape[0] > draw_picture([1], draw).shape[0]
    again = [words for _, words in generate_numbers(7, 5)]
    assert (
        again
        == [words for _, words in generate_numbers(7, 5)]
        != [words for _, words in generate_numbers(7, 6)]
    )
    assert set(" ".join(again).split()) <= set(WORDS)
    (path,) = write_digits(tmp_path, {"train": 3})
    rows = list(read(path))
    assert [row.label for row in rows] == [words for _, words in generate_numbers(3, 0)]
    np.testing.assert_allclose(load_matrix(rows[1]), list(generate_numbers(3, 0))[1][0])
