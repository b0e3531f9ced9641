"""Recurrent decoders against torch.nn.LSTM and against the papers' formulas, one row at a time."""

import pytest
import torch
from torch import nn

from weft.attend.settings import Attention
from weft.batch import Padded
from weft.decode.decoders.recurrent import RecurrentDecoder
from weft.errors import UserError

V, M, H, E = 11, 6, 6, 5
LENGTHS = [3, 2, 7]


def memory():
    torch.manual_seed(2)
    return Padded(torch.randn(3, 7, M), torch.tensor(LENGTHS))


def words():
    torch.manual_seed(4)
    return Padded(torch.randint(1, V, (3, 5)), torch.tensor([5, 5, 5]))


def build(**options):
    torch.manual_seed(1)
    options = {"width": E, "hidden": H, **options}
    return RecurrentDecoder(V, M, **options).eval()


def first(decoder, source, row):
    """The start state of one row, by hand: the last real step through one matrix and tanh."""
    last = source.data[row, LENGTHS[row] - 1]
    flat = torch.tanh(decoder.first.weight @ last + decoder.first.bias)
    return flat.view(decoder.kept, decoder.layers, H)


@pytest.mark.parametrize("source", ["start", "every"])
def test_ideas_one_and_two_are_pytorchs_lstm(source):
    decoder = build(source=source, layers=2)
    extra = M if source == "every" else 0
    lstm = nn.LSTM(E + extra, H, 2, batch_first=True)
    lstm.load_state_dict(decoder.net.state_dict())
    ids, encoded = words(), memory()
    scores = decoder(ids, encoded)
    for row in range(3):
        x = decoder.words.table.weight[ids.data[row]]  # (T, E)
        if source == "every":
            last = encoded.data[row, LENGTHS[row] - 1]
            x = torch.cat([x, last.expand(5, M)], dim=1)
        h, c = first(decoder, encoded, row)
        states, _ = lstm(x[None], (h[:, None].contiguous(), c[:, None].contiguous()))
        expected = states[0] @ decoder.words.scored.T + decoder.words.bias
        torch.testing.assert_close(scores[row], expected, rtol=1e-5, atol=1e-5)


def fit(kind, score, query, step, covered):
    """Each of the four scores by its formula."""
    if kind == "dot":
        return query @ step
    if kind == "scaled":
        return query @ step / len(query) ** 0.5
    if kind == "bilinear":
        return step @ score.weight @ query
    inside = score.query.weight @ query + score.query.bias + score.memory.weight @ step
    if score.cover is not None:
        inside = inside + score.cover.weight[:, 0] * covered
    return score.weigh.weight[0] @ torch.tanh(inside)


@pytest.mark.parametrize("kind", ["dot", "scaled", "bilinear", "additive"])
@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("coverage", [False, True])
def test_attention_is_its_formula(kind, feeding, coverage):
    if coverage and kind != "additive":
        return
    decoder = build(
        cell="gru", attention_config=Attention(kind), input_feeding=feeding, coverage=coverage
    )
    cell = nn.GRUCell(E + (H if feeding else 0), H)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in decoder.net.state_dict().items()})
    ids, encoded = words(), memory()
    scores, read = decoder(ids, encoded), decoder.read(ids, encoded)
    for row, length in enumerate(LENGTHS):
        state, fed = first(decoder, encoded, row)[0, 0], torch.zeros(H)
        steps, had = encoded.data[row, :length], torch.zeros(length)
        for t in range(5):
            x = decoder.words.table.weight[ids.data[row, t]]
            state = cell(torch.cat([x, fed])[None] if feeding else x[None], state[None])[0]
            fits = [fit(kind, decoder.score, state, s, c) for s, c in zip(steps, had, strict=True)]
            weights = torch.stack(fits).softmax(0)
            had = had + weights
            joined = torch.cat([weights @ steps, state])
            fed = torch.tanh(decoder.mix.weight @ joined + decoder.mix.bias)
            expected = decoder.words.scored @ fed + decoder.words.bias
            torch.testing.assert_close(scores[row, t], expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(read.weights[row, t, :length], weights)


def test_two_way_memories_start_from_where_each_direction_ends():
    decoder = build(source="start", directions=2)
    encoded = memory()
    ends = torch.stack(
        [
            torch.cat([encoded.data[i, n - 1, : M // 2], encoded.data[i, 0, M // 2 :]])
            for i, n in enumerate(LENGTHS)
        ]
    )
    hidden = torch.tanh(decoder.first(ends)).view(3, 2, 1, H)[:, 0]
    torch.testing.assert_close(decoder.start(encoded).hidden, hidden)


def test_tied_words_have_one_table():
    decoder = build(tied=True, hidden=7, attention_config=Attention("bilinear"))
    assert decoder.words.weight is decoder.words.table.weight
    assert [n for n, p in decoder.named_parameters() if len(p) == V] == [
        "words.bias",
        "words.table.weight",
    ]


def test_options_that_do_not_go_together():
    with pytest.raises(UserError, match=r"'input_feeding' needs source = \"attention\", got 'sta"):
        build(source="start", input_feeding=True)
    with pytest.raises(UserError, match=r"'coverage' needs source = \"attention\", got 'every'"):
        build(source="every", coverage=True)
    with pytest.raises(UserError, match=r"needs attention.score = \"additive\", got 'dot'"):
        build(attention_config=Attention("dot"), coverage=True)
    with pytest.raises(UserError, match="decoder 'rnn': 'layers' should be at least 1, got 0"):
        build(layers=0)
