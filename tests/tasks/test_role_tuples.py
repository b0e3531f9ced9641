"""Tuples from semantic roles, by hand-written frames."""

import math

import pytest

from weft.tasks.semantics.role_tuples import extract_tuples
from weft.text.annotation.word_tuples import WordTuple, find_runs


def read(sentence, *frames):
    """The tuples of a sentence; a frame is a sense and its roles, V included, as texts."""
    words = sentence.split()
    rows, probs, places, at = [], [], [], 0
    for word in words:
        places.append((at, at + len(word)))
        at += len(word) + 1
    for sense, *roles in frames:
        spans = []
        for label, part in roles:
            own = part.split()
            start = next(k for k in range(len(words)) if words[k : k + len(own)] == own)
            spans.append((label, start, start + len(own)))
        verb = next(start for label, start, _ in spans if label == "V")
        rows.append((verb, sense, tuple(spans)))
        probs += [0.9, *(1.0 if label == "V" else 0.8 for label, _, _ in spans)]
    found = extract_tuples(words, rows, probs)
    return [one.to_extraction(sentence, places) for one in found]


def parts(sentence, *frames):
    return [(one.predicate, *one.arguments) for one in read(sentence, *frames)]


def test_a_verb_with_its_arguments_is_one_tuple():
    frame = ("give.01", ("ARG0", "Ann"), ("V", "gave"), ("ARG2", "Bo"), ("ARG1", "a lamp"),
             ("ARGM-TMP", "in 1990"))  # fmt: skip
    (one,) = read("Ann gave Bo a lamp in 1990 .", frame)
    assert (one.predicate, *one.arguments) == ("gave", "Ann", "Bo", "a lamp", "in 1990")
    assert one.confidence == pytest.approx(math.exp((math.log(0.9) + 4 * math.log(0.8)) / 5))


def test_the_phrase_has_auxiliaries_negation_particle_and_preposition():
    frame = ("give_up.07", ("ARG0", "He"), ("ARGM-MOD", "would"), ("ARGM-NEG", "not"),
             ("V", "give"), ("ARG1", "on the plan"))  # fmt: skip
    found = parts("He would not give up on the plan .", frame)
    assert found == [("would not give up on", "He", "the plan")]


def test_times_and_places_keep_their_preposition():
    frame = ("live.01", ("ARG0", "He"), ("V", "lived"), ("ARGM-LOC", "in Rome"))
    assert parts("He lived in Rome .", frame) == [("lived", "He", "in Rome")]


def test_the_subject_of_a_passive_and_of_an_object_relative():
    passive = ("make.01", ("ARG1", "bread"), ("V", "made"), ("ARG0", "by Bo"))
    assert parts("bread was made by Bo", passive) == [("was made by", "bread", "Bo")]
    relative = ("hold.01", ("ARG1", "a post"), ("ARG0", "he"), ("V", "held"),
                ("ARGM-TMP", "for years"))  # fmt: skip
    assert parts("a post he held for years", relative) == [
        ("held", "he", "a post", "for years")
    ]  # fmt: skip


def test_an_infinitive_joins_the_verb_that_governs_it():
    sentence = "he was appointed to command his regiment"
    outer = ("appoint.01", ("ARG1", "he"), ("V", "appointed"),
             ("ARG2", "to command his regiment"))  # fmt: skip
    inner = ("command.02", ("ARG0", "he"), ("V", "command"), ("ARG1", "his regiment"))
    assert parts(sentence, outer, inner)[0] == (
        "was appointed to command", "he", "his regiment",
    )  # fmt: skip


def test_a_relative_clause_is_left_to_its_own_tuple():
    frame = ("be.01", ("ARG1", "Bo"), ("V", "is"), ("ARG2", "a man , who sings"))
    assert parts("Bo is a man , who sings .", frame) == [("is", "Bo", "a man")]


def test_nouns_auxiliaries_and_verbs_without_arguments_give_nothing():
    assert parts("his death came", ("die.01", ("ARG1", "his"), ("V", "death"))) == []
    assert parts("a statement of fact", ("state.01", ("V", "statement"), ("ARG1", "of fact"))) == []
    assert parts("he has gone", ("have.01", ("V", "has"))) == []
    assert parts("he slept", ("sleep.01", ("ARG0", "he"), ("V", "slept"))) == []
    assert extract_tuples((), (), ()) == []


def test_a_pronoun_without_a_role_and_a_speaker_after_the_verb_are_subjects():
    there = ("be.02", ("V", "was"), ("ARG1", "a house"))
    assert parts("there was a house", there) == [("was", "there", "a house")]
    said = ("say.01", ("ARG1", "It is late"), ("V", "said"), ("ARG0", "Bo"))
    assert parts("It is late , said Bo", said)[0][0] == "said"


def test_offsets_are_those_of_the_text():
    one = WordTuple((0, 2), (), 0.5)
    assert find_runs((3, 0, 1)) == [(0, 2), (3, 4)]
    places = ((0, 3), (4, 6), (8, 10))
    assert one.to_json("has  no  it", places)["predicate"]["spans"] == [[0, 3], [8, 10]]
