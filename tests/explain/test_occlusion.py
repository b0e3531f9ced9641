"""Occlusion: the fall of the score, on what was read, in parts when a text is long."""

import pytest

from weft.explain import explain, perturb
from weft.explain.explanation import make_target

TEXT = "the film, with bad plot, was good"


@pytest.mark.parametrize("name", ["tfidf", "bag", "bilstm"])
def test_a_word_weighs_what_its_removal_costs(name, trained):
    predictor = trained(name)
    (found,) = explain(predictor, [TEXT], method="occlusion")
    direction = make_target(predictor, found.target, found.answer).direction
    assert [TEXT[w.start : w.end] for w in found.words] == [
        *("the", "film", ",", "with", "bad", "plot", ",", "was", "good")
    ]
    without = ["film, with bad plot, was good", "the film, with plot, was good"]
    whole, first, bad = predictor.engine.predict([TEXT, *without]).scores @ direction
    assert found.words[0].weight == pytest.approx(whole - first, abs=1e-6)
    assert found.words[4].weight == pytest.approx(whole - bad, abs=1e-6)


def test_words_not_read_do_not_move_up(trained, limited):
    predictor = limited(trained("bag"), 4, "head")
    (found,) = explain(predictor, [TEXT], method="occlusion")
    assert found.answer.coverage < 1
    assert [TEXT[w.start : w.end] for w in found.words] == ["the", "film", ",", "with"]
    direction = make_target(predictor, found.target, found.answer).direction
    whole, less = predictor.engine.predict(["the film, with", "the film,"]).scores @ direction
    assert found.words[3].weight == pytest.approx(whole - less, abs=1e-6)
    assert predictor([TEXT])[0].scores == pytest.approx(predictor(["the film, with"])[0].scores)


def test_of_a_long_text_neighbours_go_together(trained, monkeypatch):
    predictor = trained("tfidf")
    asked = []
    predict = predictor.engine.predict
    monkeypatch.setattr(perturb, "MAX_REMOVALS", 3)
    monkeypatch.setattr(
        predictor.engine, "predict", lambda t, **k: (asked.append(len(t)), predict(t, **k))[1]
    )
    (found,) = explain(predictor, ["good film was bad the plot good"], method="occlusion")
    assert asked[-1] == 4  # the text, and 3 parts of 3, 3 and 1 words
    weights = [w.weight for w in found.words]
    assert weights[0] == weights[1] == weights[2] != weights[3] == weights[5]
    direction = make_target(predictor, found.target, found.answer).direction
    whole, less = predict(["good film was bad the plot good", "bad the plot good"]).scores
    assert sum(weights[:3]) == pytest.approx((whole - less) @ direction, abs=1e-5)
