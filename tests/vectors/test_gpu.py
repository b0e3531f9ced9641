"""Word vectors on a GPU. What needs none is tested everywhere: windows, thinning, calming."""

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.runtime import select_runtime
from weft.vectors import gpu
from weft.vectors.corpus import Corpus, corpus
from weft.vectors.kernels.word2vec import SubwordTables, Targets, Weights
from weft.vectors.word2vec import Word2VecSettings, Word2VecTrainer, train_vectors

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
WHOLE = [(0, 3, 0.1, 0.1)]  # three sentences
NOBODY, NOTHING = np.empty(0, np.uint32), np.empty((0, 16), np.float32)


def small(ids: list[list[int]], words: int = 7) -> Corpus:
    flat = np.array([i for line in ids for i in line], np.int32)
    ends = np.cumsum([len(line) for line in ids]).astype(np.int64)
    counts = np.bincount(flat, minlength=words).astype(np.int64)
    return Corpus(tuple(f"w{i}" for i in range(words)), counts, flat, ends, len(flat))


def made(
    text: Corpus,
    settings: Word2VecSettings,
    device: str,
    pieces: SubwordTables | None = None,
    noise: int = 0,
) -> gpu.Gpu:
    """Random tables, and a noise that only ever draws one word."""
    rng = np.random.default_rng(5)
    size = len(text.words)
    rows = size if pieces is None else int(pieces.rows.max()) + 1
    weights = Weights(
        rng.normal(size=(rows, 16)).astype(np.float32),
        rng.normal(size=(size, 16)).astype(np.float32), NOBODY, NOBODY, NOTHING, NOTHING,
    )  # fmt: skip
    for table in weights[:2]:
        table[:, settings.width :] = 0
    targets = Targets(
        np.zeros(size, np.uint64), np.full(size, noise, np.int32), settings.negative,
        np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32),
    )  # fmt: skip
    return gpu.Gpu(text, settings, weights, targets, pieces, select_runtime(device))


def test_windows_stay_inside_their_sentence_and_reach_as_far_as_drawn() -> None:
    text = small([[1, 2, 3, 4, 5, 6, 0], [2], [3, 1, 4]])
    there = made(text, Word2VecSettings(sample=0.0, window=3, width=11), "cpu")
    reaches = set()
    for _ in range(50):
        ids, left, right = there._windows(*there._part(WHOLE))
        assert ids.tolist() == text.ids.tolist()
        for begin, end in ((0, 7), (7, 8), (8, 11)):
            for here in range(begin, end):
                reach = max(here - int(left[here]), int(right[here]) - here - 1)
                assert left[here] >= begin
                assert right[here] <= end
                assert reach <= 3
                assert reach >= 1 or end - begin == 1
                whole = max(begin, here - reach), min(end, here + reach + 1)
                assert (int(left[here]), int(right[here])) == whole
        reaches.add(3 - int(left[3]))
    assert reaches == {1, 2, 3}


def test_thinning_keeps_the_share_that_word2vec_keeps() -> None:
    text = small([[0] * 4000, [1] * 400, [2, 3] * 50], 4)
    settings = Word2VecSettings(sample=1e-2, width=11)
    there = made(text, settings, "cpu")
    ids, left, right = there._windows(*there._part(WHOLE))
    share = text.counts[0] / text.counts.sum()
    expected = (np.sqrt(share / 1e-2) + 1) * 1e-2 / share
    assert (ids == 0).sum().item() / 4000 == pytest.approx(expected, abs=0.025)
    assert (left <= torch.arange(len(ids))).all()
    assert (right > torch.arange(len(ids))).all()


def test_chunks_in_any_order_become_one_part() -> None:
    text = small([[1, 2], [3, 4, 5], [6, 0], [1]])
    there = made(text, Word2VecSettings(width=11), "cpu")
    ids, ends = there._part([(2, 4, 0.1, 0.1), (1, 2, 0.1, 0.1)])
    assert ids.tolist() == [6, 0, 1, 3, 4, 5]
    assert ends.tolist() == [2, 3, 6]


