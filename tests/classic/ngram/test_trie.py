"""N-gram counts, and queries of a model: against plain dictionaries, step by step, and on disk."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.ngram_counts import MARKS, SIZE, grams, sentences
from tests.fixtures.shapes import checked
from weft.batch.padded import Padded
from weft.classic.ngram.counts import Counts, Marks, count
from weft.classic.ngram.interpolated import estimate_interpolated
from weft.classic.ngram.kneser_ney import kneser_ney
from weft.classic.ngram.trie import NGram
from weft.errors import UserError
from weft.tokens.vocabulary import SPECIALS, Vocabulary


def listed(counts: Counts) -> dict[tuple[int, ...], int]:
    """The n-grams of a trie."""
    out, known = {}, {}
    for node in range(len(counts.words)):
        if node < counts.size:
            known[node] = (node,)
        else:
            parent = int(np.searchsorted(counts.first, node, side="right")) - 1
            known[node] = (*known[parent], int(counts.words[node]))
        if counts.counts[node]:
            out[known[node]] = int(counts.counts[node])
    return out


@pytest.fixture(scope="module")
def models() -> dict[str, NGram]:
    rows = sentences()
    counts = count(rows, SIZE, 4)
    return {
        "kneser-ney": kneser_ney(counts).model,
        "pruned": kneser_ney(counts, (0, 1, 1, 2)).model,
        "interpolated": estimate_interpolated(counts, sentences(23, 6)).model,
        "buckets": estimate_interpolated(counts, sentences(23, 6), buckets=True).model,
        "words alone": kneser_ney(count(rows, SIZE, 1)).model,
        "pairs": kneser_ney(count(rows, SIZE, 2)).model,
    }


NAMES = ("kneser-ney", "pruned", "interpolated", "buckets", "words alone", "pairs")


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_counts_are_those_of_a_dictionary(order):
    rows = sentences()
    counts = count((np.array(row, np.int32) for row in rows), SIZE, order)
    assert counts.order == order
    assert listed(counts) == grams(rows, order)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(4, 7), max_size=23), min_size=1, max_size=7))
def test_counts_of_any_sentences(rows):
    counts = count(rows, 8, 3)
    assert listed(counts) == grams(rows, 3)
    assert [counts.seen(k) for k in range(1, counts.order + 1)] == [
        sum(len(gram) == k for gram in grams(rows, 3)) for k in range(1, counts.order + 1)
    ]


def test_many_places_of_one_word_are_sorted_too():
    rows = [[4, 5 + i % 29] * 3 for i in range(101)]  # more than insertion is used for
    assert listed(count(rows, 37, 3)) == grams(rows, 3)


def test_links_lead_to_the_same_words_without_the_first():
    counts = count(sentences(), SIZE, 4)
    names = {}
    for node in range(len(counts.words)):
        parent = int(np.searchsorted(counts.first, node, side="right")) - 1
        names[node] = (node,) if node < SIZE else (*names[parent], int(counts.words[node]))
    for node, shorter in enumerate(counts.shorter().tolist()):
        assert shorter == -1 if node < SIZE else names[shorter] == names[node][1:]


def test_an_order_that_no_sentence_has_is_left_out():
    counts = count([[4], [5], []], SIZE, 7)
    assert counts.order == 3
    assert np.isfinite(kneser_ney(counts).model.sentence_scores([[4, 4, 4]])[0]).all()


@pytest.mark.parametrize("name", NAMES)
def test_probabilities_sum_to_one_after_any_history(models, name):
    model = models[name]
    rows = [[MARKS.bos, *row] for row in sentences(11, 7)] + [[MARKS.bos, 1, 12, 1, 1, 4], [5, 6]]
    scores = model(Padded.from_rows(rows))  # (B, T, V)
    assert scores.dtype == torch.float32
    assert torch.allclose(scores.exp().sum(-1), torch.ones(scores.shape[:2]), atol=1e-5)
    assert (scores[..., [MARKS.pad, MARKS.bos]] == -torch.inf).all()
    assert scores[..., [MARKS.unk, MARKS.eos]].isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_steps_equal_the_whole_and_the_queries(models, name):
    model, rows = models[name], [*sentences(13, 8), [1, 4, 1], [12] * 7]
    padded = Padded.from_rows([[MARKS.bos, *row] for row in rows])
    whole, state, asked = model(padded), model.start(len(rows)), model.sentence_scores(rows)
    for t in range(padded.data.shape[1]):
        scores, state = model.step(padded.data[:, t], state)
        assert torch.equal(scores, whole[:, t])
    for row, scores, own in zip(rows, whole, asked, strict=True):
        wanted = scores[range(len(row) + 1), [*row, MARKS.eos]]
        assert np.allclose(own, wanted, atol=1e-5)


def test_threads_change_nothing(models, monkeypatch):
    padded = Padded.from_rows([[MARKS.bos, *row] for row in sentences(13, 8)])
    one = models["kneser-ney"](padded)
    monkeypatch.setattr("weft.classic.ngram.trie.ALONE", 0)
    assert torch.equal(models["kneser-ney"](padded), one)


def test_states_may_change_rows(models):
    model, order = models["kneser-ney"], torch.tensor([2, 0, 0])
    ids = torch.tensor([[2, 4, 5, 4], [2, 6, 4, 4], [2, 5, 5, 6]])
    state = model.start(3)
    for t in range(3):
        _, state = model.step(ids[:, t], state)
    scores, _ = model.step(ids[:, 3], state)
    moved, _ = model.step(ids[order, 3], state[order])
    assert torch.equal(moved, scores[order])


def test_shape_comments_hold(models):
    padded = Padded.from_rows([[2, 4, 5], [2, 6]])

    def call():
        models["kneser-ney"](padded)
        models["kneser-ney"].step(padded.data[:, 0], models["kneser-ney"].start(2))

    assert checked("weft.classic.ngram.trie", call) >= 1


def test_perplexity_is_per_word_and_end(models):
    rows = sentences(7, 9)
    scores = np.concatenate(models["pruned"].sentence_scores(rows)).astype(np.float64)
    assert len(scores) == sum(map(len, rows)) + 7
    assert models["pruned"].perplexity(rows) == pytest.approx(np.exp(-scores.mean()), abs=1e-9)
    assert models["pruned"].sentence_scores([]) == []


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded(models, name, tmp_path):
    models[name].save(tmp_path)
    model = NGram.load(tmp_path)
    assert model.starts == models[name].starts
    assert model.marks == models[name].marks
    assert np.array_equal(model.scores, models[name].scores)
    assert model.perplexity(sentences(7, 9)) == models[name].perplexity(sentences(7, 9))


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("words", lambda a: np.where(a == 5, 99, a).astype(a.dtype), "words that are not below 13"),
        ("first", lambda a: a[::-1].copy(), "do not form a tree"),
        ("first", lambda a: np.where(np.arange(len(a)) < 13, a, a[-1]), "do not form a tree"),
        ("scores", lambda a: a[:-1].copy(), "not of the lengths"),
        ("backoffs", lambda a: a.astype(np.float64), "not of the kinds"),
        ("marks", lambda a: a + 50, "words that are not below 13"),
    ],
)
def test_a_damaged_file_is_named(models, tmp_path, name, change, reason):
    from safetensors.numpy import load_file, save_file

    models["kneser-ney"].save(tmp_path)
    arrays = load_file(tmp_path / "weights.safetensors")
    arrays[name] = change(arrays[name])
    save_file(arrays, tmp_path / "weights.safetensors")
    with pytest.raises(UserError, match=f"weights.safetensors: incomplete 'ngram'.*{reason}"):
        NGram.load(tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no sentences to count n-grams in"),
        ([[4], [5, 13, 6]], "Sentence 2 of 2 holds the id 13, which is not below 13"),
        ([[], [4, -1]], "Sentence 2 of 2 holds the id -1, which is not below 13"),
        ([[2, 4, 3]], "Sentence 1 of 1 holds the id 2, which is a mark, not a word.*words alone"),
        ([[4, 3]], "the id 3, which is a mark"),
        ([[4, 0]], "the id 0, which is a mark"),
    ],
)
def test_sentences_that_cannot_be_counted(rows, message):
    with pytest.raises(UserError, match=message):
        count(rows, SIZE)


def test_an_order_of_nothing_is_refused():
    with pytest.raises(UserError, match="order of an n-gram model is 0; it must be at least 1"):
        count([[4]], SIZE, 0)


def test_marks_are_found_in_a_vocabulary():
    marks = Marks.of(Vocabulary([*SPECIALS, "a"]))
    assert marks == Marks(0, 1, 2, 3, (4, 5, 6))
    counts = count([[7, 7], [7, 1]], 8, 2, marks)
    assert counts.predicted == 3  # <unk>, <eos> and one word
    scores = kneser_ney(counts).model(Padded.from_rows([[2, 7]]))
    assert torch.allclose(scores[..., [1, 3, 7]].exp().sum(-1), torch.ones(1, 2))
    with pytest.raises(UserError, match="'<bos>' is not among"):
        Marks.of(Vocabulary(["<pad>", "<unk>", "a"]))
