"""Explanations of coreference: which words support the antecedent of a mention."""

import json

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.command import fails, ok
from weft import config
from weft.explain.run import run_explain
from weft.explain.token_level import answer_sentences, attribute, make_request
from weft.text.example import Example
from weft.text.formats.semantics.coreference import read_coreference
from weft.text.synthetic.coreference import generate_coreference, write_coreference

TINY = {
    "tokenizer.min_count": 1, "encoder.hidden": 17, "encoder.layers": 1, "encoder.dropout": 0.0,
    "head.hidden": 19, "head.span": 19, "head.window": 11, "head.antecedents": 13,
    "head.dropout": 0.0, "embedder": [{"kind": "lookup", "width": 13}], "train.epochs": 5,
    "train.batch_size": 4, "train.threads": 1, "train.learning_rate": 0.01, "train.patience": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    write_coreference(folder, generate_coreference(size=60))
    values = {"data.train": str(folder / "train.conll"), "data.dev": str(folder / "dev.conll")}
    recipe = config.recipe("coref-bilstm").with_values({**TINY, **values}, "test")
    weft.train(recipe, folder / "run", quiet=True, device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def predictor(run):
    return weft.load(run)


@pytest.fixture(scope="module")
def stories(run):
    return list(read_coreference(run.parent / "dev.conll"))[:4]


def request(predictor, example, **wanted):
    ((ready, answer),) = answer_sentences(predictor, [example])
    return make_request(predictor, ready, answer, **wanted)


def test_the_explained_antecedent_is_the_one_that_is_predicted(predictor, stories):
    for story in stories:
        one = request(predictor, story)
        nothing_hidden = np.zeros((1, len(story.words)), bool)
        probs = one.spot.probs(nothing_hidden)[0]
        known = dict(one.at.probs)
        assert probs[one.target.index] == pytest.approx(known[one.at.predicted], abs=1e-5)
        assert probs.sum() == pytest.approx(1, abs=1e-6)
        start, end = one.at.span
        assert any((start, end) == mention[1:] for mention in one.answer.structure.mentions)


def test_occlusion_equals_reading_the_document_with_an_unknown_word(predictor, stories):
    one = request(predictor, stories[0])
    found = attribute(one, "occlusion")
    engine = predictor.engine
    count = len(stories[0].words)
    for k in (0, count // 2, count - 1):
        # A word that stands nowhere else and that training never saw.
        words = tuple("\ue000" if i == k else word for i, word in enumerate(stories[0].words))
        hidden = Example(" ".join(words), stories[0].label, words=words, places=())
        ((_, source),) = engine.batches([hidden])
        output = engine.model(source)
        (document,) = output.documents()
        head, candidates = one.spot.wanted.predicate, one.spot.wanted.candidates
        with torch.no_grad():
            scores = output.head.score_pairs(
                document, torch.tensor([head]), torch.tensor([candidates]),
                output.head.rough(document.states), output.head.pairs.antecedent(document.states),
            )[0]  # fmt: skip
        logits = np.append(0.0, scores.double().numpy())
        numbers = [0, *(word + 1 for word in candidates)]
        logits = logits[[numbers.index(number) for number in one.spot.choices]]
        plain = one.spot.scores(np.zeros((1, count), bool))[0] @ one.target.direction
        assert found.words[k].weight == pytest.approx(
            plain - logits @ one.target.direction, abs=1e-4
        )


def test_integrated_gradients_sum_to_the_difference(predictor, stories):
    one = request(predictor, stories[1])
    found = attribute(one, "integrated-gradients", steps=200)
    whole = one.spot.scores(np.zeros((1, len(stories[1].words)), bool))[0]
    # The marks of words, such as "the same word", stay on the path: only the vectors change.
    bare = one.spot.model.embed(one.spot._mask_words(np.ones((1, len(stories[1].words)), bool)))
    with torch.no_grad():
        nothing = one.spot._choice_scores(
            one.spot.model, one.spot.model.embed(one.spot.source).with_data(bare.data)
        )[0].double().numpy()  # fmt: skip
    total = sum(word.weight for word in found.words)
    assert total == pytest.approx((whole - nothing) @ one.target.direction, abs=0.02)


def test_weights_are_faithful_and_the_gold_antecedent_is_known(predictor, stories):
    found = run_explain(predictor, stories)
    gains = {name: one.gain.value for name, one in found.faithfulness.items()}
    assert max(gains.values()) > 0.05, gains
    assert all(right is not None and right.kind == "chains" for right in found.gold)
    for one, story in zip(found.first, found.examples, strict=True):
        chains = story.label.chains.values()
        (own,) = [c for c in chains if any((m.start, m.end) == one.at.span for m in c)] or [()]
        if own and (one.at.span == (own[0].start, own[0].end)):
            assert one.at.gold == "no antecedent"
        elif own:
            assert int(one.at.gold.partition(":")[0]) <= one.at.span[1]


def test_a_mention_or_any_word_can_be_chosen(run, predictor):
    text = "Ann saw a tall doctor . She greeted him ."
    one = json.loads(ok("explain", run, text, "--word", "She", "--json").out)
    assert one["target"] in ("no antecedent", *(f"{i}:{w}" for i, w in enumerate(text.split(), 1)))
    shown = ok("explain", run, text, "--word", "greeted", "--method", "occlusion").out
    assert "greeted" in shown
    page = run.parent / "page.html"
    ok("explain", run, run.parent / "dev.conll", "--limit", "3", "-o", page)
    assert "<mark" in page.read_text("utf-8")
    for reason, options in {
        "There is no word 'zebra'": ("--word", "zebra"),
        "No mention 1-9 was found. There are:": ("--word", "1-9"),
        "Unknown target 'zebra'": ("--word", "She", "--target", "zebra"),
        "Unknown column 'role'": ("--column", "role"),
    }.items():
        assert reason in fails("explain", run, text, *options)