def test_a_row_that_is_seldom_moved_keeps_its_whole_step() -> None:
    found = gpu._calm(torch.tensor([0.0, 0.01, 1000.0]), 0.1)
    assert found[0] == pytest.approx(1)
    assert found[1] > 0.999
    assert found[2] * 1000 * 0.1 == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Word2VecSettings(deterministic=True), "--deterministic needs the processor"),
        (Word2VecSettings(loss="hierarchical"), "Hierarchical softmax needs the processor"),
    ],
)
def test_settings_without_gpu_kernel_raise_user_error(
    settings: Word2VecSettings, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        gpu.usable(select_runtime("cpu"), settings)


def test_missing_gpu_fails_before_reading(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"torch sees no GPU here\. Use cpu"):
        train_vectors(small([[1, 2, 3]]), device="cuda")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@needs_gpu
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
@pytest.mark.parametrize("width", [11, 16])
def test_windows_are_learnt_as_the_paper_says(method: str, width: int, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(gpu, "PROGRAMS", 1)
    monkeypatch.setattr(gpu, "PULL", 1e-9)
    text = small([[1, 2, 3, 4], [5], [6, 2]])
    settings = Word2VecSettings(method, width, window=1, negative=3, sample=0.0)  # type: ignore[arg-type]
    there = made(text, settings, "cuda", noise=2)
    x, y = there.inputs.cpu().double().numpy(), there.outputs.cpu().double().numpy()
    there.learn(*there._part(WHOLE), 0.1, 0.1, 0)
    for line in ([1, 2, 3, 4], [5], [6, 2]):
        for here, word in enumerate(line):
            near = [line[i] for i in (here - 1, here + 1) if 0 <= i < len(line)]
            targets = [(word, 1)] + [(2, 0)] * (3 * (word != 2))
            if not near:
                continue
            rows = np.array([y[t] for t, _ in targets])
            labels = np.array([label for _, label in targets])
            if method == "cbow":
                hidden = x[near].mean(0)
                gain = 0.1 * (labels - sigmoid(rows @ hidden))
                step_in = dict.fromkeys(near, gain @ rows)
                steps_out = gain[:, None] * hidden
            else:
                gains = 0.1 * (labels - sigmoid(x[near] @ rows.T))
                step_in = dict(zip(near, gains @ rows, strict=True))
                steps_out = gains.T @ x[near]
            for w, step in step_in.items():
                x[w] += step
            for (t, _), step in zip(targets, steps_out, strict=True):
                y[t] += step
    np.testing.assert_allclose(there.inputs.cpu().numpy(), x, atol=3e-3)  # its products are TF32
    np.testing.assert_allclose(there.outputs.cpu().numpy(), y, atol=3e-3)


@needs_gpu
def test_pieces_are_learnt_as_fasttext_does(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(gpu, "PROGRAMS", 1)
    monkeypatch.setattr(gpu, "PULL", 1e-9)
    text = small([[1, 2, 3, 4], [5], [6, 2]])
    rng = np.random.default_rng(3)
    lists = [[word, *rng.integers(7, 40, size=5 * word).tolist()] for word in range(7)]
    ends = np.cumsum([len(rows) for rows in lists]).astype(np.int64)
    pieces = SubwordTables(ends, np.array([row for rows in lists for row in rows], np.int32), 36)
    settings = Word2VecSettings("fasttext", 11, window=1, negative=3, sample=0.0)
    there = made(text, settings, "cuda", pieces, noise=2)
    x, y = there.inputs.cpu().double().numpy(), there.outputs.cpu().double().numpy()
    there.learn(*there._part(WHOLE), 0.1, 0.1, 0)
    for line in ([1, 2, 3, 4], [5], [6, 2]):
        for here, word in enumerate(line):
            near = [line[i] for i in (here - 1, here + 1) if 0 <= i < len(line)]
            targets = [(other, 1.0) for other in near]
            targets += [(2, 0.0)] * (3 * sum(other != 2 for other in near))
            if not near:
                continue
            hidden = x[lists[word]].mean(0)
            gains = [0.1 * (label - sigmoid(y[t] @ hidden)) for t, label in targets]
            step = sum(gain * y[t] for gain, (t, _) in zip(gains, targets, strict=True))
            moved = [gain * hidden for gain in gains]
            for (t, _), move in zip(targets, moved, strict=True):
                y[t] += move
            for row in lists[word]:
                x[row] += step
    np.testing.assert_allclose(there.inputs.cpu().numpy(), x, atol=1e-4)
    np.testing.assert_allclose(there.outputs.cpu().numpy(), y, atol=1e-4)


@needs_gpu
@pytest.mark.parametrize("method", ["skipgram", "cbow", "fasttext"])
def test_words_of_one_topic_come_together(method, tmp_path) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    topics = [[f"{name}{i}" for i in range(20)] for name in ("ant", "bee", "cow")]
    lines = [" ".join(rng.choice(topics[i % 3], 12)) for i in range(6000)]
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(lines))
    vectors = train_vectors(corpus([file]), method, width=16, epochs=5, device="cuda", buckets=5000)
    rows = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    alike = rows @ rows.T
    same = np.array([[a[:3] == b[:3] for b in vectors.words] for a in vectors.words])
    assert alike[same].mean() > alike[~same].mean() + 0.3


@needs_gpu
def test_the_text_may_pass_in_many_parts(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(gpu, "PART", 100)
    monkeypatch.setattr("weft.vectors.word2vec.CHUNK_TOKENS", 30)
    text = small([[1, 2, 3, 4, 5]] * 100, 6)
    heard: list[int] = []
    settings = Word2VecSettings(width=11, epochs=2, threads=1, device="cuda")
    Word2VecTrainer(text, settings).run(heard.append)
    assert sum(heard) == 1000
    assert len(heard) > 8
