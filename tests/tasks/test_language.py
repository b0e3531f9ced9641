"""The task of foretelling texts: its words, what a text costs, and what is said of it."""

import math
from dataclasses import astuple

import numpy as np
import pytest

from weft.errors import UserError
from weft.metrics.perplexity import TextCost, TextSize
from weft.run.target_tokenizer import learn_space
from weft.tasks.annotation import Decoded
from weft.tasks.language import LanguageModelling, sum_cost
from weft.text.example import Example

LINES = [Example("the cat sat."), Example("the dog"), Example("a cat")]


def learned(tokenizer, **settings):
    task = LanguageModelling(tokenizer=tokenizer, **settings)
    return task, learn_space(task, lambda: iter(LINES))


def found(chances, ids=None):
    ids = np.arange(2, 2 + len(chances)) if ids is None else np.array(ids)
    return Decoded(ids[:, None], np.array(chances, float).reshape(-1, 1))


def test_a_text_begins_where_one_has_ended():
    _, space = learned({"kind": "word"})
    size, first, last = space.size
    assert first == last == size - 1 == len(space.tokenizer)
    (ids,) = space.ids(["the cat"])
    assert ids[-1] == last
    assert space.text(ids) == "the cat"
    _, space = learned({"kind": "bpe", "vocab_size": 60, "min_count": 1})
    assert space.size == (len(space.tokenizer), 3, 3)  # it has an EOS of its own


def test_running_text_begins_behind_a_line_break_and_does_not_end():
    task = LanguageModelling(tokenizer={"kind": "character"}, lines=False)
    space = learn_space(task, lambda: iter([Example("ab\n"), Example("b a\n")]))
    size, first, last = space.size
    assert space.tokenizer.vocabulary[first] == "\n"
    assert last == size - 1
    (ids,) = space.ids(["ab\n"])
    assert len(ids) == 3
    assert task.metric == "bits_per_character"
    _, word = learned({"kind": "word"}, lines=False)
    assert word.size[1] == word.size[2]  # no token is a line break


def test_places_are_those_of_the_tokens():
    _, space = learned({"kind": "word"})
    (one,) = space.places(["a  dog"])
    assert one[1] == ((0, 1), (3, 6), (6, 6))
    np.testing.assert_array_equal(one[0], space.ids(["a  dog"])[0])


def test_the_space_comes_back():
    for settings in ({}, {"lines": False}):
        task, space = learned({"kind": "word"}, **settings)
        again = task.load_space(space.to_json())
        assert again.size == space.size
        assert again.lines == task.lines
    with pytest.raises(UserError, match=r"words are damaged: KeyError\('tokenizer'\)"):
        task.load_space({})


def test_a_text_costs_what_its_tokens_cost():
    logps = np.log([0.5, 0.25, 0.125, 0.5])
    got = sum_cost(np.array([5, 1, 4, 9]), logps, eos_id=9)
    ln2 = math.log(2)
    wanted = TextCost(6 * ln2, 3, ln2, 1, 2 * ln2, 1)
    assert astuple(got) == pytest.approx(astuple(wanted))


def test_figures_are_per_word_token_and_character():
    task, space = learned({"kind": "word"})
    last = space.size[2]
    said = [found([0.5, 0.5, 0.5], [3, 4, last]), found([0.25, 0.5], [2, last])]
    measure = task.build_metric(space)
    gold = [task.find_reference(Example("the cat")), task.target(Example("a cat sat"), space)]
    assert gold[0] == TextSize(2, 7)
    measure.add(task.predict_targets(said, space), gold)
    got = measure.compute(resamples=0)
    nats = 6 * math.log(2)
    assert got["perplexity"].value == pytest.approx(math.exp(nats / 7))  # 5 words and 2 ends
    assert got["token_perplexity"].value == pytest.approx(math.exp(nats / 5))
    assert got["bits_per_character"].value == pytest.approx(6 / (7 + 9 + 2))
    assert got["perplexity"].n == 2


def test_line_breaks_are_characters_of_a_running_text():
    task = LanguageModelling(lines=False)
    assert task.find_reference(Example("a b\n")) == TextSize(2, 4)
    assert task.find_reference(Example("\n")) == TextSize(0, 1)
    assert LanguageModelling().find_reference(Example("a b\n")) == TextSize(2, 3)


def test_an_answer_is_the_perplexity_of_a_text():
    task, space = learned({"kind": "word"})
    one, empty = task.answers([found([0.5, 0.125]), found([])], space)
    assert one.value == one.score == pytest.approx(4)
    assert one.scores == (0.5, 0.125)
    assert empty.value == 1.0


def test_perplexity_of_unknown_words_only_raises_user_error():
    task, space = learned({"kind": "word"})
    measure = task.build_metric(space)
    measure.add(
        task.predict_targets([found([0.9, 0.5], [1, space.size[2]])], space), [TextSize(1, 3)]
    )
    with pytest.raises(UserError, match="None of the 1 tokens to measure on is known"):
        measure.compute()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": -1}, r"task\.window should be 2 or more \(0: the usual\), got -1"),
        ({"window": 1}, r"task\.window should be 2 or more"),
        ({"overlap": 1.0}, r"task\.overlap should be from 0 to below 1, got 1\.0"),
        ({"overlap": -0.1}, r"task\.overlap"),
    ],
)
def test_out_of_range_settings_raise_user_error(settings, message):
    with pytest.raises(UserError, match=message):
        LanguageModelling(**settings)
