"""Language models against their papers' formulas; text in pieces against text in one."""

from functools import partial

import pytest
import torch
from torch import nn

from weft.batch import Padded
from weft.decode.decoders.language_models import (
    BidirectionalLM,
    FeedForwardLM,
    RecurrentLM,
    mask_tokens,
)
from weft.encode.cells import FORMULA_CELLS
from weft.errors import UserError

V, E, H = 13, 5, 3


def ids(rows=4, steps=6):
    torch.manual_seed(4)
    return Padded(torch.randint(1, V, (rows, steps)), torch.full((rows,), steps))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("direct", [False, True])
def test_the_window_model_is_bengios(direct):
    torch.manual_seed(0)
    model = FeedForwardLM(V, E, context=3, hidden=H, direct=direct)
    text = ids()
    scores = model(text)
    U, W = model.words.scored[:, :H], model.words.scored[:, H:]
    for row in range(4):
        words = [torch.zeros(E)] * 2 + [model.words.table.weight[i] for i in text.data[row]]
        for t in range(6):
            x = torch.cat(words[t : t + 3])
            y = model.words.bias + U @ torch.tanh(model.hidden.bias + model.hidden.weight @ x)
            close(scores[row, t], y + W @ x if direct else y)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_the_recurrent_model_is_pytorchs(cell):
    torch.manual_seed(0)
    model = RecurrentLM(V, E, H, layers=2, cell=cell).eval()
    net = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell](E, H, 2, batch_first=True)
    net.load_state_dict(model.net.state_dict())
    states, _ = net(model.words.table.weight[ids().data])
    close(model(ids()), states @ model.words.scored.T + model.words.bias)


MODELS = {
    "nnlm": lambda: FeedForwardLM(V, E, context=4, hidden=H),
    "nnlm of one word": lambda: FeedForwardLM(V, E, context=1, hidden=H),
    "lstm": lambda: RecurrentLM(V, E, H, layers=2),
    "gru": lambda: RecurrentLM(V, E, H, cell="gru"),
    **{cell: partial(RecurrentLM, V, E, H, 2, cell) for cell in FORMULA_CELLS},
}


@pytest.mark.parametrize("name", MODELS)
def test_text_in_pieces_is_text_in_one(name):
    torch.manual_seed(0)
    model, text = MODELS[name]().eval(), ids()
    whole, state, found = model.features(text), None, []
    for start, stop in ((0, 2), (2, 3), (3, 6)):
        piece = Padded(text.data[:, start:stop], torch.full((4,), stop - start))
        made = model.carry(piece, state)
        state = made.state
        found.append(made.features)
    close(torch.cat(found, 1), whole)


@pytest.mark.parametrize("name", MODELS)
def test_rows_that_end_early_carry_their_own_state(name):
    torch.manual_seed(0)
    model, text = MODELS[name]().eval(), ids()
    lengths = torch.tensor([4, 1, 0, 2])
    before = model.carry(Padded(text.data[:, 4:], torch.full((4,), 2))).state
    state = model.carry(Padded(text.data[:, :4], lengths), before).state
    word = torch.tensor([3, 5, 7, 11])
    scores, _ = model.step(word, state)
    for row, n in enumerate(lengths):
        line = torch.cat([text.data[row, 4:], text.data[row, :n], word[row : row + 1]])
        alone = model(Padded(line[None], torch.tensor([len(line)])))
        close(scores[row], alone[0, -1])


def test_gradients_stop_between_pieces():
    model = RecurrentLM(V, E, H)
    made = model.carry(ids())
    assert made.raw.requires_grad
    assert not made.state.hidden.requires_grad
    assert not made.state.cell.requires_grad


