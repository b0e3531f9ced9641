"""fastText's classifier: its words against the regular expression, its steps against autograd."""

import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from weft.batch.loss_balance import LossBalance
from weft.classic.fasttext import classifier as module
from weft.classic.fasttext import vocabulary as readings
from weft.classic.fasttext.classifier import FastText
from weft.classic.fasttext.kernels import TrainingTargets, Weights, learn
from weft.classic.fasttext.vocabulary import FastTextVocabulary, kinds
from weft.classic.linear.tfidf_vectorizer import TOKEN
from weft.decode.label_losses import label_loss, label_set_loss
from weft.errors import UserError
from weft.tasks.classify import Classify, ClassSpace
from weft.tasks.regress import LabelScale, Regress

TEXT = "the a not very good bad film Was, I didn't like it ! ? naïve 3.5 Ελλάδα 映画 x"
WORDS = TEXT.split()
PIECES = st.sampled_from(
    [*" \t\n\x1c\x85\xa0\u2028_-'.,<>aB7éÉßİΣςσ映\u0301\u200d", "😀", "𝒜", "\ud83d", "\0", "end"]
)
TEXTS = st.lists(PIECES, max_size=19).map("".join) | st.text(max_size=19)


def corpus(n: int = 61, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randrange(0, 11))) for _ in range(n)]


