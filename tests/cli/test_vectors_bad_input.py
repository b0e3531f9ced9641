"""weft vectors with files that are broken or of no use: the place is named, and the way out."""

import gzip

import numpy as np
import pytest

from tests.fixtures.command import fails, ok, says
from weft.vectors.store import Vectors

E = 5
WORDS = [f"w{i}" for i in range(11)]
MATRIX = np.random.default_rng(5).normal(size=(11, E)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Good files in several formats, where the command runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("good.txt", "good.bin", "good.npz", "good.safetensors"):
        Vectors(WORDS, MATRIX).save(name)
    Vectors([f"v{i}" for i in range(11)], MATRIX).save("other.txt")
    Vectors(WORDS, MATRIX[:, :3]).save("narrow.txt")
    broken = MATRIX.copy()
    broken[3, 2] = np.nan
    np.savez("nan.npz", matrix=broken, words=np.array(WORDS))
    np.savez("twice.npz", matrix=MATRIX[:3], words=np.array(["a", "b", "a"]))
    (tmp_path / "texts").mkdir()
    return tmp_path


def lines(**changed):
    """good.txt with some lines changed: what the line says -> what it should say."""

    def make(folder):
        text = (folder / "good.txt").read_text().splitlines()
        for number, change in changed.items():
            place = int(number.removeprefix("line")) - 1
            text[place] = change(text[place])
        return "\n".join(text).encode() + b"\n"

    return make


def start(name, size):
    return lambda folder: (folder / name).read_bytes()[:size]


def nan_in_binary(folder):
    found = (folder / "good.bin").read_bytes()
    place = found.index(b"w3 ") + 3
    return found[:place] + np.array([np.nan], "<f4").tobytes() + found[place + 4 :]


FILES = {
    "header": (lines(line1=lambda _: "11 x"), ":1: corrupt header: '11 x'", "two whole numbers"),
    "rows": (lines(line1=lambda _: "12 5"), "promises 12 vectors, found 11", "copy it again"),
    "width": (lines(line1=lambda _: "11 4"), ":2: 5 numbers", "width is 4", "Correct", "first"),
    "wider": (lines(line1=lambda _: "11 6"), ":2: 5 numbers", "width is 6", "Correct", "first"),
    "long": (lines(line5=lambda s: s + " 1"), ":5: 6 numbers", "width is 5", "Correct this line"),
    "short": (lines(line5=lambda s: "w3 1 2"), ":5: 2 numbers", "width is 5", "Correct this line"),
    "letters": (lines(line5=lambda s: "w3 1 2 x 4 5"), ":5: not a number: 'x'. Correct or remove"),
    "nan": (lines(line5=lambda s: "w3 1 nan 3 4 5"), ":5:", "not finite", "Remove the word"),
    "nan, binary": (nan_in_binary, ": vector 4, 'w3'", "not finite", "Remove the word"),
    "twice": (
        lines(line5=lambda s: s.replace("w3", "w1")),
        ":5: the word 'w1' again; it is vector 2",
        "weft vectors convert FILE NEW --duplicates first",
    ),
    "cut": (start("good.bin", -9), ": truncated in vector 11 of 11. Copy the file again."),
    "cut at once": (start("good.bin", 3), ":1: a word and its numbers", "'11 '", "copy it again"),
    "cut npz": (start("good.npz", -7), "broken .npz file", "Copy it again"),
    "npz of 3 bytes": (start("good.npz", 3), ": neither text nor", "copy it again"),
    "cut tensors": (start("good.safetensors", -7), "truncated", "copy it again"),
    "cut gzip": (
        lambda folder: gzip.compress((folder / "good.txt").read_bytes())[:-20],
        "broken gzip file",
        "Copy it again",
    ),
    "empty": (lambda _: b"", "is empty: no word vectors in it"),
}


@pytest.mark.parametrize("case", FILES)
def test_broken_vectors(case, folder):
    make, *parts = FILES[case]
    (folder / "bad").write_bytes(make(folder))
    says(fails("vectors", "neighbours", "bad", "w1"), "error: bad", *parts)


def test_numbers_that_are_not_finite_are_found_by_every_verb(folder):
    (folder / "pairs.txt").write_text("w1 w2 3\nw3 w4 1\n")
    for arguments in (
        ("neighbours", "nan.npz", "w1"),
        ("analogy", "nan.npz", "w1", "w2", "w4"),
        ("convert", "nan.npz", "out.txt"),
        ("evaluate", "nan.npz", "pairs.txt"),
        ("align", "nan.npz", "good.txt", "--identical", "-o", "out.txt"),
        ("align", "good.txt", "nan.npz", "--identical", "-o", "out.txt"),
        ("plot", "nan.npz", "-o", "out.html"),
    ):
        says(fails("vectors", *arguments), "error: nan.npz: the vector of 'w3' (row 4)", "Remove")
    assert not list(folder.glob("out.*"))


def test_words_that_come_twice(folder):
    says(fails("vectors", "plot", "twice.npz", "-o", "x.svg"), "twice.npz: the word 'a' twice",
         "vectors 1 and 3", "weft vectors convert FILE NEW --duplicates first")  # fmt: skip
    ok("vectors", "convert", "twice.npz", "once.npz", "--duplicates", "first")
    assert ok("vectors", "neighbours", "once.npz", "a").lines[0].endswith("b")


def test_a_word_with_spaces(folder):
    Vectors(["new york", "b"], MATRIX[:2]).save("spaces.npz")
    says(fails("vectors", "convert", "spaces.npz", "out.txt"),
         "out.txt: the word 'new york' (row 1)", "new_york", ".safetensors")  # fmt: skip
    assert ok("vectors", "neighbours", "spaces.npz", "new york").lines[0].endswith("  b")


def test_files_that_are_not_there(folder):
    told = fails("vectors", "neighbours", "god.txt", "w1")
    assert told == "error: No vector file 'god.txt'. Did you mean 'good.txt'?"
    told = fails("vectors", "neighbours", "zzz", "w1")
    assert told == "error: No vector file 'zzz'. Check the name."
    says(fails("vectors", "neighbours", "texts", "w1"), "texts: not a model folder (no model.json)")
    says(fails("vectors", "neighbours", "no/v.txt", "w1"), "there is no folder 'no'")
    for arguments in (
        ("convert", "good.txt", "no/v.txt"),
        ("align", "good.txt", "other.txt", "--identical", "-o", "no/v.txt"),
        ("plot", "good.txt", "-o", "no/map.html"),
    ):
        says(fails("vectors", *arguments), "the folder no does not exist. Make it first.")
    says(fails("vectors", "align", "no.txt", "no.txt", "--identical", "-o", "v.doc"),
         "v.doc: the ending does not say a format")  # fmt: skip


CORPORA = {
    "empty": (b"", "bad: no words in it. Pass text, one sentence per line."),
    "blank": (b"\n \n", "bad: no words in it. Pass text"),
    "few": (b"a b a\n", "bad: no word occurs 5 times", "does 2", "Lower --min-count"),
    "latin": (b"fine\n" + b"caf\xe9 " * 7, "bad:2: byte 0xe9 is not UTF-8. Convert", "iconv"),
    "picture": (b"\x89PNG\r\n\x1a\n\0\0", "bad:1: byte 0x89 is not UTF-8", "not text. Give text"),
    "zeros": (b"a\n\0\0\n", "bad:2: NUL byte: this is not text. Give text"),
    "wide": ("a b".encode("utf-16"), "bad:1: the file is UTF-16", "Convert it"),
    "cut": (b"\x1f\x8b\x08\0", "bad: cannot read past line 0", "copy or create it again"),
}


@pytest.mark.parametrize("case", CORPORA)
def test_texts_to_learn_from(case, folder):
    content, *parts = CORPORA[case]
    (folder / "bad").write_bytes(content)
    says(fails("vectors", "train", "bad", "-o", "out.txt"), *parts)
    assert not (folder / "out.txt").exists()


def test_no_text_to_learn_from(folder):
    says(fails("vectors", "train", "texts", "-o", "o.txt"), "texts is a folder", "the files in it")
    says(fails("vectors", "train", "god.txt", "-o", "o.txt"), "god.txt: no such file",
         "'good.txt'?")  # fmt: skip
    says(fails("vectors", "train", "-", "-o", "o.txt"), "standard input: no words in it")


def test_questions_that_have_no_answer(folder):
    says(fails("vectors", "analogy", "good.txt", "w1", "w2", "zebra"),
         "No vector for 'zebra' among the 11 words of good.txt.", "sub-words")  # fmt: skip
    says(fails("vectors", "analogy", "good.txt", "w1", "w2", "W3"), "Did you mean 'w3'?")
    (folder / "pairs.txt").write_text("cat dog 3\nrat mat 1\n")
    (folder / "asked.txt").write_text("a b c d\n")
    done = ok("vectors", "evaluate", "good.txt", "pairs.txt", "asked.txt")
    says(done.out, "0/2", "0.0 %", "0/1", "0.0 %")
    says(done.err, "note: pairs.txt: nothing in it has vectors in good.txt", "note: asked.txt")
    (folder / "pairs.txt").write_text("w1 w2 3\nrat mat 1\n")
    done = ok("vectors", "evaluate", "good.txt", "pairs.txt")
    says(done.out, "–", "–", "1/2")  # one pair is in no order
    assert not done.err


def test_spaces_that_cannot_be_aligned(folder):
    out = ("-o", "out.txt")
    says(fails("vectors", "align", "good.txt", "other.txt", "--identical", *out),
         "good.txt and other.txt have no word in common. Pass --dictionary FILE.")  # fmt: skip
    says(fails("vectors", "align", "good.txt", "narrow.txt", "--identical", *out),
         "good.txt have 5 numbers, those of narrow.txt 3", "weft vectors train --dim")  # fmt: skip
    (folder / "words.txt").write_text("w12 v1\ndog chien\n")
    says(fails("vectors", "align", "good.txt", "other.txt", "--dictionary", "words.txt", *out),
         "words.txt: none of its 2 pairs", "not 'w12' in good.txt. Did you mean 'w",
         "stands first")  # fmt: skip
    (folder / "some.txt").write_text("w1 v1\nw2 v2\n")
    done = ok("vectors", "align", "good.txt", "other.txt", "--dictionary", "some.txt",
              "--test", "words.txt")  # fmt: skip
    says(done.out, "precision@1: –\n", "0 of 2 words (0.0 %)")


def test_maps_of_nothing(folder):
    (folder / "empty.txt").write_text("\n")
    given = ("vectors", "plot", "good.txt", "-o", "map.html", "--words")
    says(fails(*given, ", "), "--words ', ': no word in it")
    says(fails(*given, "@empty.txt"), "empty.txt is empty: no words in it")
    says(fails(*given, "zebra"), "No vector for 'zebra' among the 11 words of good.txt")
    assert not (folder / "map.html").exists()
