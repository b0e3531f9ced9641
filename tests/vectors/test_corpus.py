"""A corpus read into ids: against the obvious way to do it, and what is refused."""

import gzip
import io
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.errors import UserError
from weft.tokens.word import Word
from weft.vectors import corpus as module
from weft.vectors import tokenise
from weft.vectors.corpus import corpus

TEXT = "the cat saw the dog\nThe dog ran\n\na cat a cat\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def sentences(read: module.Corpus) -> list[list[str]]:
    words = [read.words[i] for i in read.ids]
    begins = [0, *read.ends[:-1].tolist()]
    return [words[b:e] for b, e in zip(begins, read.ends.tolist(), strict=True)]


def test_words_are_numbered_by_frequency_and_then_by_name(file):
    read = corpus([file], min_count=1)
    assert read.words == ("cat", "the", "a", "dog", "ran", "saw")
    assert read.counts.tolist() == [3, 3, 2, 2, 1, 1]
    assert sentences(read) == [
        ["the", "cat", "saw", "the", "dog"], ["the", "dog", "ran"], ["a", "cat", "a", "cat"],
    ]  # fmt: skip
    assert isinstance(read.ids, np.memmap)
    assert read.total == 12


def test_rare_words_and_those_beyond_the_size_are_left_out(file):
    read = corpus([file], min_count=2)
    assert sentences(read) == [["the", "cat", "the", "dog"], ["the", "dog"], ["a", "cat"] * 2]
    assert read.total == 12  # what was read, kept or not
    assert corpus([file], min_count=1, vocab_size=2).words == ("cat", "the")
    # A sentence that lost all its words is none.
    assert len(corpus([file], min_count=3, vocab_size=1).ends) == 2


def test_case_and_punctuation_are_kept_by_options(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Don't stop, it's 3.14!\n")
    cut = ["don't", "stop", ",", "it's", "3.14", "!"]
    assert sentences(corpus([path], min_count=1)) == [cut]
    whole = corpus([path], min_count=1, tokenizer="whitespace", lowercase=False)
    assert sentences(whole) == [["Don't", "stop,", "it's", "3.14!"]]


LINES = st.lists(
    st.text(
        st.one_of(
            st.sampled_from("aBZ09'’.,-_ \t<>é中ーΣσﬁ한\u00a0\u3000\u0301"),
            st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\n\r\ufeff"),
        ),
        max_size=23,
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lines=LINES, lowercase=st.booleans())
def test_words_are_those_of_the_word_tokenizer(lines, lowercase, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_text("\n".join(lines) + "\nend\n", "utf-8", newline="\n")
    tokenizer = Word(lowercase=lowercase).train([*lines, "end"])
    expected = [
        [tokenizer.vocabulary[i] for i in tokens.ids]
        for tokens in tokenizer.encode_batch([*lines, "end"])
    ]
    read = corpus([path], min_count=1, lowercase=lowercase)
    assert sentences(read) == [words for words in expected if words]


def test_blocks_make_no_difference(tmp_path, monkeypatch):
    random = np.random.default_rng(3)
    lines = [" ".join(f"w{n}" for n in random.zipf(1.3, 11) % 50_000) for _ in range(5_000)]
    path = tmp_path / "many.txt"
    path.write_text("\n".join(lines))  # the last line has no end
    counts = Counter(word for line in lines for word in line.split())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    whole = corpus([path], min_count=1, tokenizer="whitespace")
    monkeypatch.setattr(module, "BLOCK_BYTES", 10_007)
    monkeypatch.setattr(module, "_PIECE", 1_009)
    monkeypatch.setattr(tokenise, "MAX_CACHED_CHUNKS", 997)
    parts = corpus([path], min_count=1, tokenizer="whitespace")
    for read in (whole, parts):
        assert read.words == tuple(ranked)
        assert read.counts.tolist() == [counts[word] for word in ranked]
        assert sentences(read) == [line.split() for line in lines]


def test_long_lines_are_cut(file):
    read = corpus([file], min_count=1, max_words=3)
    assert [len(words) for words in sentences(read)] == [3, 2, 3, 3, 1]


def test_files_end_sentences_and_may_be_packed(tmp_path, monkeypatch):
    one, two = tmp_path / "one.txt", tmp_path / "two.txt.gz"
    one.write_text("a b")
    two.write_bytes(gzip.compress(b"b c\n"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"c d")))
    read = corpus([one, two, "-"], min_count=1, max_words=3)
    assert sentences(read) == [["a", "b"], ["b", "c"], ["c", "d"]]


def test_ids_can_be_kept(file, tmp_path):
    read = corpus([file], min_count=1, folder=tmp_path / "kept")
    assert np.fromfile(tmp_path / "kept" / "ids.int32", np.int32).tolist() == read.ids.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"bad\.txt: no words in it"),
        (b" \n\n", r"bad\.txt: no words in it"),
        (b"fine\nsome caf\xe9 here", r"bad\.txt:2: byte 0xe9 is not UTF-8\. Convert"),
        (b"fine\n\nx\x00y", r"bad\.txt:3: NUL byte"),
        (b"a b c a", r"bad\.txt: no word occurs 3 times; the most frequent one does 2\. Lower"),
    ],
)
def test_unusable_text_raises_user_error(tmp_path, content, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        corpus([path], min_count=3)


def test_a_missing_file_and_bad_sizes_are_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        corpus([tmp_path / "nothing.txt"])
    with pytest.raises(UserError, match=r"min_count of 1 or more.* got 0, 0 and 10000"):
        corpus([Path("x")], min_count=0)


def test_released_pages_are_read_again_from_the_file(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("".join(f"w{i % 97} w{i % 89} w{i % 83}\n" for i in range(5_003)))
    read = corpus([file], min_count=1)
    ids = np.array(read.ids)
    for first, last in ((0, 1), (1, 700), (700, len(read.ends)), (5, 5)):
        read.forget(first, last)
        np.testing.assert_array_equal(read.ids, ids)
