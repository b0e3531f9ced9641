"""Alignment of sub-words, words and characters."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.tokenizers import TEXT, TRAINED
from weft.tokens.align import align_to_words, token_at, tokens_in

WORDS = np.array([[0, 5], [6, 11], [11, 12]])  # "Hello world!"
PIECES = np.array([[0, 3], [3, 5], [6, 7], [7, 11], [11, 12]])


def test_alignment_of_worked_examples():
    assert align_to_words(PIECES, WORDS).tolist() == [0, 0, 1, 1, 2]
    assert [token_at(PIECES, i) for i in (0, 2, 3, 5, 10, 11, 12)] == [0, 0, 1, -1, 3, 4, -1]
    assert tokens_in(PIECES, 0, 5) == (0, 2, True)
    assert tokens_in(PIECES, 3, 11) == (1, 4, True)
    assert tokens_in(PIECES, 1, 5) == (0, 2, False)
    assert tokens_in(PIECES, 4, 6) == (1, 2, False)
    assert tokens_in(PIECES, 5, 6) == (2, 2, False)
    assert tokens_in(PIECES, 4, 4).exact is False


def test_a_piece_across_words_goes_to_the_one_it_shares_most_with():
    assert align_to_words(np.array([[4, 9], [5, 6], [10, 12]]), WORDS).tolist() == [1, -1, 1]


def test_nothing_aligns_with_nothing():
    none = np.zeros((0, 2), dtype=np.int32)
    assert align_to_words(none, WORDS).tolist() == []
    assert align_to_words(PIECES, none).tolist() == [-1] * 5
    assert token_at(none, 0) == -1
    assert tokens_in(none, 0, 3) == (0, 0, False)


@settings(max_examples=60, deadline=None)
@given(text=TEXT, name=st.sampled_from(sorted(TRAINED)))
def test_the_span_of_a_token_maps_back_to_it(text, name):
    spans = TRAINED[name].encode_batch([text])[0].offsets
    for i, (start, end) in enumerate(spans.tolist()):
        if start == end:
            continue
        first, last, exact = tokens_in(spans, start, end)
        assert first <= i < last
        if (
            name == "bytes"
        ):  # a piece may hold the last byte of one character and the first of another
            continue
        assert exact
        # Only pieces of the same characters may come along.
        assert (spans[first:last, 0] >= start).all()
        assert (spans[first:last, 1] <= end).all()
        assert first <= token_at(spans, start) < last


@settings(max_examples=60, deadline=None)
@given(text=TEXT, name=st.sampled_from(["bpe", "wordpiece", "character"]))
def test_every_piece_of_a_word_finds_its_word(text, name):
    text = text.replace("▁", "")  # a space, to sub-words
    words = TRAINED["word"].encode_batch([text])[0].offsets
    pieces = TRAINED[name].encode_batch([text])[0]
    found = align_to_words(pieces.offsets, words)
    np.testing.assert_array_equal(found >= 0, pieces.words >= 0)
    np.testing.assert_array_equal(found, pieces.words)
