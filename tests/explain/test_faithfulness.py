"""Faithfulness: curves and AOPC counted by hand, and planted words found."""

import numpy as np
import pytest

from weft.errors import UserError
from weft.explain import Explanation, WordWeight, explain, faithfulness, methods
from weft.predict import Engine, EngineOutput, Predictor
from weft.run import Splits, train
from weft.tasks.classify import Classify, ClassSpace
from weft.text.synthetic.corpora import generate_planted

TEXT = "a b c d e f g h i KEY"


class Spotter(Engine):
    """Sure of 'yes' when KEY is there, undecided otherwise; counts what it is asked."""

    parameters = 0

    def __init__(self):
        self.asked = 0

    def predict(self, texts, parts=False):
        self.asked += len(texts)
        logit = np.array([40.0 if "KEY" in text else 0.0 for text in texts])
        return EngineOutput(np.stack([np.zeros(len(texts)), logit], axis=1), np.ones(len(texts)))


@pytest.fixture
def spotter():
    return Predictor(Spotter(), Classify(), ClassSpace(("no", "yes")), {})


def explanation(predictor, weights, text=TEXT):
    (answer,) = predictor([text])
    words, at = [], 0
    for word, weight in zip(text.split(), weights, strict=True):
        at = text.index(word, at)
        words.append(WordWeight(at, at + len(word), weight))
    return Explanation(text, answer, "yes", "by hand", tuple(words))


def test_the_right_order_falls_at_once_and_rises_at_once(spotter):
    found = faithfulness(spotter, [explanation(spotter, [0.0] * 9 + [1.0])])
    assert found.deletion == pytest.approx([1.0] + [0.5] * 10)
    assert found.insertion == pytest.approx([0.5] + [1.0] * 10)
    assert found.aopc.value == pytest.approx(0.5)
    assert found.method == "by hand"
    assert found.shares == pytest.approx([k / 10 for k in range(11)])


def test_the_wrong_order_falls_last(spotter):
    found = faithfulness(spotter, [explanation(spotter, [1.0] * 9 + [-1.0])])
    assert found.deletion == pytest.approx([1.0] * 10 + [0.5])
    assert found.insertion == pytest.approx([0.5] * 10 + [1.0])
    assert found.aopc.value == pytest.approx(0.05)
    assert found.gain.value < 0


def test_random_order_is_the_mean_over_where_the_word_falls(spotter):
    # KEY is removed at each of ten steps with equal chance: the mean fall is 0.5 · 5.5 / 10.
    found = faithfulness(spotter, [explanation(spotter, [0.0] * 9 + [1.0])], draws=2000)
    assert found.random.value == pytest.approx(0.275, abs=0.01)
    assert found.gain.value == pytest.approx(0.5 - found.random.value)
    assert found.random_deletion[5] == pytest.approx(0.75, abs=0.03)


def test_short_texts_lose_at_least_a_word_a_step(spotter):
    found = faithfulness(spotter, [explanation(spotter, [0.0, 1.0], "a KEY")])
    assert found.deletion == pytest.approx([1.0] + [0.5] * 10)


def test_methods_share_the_random_orders_and_their_answers(spotter):
    known = {}
    first = faithfulness(spotter, [explanation(spotter, [0.0] * 9 + [1.0])], known=known)
    before = spotter.engine.asked
    second = faithfulness(spotter, [explanation(spotter, [1.0] * 9 + [-1.0])], known=known)
    assert first.random == second.random
    assert spotter.engine.asked - before <= 21  # only the texts of its own order are new
    again = faithfulness(spotter, [explanation(spotter, [1.0] * 9 + [-1.0])])
    assert again == second


def test_intervals_are_over_the_texts(spotter):
    good, bad = [0.0] * 9 + [1.0], [1.0] * 9 + [-1.0]
    found = faithfulness(spotter, [explanation(spotter, w) for w in (good, bad, good)])
    assert found.aopc.n == 3
    assert found.aopc.value == pytest.approx((0.5 + 0.05 + 0.5) / 3)
    assert found.aopc.low < found.aopc.value < found.aopc.high
    assert found.to_json()["gain"]["n"] == 3


def test_texts_without_words_are_left_out(spotter):
    empty = Explanation("", spotter([""])[0], "yes", "by hand", ())
    one = explanation(spotter, [0.0] * 9 + [1.0])
    assert faithfulness(spotter, [empty, one]).aopc.n == 1
    with pytest.raises(UserError, match="no text with words"):
        faithfulness(spotter, [empty])


def test_planted_words_are_found_and_every_method_beats_chance(tmp_path):
    """The bench in small (bench/explain.py measures all architectures on more)."""
    rows, test = (
        generate_planted(400, seed=1, decisive=3, filler=50),
        generate_planted(61, 2, decisive=3, filler=50),
    )
    import weft

    values = {
        "train.epochs": 8,
        "train.threads": 1,
        "train.learning_rate": 0.05,
        "data.golden_examples": 0,
    }
    recipe = weft.recipe("bag").with_values(values, "test")
    parts = Splits(lambda: iter(rows), lambda: iter(rows[:50]), None)
    predictor = train(recipe, tmp_path / "bag", splits=parts, quiet=True).predictor
    answers = predictor([e.text for e in test])
    right = [e for e, answer in zip(test, answers, strict=True) if answer.value == e.label]
    assert len(right) >= 50
    for method in methods(predictor):
        found = explain(predictor, [e.text for e in right], method=method)
        hits = 0
        for e, example in zip(found, right, strict=True):
            best = sorted(e.words, key=lambda w: -w.weight)[:3]
            hits += any(f"{w.start}:{w.end}" == example.id for w in best)
        assert hits >= 0.9 * len(right), method
        assert faithfulness(predictor, found).gain.low > 0, method
