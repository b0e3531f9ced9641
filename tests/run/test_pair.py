"""Two texts, end to end: trained, saved, loaded, asked, measured, explained."""

import json

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.classify_runs import jsonl, settings, source
from tests.fixtures.command import fails, ok, says, train
from tests.fixtures.pair_runs import (
    pairs,
)
from weft.batch import TokenStore
from weft.explain import explain
from weft.explain.run import run_explain
from weft.model import build_model
from weft.predict.neural import make_indexer
from weft.predict.predictor import load
from weft.run import Splits
from weft.run import train as run
from weft.text.example import Example
from weft.tokens.word import Word

RECIPES = ("tfidf-pair", "towers", "decomposable", "esim")


def file(folder, names=("premise", "hypothesis", "label"), rows=None):
    path = folder / "pairs.tsv"
    rows = [(e.text, e.other, e.label) for e in pairs()] if rows is None else rows
    path.write_text("".join("\t".join(row) + "\n" for row in [names, *rows]), "utf-8")
    return path


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_learns_a_few_pairs_by_heart(name, tmp_path):
    rows = pairs()
    changes = {} if name == "tfidf-pair" else {"train__epochs": 60, "train__learning_rate": 0.01}
    if name == "tfidf-pair":
        changes["classic__C"] = 100.0
    outcome = run(settings(name, **changes), tmp_path, splits=Splits(source(rows)), quiet=True)
    asked = [(row.text, row.other) for row in rows]
    found = outcome.predictor(asked)
    assert [a.value for a in found] == [row.label for row in rows]
    again = load(tmp_path, device="cpu")
    for a, b in zip(found, again(asked), strict=True):
        assert a.value == b.value
        np.testing.assert_allclose(a.scores, b.scores, atol=1e-6)


@pytest.mark.parametrize("kind", ["towers", "dot", "bilinear", "cosine"])
def test_scores_in_the_users_unit(kind, tmp_path):
    rows = [Example(e.text, "5.0" if e.label == "same" else "1.5", other=e.other) for e in pairs()]
    changes = {"task__kind": "pair-score", "pair__kind": kind, "train__epochs": 25}
    changes |= {"train__learning_rate": 0.02}
    given = settings("towers", **changes)
    outcome = run(given, tmp_path, splits=Splits(source(rows), source(rows)), quiet=True)
    figures = outcome.figures["dev"]
    assert set(figures) == {"pearson", "spearman", "mse"}
    assert figures["pearson"].value > 0.5
    values = [a.value for a in outcome.predictor(rows)]
    assert 1.0 < np.mean(values) < 5.0


def test_joint_rows_are_read_by_any_encoder(tmp_path):
    changes = {"pair.kind": "joint", "pair.mark": True}
    config = settings("towers", train__epochs=2)
    sections = {**config.sections, "pair": {"kind": "joint", "mark": True}}
    config = weft.config.from_sections(sections, "test")
    outcome = run(config, tmp_path, splits=Splits(source(pairs())), quiet=True)
    assert outcome.predictor.config["pair"] == {k[5:]: v for k, v in changes.items()}
    with pytest.raises(weft.UserError, match="'joint' reads two texts together"):
        outcome.predictor.embed(["a dog"])
    sections["pair"] = {"kind": "joint"}
    bare = weft.config.from_sections(sections, "test")
    with pytest.raises(weft.UserError, match=r"Set pair\.mark = true"):
        run(bare, tmp_path / "bare", splits=Splits(source(pairs())), quiet=True)


def test_exchanging_texts_and_company_changes_what_it_should(towers):
    predictor = load(towers, device="cpu")
    asked = [("a dog is here", "the dog runs"), ("a bird is here, and a cat", "the fish runs")]
    together = predictor(asked)
    for pair, answer in zip(asked, together, strict=True):
        np.testing.assert_allclose(predictor([pair])[0].scores, answer.scores, atol=1e-6)
    turned = predictor([pair[::-1] for pair in asked])
    assert not np.allclose(turned[0].scores, together[0].scores, atol=1e-6)