def test_one_mask_for_all_steps():
    torch.manual_seed(0)
    model = RecurrentLM(V, 97, 89, dropout=0.5, variational=True).train()
    made = model.carry(ids())
    gone = made.dropped == 0
    assert torch.equal(gone, gone[:, :1].expand_as(gone))
    assert not torch.equal(gone[0], gone[1])
    assert 0.4 < gone.float().mean() < 0.6
    close(made.dropped[~gone], 2 * made.raw[~gone])
    model.variational = False
    gone = model.carry(ids()).dropped == 0
    assert not torch.equal(gone, gone[:, :1].expand_as(gone))


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_layer_by_layer_is_the_whole_stack(cell):
    """The path that the special options take, with nothing dropped."""
    torch.manual_seed(0)
    model = RecurrentLM(V, E, H, layers=3, cell=cell, variational=True).train()
    special = model.carry(ids())
    model.variational = False
    plain = model.carry(ids())
    close(special.features, plain.features)
    for a, b in zip(special.state, plain.state, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


def test_recurrent_weights_are_dropped_for_a_whole_piece():
    torch.manual_seed(0)
    model = RecurrentLM(V, E, 31, cell="rnn", weight_drop=0.5).train()
    text = ids(rows=1, steps=2)
    raw = model.carry(text).raw[0]
    assert not torch.equal(raw[1], model.carry(text).raw[0, 1])  # another draw
    assert torch.equal(raw[0], model.carry(text).raw[0, 0])  # no state to weigh yet
    model.weight_drop = 1.0  # all of it: the second word knows nothing of the first
    alone = Padded(text.data[:, 1:], torch.tensor([1]))
    close(model.carry(text).raw[0, 1], model.carry(alone).raw[0, 0])


def test_whole_words_are_hidden():
    torch.manual_seed(0)
    model = RecurrentLM(V, E, H, word_dropout=0.5).train()
    text = Padded(torch.arange(1, V).repeat(2)[None], torch.tensor([2 * (V - 1)]))
    vectors = model._vectors(text.data)
    gone = (vectors == 0).all(2)[0]
    assert torch.equal(gone[: V - 1], gone[V - 1 :])
    assert gone.any()
    assert not gone.all()
    close(vectors[0, ~gone], 2 * model.words.table.weight[text.data[0, ~gone]])


def test_penalties_are_merity_s():
    torch.manual_seed(0)
    model = RecurrentLM(V, E, H, dropout=0.3, ar=2.0, tar=3.0).train()
    text = Padded(ids().data, torch.tensor([6, 2, 1, 0]))
    made = model._forward_steps(text.data, model.start(4), None)
    squares = [
        made.dropped[i, t].square().mean() for i, n in enumerate(text.lengths) for t in range(n)
    ]
    changes = [
        (made.raw[i, t + 1] - made.raw[i, t]).square().mean()
        for i, n in enumerate(text.lengths)
        for t in range(int(n) - 1)
    ]
    mean = [sum(each) / len(each) for each in (squares, changes)]
    close(model.penalty(made, text), 9 * (2.0 * mean[0] + 3.0 * mean[1]))
    assert RecurrentLM(V, E, H).penalty(made, text) == 0


def test_a_word_is_skipped_but_its_neighbours_are_read():
    torch.manual_seed(0)
    text = Padded(ids().data, torch.tensor([6, 5, 4, 3]))
    other = Padded(text.data.clone(), text.lengths)
    other.data[:, 2] = other.data[:, 2] % (V - 1) + 1
    for by, sees in (("skip", False), ("mask", True)):
        model = BidirectionalLM(V, E, H, layers=2, by=by).eval()
        change = (model(text) - model(other)).abs().amax(2) > 1e-6
        assert change[:, 2].all() if sees else not change[:, 2].any()
        assert change[:, 0].all()
        assert change[0, 3:].all()


def test_skipping_joins_the_states_on_both_sides():
    torch.manual_seed(0)
    model, text = BidirectionalLM(V, E, H).eval(), ids(rows=1)
    ahead, back = (nn.LSTM(E, H, batch_first=True) for _ in range(2))
    for ours, net in zip(model.nets, (ahead, back), strict=True):
        net.load_state_dict(ours.net.state_dict())
    x = model.words.table.weight[text.data]
    forward, backward = ahead(x)[0][0], back(x.flip(1))[0][0].flip(0)
    for t in range(6):
        before = forward[t - 1] if t else torch.zeros(H)
        after = backward[t + 1] if t < 5 else torch.zeros(H)
        close(model.features(text)[0, t], torch.cat([before, after]))


def test_hidden_words():
    torch.manual_seed(0)
    text = Padded(torch.randint(4, 97, (307, 101)), torch.randint(0, 102, (307,)))
    text.data[:, 5] = 2  # a special one
    read, chosen = mask_tokens(text, mask=3, words=range(4, 97), fraction=0.2)
    assert not chosen[:, 5].any()
    assert not (chosen & ~text.mask).any()
    assert torch.equal(read.data[~chosen & text.mask], text.data[~chosen & text.mask])
    real = text.mask & (text.data > 3)
    assert torch.equal(chosen.any(1), real.any(1))
    assert 0.18 < chosen.sum() / real.sum() < 0.23
    hidden, kept = read.data[chosen] == 3, read.data[chosen] == text.data[chosen]
    assert 0.75 < hidden.float().mean() < 0.85
    assert 0.08 < kept.float().mean() < 0.14
    assert (read.data[chosen] >= 3).all()


def test_options_that_make_no_sense():
    with pytest.raises(
        UserError, match=r"decoder 'nnlm': 'direct' needs a separate matrix and excludes 'tied'"
    ):
        FeedForwardLM(V, direct=True, tied=True)
    with pytest.raises(UserError, match=r"decoder 'nnlm': 'context' should be at least 1, got 0"):
        FeedForwardLM(V, context=0)
    with pytest.raises(UserError, match=r"'rnn-lm': 'weight_drop' should be .* below 1, got 1.0"):
        RecurrentLM(V, weight_drop=1.0)
    with pytest.raises(UserError, match=r"'rnn-lm': 'input_dropout' should be .* got -0.1"):
        RecurrentLM(V, input_dropout=-0.1)
    with pytest.raises(UserError, match=r"'bidirectional-lm': 'layers' should be at least 1"):
        BidirectionalLM(V, layers=0)
