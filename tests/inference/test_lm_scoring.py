"""How probable tokens are, read in rows: against every token asked for by itself."""

import numpy as np
import pytest
import torch

from weft.batch import Padded
from weft.inference import windows as module
from weft.inference.lm_scoring import score_texts
from weft.inference.windows import split_windows
from weft.model import build_model
from weft.runtime import select_runtime

V = 13
SMALL = {
    "gpt": {"kind": "gpt", "hidden": 6, "layers": 2, "heads": 3, "max_positions": 7},
    "nnlm": {"kind": "nnlm", "width": 5, "context": 3, "hidden": 7},
    "lstm": {"kind": "rnn-lm", "width": 5, "hidden": 7, "layers": 2},
    "mask": {"kind": "bidirectional-lm", "width": 5, "hidden": 7, "by": "mask"},
    "skip": {"kind": "bidirectional-lm", "width": 5, "hidden": 7, "by": "skip"},
}


def model(name, window=7, overlap=0.5):
    torch.manual_seed(0)
    task = {"kind": "language", "window": window, "overlap": overlap}
    parts = {"task": task, "decoder": SMALL[name]}
    made = build_model(parts, vocabulary_size=V, outputs=(V, V - 1, V - 1)).eval()
    for weight in made.parameters():  # far from uniform, so that context matters
        weight.data.mul_(3)
    return made


def texts(*lengths):
    draw = np.random.default_rng(1)
    return [draw.integers(1, V, n) for n in lengths]


def alone(made, ids, at):
    """The log-probability of the token behind `ids`, asked for by itself."""
    given = Padded(torch.tensor(ids)[None], torch.tensor([len(ids)]))
    with torch.no_grad():
        return float(made.head.decoder(given)[0, -1].log_softmax(-1)[at])


def close(found, wanted):
    assert [len(a) for a in found] == [len(b) for b in wanted]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(wanted), atol=1e-5)


@pytest.mark.parametrize("name", ["nnlm", "lstm", "gpt"])
def test_texts_that_begin_anew(name):
    made, given = model(name), texts(3, 0, 7, 1, 5)
    first = made.head.bos
    wanted = [[alone(made, [first, *t[:i]], t[i]) for i in range(len(t))] for t in given]
    close(list(score_texts(made, given, select_runtime("cpu"))), wanted)


@pytest.mark.parametrize("name", ["nnlm", "lstm"])
@pytest.mark.parametrize("block", [1, 6, 1 << 20])
def test_running_texts_are_one(name, block, monkeypatch):
    monkeypatch.setattr(module, "MAX_BLOCK_IDS", block)
    made, given = model(name), texts(3, 0, 11, 1, 5)
    line = [made.head.bos, *np.concatenate(given)]
    wanted = [alone(made, line[: i + 1], line[i + 1]) for i in range(len(line) - 1)]
    ends = np.cumsum([len(t) for t in given])[:-1]
    close(
        list(score_texts(made, given, select_runtime("cpu"), running=True)),
        np.split(np.array(wanted), ends),
    )


@pytest.mark.parametrize("overlap", [0.0, 0.5, 0.9])
def test_a_limited_view_slides_with_its_context(overlap):
    made, (text,) = model("gpt", overlap=overlap), texts(23)
    line, fresh = [made.head.bos, *text], 7 - min(int(overlap * 7), 6)
    wanted = []
    for i in range(len(text)):
        row = 0 if i < 7 else 1 + (i - 7) // fresh
        stop = min(7 + row * fresh, len(text))
        wanted.append(alone(made, line[max(0, stop - 7) : i + 1], line[i + 1]))
    close(list(score_texts(made, [text], select_runtime("cpu"))), [wanted])


def test_both_sides_without_the_word_itself():
    made, given = model("skip", window=40), texts(3, 9)
    wanted = []
    for text in given:
        rows = []
        for i in range(len(text)):
            other = text.copy()
            other[i] = 1 + other[i] % (V - 1)  # what stands there itself must not matter
            padded = Padded(torch.tensor(other)[None], torch.tensor([len(text)]))
            scores = made.head.decoder(padded)[0, i].log_softmax(-1)
            rows.append(scores[text[i]].item())
        wanted.append(rows)
    close(list(score_texts(made, given, select_runtime("cpu"))), wanted)


def test_every_masked_word_is_scored_once_while_masked():
    made, (text,) = model("mask", window=40), texts(9)
    wanted = []
    for i in range(9):
        hidden = text.copy()
        hidden[i % 7 :: 7] = 0
        padded = Padded(torch.tensor(hidden)[None], torch.tensor([9]))
        wanted.append(made.head.decoder(padded)[0, i].log_softmax(-1)[text[i]].item())
    close(list(score_texts(made, [text], select_runtime("cpu"))), [wanted])


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("seen", [0, 4])
def test_rows_judge_every_token_once_with_context(both, seen):
    for count in range(seen, 50):
        rows = list(split_windows(count, seen, view=11, fresh=6, both=both))
        judged = [i for row in rows for i in range(row.start, row.stop)]
        assert judged == list(range(seen, count))
        for row in rows:
            assert row.low <= row.start < row.stop <= row.high <= count
            assert row.high - row.low <= 11
            right = 2 if both else 0
            assert row.high == count or row.high - row.stop == right
            assert row.low == 0 or row.start - row.low >= 5 - right


def test_a_long_text_needs_no_square():
    made = model("gpt")
    (found,) = score_texts(made, texts(20_011), select_runtime("cpu"))
    assert len(found) == 20_011
    assert np.isfinite(found).all()