def targets(n: int = 61, size: int = 3) -> np.ndarray:
    return np.array([(i * 7 + i // 3) % size for i in range(n)])


def fitted(task=None, space=None, wanted=None, texts=None, seed=0, **options) -> FastText:
    model = FastText(**{"epochs": 3, "width": 5, "buckets": 1009, **options})
    wanted = targets() if wanted is None else wanted
    model.fit(
        texts or corpus(), wanted, task or Classify(), space or ClassSpace(tuple("abc")), seed
    )
    return model


def complaint(call) -> str:
    with pytest.raises(UserError) as caught:
        call()
    return str(caught.value)


def fnv(word: str) -> int:
    """64-bit FNV-1a with its upper half folded in, a byte at a time."""
    value = 14695981039346656037
    for byte in word.encode("utf-8", "surrogatepass"):
        value = (value ^ byte) * 1099511628211 % 2**64
    return value ^ value >> 29


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3), st.booleans())
def test_words_are_those_of_the_regular_expression(texts, lowercase) -> None:
    reading = FastTextVocabulary(1, 0, 1, 0, 0, lowercase)
    found = reading._tokens(texts)
    begin = 0
    for text, end in zip(texts, found.ends, strict=True):
        wanted = TOKEN.findall(text.lower() if lowercase else text)
        assert found.hashes[begin:end].tolist() == [fnv(word) for word in wanted]
        begin = end
    assert begin == len(found.hashes)


def test_every_character_is_what_the_regular_expression_takes_it_for() -> None:
    found = kinds(False)
    for word in TOKEN.finditer("".join(map(chr, range(0x110000)))):
        one = word.end() - word.start() == 1
        wanted = {1} if word.group()[0].isalnum() or word.group()[0] == "_" else {2}
        assert set(found[word.start() : word.end()].tolist()) == wanted
        assert one or wanted == {1}
        found[word.start() : word.end()] = 0
    kinds.cache_clear()
    assert not found.any()  # what is left is space


def test_a_known_word_is_one_row_and_an_unknown_one_none() -> None:
    reading = FastTextVocabulary(1, 0, 2, 0, 0, True)
    rows = reading.learn(["b a a", "A c b", ""])
    assert rows.rows.tolist() == [1, 0, 0, 0, 1]  # the most frequent first, c is too rare
    assert rows.ends.tolist() == [3, 5, 5]
    assert reading.rows(["c z", "a"]).ends.tolist() == [0, 1]


def test_runs_of_words_stay_inside_a_text_and_know_their_order() -> None:
    reading = FastTextVocabulary(3, 100_003, 1, 0, 0, True)
    reading.learn(["a b c", "b a"])
    assert len(reading.words) == 3
    assert len(reading.buckets) == 4  # "a b", "b c", "a b c", "b a"

    def count(text: str) -> int:
        return len(reading.rows([text]).rows)

    assert count("a b c") == 6
    assert count("c b a") == 4  # "b a"
    assert count("c a") == 2
    assert len(reading.rows(["a", "b"]).rows) == 2
    # A rare word keeps its neighbours apart.
    assert count("a z b") == 2


def test_pieces_of_words_are_fasttexts() -> None:
    """<é…> from 2 to 3 characters, counted in characters; the edges alone are none."""
    reading = FastTextVocabulary(1, 1_000_003, 1, 2, 3, True)
    reading.learn(["éa b"])
    wanted = {"<é", "éa", "a>", "<éa", "éa>", "<b", "b>", "<b>"}
    assert len(reading.buckets) == len(wanted)
    assert len(FastTextVocabulary(1, 1_000_003, 1, 1, 1, True).learn(["éab"]).rows) == 1 + 3
    # "ab" shares "<" nothing, "b>" with "b".
    assert len(reading.rows(["ab"]).rows) == 1
    rows, owners, spans = reading.text_rows("x éa")
    assert [spans[i] for i in np.unique(owners[:, 0])] == [(2, 4)]
    assert len(rows) == 6


def numbered(seed=3):
    """Rows of four texts, one of them empty and one with a row twice; weights of odd sizes."""
    rng = np.random.default_rng(seed)
    rows = np.array([4, 0, 2, 2, 6, 1, 3], np.int32)
    ends = np.array([3, 3, 5, 7])

    def some(*shape):
        return rng.uniform(0.1, 1, shape).astype(np.float32)

    table = np.zeros((7, 16), np.float32)
    table[:, :5] = some(7, 5)
    none, nothing = np.zeros((0, 16), np.float32), np.zeros(0, np.float32)
    rest = (some(7), none, nothing, some(5, 3), some(3), some(3), some(3))
    return rows, ends, Weights(table, *rest), rng


def loss_of(kind, scores, label, wanted, smoothing, balance):
    if kind == 0:
        label = torch.tensor([int(label)])
        return label_loss(scores[None], label, balance=balance, smoothing=smoothing)
    if kind == 1:
        return label_set_loss(scores, wanted, balance=balance, smoothing=smoothing)
    return 0.5 * (scores - wanted).square().sum()


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize(
    ("smoothing", "factors", "gamma"),
    [(0.0, [], 0.0), (0.2, [], 0.0), (0.0, [0.5, 3, 1.5], 0.0), (0.2, [0.5, 3, 1.5], 0.0),
     (0.0, [], 2.0), (0.0, [], 0.5)],
)  # fmt: skip
@pytest.mark.parametrize("text", [0, 1, 2, 3])
def test_one_step_is_adagrad_on_autograds_gradient(kind, smoothing, factors, gamma, text) -> None:
    rows, ends, weights, rng = numbered()
    labels = np.array([2, 0, 1, 1], np.int32)
    wanted = rng.integers(0, 2, (4, 3)).astype(np.float32)
    smoothing = 0.0 if kind == 2 else smoothing
    mine = rows[ends[text - 1] if text else 0 : ends[text]]

    table, outputs, bias = (
        torch.tensor(part, requires_grad=True)
        for part in (weights.table[:, :5].copy(), weights.outputs.copy(), weights.bias.copy())
    )
    picked = table[torch.tensor(mine, dtype=torch.long)]
    picked.retain_grad()
    hidden = picked.mean(0) if len(mine) else torch.zeros(5)
    factors = np.array(factors, np.float32)
    balance = LossBalance((factors,) if len(factors) else (), gamma or None)
    scores = hidden @ outputs + bias
    loss = loss_of(kind, scores, labels[text], torch.tensor(wanted[text]), smoothing, balance)
    loss.backward()

    expected = weights.table[:, :5].astype(np.float64)
    gains = weights.gains.astype(np.float64)
    for place, row in enumerate(mine):
        slope = picked.grad[place].double().numpy()
        gains[row] += np.mean(slope**2)
        expected[row] -= 0.3 * slope / np.sqrt(gains[row] + 1e-8)
    score_slopes = bias.grad.double().numpy()
    bias_gains = weights.bias_gains + score_slopes**2
    new_bias = weights.bias - 0.3 * score_slopes / np.sqrt(bias_gains + 1e-8)
    slopes = outputs.grad.double().numpy() if len(mine) else np.zeros((5, 3))
    output_gains = weights.output_gains + (slopes**2).mean(0)
    new_outputs = weights.outputs - 0.3 * slopes / np.sqrt(output_gains + 1e-8)

    aims = TrainingTargets(kind, labels, wanted, smoothing, factors, gamma)
    found = learn(rows, ends, np.array([text]), 0, 1, aims, weights, 0.3, 0.1)
    assert found == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(weights.table[:, :5], expected, atol=1e-6)
    np.testing.assert_allclose(weights.gains, gains, atol=1e-6)
    np.testing.assert_allclose(weights.outputs, new_outputs, atol=1e-6)
    np.testing.assert_allclose(weights.bias, new_bias, atol=1e-6)
    assert not weights.table[:, 5:].any()


def test_scores_are_the_linear_layer_over_the_mean_row() -> None:
    model = fitted(width=17)  # more than one cache line
    texts = [*corpus(13, seed=5), "", "never seen"]
    for text, scores, vector in zip(texts, model.predict(texts), model.embed(texts), strict=True):
        rows = model.reading.rows([text]).rows
        mean = model.table[rows, :17].sum(0) / max(len(rows), 1)
        np.testing.assert_allclose(vector, mean, atol=1e-6)
        np.testing.assert_allclose(scores, mean @ model.outputs + model.bias, atol=1e-5)
        if not len(rows):
            np.testing.assert_array_equal(scores, model.bias)
    assert model.predict([]).shape == (0, 3)
    assert model.embed([]).shape == (0, 17)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("longest", [0, 3])
def test_contributions_sum_to_the_scores_less_the_bias(order, longest) -> None:
    model = fitted(order=order, max_n=longest, min_n=2)
    for direction in np.eye(3, dtype=np.float32):
        for text in [*corpus(7, seed=5), "İ not good, İ like it", "unknown", ""]:
            wanted = (model.predict([text])[0] - model.bias) @ direction
            pieces = model.contributions(text, direction)
            assert sum(weight for *_, weight in pieces) == pytest.approx(wanted, abs=1e-5)
            assert {text[start:end].lower() for start, end, _ in pieces} <= {
                *TOKEN.findall(text.lower()), "i̇"
            }  # fmt: skip


def test_a_token_has_its_row_and_those_of_the_pairs_it_ends() -> None:
    model = fitted()
    text = "the film, Good"
    states, offsets = model.states(text)
    assert [text[start:end] for start, end in offsets] == ["the", "film", ",", "Good"]
    rows = len(model.reading.rows([text]).rows)
    np.testing.assert_allclose(states.sum(0) / rows, model.embed([text])[0], atol=1e-6)
    assert model.states("")[0].shape == (0, 5)
    assert model.states("")[1].shape == (0, 2)


def test_training_texts_are_learned() -> None:
    texts = ["good film", "bad film", "not good", "not bad", "?", "!"]
    wanted = np.array([1, 0, 0, 1, 0, 1])
    model = fitted(space=ClassSpace(("no", "yes")), wanted=wanted, texts=texts, epochs=60)
    np.testing.assert_array_equal(model.predict(texts).argmax(1), wanted)
    assert model.parameters() == len(model.reading) * 5 + 5 * 2 + 2


def test_several_labels_are_yes_or_no_each() -> None:
    texts = corpus()
    wanted = np.array([["good" in t, "bad" in t, True, False] for t in texts], np.float32)
    model = fitted(Classify(multi_label=True), ClassSpace(tuple("abcd")), wanted, texts, epochs=40)
    right = (model.predict(texts) > 0) == (wanted > 0)
    assert right.mean() > 0.97


def test_a_number_is_learned() -> None:
    texts = corpus(201)
    words = [max(1, len(TOKEN.findall(text))) for text in texts]
    wanted = np.array([t.count("good") - t.count("bad") for t in texts]) / words
    wanted = (wanted - wanted.mean()) / wanted.std()
    model = fitted(Regress(), LabelScale(0.0, 1.0), wanted, texts, epochs=60)
    scores = model.predict(texts)
    assert scores.shape == (201, 1)
    assert np.corrcoef(scores[:, 0], wanted)[0, 1] > 0.95


def test_class_without_training_texts_is_never_predicted() -> None:
    model = fitted(space=ClassSpace(tuple("abcd")), wanted=targets(size=3) + 1)
    probs = Classify().probabilities(model.predict(corpus()), ClassSpace(tuple("abcd")))
    assert probs[:, 0].max() < 1e-30


@pytest.mark.parametrize("half", ["", " \ud83d"])  # half a surrogate pair
def test_saved_and_loaded_gives_the_same_bits(tmp_path: Path, half: str) -> None:
    options = {"width": 5, "buckets": 1009, "min_n": 2, "max_n": 3}
    model = fitted(texts=[text + half for text in corpus()], **options)
    model.save(tmp_path)
    again = FastText.load(tmp_path, {"kind": "fasttext", **options})
    new = [*corpus(13, seed=5), "", half]
    np.testing.assert_array_equal(model.predict(new), again.predict(new))
    np.testing.assert_array_equal(model.embed(new), again.embed(new))
    assert again.parameters() == model.parameters()
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]


