"""Explanations of ensembles: the members' mean weights, and the faithfulness of the ensemble."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures.command import ok
from tests.fixtures.ensemble_runs import model
from weft.explain.method import OCCLUSION, explain, methods
from weft.explain.run import run_explain
from weft.text.example import Example

TEXTS = ["the film was fine", "the plot was dull"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("ensembles")


def join(root, *names):
    folders = [model(root, *name) for name in names]
    target = root / "-".join(f"{name}{seed}" for name, seed in names)
    if not target.exists():
        weft.ensemble(folders, target, device="cpu")
    return [weft.load(folder, device="cpu") for folder in folders], weft.load(target, device="cpu")


@pytest.mark.parametrize("method", ["integrated-gradients", "gradient-input", "occlusion"])
def test_a_word_has_the_mean_weight_of_the_members(root, method):
    members, whole = join(root, ("cnn", 1), ("cnn", 2))
    (mine,) = explain(whole, TEXTS[:1], method=method)
    label = mine.answer.value
    theirs = [explain(member, TEXTS[:1], method=method, target=label)[0] for member in members]
    mean = np.mean([[word.weight for word in one.words] for one in theirs], axis=0)
    assert [word.weight for word in mine.words] == pytest.approx(mean.tolist(), abs=1e-6)
    assert mine.target == label
    assert mine.answer.scores == whole(TEXTS[:1])[0].scores


def test_faithfulness_is_that_of_the_ensembles_answer(root):
    _, whole = join(root, ("cnn", 1), ("tfidf", 1))
    assert methods(whole) == (OCCLUSION,)  # what both kinds have
    run = run_explain(whole, [Example(text) for text in TEXTS])
    (curves,) = run.faithfulness.values()
    # Nothing is removed at the first share: the mean probability of the ensemble's own answers.
    assert curves.deletion[0] == pytest.approx(np.mean([a.score for a in whole(TEXTS)]))


KINDS = {
    "number": "the film was fine",
    "tags": "The dog sees the bee.",
    "spans": "Ada Lee lives in Rome.",
    "arcs": "The dog sees the bee.",
    "trees": "The dog sees the bee.",
    "nodes": "(4 (2 It) (4 (2 is) (4 fine)))",
    "lm": "the cat sees a dog .",
    "seq2seq": "a b c",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_ensemble_is_explained_and_measured(root, kind):
    members, whole = join(root, (kind, 1), (kind, 2))
    run = run_explain(whole, [Example(KINDS[kind])])
    assert len(run.explanations) >= 2
    assert set(run.faithfulness) == set(run.explanations) == set(methods(whole))
    for (one,) in run.explanations.values():
        assert one.words
        assert np.isfinite([word.weight for word in one.words]).all()
    assert set(methods(whole)) <= set(methods(members[0]))


def test_the_tag_of_a_word_is_explained_under_the_mean(root):
    members, whole = join(root, ("spans", 1), ("crf", 1))
    run = run_explain(whole, [Example("Ada Lee lives in Rome .")], word="1")
    (one,) = run.first
    probs = dict(one.at.probs)
    columns = [
        m.engine.distributions(["Ada Lee lives in Rome ."]).scores[0].scores.columns[0][0]
        for m in members
    ]
    mean = dict(zip(whole.labels[0], np.mean(columns, axis=0).tolist(), strict=True))
    assert probs == pytest.approx(mean, abs=1e-6)
    (curves,) = run.faithfulness.values()
    assert curves.deletion[0] == pytest.approx(mean[one.target], abs=1e-5)


def test_an_answer_in_a_passage_is_explained(root):
    members, whole = join(root, ("answers", 1), ("answers", 2))
    example = Example("Where does Ada live?", other="Ben lives in Lima.  Ada lives in Cairo.")
    run = run_explain(whole, [example])
    (one,) = run.first
    from weft.explain.targets.answer_span import request_answer

    own = [request_answer(m, example, one.answer).target for m in members]
    mean = np.mean([target.probs(np.zeros((1, len(target.spans)), bool)) for target in own])
    curves = run.faithfulness[one.method]
    assert curves.deletion[0] == pytest.approx(mean, abs=1e-6)
    assert one.answer.starts


def test_the_trace_of_a_translation_has_the_mean_probabilities(root):
    _, whole = join(root, ("seq2seq", 1), ("seq2seq", 2))
    run = run_explain(whole, [Example("a b c")])
    (trace,) = run.written
    (answer,) = whole(["a b c"])
    assert [t.prob for t in trace.tokens] == pytest.approx(list(answer.scores), abs=1e-5)
    curves = run.faithfulness[OCCLUSION]
    expected = np.exp(np.mean(np.log(answer.scores)))
    assert curves.deletion[0] == pytest.approx(expected, abs=1e-5)


def test_the_command_explains_an_ensemble(root, tmp_path):
    join(root, ("cnn", 1), ("cnn", 2))
    folder = root / "cnn1-cnn2"
    (line,) = ok("explain", folder, "the film was fine", "--json").lines
    assert json.loads(line)["words"]
    data = root / "cnn-1" / "texts.tsv"
    ok("explain", folder, data, "-o", tmp_path / "page.html", "--limit", 5)
    assert "occlusion" in (tmp_path / "page.html").read_text("utf-8")
