"""Predictor: order, independence, windows, coverage, vectors, weights, and its folder."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import weft
from tests.fixtures import small
from tests.fixtures.predictor_recipes import recipe
from weft import config
from weft.errors import UserError
from weft.inference.forward import forward_batches
from weft.predict import golden
from weft.predict import predictor as module
from weft.protocols import LabelSpace
from weft.run import Splits, train
from weft.tasks.classify import ClassSpace
from weft.tasks.regress import LabelScale
from weft.text.example import Example

LONG = "film plot cast score scene dinner phone good bad was"
TEXTS = [
    "the film was good",
    "bad",
    "the plot of the film was good and the cast was good but the score was bad 7 times",
    "good",
    "a scene, with commas; and more (brackets)",
    "the dinner was bad 13",
    "the film was good",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """name -> (predictor, folder), each recipe trained once."""
    found = {}

    def make(name):
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            outcome = train(recipe(name), folder, splits=small.splits(), quiet=True)
            found[name] = (outcome.predictor, folder)
        return found[name]

    return make


def limited(predictor, limit, policy):
    """The same model, reading at most `limit` tokens."""
    engine = predictor.engine
    indexer = dataclasses.replace(engine.indexer, limit=limit, policy=policy)
    cut = type(engine)(engine.model, indexer, engine.runtime)
    return module.Predictor(cut, predictor.task, predictor.space, predictor.config)


def chances(answers):
    return np.array([answer.scores for answer in answers])


@pytest.mark.parametrize("name", config.recipes())
def test_a_loaded_model_answers_as_the_saved_one(name, trained):
    predictor, folder = trained(name)
    loaded = weft.load(folder)
    assert loaded(TEXTS) == predictor(TEXTS)
    assert loaded.labels == ("negative", "positive")
    assert loaded.parameters == predictor.parameters > 0


@pytest.mark.parametrize("name", config.recipes())
def test_a_text_is_answered_alike_in_any_company(name, trained):
    predictor, _ = trained(name)
    together = chances(predictor(TEXTS))
    alone = chances([predictor([text])[0] for text in TEXTS])
    backwards = chances(predictor(TEXTS[::-1]))[::-1]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(together, backwards, atol=1e-6)
    assert len({tuple(row) for row in together.round(9)}) > 3  # they do differ from one another


def test_order_is_kept_over_chunks_and_lengths(trained, monkeypatch):
    predictor, _ = trained("gru")
    texts = [" ".join(["film", "good", "bad"][i % 3 :] * (1 + i * 7 % 11)) for i in range(31)]
    whole = chances(predictor(texts))
    monkeypatch.setattr(module, "CHUNK_TEXTS", 5)
    read = []
    answers = predictor.stream(read.append(text) or text for text in texts)
    first = next(answers)
    assert len(read) == 5  # it does not wait for the end of its input
    np.testing.assert_allclose(chances([first, *answers]), whole, atol=1e-6)
    with pytest.raises(UserError, match="Text 8 is int, not a string"):
        predictor([*texts[:7], 7])


def test_windows_are_averaged(trained):
    predictor, _ = trained("lstm")
    words = TEXTS[2].split()
    text, cut = " ".join(words[:10]), limited(predictor, 4, "windows")
    scores = predictor.engine.predict([" ".join(words[i : i + 4]) for i in (0, 3, 6)]).scores
    merged = cut.engine.predict(["good", text, "bad"]).scores
    np.testing.assert_allclose(merged[1], scores.mean(0), atol=1e-6)
    np.testing.assert_allclose(merged[[0, 2]], predictor.engine.predict(["good", "bad"]).scores)
    vectors = predictor.embed([" ".join(words[i : i + 4]) for i in (0, 3, 6)])
    np.testing.assert_allclose(cut.embed([text])[0], vectors.mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("policy", "read", "share"),
    [
        ("head", [0, 1, 2, 3], 0.4),
        ("tail", [6, 7, 8, 9], 0.4),
        ("head+tail", [0, 1, 8, 9], 0.4),
        ("windows", None, 1.0),
    ],
)
def test_coverage_is_the_fraction_read(policy, read, share, trained):
    predictor, _ = trained("lstm")
    words = LONG.split()
    cut = limited(predictor, 4, policy)
    long, short = cut([" ".join(words), "good film"])
    assert (long.coverage, short.coverage) == (pytest.approx(share), 1.0)
    if read is not None:
        (same,) = predictor([" ".join(words[i] for i in read)])
        np.testing.assert_allclose(long.scores, same.scores, atol=1e-6)


def test_a_text_that_may_not_be_cut_is_an_error(trained):
    cut = limited(trained("lstm")[0], 4, "error")
    assert cut(["film was good"])[0].coverage == 1
    with pytest.raises(UserError, match="text 2 has 5 tokens, the limit is 4"):
        cut(["good", "the film was good today"])


@pytest.mark.parametrize("name", config.recipes())
def test_an_empty_text_is_answered_and_marked(name, trained):
    predictor, _ = trained(name)
    answers = predictor(["", "good film", "  \t "])
    assert [answer.coverage for answer in answers] == [0, 1, 0]
    assert all(np.isfinite(answer.scores).all() for answer in answers)
    assert answers[0].scores == pytest.approx(answers[2].scores)
    assert predictor([]) == []


def test_vectors_of_texts(trained):
    predictor, _ = trained("bilstm")
    vectors = predictor.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 24)
    np.testing.assert_allclose(vectors[0], vectors[6], atol=1e-6)
    np.testing.assert_allclose(vectors[3], predictor.embed([TEXTS[3]])[0], atol=1e-6)
    assert predictor.embed([]).shape == (0, 24)


@pytest.mark.parametrize(("name", "size"), [("bilstm", 24), ("transformer", 12), ("bag", 11)])
def test_a_vector_for_each_token(name, size, trained):
    predictor, _ = trained(name)
    text = "The film, was  GOOD!"
    vectors, spans = predictor.states(text)
    assert vectors.shape == (6, size)
    assert [text[a:b] for a, b in spans] == ["The", "film", ",", "was", "GOOD", "!"]
    assert isinstance(vectors, np.ndarray)


def test_a_class_token_has_no_place_in_the_text(tmp_path):
    settings = recipe("transformer", encoder__cls=True, pool__kind="first")
    predictor = train(settings, tmp_path, splits=small.splits(), quiet=True).predictor
    vectors, spans = predictor.states("the film was good")
    assert len(vectors) == len(spans) == 4
    engine = predictor.engine
    store = engine.index(["the film was good"])
    (_, reading), *_ = forward_batches(engine.model, store, engine.runtime)
    torch.testing.assert_close(torch.tensor(vectors), reading.states.data[0, 1:])
    np.testing.assert_allclose(predictor.embed(["the film was good"])[0], reading.vector[0])


def test_states_of_long_texts_cover_every_window(trained):
    cut = limited(trained("lstm")[0], 4, "windows")
    vectors, spans = cut.states(LONG)
    assert len(vectors) == len(spans) == 12  # three windows of four
    assert {LONG[a:b] for a, b in spans} == set(LONG.split())


def test_weights_of_attention_belong_to_tokens_and_sum_to_one(trained):
    predictor, _ = trained("bilstm-attention")
    plain = predictor(TEXTS)
    answers = predictor(TEXTS, parts=True)
    np.testing.assert_allclose(chances(answers), chances(plain), atol=1e-6)
    assert all(answer.parts == () for answer in plain)
    for text, answer in zip(TEXTS, answers, strict=True):
        tokens = predictor.engine.indexer.tokenizer.strings([text])[0]
        assert [text[start:end] for start, end, _ in answer.parts] == tokens
        assert sum(weight for _, _, weight in answer.parts) == pytest.approx(1, abs=1e-5)
    store = predictor.engine.index([TEXTS[4]])
    (_, reading), *_ = forward_batches(predictor.engine.model, store, predictor.engine.runtime)
    weights = [weight for _, _, weight in answers[4].parts]
    np.testing.assert_allclose(weights, reading.weights[0], atol=1e-6)
    alone = predictor([TEXTS[4]], parts=True)[0]
    assert [p[2] for p in alone.parts] == pytest.approx([p[2] for p in answers[4].parts], abs=1e-6)


def test_models_without_attention_have_no_weights(trained):
    for name in ("tfidf", "cnn"):
        assert [a.parts for a in trained(name)[0](TEXTS[:2], parts=True)] == [(), ()]


def test_golden_answers_are_recorded_and_replayed(trained):
    predictor, folder = trained("gru")
    path = folder / "model" / "golden.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["text"] for row in rows] == [e.text for e in small.splits().dev()][:5]
    again = predictor([row["text"] for row in rows])
    assert [row["value"] for row in rows] == [answer.value for answer in again]
    np.testing.assert_allclose([row["scores"] for row in rows], chances(again), atol=1e-6)


def test_golden_answers_are_computed_in_full_precision(trained, tmp_path):
    predictor, _ = trained("cnn")
    engine = predictor.engine
    usual = engine.runtime
    exact = predictor(TEXTS)
    engine.runtime = dataclasses.replace(usual, half=True)
    try:
        assert predictor(TEXTS)[2].scores != exact[2].scores  # bf16 is another answer
        predictor.save(tmp_path / "model", TEXTS)
    finally:
        engine.runtime = usual
    lines = (tmp_path / "model" / "golden.jsonl").read_text().splitlines()
    for line, answer in zip(lines, exact, strict=True):
        np.testing.assert_allclose(json.loads(line)["scores"], answer.scores, atol=1e-6)


def broken(folder, tmp_path, name="golden.jsonl", **values):
    """A copy of a model whose first golden line says something else."""
    import shutil

    copy = shutil.copytree(folder / "model", tmp_path / "copy")
    first, *rest = (copy / name).read_text("utf-8").splitlines()
    (copy / name).write_text("\n".join([json.dumps(json.loads(first) | values), *rest]), "utf-8")
    return copy


@pytest.mark.parametrize("values", [{"value": "other"}, {"scores": [0.9, 0.1]}, {"scores": [1.0]}])
def test_any_difference_is_drift(values, trained, tmp_path):
    copy = broken(trained("tfidf")[1], tmp_path, **values)
    with pytest.raises(UserError, match="answers differ from those recorded"):
        weft.load(copy)
    assert weft.load(copy, replay=False)(["good"])[0].value == "positive"


def test_a_close_call_is_not_drift():
    same = golden.answers_agree
    tie, clear = np.array([0.4999, 0.5001]), np.array([0.3, 0.7])
    classes, scale = ClassSpace(("a", "b"), threshold=0.5), LabelScale(0.0, deviation=1000.0)
    assert same("a", "b", tie, classes)
    assert not same("a", "b", clear, classes)
    assert same(["a"], ["a", "b"], tie, classes)
    assert not same(["a"], ["a", "b"], clear, classes)
    assert same(3.5, 4.0, np.array([]), scale)
    assert not same(3.5, 5.0, np.array([]), scale)
    assert not same(3.5, 3.51, np.array([]), LabelSpace())


def test_texts_with_strange_line_ends_can_be_golden(tmp_path):
    rows = [Example(f"{e.text}\u2028more\x85", e.label) for e in small.examples()]
    splits = Splits(lambda: iter(rows[9:]), lambda: iter(rows[:9]))
    train(recipe("tfidf"), tmp_path, splits=splits, quiet=True)
    assert weft.load(tmp_path)(["good"])[0].value == "positive"


def several():
    """The texts of `small` with two labels each, the second by length."""
    rows = [
        Example(e.text, (str(e.label), "long") if len(e.text.split()) > 6 else (str(e.label),))
        for e in small.examples()
    ]
    return Splits(lambda: iter(rows[12:]), lambda: iter(rows[:12]))


@pytest.mark.parametrize("name", ["tfidf", "bag"])
def test_the_threshold_of_several_labels_is_tuned_and_saved(name, tmp_path):
    outcome = train(recipe(name), tmp_path, splits=several(), quiet=True)
    predictor = outcome.predictor
    dev = list(several().dev())
    targets = np.array([predictor.task.target(e, predictor.space) for e in dev])
    scores = predictor.engine.predict([e.text for e in dev]).scores
    found = predictor.task.probabilities(scores, predictor.space)

    def f1(threshold):
        given = found >= threshold
        return 2 * (given & (targets > 0)).sum() / (given.sum() + targets.sum())

    tuned = predictor.space.threshold
    assert f1(tuned) >= max(f1(t) for t in np.linspace(0.01, 0.99, 99)) - 1e-9
    assert outcome.figures["dev"]["micro_f1"].value == pytest.approx(f1(tuned))
    loaded = weft.load(tmp_path)
    assert loaded.space.threshold == tuned
    assert loaded(TEXTS) == predictor(TEXTS)
    assert all(isinstance(answer.value, tuple) for answer in loaded(TEXTS))


@pytest.mark.parametrize("name", ["tfidf", "fasttext", "bag"])
def test_numbers_are_predicted_in_their_unit(name, tmp_path):
    rows = [Example(e.text, 1000.0 + 300 * ("good" in e.text)) for e in small.examples()]
    splits = Splits(lambda: iter(rows[12:]), lambda: iter(rows[:12]))
    changes = {"train__epochs": 20, "train__learning_rate": 0.05} if name == "bag" else {}
    settings = recipe(name, task__kind="regress", **changes)
    outcome = train(settings, tmp_path, splits=splits, quiet=True)
    loaded = weft.load(tmp_path)
    answers = loaded([row.text for row in rows])
    error = np.abs([a.value - row.label for a, row in zip(answers, rows, strict=True)])
    assert error.mean() < 60
    assert all(answer.score == answer.value for answer in answers)
    assert loaded(TEXTS) == outcome.predictor(TEXTS)
    saved = json.loads((tmp_path / "model" / "labels.json").read_text("utf-8"))
    assert 1000 < saved["mean"] < 1300
    copy = broken(tmp_path, tmp_path, value=1234.5)
    with pytest.raises(UserError, match="answers differ from those recorded"):
        weft.load(copy)


def test_few_steps_are_read_by_one_thread_and_many_by_all(trained, monkeypatch):
    from weft.inference import forward

    predictor, _ = trained("bag")  # now: training reads its dev part too
    asked = []
    threads = forward.use_threads
    monkeypatch.setattr(forward, "use_threads", lambda n: asked.append(n) or threads(n))
    before = torch.get_num_threads()
    predictor(TEXTS[:1])
    predictor([LONG] * 256)
    assert asked == [1, 0]
    assert torch.get_num_threads() == before