def test_the_same_seed_gives_the_same_bytes_and_another_one_another_model() -> None:
    first, second, other = (fitted(seed=seed) for seed in (7, 7, 8))
    for name in ("table", "outputs", "bias"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert (first.table != other.table).any()
    assert np.isfinite(fitted(seed=-1).table).all()


def test_threads_that_share_learn_the_same(monkeypatch) -> None:
    """Copies of frequent rows, and merges: near what one thread finds."""
    monkeypatch.setattr(module, "ROWS_PER_STEP", 23)
    monkeypatch.setattr(module, "PRIVATE_ROWS", 5)
    texts = corpus(307)
    wanted = np.array([2 * ("good" in text) + ("bad" in text) for text in texts]) % 3
    alone = fitted(wanted=wanted, texts=texts, epochs=30)
    shared = fitted(wanted=wanted, texts=texts, epochs=30, threads=3)
    assert (alone.predict(texts).argmax(1) == wanted).mean() > 0.97
    assert (shared.predict(texts).argmax(1) == wanted).mean() > 0.97
    assert np.abs(shared.table[:5] - alone.table[:5]).max() < np.abs(alone.table[:5]).max()
    assert (shared.table[:5] != 0).any()


def test_a_text_scores_the_same_alone_in_company_and_by_many_threads(monkeypatch) -> None:
    model = fitted()
    together = model.predict(corpus())
    alone = np.concatenate([model.predict([text]) for text in corpus()])
    np.testing.assert_array_equal(together, alone)
    monkeypatch.setattr(readings, "CHUNK_TEXTS", 29)
    monkeypatch.setattr(readings, "available_cpus", lambda: 3)
    np.testing.assert_array_equal(together, model.predict(corpus()))
    again = fitted()
    np.testing.assert_array_equal(again.table, model.table)


def test_training_reports_progress_and_can_be_stopped() -> None:
    heard = []

    def two(progress) -> bool:
        heard.append(progress)
        return progress.epoch < 2

    model = FastText(epochs=5, width=5, buckets=101)
    model.fit(corpus(), targets(), Classify(), ClassSpace(tuple("abc")), watch=two)
    assert [(each.epoch, each.share) for each in heard[2:]] == [(1, 0.2), (2, 0.4)]
    assert [(each.epoch, each.share) for each in heard[:2]] == [(0, 0.0)] * 2
    assert heard[3].loss < heard[2].loss


def test_an_interruption_ends_all_threads(monkeypatch) -> None:
    from weft.classic.fasttext import kernels

    monkeypatch.setattr(module, "ROWS_PER_STEP", 3)
    calls = []

    def interrupted(*given):
        calls.append(given)
        if len(calls) == 5:
            raise KeyboardInterrupt
        time.sleep(0.01 if len(calls) > 5 else 0)  # until the others have heard of it
        return learn(*given)

    monkeypatch.setattr(kernels, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted(threads=2)
    assert len(calls) < 20  # of 61


def test_predicting_needs_neither_torch_nor_scikit_learn(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    code = (
        "import sys; from pathlib import Path; "
        "from weft.classic.fasttext.classifier import FastText;"
        f"model = FastText.load(Path({str(tmp_path)!r}), {{'width': 5, 'buckets': 1009}});"
        "model.predict(['good film']); assert not {'sklearn', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "garbage"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    fitted().save(tmp_path)
    path = tmp_path / "weights.safetensors"
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"cut": whole[:-7], "empty": b"", "garbage": b"\xff" * 50}[damage])
    found = complaint(lambda: FastText.load(tmp_path, {"width": 5, "buckets": 1009}))
    assert found.startswith(f"{path}: incomplete 'fasttext' model (")
    assert found.endswith("Copy the model folder again or retrain.")
    assert ("the file is missing" in found) == (damage == "missing")


def test_arrays_that_do_not_belong_together(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    arrays = load_file(tmp_path / "weights.safetensors")

    def after(options=None, **changes) -> str:
        save_file({**arrays, **changes}, tmp_path / "weights.safetensors")
        options = {"width": 5, "buckets": 1009, **(options or {})}
        return complaint(lambda: FastText.load(tmp_path, options))

    assert "its shapes do not match" in after({"width": 7})
    assert "its shapes do not match" in after(table=arrays["table"][1:].copy())
    assert "its shapes do not match" in after(bias=arrays["bias"][1:].copy())
    assert "'table' has a wrong shape or type" in after(table=arrays["table"].astype(np.float64))
    assert "no possible ones" in after({"buckets": 11})
    assert "no possible ones" in after({"order": 1})
    assert "no possible ones" in after(words=arrays["words"][1:].copy())
    assert "no possible ones" in after(words=np.ones_like(arrays["words"]))
    assert "no possible ones" in after(buckets=-1 - arrays["buckets"])
    save_file({"table": arrays["table"]}, tmp_path / "weights.safetensors")
    assert "it holds ['table']" in complaint(lambda: FastText.load(tmp_path, {}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order is 0; it should be 1 or more"),
        ({"width": 0}, "width is 0; it should be 1 or more"),
        ({"buckets": 0}, "buckets is 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"threads": -1}, "threads is -1; it should be 0 or more"),
        ({"max_n": 3}, "min_n is 0; it should be 1 or more"),
        ({"min_n": 4, "max_n": 3}, "max_n (3) is below min_n (4)"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ],
)
def test_settings_that_cannot_work(options: dict, message: str) -> None:
    assert complaint(lambda: FastText(**options)).startswith(f"classic 'fasttext': {message}")


def test_unlearnable_data_raises_user_error() -> None:
    assert "one class only" in complaint(lambda: fitted(wanted=np.zeros(61)))
    rare = complaint(lambda: fitted(min_count=1000))
    assert rare.startswith("classic 'fasttext': no word occurs 1000 times in the training texts.")
    wanted = np.full(61, 1e30)
    wild = complaint(lambda: fitted(Regress(), LabelScale(0.0, 1.0), wanted))
    assert re.search(r"the loss became (inf|nan). Lower classic.learning_rate.", wild)
