import itertools

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from tests.fixtures.pseudo_words import MONEY, RIVER, write_pseudo_text
from weft.errors import UserError
from weft.vectors import senses as module
from weft.vectors.corpus import Corpus, corpus
from weft.vectors.neighbours import unit
from weft.vectors.senses import (
    ContextReader,
    add_senses,
    find_senses,
    frequent_words,
    sentence_frequencies,
    silhouette,
    spherical_kmeans,
    tagged_sentences,
)
from weft.vectors.store import Vectors
from weft.vectors.word2vec import train_vectors


def pseudo_text(tmp_path, sentences=400):
    gold = write_pseudo_text(tmp_path / "text.txt", sentences)
    return corpus([tmp_path / "text.txt"], min_count=1), gold


def random_vectors(words, width=11, seed=5):
    rows = np.random.default_rng(seed).normal(size=(len(words), width)).astype(np.float32)
    return Vectors(list(words), rows)


def tiny():
    #        the  bank  a   b    c  |  b  bank bank a | c
    ids = np.array([0, 1, 2, 3, 4, 3, 1, 1, 2, 4], np.int32)
    ends = np.array([5, 9, 10])
    words = ("the", "bank", "a", "b", "c")
    return Corpus(words, np.bincount(ids), ids, ends, len(ids))


def test_a_context_is_the_idf_weighted_mean_of_the_words_around():
    text, vectors = tiny(), random_vectors(["the", "bank", "a", "b"])  # c has no vector
    reader = ContextReader(text, vectors, window=2)
    idf = {word: np.log(3 / n) for word, n in {"the": 1, "a": 2, "b": 2}.items()}
    expected = {
        1: idf["the"] * unit(vectors["the"]) + idf["a"] * unit(vectors["a"])
        + idf["b"] * unit(vectors["b"]),
        6: idf["b"] * unit(vectors["b"]) + idf["a"] * unit(vectors["a"]),  # not the bank beside
        7: idf["b"] * unit(vectors["b"]) + idf["a"] * unit(vectors["a"]),
    }  # fmt: skip
    positions = reader.positions("bank", 0, np.random.default_rng(1))
    assert positions.tolist() == [1, 6, 7]
    for row, position in zip(reader.read(positions), positions.tolist(), strict=True):
        np.testing.assert_allclose(row, unit(expected[position]), atol=1e-6)
    assert reader.show(1) == "the bank a b"
    assert reader.show(6) == "b bank bank a"
    flat = ContextReader(text, vectors, 2, "uniform").read(positions[:1])[0]
    total = sum(unit(vectors[word]) for word in ("the", "a", "b"))
    np.testing.assert_allclose(flat, unit(total), atol=1e-6)


def test_sentence_frequencies_are_counted_in_any_blocks(monkeypatch):
    assert sentence_frequencies(tiny()).tolist() == [1, 2, 2, 2, 2]
    for block in (1, 4, 6):
        monkeypatch.setattr(module, "BLOCK_WORDS", block)
        assert sentence_frequencies(tiny()).tolist() == [1, 2, 2, 2, 2]


def test_kmeans_finds_the_best_of_all_clusterings():
    random = np.random.default_rng(3)
    rows = unit(random.normal(size=(9, 3)).astype(np.float32))

    def value(labels):
        sums = [rows[np.array(labels) == c].sum(0) for c in range(2)]
        return sum(np.linalg.norm(total) for total in sums)  # Σ cos(row, unit mean)

    best = max(value(labels) for labels in itertools.product(range(2), repeat=9))
    labels, centroids = spherical_kmeans(rows, 2, random, restarts=30)
    assert value(labels) == pytest.approx(best, abs=1e-5)
    assert (rows @ centroids.T).argmax(1).tolist() == labels.tolist()
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-6)


def test_the_silhouette_is_sklearns():
    random = np.random.default_rng(3)
    rows = unit(random.normal(size=(31, 5)).astype(np.float32))
    labels = random.integers(0, 3, 31)
    labels[0] = 3  # alone in its cluster
    expected = silhouette_score(rows.astype(float), labels, metric="cosine")
    assert silhouette(rows, labels) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("count", [2, 0])
