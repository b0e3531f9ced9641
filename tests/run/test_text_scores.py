"""Corpus figures of texts over several seeds, and the paired test between two systems."""

import math
import random

import pytest
import sacrebleu

from tests.fixtures.seq2seq_runs import SMALL, pairs
from weft.config import recipe
from weft.errors import UserError
from weft.report.pages.tune import render_page, summarise
from weft.run.data import Data
from weft.run.text_scores import compare_systems, content_digests, sentence_measure
from weft.tasks.language import LanguageModelling
from weft.tasks.seq2seq import Seq2Seq
from weft.tune import tune
from weft.tune.search import _make_spec
from weft.tune.space import make_dimensions

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "two", "small", "birds", "fly", "by"]


def gold(count: int = 41) -> list[str]:
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randint(5, 11))) for _ in range(count)]


def spoilt(texts: list[str], share: float, seed: int) -> list[dict]:
    draw = random.Random(seed)
    rows = []
    for text in texts:
        said = [draw.choice(WORDS) if draw.random() < share else w for w in text.split()]
        rows.append({"text": "x", "label": text, "value": " ".join(said)})
    return rows


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_seeds_together_are_the_corpus_of_all_their_answers(metric):
    seeds = [spoilt(gold(), 0.2, 1), spoilt(gold(), 0.4, 2)]
    found = sentence_measure(Seq2Seq(), metric, seeds)
    said = [row["value"] for rows in seeds for row in rows]
    right = [row["label"] for rows in seeds for row in rows]
    corpus = sacrebleu.corpus_bleu if metric == "bleu" else sacrebleu.corpus_chrf
    assert found.n == 41
    assert found.compute(resamples=0)[metric].value == pytest.approx(corpus(said, [right]).score)


def test_a_large_gap_is_no_chance_and_none_is_one():
    good, bad = [spoilt(gold(), 0.1, 1)], [spoilt(gold(), 0.5, 2)]
    found = compare_systems(Seq2Seq(), "bleu", good, bad)
    assert found.p < 0.01
    assert found.first > found.second
    assert compare_systems(Seq2Seq(), "bleu", good, good).p == 1.0
    assert compare_systems(Seq2Seq(), "bleu", good, [bad[0][:40]]) is None


def test_metrics_that_do_not_sum_over_texts_are_not_paired():
    task = Seq2Seq(record=True, metrics=("slots",))
    assert sentence_measure(task, "faultless", [spoilt(gold(), 0.1, 1)]) is None
    assert sentence_measure(Seq2Seq(), "rougeL", [spoilt(gold(), 0.1, 1)]) is None


def test_language_models_are_paired_by_words_whatever_their_tokens():
    texts = gold()
    words = [len(text.split()) + 1 for text in texts]
    # The same cost, once over words and once over twice as many sub-words.
    coarse = [{"text": t, "label": None, "value": math.exp(2.0), "tokens": n}
              for t, n in zip(texts, words, strict=True)]  # fmt: skip
    fine = [{"text": t, "label": None, "value": math.exp(1.0), "tokens": 2 * n}
            for t, n in zip(texts, words, strict=True)]  # fmt: skip
    found = compare_systems(LanguageModelling(), "perplexity", [coarse], [fine])
    assert found.first == pytest.approx(2.0)
    assert found.second == pytest.approx(2.0)
    assert found.p == pytest.approx(1.0)
    worse = [{**row, "value": row["value"] * 1.5} for row in coarse]
    assert compare_systems(LanguageModelling(), "perplexity", [coarse], [worse]).p < 0.01


def test_another_target_is_other_data(tmp_path):
    for name, text in (("a.en", "x\n"), ("a.de", "y\n"), ("b.de", "z\n")):
        (tmp_path / name).write_text(text)
    data = Data(train=str(tmp_path / "a.en"), target="de")
    before = content_digests(data)
    joined = Data(train=f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}")
    assert content_digests(joined) == before
    (tmp_path / "a.de").write_text("z\n")
    assert content_digests(data) != before
    assert content_digests(joined) == content_digests(data)


def test_a_search_over_writers_restarts_and_pairs_by_bleu(tmp_path):
    pytest.importorskip("optuna")
    values = {**SMALL, "data.train": str(pairs(tmp_path, count=60)), "train.epochs": 1}
    values |= {"data.dev_fraction": 0.3, "search": {"task": {"label_smoothing": [0.0, 0.1]}}}
    base = recipe("seq2seq-attention").with_values(values, "test")
    wanted = {"generate.length_penalty": [0.6]}
    found = tune(
        base, tmp_path / "out", search=wanted, sampler="grid", seeds=1, device="cpu"
    )  # fmt: skip
    assert (found.plan.metric, found.plan.higher_is_better) == ("bleu", True)
    assert [row.state for row in found.rows] == ["complete"] * 2
    assert found.restarts.n > 5
    assert found.restarts.p is None or 0 < found.restarts.p <= 1
    assert "BLEU" in summarise(found)
    assert "dev BLEU" in render_page(found, ["weft", "tune"])


def test_directions_and_what_may_be_searched(tmp_path):
    pytest.importorskip("optuna")
    (tmp_path / "a.txt").write_text("".join(f"a text of words {i}\n" for i in range(40)))
    base = recipe("kneser-ney").with_values({"data.train": str(tmp_path / "a.txt")}, "test")
    plan = _make_spec(base, ())
    assert (plan.metric, plan.higher_is_better) == ("perplexity", False)
    writer = recipe("seq2seq").with_values({"data.train": str(pairs(tmp_path))}, "test")
    assert make_dimensions(
        {"task.scheduled_sampling": [0.0, 0.25], "generate.num_beams": [1, 5]}, writer
    )
    with pytest.raises(UserError, match="that changes what is measured"):
        make_dimensions({"task.metrics": [["bleu"], ["chrf"]]}, writer)
    with pytest.raises(UserError, match=r"this configuration has no \[generate\]"):
        make_dimensions({"generate.num_beams": [1, 5]}, recipe("bag"))
