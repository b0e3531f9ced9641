"""Characters: bytes as ELMo marks them, and the networks against loops over one word."""

import pytest
import torch

from weft.batch import Padded
from weft.embed import characters
from weft.embed.characters import (
    CharacterCNN,
    CharacterLSTM,
    reverse_rows,
    unique_rows,
)
from weft.embed.highway import Highway
from weft.embed.spelling import encode_word
from weft.errors import UserError

WORDS = ["a", "loving", "naïveté"]


def padded(embedder, words):
    rows = embedder.subtoken_ids(words)
    wide = max(map(len, rows)) + 2
    data = torch.tensor([[row + [0] * (wide - len(row)) for row in rows]])
    return Padded(data, torch.tensor([len(words)]))


def test_words_are_spelled_in_bytes():
    assert encode_word("aé") == [257, 98, 0xC3 + 1, 0xA9 + 1, 258]
    assert encode_word("abcdef", max_bytes=3) == [257, 98, 99, 100, 258]
    assert encode_word("") == [257, 258]
    assert len(encode_word("\ud800")) == 5


def slow_cnn(net, letters):
    """One word, one window, one filter at a time."""
    features = []
    for conv in net.convolutions:
        count, _, width = conv.weight.shape
        rows = [net.table.weight[i] for i in letters]
        while len(rows) < width:
            rows.append(torch.zeros_like(rows[0]))
        for f in range(count):
            answers = []
            for start in range(len(rows) - width + 1):
                total = conv.bias[f]
                for k in range(width):
                    total = total + conv.weight[f, :, k] @ rows[start + k]
                answers.append(total)
            features.append(max(answers).relu())
    x = torch.stack(features)
    for change, gate in zip(net.highway.changes, net.highway.gates, strict=True):
        g = torch.sigmoid(gate.weight @ x + gate.bias)
        x = g * (change.weight @ x + change.bias).relu() + (1 - g) * x
    return net.project.weight @ x + net.project.bias


def test_cnn_is_its_formula():
    torch.manual_seed(0)
    net = CharacterCNN(width=7, character_width=5, filters=((1, 2), (3, 3), (5, 2)))
    out = net(padded(net, WORDS)).data[0]
    for vector, letters in zip(out, net.subtoken_ids(WORDS), strict=True):
        torch.testing.assert_close(vector, slow_cnn(net, letters), rtol=1e-5, atol=1e-5)


def test_lstm_reads_each_word_both_ways():
    torch.manual_seed(0)
    net = CharacterLSTM(width=7, character_width=5, hidden=3)
    out = net(padded(net, WORDS)).data[0]
    for vector, letters in zip(out, net.subtoken_ids(WORDS), strict=True):
        rows = net.table(torch.tensor([letters]))
        _, (ahead, _) = net.forwards(rows)
        _, (back, _) = net.backwards(rows.flip(1))
        expected = net.project(torch.cat([ahead[0, 0], back[0, 0]]))
        torch.testing.assert_close(vector, expected, rtol=1e-5, atol=1e-5)


def test_reverse_turns_real_steps_only():
    data = torch.arange(1, 13).view(3, 4, 1)
    lengths = torch.tensor([4, 0, 3])
    turned = reverse_rows(data, lengths)
    assert turned[..., 0].tolist() == [[4, 3, 2, 1], [5, 6, 7, 8], [11, 10, 9, 12]]
    assert torch.equal(reverse_rows(turned, lengths), data)
    learned = data.float().requires_grad_()
    learned_turned = reverse_rows(learned, lengths)
    assert torch.equal(learned_turned, turned.float())
    (learned_turned * data).sum().backward()
    assert torch.equal(learned.grad, turned.float())


def test_highway_starts_by_letting_things_through():
    torch.manual_seed(0)
    x = torch.randn(3, 7)
    torch.testing.assert_close(Highway(7, layers=2, carry=30.0)(x), x)
    changed = Highway(7, layers=1, carry=-30.0)
    torch.testing.assert_close(changed(x), changed.changes[0](x).relu())


def test_filters_must_be_pairs():
    with pytest.raises(UserError, match=r"pairs \[width, count\], got \[\[3\]\]"):
        CharacterCNN(filters=((3,),))


def repeated(words=("a", "loving", "a", "naïveté", "loving", "a", "o", "bb")):
    """Three rows of words that come again, of different lengths."""
    rows = [words, words[3:], words[:2]]
    spelled = [[encode_word(word) for word in row] for row in rows]
    out = torch.zeros(3, len(words), 17, dtype=torch.long)
    for i, row in enumerate(spelled):
        for j, letters in enumerate(row):
            out[i, j, : len(letters)] = torch.tensor(letters)
    return Padded(out, torch.tensor([len(row) for row in rows]))


@pytest.mark.parametrize("kind", [CharacterCNN, CharacterLSTM])
def test_a_word_is_read_once_outside_training_and_is_the_same(kind, monkeypatch):
    torch.manual_seed(0)
    net, x = kind(width=7, character_width=5), repeated()
    slow = net(x).data
    seen = []
    words = net.embed_words
    monkeypatch.setattr(net, "embed_words", lambda rows: seen.append(rows.shape) or words(rows))
    monkeypatch.setattr(characters, "WORDS_PER_CHUNK", 3)
    fast = net.eval()(x).data
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)
    # Five kinds of words, three at a time, no wider than the longest of the three.
    assert [tuple(shape) for shape in seen] == [(3, 4), (2, 11)]


@pytest.mark.parametrize("collide", [False, True])
def test_distinct_rows_even_where_their_sums_agree(collide, monkeypatch):
    if collide:
        monkeypatch.setattr(
            torch, "randint", lambda low, high, shape, **_: torch.ones(*shape).long()
        )
    rows = torch.tensor([[3, 1, 0], [1, 3, 0], [3, 1, 0], [2, 2, 0], [1, 3, 0]])
    kept, kinds = unique_rows(rows)
    assert len(kept) == 3
    assert torch.equal(kept[kinds], rows)


def test_telling_words_apart_takes_nothing_from_the_random_numbers():
    net, x = CharacterCNN(width=7).eval(), repeated()
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    net(x)
    assert torch.equal(torch.rand(3), wanted)
