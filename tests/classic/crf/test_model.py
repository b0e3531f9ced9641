"""The CRF on features: against CRFsuite's own tagger, its rules, its files and its messages."""

import itertools
import random
import sys

import numpy as np
import pytest

from weft.classic.crf.features import features, shape, word_shape_features
from weft.classic.crf.model import LinearCRF
from weft.errors import UserError

TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
WORDS = ["the", "Big", "dog-like", "ran", "1984", "of", "NATO", "übermut"]


def sentences(count: int = 41, seed: int = 3) -> tuple[list[list[list[str]]], list[list[str]]]:
    """Sentences of two columns, and tags that depend on the words and on each other."""
    rng = random.Random(seed)
    rows, tags = [], []
    for _ in range(count):
        words = rng.choices(WORDS, k=rng.randint(1, 7))
        own = ["O"]
        for word in words:
            inside = own[-1] != "O" and rng.random() < 0.5
            kind = "X" if word[0].isupper() else "Y"
            new = "O" if word in ("of", "ran") else f"B-{kind}"
            own.append(f"I-{own[-1][2:]}" if inside else new)
        rows.append([[word, word[-1]] for word in words])
        tags.append(own[1:])
    return rows, tags


def bio(labels: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inside = np.array([label[0] == "I" for label in labels])
    same = np.array([[a[1:] == b[1:] for b in labels] for a in labels])
    ends = np.array([label != "B-X" for label in labels])  # no rule of IOB, so that it is seen
    return ~inside, ~inside | same, ends


@pytest.fixture(scope="module")
def learned():
    pytest.importorskip("pycrfsuite")
    rows, tags = sentences()
    model = LinearCRF(iterations=13)
    model.fit([features(row) for row in rows], tags)
    return model


@pytest.fixture(scope="module")
def fresh():
    rows, _ = sentences(19, seed=8)
    rows[4] = [["never-Seen", "z"], ["the", "e"]]
    return [features(row) for row in rows]


def test_answers_are_those_of_crfsuite(learned, fresh, tmp_path):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.set_params({"c2": 1.0, "max_iterations": 13, "feature.possible_transitions": True})
    rows, tags = sentences()
    for row, right in zip(rows, tags, strict=True):
        trainer.append(features(row), right)
    trainer.train(str(tmp_path / "theirs"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "theirs"))
    assert learned.labels == tagger.labels()
    # Labels that never follow each other have a weight as well.
    assert (learned.transitions != 0).sum() > len(set(itertools.chain(*map(_pairs, tags))))
    found = zip(fresh, learned.predict(fresh), learned.marginals(fresh), strict=True)
    for sentence, path, probabilities in found:
        assert path == tagger.tag(sentence)
        for i, label in itertools.product(range(len(sentence)), learned.labels):
            wanted = tagger.marginal(label, i)
            got = probabilities[i, learned.labels.index(label)]
            assert got == pytest.approx(wanted, rel=1e-5, abs=1e-5)


def _pairs(tags: list[str]) -> list[tuple[str, str]]:
    return list(itertools.pairwise(tags))


def test_crf_learns_transitions(learned):
    rows, tags = sentences(60, seed=12)
    pairs = zip(learned.predict([features(row) for row in rows]), tags, strict=True)
    right = [a == b for said, true in pairs for a, b in zip(said, true, strict=True)]
    assert np.mean(right) > 0.7  # half of the continuations are a coin's


def test_saved_and_loaded_without_the_library(learned, fresh, tmp_path, monkeypatch):
    learned.save(tmp_path)
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)
    again = LinearCRF.load(tmp_path, {"kind": "crf", "iterations": 13})
    assert again.predict(fresh) == learned.predict(fresh)
    for one, other in zip(again.marginals(fresh), learned.marginals(fresh), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.parameters() == learned.parameters() > 100


def hand(labels: list[str], table: list[list[float]], rules=None) -> LinearCRF:
    """A CRF whose weights are set, so that no library is needed."""
    from scipy.sparse import csr_matrix

    model = LinearCRF()
    size = len(labels)
    model.labels, model.table = labels, csr_matrix(np.array(table, np.float32))
    model.features = {f"f{i}": i for i in range(len(table))}
    model.transitions = np.arange(size * size, dtype=np.float32).reshape(size, size) % 5 / 3
    start, pairs, end = rules(labels) if rules else (True, True, True)
    model.rules = np.ones((size + 2, size), bool)
    model.rules[0], model.rules[1], model.rules[2:] = start, end, pairs
    return model


RANDOM = np.random.default_rng(0).normal(0, 2, (7, 5)).tolist()
RANDOM[3][1] = 9.0  # wants B-X, with which a sentence may not end under the rules above


@pytest.mark.parametrize("rules", [None, bio], ids=["free", "bio"])
def test_answers_by_enumeration(rules):
    model = hand(TAGS, RANDOM, rules)
    start, end, step = model._weights()
    asked = [[["f1", "f4"], ["f2"], ["new"], ["f6", "f6"]], [], [["f3"]], [["f5"], ["f0", "f2"]]]
    answers = list(zip(asked, model.predict(asked), model.marginals(asked), strict=True))
    for sentence, path, probabilities in answers:
        own = np.zeros((len(sentence), 5))
        for i, word in enumerate(sentence):
            own[i] = sum((np.array(RANDOM[int(f[1])]) for f in word if f != "new"), np.zeros(5))
        every = {}
        for tags in itertools.product(range(5), repeat=len(sentence)):
            if tags:
                score = start[tags[0]] + end[tags[-1]] + own[range(len(tags)), tags].sum()
                every[tags] = score + sum(step[a, b] for a, b in itertools.pairwise(tags))
        if not every:
            assert path == []
            assert probabilities.shape == (0, 5)
            continue
        assert path == [TAGS[label] for label in max(every, key=every.__getitem__)]
        total = sum(map(np.exp, every.values()))
        wanted = np.zeros_like(own)
        for tags, score in every.items():
            wanted[range(len(tags)), tags] += np.exp(score) / total
        np.testing.assert_allclose(probabilities, wanted, atol=1e-6)


def test_forbidden_tags_are_never_predicted():
    wild = hand(TAGS, [[0, 0, 50, 0, 40], [0, 1, 0, 0, 60]], bio)
    asked = [[["f0"], ["f1"], ["f0"]], [["f0"]]]
    first, second = wild.predict(asked)
    assert first == ["B-Y", "I-Y", "I-Y"]  # freely: I-X, I-Y, I-X
    assert second[0][0] != "I"
    assert wild.marginals(asked)[1][0, [2, 4]].tolist() == [0, 0]


def test_rules_that_leave_nothing():
    model = hand(["I-X", "I-Y"], [[1.0, 2.0]], bio)
    with pytest.raises(UserError, match=r"no sequence of 1 of its labels \(I-X, I-Y\) is allowed"):
        model.predict([[["f0"]]])
    with pytest.raises(UserError, match="no sequence of 2"):
        model.marginals([[["f0"], ["f0"]]])


def test_features_of_a_word_and_its_neighbours():
    found = features([["The", "DT"], ["cat", "NN"], ["sat", "VB"]])
    assert {"0[-1]1=The", "0[0]1=cat", "0[1]1=sat", "0[2]1=∅", "low[-1]1=the"} <= set(found[1])
    assert {"0[-1]2=The|cat", "0[0]2=cat|sat"} <= set(found[1])
    assert {"1[-1]3=DT|NN|VB", "1[1]2=VB|∅", "1[-2]3=∅|DT|NN"} <= set(found[1])
    assert not any(name.startswith(("0[-2]2", "0[1]2", "0[-1]3")) for name in found[1])
    assert [len(word) for word in found] == [31, 30, 30]  # "The" has a capital besides
    assert features([]) == []
    assert len(features([["word"]])[0]) < len(features([["word", "NN"]])[0])


def test_looks_of_a_word():
    assert shape("McDonald-7é") == "XxXxxxxx-0x"
    assert {"begin=M", "begin=McDo", "end=d-7é", "runs=XxXx-0x", "number=McDonald-0é"} <= set(
        word_shape_features("McDonald-7é")
    )
    assert "capitals" in word_shape_features("NATO")
    assert "capitals" not in word_shape_features("Nato")
    assert not any(
        name.startswith("begin") for name in word_shape_features("a")
    )  # the whole word is a feature


def test_training_reports_progress_and_can_be_stopped():
    pytest.importorskip("pycrfsuite")
    rows, tags = sentences(11)
    told = []

    def watch(progress):
        told.append(progress)
        return progress.epoch < 3

    with pytest.raises(UserError, match="stopped at iteration 3 of at most 7, and leaves no model"):
        LinearCRF(iterations=7).fit([features(row) for row in rows], tags, watch=watch)
    assert [p.epoch for p in told] == [1, 2, 3]
    assert told[0].loss > told[2].loss > 0


@pytest.mark.parametrize(
    ("rows", "tags", "message"),
    [
        ([], [], "there are no words to learn from"),
        ([[["a"]]], [["O"], ["O"]], "1 sentences but 2 rows of tags"),
        ([[["a"]], [["a"], ["b"]]], [["O"], ["O"]], "sentence 1 has 2 words and 1 tags"),
    ],
)
def test_data_that_does_not_fit(rows, tags, message):
    with pytest.raises(UserError, match=message):
        LinearCRF().fit(rows, tags)


def test_settings_that_make_no_sense():
    with pytest.raises(UserError, match="l2 is -1; it should be 0 or more"):
        LinearCRF(l2=-1)
    with pytest.raises(UserError, match="iterations is 0; it should be 1 or more"):
        LinearCRF(iterations=0)


def test_the_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)
    with pytest.raises(UserError, match=r"needs the library python-crfsuite .* pip install"):
        LinearCRF().fit([[["a"]]], [["O"]])


def test_files_that_are_not_whole(tmp_path):
    from safetensors.numpy import load_file, save_file

    with pytest.raises(UserError, match=r"incomplete 'crf' model \(the file is missing"):
        LinearCRF.load(tmp_path, {})
    model = hand(TAGS, RANDOM)
    model.save(tmp_path)
    whole = load_file(tmp_path / "weights.safetensors")
    damages = {
        "columns": whole["columns"] + 3,
        "starts": whole["starts"][:-1],
        "starts ": whole["starts"] - 2**40 * (np.arange(len(whole["starts"])) % 2),
        "features": whole["features"][:-3],
        "transitions": whole["transitions"][:-1],
        "rules": whole["rules"].astype(np.float32),
    }
    for name, array in damages.items():
        save_file({**whole, name.strip(): array}, tmp_path / "weights.safetensors")
        with pytest.raises(UserError, match="incomplete 'crf' model"):
            LinearCRF.load(tmp_path, {})