def test_golden_answers_hold_both_texts(towers):
    golden = [
        json.loads(line) for line in open(towers / "model" / "golden.jsonl", encoding="utf-8")
    ]
    first = pairs()[0]
    assert (golden[0]["text"], golden[0]["other"]) == (first.text, first.other)
    said = jsonl(towers / "predictions.jsonl")
    assert said[0]["other"] == first.other


def test_a_text_of_towers_has_a_vector(towers, tmp_path):
    predictor = load(towers, device="cpu")
    texts = ["a dog is here", "the cat runs"]
    vectors = predictor.embed(texts)
    width = predictor.engine.model.pool.output_size
    assert vectors.shape == (2, width)
    both = predictor.embed([(texts[0], texts[1])])
    expected = np.concatenate([*vectors, abs(vectors[0] - vectors[1]), vectors[0] * vectors[1]])
    np.testing.assert_allclose(both[0], expected, atol=1e-6)
    assert predictor.states(texts[0])[0].shape == (4, width)


def test_input_that_is_not_a_pair_raises_user_error(towers):
    predictor = load(towers, device="cpu")
    for bad in ("a dog", ("a dog",), ("a", 3), Example("a dog")):
        with pytest.raises(
            weft.UserError, match=r"Text 2: this model needs a text pair.*\(text, other"
        ):
            predictor([("a", "b"), bad])


@pytest.mark.parametrize("method", ["occlusion", "gradient-input", "integrated-gradients"])
def test_words_of_both_texts_are_weighed(towers, method):
    predictor = load(towers, device="cpu")
    (found,) = explain(predictor, [("a dog is here", "the dog runs")], method=method)
    assert found.text == "a dog is here ⟷ the dog runs"
    assert found.text[found.second :] == "the dog runs"
    words = [found.text[w.start : w.end] for w in found.words]
    assert words == ["a", "dog", "is", "here", "⟷", "the", "dog", "runs"]
    assert [w.weight for w in found.words][4] == 0.0
    assert all(w.weight for i, w in enumerate(found.words) if i != 4)
    (whole,) = predictor([("a dog is here", "the dog runs")])
    if method == "occlusion":
        (less,) = predictor([("a dog is here", "the runs")])
        target = predictor.labels.index(whole.value)
        before, after = (np.log(a.scores[target] / a.scores[1 - target]) for a in (whole, less))
        assert found.words[6].weight == pytest.approx(before - after, abs=1e-4)


def test_methods_are_compared_on_pairs(towers):
    predictor = load(towers, device="cpu")
    seen = run_explain(predictor, pairs()[:3])
    assert list(seen.explanations) == list(seen.faithfulness)
    assert len(seen.first) == 3


def test_the_command_line(towers, tmp_path):
    table = file(tmp_path)
    measured = json.loads(ok("evaluate", towers, table, "--json").out)
    assert measured["accuracy"]["n"] == len(pairs())
    lines = ok("predict", towers, table, "--json").lines
    assert len(lines) == len(pairs())
    typed = ok("predict", towers, "--json", stdin="a dog is here\tthe dog runs\n").lines
    alone = load(towers, device="cpu")([("a dog is here", "the dog runs")])[0]
    assert json.loads(typed[0])["score"] == pytest.approx(alone.score, abs=1e-6)
    told = fails("predict", towers, stdin="a dog is here\n")
    says(told, "standard input:1: this model needs a text pair", "--text A --text-pair B")
    shown = ok("explain", towers, "a dog is here", "--text-pair", "the dog runs").out
    assert "⟷" in shown


