"""Near copies are found, questions that only look alike are not, and the work stays linear."""

import itertools
import random

import numpy as np
import pytest

from tests.fixtures.near_duplicates import FILLERS, NAMES, sentences
from weft.doctor.checks.minhash import _signatures, candidate_pairs
from weft.doctor.checks.near_duplicates import find_near_pairs
from weft.doctor.checks.word_arrays import MAX_TEXT_WORDS, WordIndex
from weft.doctor.words import normalise, split_words


def corpus(texts: list[str]) -> WordIndex:
    out = WordIndex()
    for text in texts:
        out.add(split_words(normalise(text)))
    return out


def pairs(texts: list[str]) -> set[tuple[int, int]]:
    return {(p.first, p.second) for p in find_near_pairs(corpus(texts), np.arange(len(texts)))}


@pytest.mark.parametrize("place", range(8))
def test_one_changed_word_is_found_wherever_it_stands(place):
    texts = sentences(101)
    cut = texts[17].split()
    cut[place] = "zebra"
    assert pairs([*texts, " ".join(cut)]) == {(17, 101)}


@pytest.mark.parametrize(
    "other", ["What's this: really", "what's this - really?", "what's this really !!"]
)
def test_punctuation_alone_makes_a_near_copy(other):
    texts = [*sentences(31), "What's this, really?", other]
    assert pairs(texts) == {(31, 32)}
    (pair,) = find_near_pairs(corpus(texts), np.arange(len(texts)))
    assert pair.score < 1  # 1 is for texts that are equal


def test_the_members_of_a_template_are_not_copies():
    template = [f"What is the capital of {name} ?" for name in NAMES]
    assert pairs([*template, *sentences(101)]) == set()


def test_a_third_text_as_close_makes_a_template_of_two():
    ask = "what is the filler1 filler2 of {} ?"
    two = [ask.format("Oslo"), ask.format("Rome")]
    assert pairs([*sentences(401), *two]) == {(401, 402)}
    assert pairs([*sentences(401), *two, ask.format("Bern")]) == set()


def test_a_word_of_little_weight_changes_little():
    base = sentences(401)
    assert pairs([*base, "what is galileo", "what zebra galileo"]) == {(401, 402)}
    assert pairs([*base, "what is galileo", "what is monet"]) == set()


def test_a_word_may_stand_where_punctuation_stood():
    base = sentences(401)
    assert pairs([*base, "what is galileo ?", "what is galileo zebra"]) == {(401, 402)}
    assert pairs([*base, "what is galileo ?", "what is galileo zebra ?"]) == set()


def test_two_words_are_too_few_to_be_nearly_the_same():
    assert pairs([*sentences(401), "no question .", "no. .", "yes .", "yes , dull ."]) == set()
    assert pairs([*sentences(401), "cool galileo ?", "cool galileo ."]) == {(401, 402)}


def test_a_copy_of_a_rare_question_is_found_among_templates():
    template = [f"What is the capital of {name} ?" for name in NAMES]
    odd = ["How far is filler1 from filler2 by boat ?", "How far was filler1 from filler2 by boat"]
    assert pairs([*template, *sentences(101), *odd]) == {(162, 163)}


def test_order_counts():
    texts = [*sentences(31), "alpha beta gamma delta epsilon", "delta gamma epsilon alpha beta"]
    assert pairs(texts) == set()


def test_texts_without_words_are_left_alone():
    assert pairs(["?!", "...", "", "--"]) == set()
    assert find_near_pairs(WordIndex(), np.arange(0)) == []


def test_long_texts_are_compared_by_both_ends():
    rng = random.Random(1)
    long = [rng.choice(FILLERS) + str(rng.randrange(7)) for _ in range(MAX_TEXT_WORDS * 3)]
    early, late = list(long), list(long)
    early[5] = "zebra"
    late[-5] = "zebra"
    texts = [" ".join(words) for words in (long, early, late)]
    assert pairs([*sentences(11), *texts]) == {(11, 12), (11, 13), (12, 13)}
    other = [rng.choice(FILLERS) for _ in range(MAX_TEXT_WORDS * 3)]
    assert pairs([*sentences(11), texts[0], " ".join([*long[:100], *other])]) == set()


def test_a_signature_estimates_the_weighted_jaccard_similarity():
    texts = sentences(23)
    for text in texts[:7]:
        cut = text.split()
        texts += [" ".join([*cut[:k], "zebra", *cut[k + 1 :]]) for k in (3, 7)]
    made = corpus(texts)
    weights = made.weights()
    _, marks = _signatures(made, np.arange(len(texts)), weights)
    flat, ends = made.arrays()
    copies = np.maximum(1, np.rint(weights))
    errors = []
    for i, j in itertools.combinations(range(len(texts)), 2):
        a, b = (set(flat[ends[n] : ends[n + 1]].tolist()) for n in (i, j))
        exact = sum(copies[w] for w in a & b) / sum(copies[w] for w in a | b)
        errors.append((marks[i] == marks[j]).mean() - exact)
    # 96 draws: a standard error of at most 0.051, and no bias.
    assert abs(np.mean(errors)) < 0.01
    assert np.std(errors) < 0.052


def test_likely_pairs_hold_every_close_pair():
    texts = sentences(401)
    rng = random.Random(5)
    close = {}
    for i in rng.sample(range(401), 101):
        cut = texts[i].split()
        cut[rng.randrange(8)] = "zebra"
        close[i] = len(texts)
        texts.append(" ".join(cut))
    made = corpus(texts)
    listed = candidate_pairs(made, np.arange(len(texts)), made.weights()).tolist()
    found = set(map(tuple, listed))
    assert len(found) == len(listed)
    assert len(found & set(close.items())) >= 98
    assert len(found) < 12 * len(texts)


def test_a_flood_of_copies_stays_linear():
    texts = [f"buy now item {i} at the best price today and save money" for i in range(1009)]
    made = corpus(texts)
    found = candidate_pairs(made, np.arange(len(texts)), made.weights())
    assert len(found) <= 12 * len(texts)
