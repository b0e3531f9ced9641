"""The words of plain text: where they stand, whatever characters there are."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.tokens.pretokenizer import split_words, word_spans


def test_words_and_places():
    words, places = split_words("The 3.5 dogs' café—ok?")
    assert words == ("The", "3.5", "dogs", "'", "café", "—", "ok", "?")
    assert places[1:3] == ((4, 7), (8, 12))
    assert split_words(" \n") == ((), ())


def test_half_a_character_is_a_word_of_its_own():
    words, places = split_words("a \ud800 b")
    assert words == ("a", "\ud800", "b")
    assert places == ((0, 1), (2, 3), (4, 5))


@given(st.text())
def test_words_are_the_text_without_its_spaces(text):
    words, places = split_words(text)
    assert list(places) == word_spans(text)
    assert all(a < b for a, b in places)
    assert all(b <= c for (_, b), (c, _) in pairwise(places))
    # Python counts four control characters as spaces that Unicode does not.
    space = [c.isspace() and not "\x1c" <= c <= "\x1f" for c in text]
    assert "".join(words) == "".join(c for c, s in zip(text, space, strict=True) if not s)