def test_columns_by_name_and_what_is_said_of_missing_ones(tmp_path):
    table = file(tmp_path, ("left", "right", "label"))
    told = fails(*train(table, tmp_path / "a", recipe="towers"))
    says(told, "pairs.tsv:", "no second text beside", "--text A --text-pair B")
    ok(*train(table, tmp_path / "b", "--text", "left", "--text-pair", "right", recipe="towers"))
    assert len(ok("predict", tmp_path / "b", table).lines) == len(pairs())
    rows = [(e.text, e.other, e.label) for e in pairs()]
    rows[2] = (rows[2][0], "", rows[2][2])
    holes = file(tmp_path, rows=rows)
    says(
        fails(*train(holes, tmp_path / "c", recipe="towers")),
        "pairs.tsv:4: the second text is empty", "--on-bad-row skip",
    )  # fmt: skip
    done = ok(*train(holes, tmp_path / "d", "--on-bad-row", "skip", recipe="towers"))
    assert "1 row the task cannot read skipped" in done.err + done.out


def test_tasks_and_parts_must_fit(tmp_path):
    table = file(tmp_path)
    says(
        fails(*train(table, tmp_path / "a", "--task", "classify", recipe="towers")),
        "[pair] says how two texts meet", "'classify' is about one",
    )  # fmt: skip
    told = fails(*train(table, tmp_path / "b", "--task", "pair-classify", recipe="bilstm"))
    says(told, "no [pair]")
    told = fails(*train(table, tmp_path / "c", "--task", "pair-classify", recipe="tfidf"))
    says(told, "classic 'tfidf' reads one text", "tfidf-pair")
    told = fails(*train(table, tmp_path / "d", "--task", "classify", recipe="tfidf-pair"))
    says(told, "classic 'tfidf-pair' reads two texts", "pair-classify")
    done = ok(*train(table, tmp_path / "e", recipe="bag"))
    assert "each row has a second text" in (tmp_path / "e" / "log.txt").read_text("utf-8"), done.err


def test_long_texts_are_cut_each_by_itself(tmp_path):
    rows = [
        Example(f"{e.text} " + "word " * 30, e.label, other=e.other, file="f", line=e.line)
        for e in pairs()
    ]
    config = settings("towers", train__epochs=1, data__max_tokens=7)
    outcome = run(config, tmp_path, splits=Splits(source(rows), source(rows)), quiet=True)
    (answer,) = outcome.predictor([(rows[0].text, rows[0].other)])
    assert answer.coverage == pytest.approx((7 + 3) / (34 + 3))
    windows = settings("towers", train__epochs=1, data__max_tokens=7, data__truncate="windows")
    outcome = run(windows, tmp_path / "w", splits=Splits(source(rows)), quiet=True)
    assert outcome.predictor([(rows[0].text, rows[0].other)])[0].coverage == 1.0


@pytest.mark.parametrize("kind", ["towers", "joint"])
def test_a_network_with_a_frame_reads_each_text_or_both(kind):
    torch.manual_seed(0)
    tokenizer = Word().train(["a dog is here", "the cat runs"])
    parts = {
        "embedder": {"kind": "bert", "width": 6, "layers": 2, "heads": 2,
                     "feed_forward": 5, "max_positions": 16,
                     "cls": 1, "sep": 2},
        "encoder": {"kind": "none"}, "pair": {"kind": kind}, "pool": {"kind": "first"},
        "head": {"kind": "linear"},
    }  # fmt: skip
    model = build_model(parts, vocabulary_size=len(tokenizer), outputs=2).eval()
    index = make_indexer(model, tokenizer, 0, "head")
    texts, others = ["a dog is here", "the cat"], ["the cat runs", "a dog is here"]
    store = TokenStore(pairs=True)
    for row in index.rows(texts, others=others):
        store.append(row.ids, 0, second=row.second)
    vectors = []
    for given in (texts, others):
        alone = TokenStore()
        for row in index.rows(given):
            alone.append(row.ids, 0)
        with torch.no_grad():
            vectors.append(model.run(alone.close().padded(np.arange(2))).vector)
    with torch.no_grad():
        found = model.run(store.close().padded(np.arange(2))).vector
    if kind == "joint":  # the first text is read in view of the second
        assert found.shape == vectors[0].shape
        assert not torch.allclose(found, vectors[0], atol=1e-4)
        return
    expected = model.join(*vectors)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
