"""ARPA files: there and back, what other programs write, and what is wrong with a file."""

import gzip
import random

import numpy as np
import pytest

from tests.fixtures.ngram_counts import SIZE, sentences
from weft.classic.ngram.arpa import read_arpa, write_arpa
from weft.classic.ngram.counts import Marks, count
from weft.classic.ngram.interpolated import estimate_interpolated
from weft.classic.ngram.kneser_ney import kneser_ney
from weft.errors import UserError
from weft.tokens.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary(
    [*SPECIALS[:4], "the", "über", "a\u00a0b", "don't", "e", "f", "-1.5", "\\end\\", "i"]
)

# As SRILM writes: no backoffs of zero, spaces for tabs, and "b a" missing though "a b a" is there.
OTHER = """a comment
\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-1.0 </s>
-99 <s> -0.5
-0.4 a -0.25
-0.6\tb\t-0.125
-2\t<unk>

\\2-grams:
-0.3 <s> a
-0.2 a b -0.0625
-0.7 b </s>

\\3-grams:
-0.1 a b a

\\end\\
"""


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_there_and_back(tmp_path, order, name):
    model = kneser_ney(count(sentences(), SIZE, order), (0, 1) if order == 4 else ()).model
    write_arpa(model, WORDS, tmp_path / name)
    other, words = read_arpa(tmp_path / name)
    assert words == WORDS
    assert (other.starts, other.marks) == (model.starts, model.marks)
    assert np.array_equal(other.words, model.words)
    assert np.array_equal(other.first, model.first)
    assert np.allclose(other.scores, model.scores, atol=1e-6)
    assert np.allclose(other.backoffs, model.backoffs, atol=1e-6)
    assert (name.endswith("gz")) == ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b")


def test_the_lines_may_have_any_order(tmp_path):
    model = kneser_ney(count(sentences(), SIZE, 3)).model
    write_arpa(model, WORDS, tmp_path / "a")
    head, *sections, tail = (tmp_path / "a").read_text("utf-8").split("-grams:\n")
    mixed = [part.split("\n\n") for part in (*sections, tail)]
    random.Random(3).shuffle(lines := mixed[-1][0].splitlines())
    mixed[-1][0] = "\n".join(lines)
    text = "-grams:\n".join([head, *("\n\n".join(part) for part in mixed)])
    (tmp_path / "a").write_text(text, "utf-8")
    assert np.array_equal(read_arpa(tmp_path / "a")[0].words, model.words)


def test_an_interpolated_model_is_one_too(tmp_path):
    model = estimate_interpolated(count(sentences(), SIZE, 3), sentences(31, 7), buckets=True).model
    write_arpa(model, WORDS, tmp_path / "a")
    fresh = [*sentences(7, 8), [1, 4]]
    assert read_arpa(tmp_path / "a")[0].perplexity(fresh) == pytest.approx(model.perplexity(fresh))


def test_the_file_has_the_marks_of_the_format(tmp_path):
    words = Vocabulary([*SPECIALS, "a"])
    model = kneser_ney(count([[7, 7], [7]], 8, 2, Marks.of(words))).model
    write_arpa(model, words, tmp_path / "a")
    lines = (tmp_path / "a").read_text("utf-8").splitlines()
    assert lines[:4] == ["\\data\\", "ngram 1=4", "ngram 2=3", ""]
    assert [line.split("\t")[1] for line in lines[5:9]] == ["<unk>", "<s>", "</s>", "a"]
    assert lines[6].startswith("-99\t<s>\t-")
    assert lines[-1] == "\\end\\"


def test_arpa_files_of_other_programs_are_read(tmp_path):
    (tmp_path / "a").write_text(OTHER, "utf-8")
    model, words = read_arpa(tmp_path / "a")
    assert words.entries == (*SPECIALS[:4], "a", "b")
    rows = [words.ids(text.split()) for text in ("a b a", "b a", "x b", "")]
    wanted = [
        [-0.3, -0.2, -0.1, -0.25 - 1.0],  # "b a" was never met, "a b a" was
        [-0.5 - 0.6, -0.125 - 0.4, -0.25 - 1.0],
        [-0.5 - 2, -0.6, -0.7],
        [-0.5 - 1.0],
    ]
    for found, line in zip(model.sentence_scores(rows), wanted, strict=True):
        assert found / np.log(10) == pytest.approx(line, abs=1e-6)


