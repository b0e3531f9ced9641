"""Words: the unit of every explanation, gathered from tokens of any kind."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.explain.words import join_spans, sum_by_word, word_spans


def cut(text, words):
    return [text[word.start : word.end] for word in words]


def test_marks_are_words_of_their_own():
    text = "Don't, well-made 日本 \ud800x!"
    assert [text[a:b] for a, b in word_spans(text).tolist()] == [
        *("Don't", ",", "well", "-", "made", "日", "本", "\ud800", "x", "!")
    ]
    assert word_spans("").shape == (0, 2)


def test_pieces_of_a_word_are_summed():
    text = "unbelievable film"
    pieces = [(0, 2, 0.5), (2, 9, 0.25), (9, 12, -1.0), (13, 17, 3.0)]
    words = sum_by_word(text, pieces)
    assert cut(text, words) == ["unbelievable", "film"]
    assert [word.weight for word in words] == [-0.25, 3.0]


def test_a_piece_of_several_words_counts_for_the_longest_and_all_are_read():
    words = sum_by_word("good, film", [(0, 5, 2.0), (6, 10, 1.0)])
    assert [(word.start, word.end, word.weight) for word in words] == [
        *((0, 4, 2.0), (4, 5, 0.0), (6, 10, 1.0))
    ]


def test_words_that_no_piece_touches_are_not_read():
    text = "one two three four"
    words = sum_by_word(text, [(0, 3, 1.0), (3, 4, 0.5), (14, 18, 2.0)])  # the space before "two"
    assert cut(text, words) == ["one", "four"]
    assert [word.weight for word in words] == [1.0, 2.5]


def test_windows_that_overlap_count_together():
    words = sum_by_word("a b c", [(0, 1, 1.0), (2, 3, 2.0), (2, 3, 4.0), (4, 5, 8.0)])
    assert [word.weight for word in words] == [1.0, 6.0, 8.0]


@pytest.mark.parametrize("pieces", [[], [(0, 0, 1.0)], [(1, 2, 1.0)]])
def test_nothing_read_gives_no_words(pieces):
    assert sum_by_word("a " if pieces else "a", pieces) == ()
    assert sum_by_word("", [(0, 0, 1.0)]) == ()


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab ,é日", max_size=23), st.data())
def test_no_weight_is_lost(text, data):
    places = [(i, i + 1) for i in range(len(text))]
    weights = data.draw(st.lists(st.integers(-9, 9), min_size=len(text), max_size=len(text)))
    words = sum_by_word(text, [(*place, w) for place, w in zip(places, weights, strict=True)])
    if word_spans(text).size:
        assert sum(word.weight for word in words) == pytest.approx(sum(weights))
        assert [(w.start, w.end) for w in words] == [tuple(s) for s in word_spans(text).tolist()]


def test_words_are_joined_as_they_stood():
    text = "a  fine,\nshort film!"
    spans = [tuple(span) for span in word_spans(text).tolist()]
    assert join_spans(text, spans) == text
    assert join_spans(text, spans[1:]) == "fine,\nshort film!"
    assert join_spans(text, spans[:1] + spans[2:]) == "a ,\nshort film!"
    assert join_spans(text, spans[:2] + spans[4:]) == "a  fine film!"
    assert join_spans(text, []) == ""