def test_the_two_words_of_a_pseudo_word_are_recovered(count, tmp_path):
    text, gold = pseudo_text(tmp_path)
    vectors = train_vectors(text, width=16, epochs=5, threads=1)
    reader = ContextReader(text, vectors, 5)
    (found,) = find_senses(reader, ["bank"], count)
    assert len(found.senses) == 2  # the silhouette chooses two, too
    right = (found.labels == gold).mean()
    assert max(right, 1 - right) > 0.99
    assert found.senses[0].size >= found.senses[1].size
    topics = [RIVER, MONEY] if gold[found.labels == 0].mean() > 0.5 else [MONEY, RIVER]
    near = reader.sense_neighbours([found], 3)
    for sense, topic in zip(found.senses, topics, strict=True):
        assert {word for word, _ in near[sense.name]} <= set(topic)
        assert all("bank" in context for context in sense.contexts)
        assert set(sense.contexts[0].split()) & set(topic)
    assert (found.assign(reader.read(found.positions)) == found.labels).all()


def test_senses_are_words_of_the_saved_vectors(tmp_path):
    text, _ = pseudo_text(tmp_path)
    vectors = train_vectors(text, width=16, epochs=5, threads=1)
    reader = ContextReader(text, vectors, 5)
    found = find_senses(reader, ["bank"], 2)
    both = add_senses(vectors, found)
    both.save(tmp_path / "senses.safetensors")
    loaded = Vectors.load(tmp_path / "senses.safetensors")
    assert loaded.words[-2:] == ["bank#1", "bank#2"]
    np.testing.assert_array_equal(loaded["loan"], vectors["loan"])
    length = np.linalg.norm(vectors["bank"])
    assert np.linalg.norm(loaded["bank#2"]) == pytest.approx(length, rel=1e-5)
    lines = list(tagged_sentences(text, found))
    names = [f"bank#{label + 1}" for label in found[0].labels]
    assert [next(w for w in line.split() if w.startswith("bank")) for line in lines] == names
    assert lines[0].replace(names[0], "bank") == (tmp_path / "text.txt").read_text().split("\n")[0]


def test_the_same_seed_gives_the_same_senses_and_few_occurrences_are_drawn(tmp_path):
    text, _ = pseudo_text(tmp_path)
    reader = ContextReader(text, random_vectors(text.words), 5)
    one, again = (find_senses(reader, ["bank"], 3, max_occurrences=97)[0] for _ in range(2))
    assert len(one.positions) == 97
    assert (one.positions == again.positions).all()
    assert (one.labels == again.labels).all()
    assert one.positions.tolist() == sorted(set(one.positions.tolist()))


def test_frequent_words_leave_out_function_words_and_signs(monkeypatch):
    monkeypatch.setattr(module, "FUNCTION_WORDS", 1)
    text = tiny()
    words = ("the", ".", "a", "b", "c")
    text = Corpus(words, text.counts, text.ids, text.ends, text.total)
    assert frequent_words(text, random_vectors(["the", ".", "b", "c"]), 5) == ["b", "c"]


def test_bad_input(tmp_path):
    text, _ = pseudo_text(tmp_path, 10)
    reader = ContextReader(text, random_vectors(text.words), 5)
    with pytest.raises(UserError, match=r"The word 'banc' does not occur in the text"):
        find_senses(reader, ["banc"])
    with pytest.raises(UserError, match=r"'bank' occurs 10 times .* 20 are needed. Add text"):
        find_senses(reader, ["bank"])
    with pytest.raises(UserError, match=r"No word of the text is in the vectors"):
        ContextReader(text, random_vectors(["elsewhere"]))
    with pytest.raises(UserError, match=r"'window' should be at least 1, got 0"):
        ContextReader(text, random_vectors(text.words), 0)
    with pytest.raises(UserError, match=r"max_senses 2 or more; got 0 and 1"):
        find_senses(reader, ["bank"], max_senses=1)