def test_a_file_without_unknown_words_has_none(tmp_path):
    text = OTHER.replace("-2\t<unk>\n", "").replace("ngram 1=5", "ngram 1=4")
    (tmp_path / "a").write_text(text, "utf-8")
    model, words = read_arpa(tmp_path / "a")
    assert model.perplexity([words.ids(["a"])]) < 100
    assert model.perplexity([words.ids(["x"])]) == np.inf


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "data", "there is no line .data"),
        (
            "ngram 2=3",
            "ngram 3=3",
            "a:4: not an ARPA file: expected 'ngram 2=…', found 'ngram 3=3'",
        ),
        ("ngram 2=3", "ngram 2=0", "a:6: not an ARPA file: it announces no 2-grams"),
        ("ngram 1=5\nngram 2=3\nngram 3=1\n", "", "a:3: not an ARPA file: it announces no 1-grams"),
        ("ngram 2=3", "ngram 2=4", "a:18: not an ARPA file: n-gram 4 of 4 is ''"),
        (
            "ngram 2=3",
            "ngram 2=2",
            "a:17: not an ARPA file: expected .3-grams:, found '-0.7 b </s>'",
        ),
        (
            "-0.2 a b -0.0625",
            "-0.2 a c",
            "a:16: not an ARPA file: 'c' is not a single word",
        ),
        ("-0.2 a b -0.0625", "x a b", "a:16: not an ARPA file: no number in 'x a b'"),
        ("-0.2 a b -0.0625", "0.2 a b", "a:16: .* 0.2 and 0 are no logarithms of a probability"),
        ("-0.2 a b -0.0625", "nan a b", "a:16: .* nan and 0 are no logarithms of a prob"),
        ("-0.2 a b -0.0625", "-0.2 b", "a:16: not an ARPA file: n-gram 2 of 3 is '-0.2 b'"),
        (
            "-0.2 a b -0.0625",
            "-0.2 a a",
            "'a b a' is among the 3-grams .* without 'a b' among the 2-",
        ),
        ("-0.3 <s> a", "-0.3 a b", "'a b' is among the 2-grams twice"),
        ("-2\t<unk>", "-2\ta", "'a' is among the single words twice"),
        ("\\3-grams:\n-0.1 a b a\n\n\\end\\", "\\3-grams:", "it ends after 0 of 1 3-grams"),
        ("\\end\\", "", "expected .end. after the last n-gram, found None"),
        ("-99 <s> -0.5", "-99 <S> -0.5", "a: <s> is not among the single words"),
        ("-2\t<unk>", "-2\t<pad>", "a:12: .* '<pad>' is a mark here; rename that word"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path, old, new, message):
    assert old in OTHER
    (tmp_path / "a").write_text(OTHER.replace(old, new), "utf-8")
    with pytest.raises(UserError, match=message):
        read_arpa(tmp_path / "a")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="nowhere: there is no such file"):
        read_arpa(tmp_path / "nowhere")
    (tmp_path / "a").write_bytes(OTHER.replace("a b", "\xe4 b").encode("latin-1"))
    with pytest.raises(UserError, match="a: not UTF-8"):
        read_arpa(tmp_path / "a")
    (tmp_path / "a.gz").write_bytes(gzip.compress(OTHER.encode())[:-20])
    with pytest.raises(UserError, match=r"a\.gz: cannot read the n-grams"):
        read_arpa(tmp_path / "a.gz")


@pytest.mark.parametrize("word", ["two words", "", "</s>", "tab\t"])
def test_words_that_the_format_has_no_place_for(tmp_path, word):
    model = kneser_ney(count([[4]], 5, 2)).model
    with pytest.raises(UserError, match="An ARPA file cannot hold the word"):
        write_arpa(model, Vocabulary([*SPECIALS[:4], word]), tmp_path / "a")
    with pytest.raises(UserError, match="vocabulary has 4 entries and the n-gram model 5 words"):
        write_arpa(model, Vocabulary(SPECIALS[:4]), tmp_path / "a")
