"""Phrases: Mikolov's score by hand, and joining from the left."""

import numpy as np
import pytest

from weft.errors import UserError
from weft.vectors import phrases as module
from weft.vectors.corpus import Corpus, corpus
from weft.vectors.phrases import phrases, score_pairs


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> Corpus:
        path = tmp_path / "text.txt"
        path.write_text(text)
        return corpus([path], min_count=1, tokenizer="whitespace")

    return read


def sentences(made: Corpus) -> list[str]:
    words = np.array(made.words)[np.asarray(made.ids)]
    return [" ".join(part) for part in np.split(words, made.ends[:-1])]


NEW_YORK = "in new york\nnew york times\nnew york times here\na new one\nyork in\n"


def test_scores_are_mikolovs(read):
    made = read(NEW_YORK)
    keys, scores = score_pairs(made, 2, 1.0)
    V = len(made.words)
    found = {(made.words[k // V], made.words[k % V]): s for k, s in zip(keys, scores, strict=True)}
    total = 15
    assert found == {
        ("new", "york"): pytest.approx((3 - 1) * total / (4 * 4)),
        ("york", "times"): pytest.approx((2 - 1) * total / (4 * 2)),
    }


def test_pairs_are_joined_from_the_left_and_again(read):
    once = phrases(read(NEW_YORK), min_count=1, discount=1, threshold=1.8)
    assert sentences(once) == [
        "in new_york", "new_york times", "new_york times here", "a new one", "york in",
    ]  # fmt: skip
    twice = phrases(read(NEW_YORK), min_count=1, discount=1, threshold=1.8, passes=2)
    assert sentences(twice)[:3] == ["in new_york", "new_york_times", "new_york_times here"]
    # york is taken by new, so times stays alone
    low = phrases(read(NEW_YORK), min_count=2, discount=1, threshold=1.0)
    assert sentences(low)[1] == "new_york times"


def test_a_phrase_that_stands_in_the_text_is_the_same_word(read):
    made = phrases(read(NEW_YORK + "new_york new_york\n"), min_count=1, discount=1, threshold=1.8)
    assert made.words.count("new_york") == 1
    assert made.counts[made.words.index("new_york")] == 5
    assert made.counts.sum() == len(made.ids)


def test_sentences_are_not_crossed_and_rare_words_go_last(read):
    made = read("a b\n" * 7 + "x a\n" + "b x\n")
    keys, _ = score_pairs(made, 1, 0.0)
    V = len(made.words)
    pairs = {made.words[k // V] + made.words[k % V] for k in keys}
    assert pairs == {"ab", "xa", "bx"}  # "ba" only across lines
    joined = phrases(made, min_count=3, discount=0, threshold=0.5)
    assert joined.words == ("a_b",)


def test_pieces_make_no_difference(read, monkeypatch):
    random = np.random.default_rng(5)
    text = "\n".join(" ".join(f"w{n}" for n in random.zipf(1.7, 7) % 13) for _ in range(101))
    whole = phrases(read(text), min_count=2, threshold=0.9, passes=2)
    monkeypatch.setattr(module, "_PIECE", 17)
    parts = phrases(read(text), min_count=2, threshold=0.9, passes=2)
    assert any("_" in word for word in whole.words)
    assert (whole.words, sentences(whole)) == (parts.words, sentences(parts))


def test_impossible_settings_are_refused(read):
    with pytest.raises(UserError, match=r"'passes' and 'min_count' of 1 or more.*got 0, 5 and 100"):
        phrases(read(NEW_YORK), passes=0)
    with pytest.raises(UserError, match="No word occurs 99 times"):
        phrases(read(NEW_YORK), min_count=99)
