"""The one call: defaults, targets, empty and long texts, several labels, numbers, and errors."""

import numpy as np
import pytest

from tests.fixtures import small
from weft import config
from weft.errors import UserError
from weft.explain import Explanation, explain, methods
from weft.run import Splits, train
from weft.text.example import Example

TEXTS = ["the film was good", "", "the plot was bad"]


def splits_of(change):
    whole = [
        Example(e.text, change(i, e), file="x", line=i) for i, e in enumerate(small.examples())
    ]
    return Splits(lambda: iter(whole[:30]), lambda: iter(whole[30:]), None)


@pytest.mark.parametrize("name", config.recipes())
def test_every_recipe_can_be_explained_by_every_method_it_has(name, trained):
    predictor = trained(name)
    assert methods(predictor)[0] in ("integrated-gradients", "linear")
    assert "occlusion" in methods(predictor)
    answers = predictor(TEXTS)
    for method in methods(predictor):
        found = explain(predictor, TEXTS, method=method)
        assert [e.answer for e in found] == answers
        assert [e.target for e in found] == [answer.value for answer in answers]
        assert found[1].words == ()
        for e in found:
            assert [e.text[w.start : w.end] for w in e.words] == e.text.split()
            assert np.isfinite([w.weight for w in e.words]).all()
            assert e.method == method
    assert explain(predictor, TEXTS)[0].method == methods(predictor)[0]
    assert explain(predictor, []) == []


def test_two_labels_are_explained_as_opposites(trained):
    predictor = trained("cnn")
    (good,) = explain(predictor, TEXTS[:1], target="positive")
    (bad,) = explain(predictor, TEXTS[:1], target="negative")
    assert good.target == "positive"
    assert [w.weight for w in good.words] == pytest.approx([-w.weight for w in bad.words])


def test_subwords_are_gathered(trained):
    predictor = trained("bag", tokenizer__kind="character", tokenizer__min_count=1)
    for method in methods(predictor):
        (found,) = explain(predictor, ["the film, was good"], method=method)
        words = [found.text[w.start : w.end] for w in found.words]
        assert words == ["the", "film", ",", "was", "good"]


def test_truncated_words_have_no_weight(trained, limited):
    predictor = limited(trained("transformer"), 4, "head+tail")
    text = "one film two plot three cast"
    for method in methods(predictor):
        (found,) = explain(predictor, [text], method=method)
        words = [text[w.start : w.end] for w in found.words]
        assert words == ["one", "film", "three", "cast"]
        assert found.answer.coverage == pytest.approx(2 / 6)  # of which two are unknown words


def test_several_labels_are_explained_one_by_one(tmp_path):
    def labels(i, e):
        return (e.label, "even") if i % 4 == 0 else (e.label,)

    recipe = config.recipe("tfidf").with_values({"task.multi_label": True}, "test")
    predictor = train(recipe, tmp_path / "sets", splits=splits_of(labels), quiet=True).predictor
    (found,) = explain(predictor, TEXTS[:1])
    assert found.target == predictor.labels[int(np.argmax(found.answer.scores))]
    (even,) = explain(predictor, TEXTS[:1], target="even")
    i = predictor.labels.index("even")
    part = predictor.engine.part
    wanted = part.predict(TEXTS[:1])[0][i] - part.bias[i]
    assert sum(w.weight for w in even.words) == pytest.approx(wanted, abs=1e-5)


def test_a_number_is_explained_as_it_is(tmp_path):
    def number(i, e):
        return 5.0 + i % 3 if e.label == "positive" else 1.0

    values = {**small.SMALL, "task.kind": "regress", "embedder.width": 7}
    recipe = config.recipe("bag").with_values(values, "test")
    predictor = train(recipe, tmp_path / "number", splits=splits_of(number), quiet=True).predictor
    for method in methods(predictor):
        (found,) = explain(predictor, TEXTS[:1], method=method)
        assert found.target == "number"
        assert len(found.words) == 4
    with pytest.raises(UserError, match="answers with a number, so there is no label 'good'"):
        explain(predictor, TEXTS[:1], target="good")


def test_mistakes_are_named(trained):
    predictor = trained("cnn")
    with pytest.raises(UserError, match=r"Unknown method 'oclusion'\. Did you mean 'occlusion'\?"):
        explain(predictor, TEXTS, method="oclusion")
    message = (
        "Method 'attention' does not fit this model: it has no attention weights on its tokens. "
        "Use one of: integrated-gradients, gradient-input, occlusion."
    )
    with pytest.raises(UserError) as caught:
        explain(predictor, TEXTS, method="attention")
    assert str(caught.value) == message
    with pytest.raises(UserError, match="'linear' does not fit this model: it is not a linear"):
        explain(predictor, TEXTS, method="linear")
    with pytest.raises(UserError, match=r"'gradient-input' does not fit .* no gradients"):
        explain(trained("tfidf"), TEXTS, method="gradient-input")
    with pytest.raises(UserError, match=r"Unknown target 'positiv'\. Did you mean 'positive'\?"):
        explain(predictor, TEXTS, target="positiv")
    with pytest.raises(UserError, match="a list of texts, not a single string"):
        explain(predictor, "the film")
    with pytest.raises(UserError, match="steps should be 1 or more, got 0"):
        explain(predictor, TEXTS, steps=0)


def test_as_json(trained):
    (found,) = explain(trained("tfidf"), TEXTS[:1])
    assert isinstance(found, Explanation)
    saved = found.to_json()
    assert saved["words"][3] == [13, 17, found.words[3].weight]
    assert saved["target"] == saved["value"] == found.answer.value
