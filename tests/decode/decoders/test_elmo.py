"""ELMo's language models: both directions, in pieces and in one; and a softmax over some words."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from weft.batch import Padded
from weft.batch.lm_windows import LMLoader, TokenStream, TokenTypes
from weft.decode.decoders.elmo import BiLM, sampled_loss
from weft.decode.heads.lm import LanguageModelHead
from weft.decode.losses import chunked_loss
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError

V, END = 17, 2
TEXTS = [["the", "cat", "sees"], ["It", "ends"], ["a", "naïve", "zebra", "ends", "it"], ["so"]]


def decoder(seed=0, **options):
    torch.manual_seed(seed)
    small = {"width": 5, "hidden": 7, "filters": ((1, 3), (2, 5)), "character_width": 3}
    return BiLM(V, **{**small, "max_bytes": 6, "dropout": 0.0, **options})


def stream(model):
    out = TokenStream(END, token_types=TokenTypes(model.subtoken_ids))
    for words in TEXTS:
        ids = np.array([3 + sum(map(ord, word.lower())) % (V - 3) for word in words] + [END])
        out.append(ids, words=[*words, ""])
    return out.close()


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def tokens(text):
    """Every token with its bytes, from the mark in front on: (1, N, 1+W)."""
    rows = text.token_types.rows(text.read(0, len(text)))
    return torch.from_numpy(rows)[None]


def lost(model, given):
    """What the scores of each token lose on the one behind it, in the order they are given."""
    read = Padded(given[:, :-1], torch.tensor([given.shape[1] - 1]))
    features = {False: model.features(read), True: model.backward_features(read)}
    return {
        back: F.cross_entropy(
            model.words.logits(features[back])[0], given[0, 1:, 0], reduction="none"
        )
        for back in (False, True)
    }


def test_two_that_are_written_differently_are_two_forms():
    model = decoder()
    forms = TokenTypes(model.subtoken_ids)
    found = forms.numbers([5, 5, 9, 5, 5], ["it", "It", "it", "it", "extraordinary"])
    assert found.tolist() == [0, 1, 2, 0, 3]
    rows = forms.rows(found)
    assert rows.shape == (5, 1 + 8)
    assert rows[:, 0].tolist() == [5, 5, 9, 5, 5]
    assert rows[1, 1:].tolist() == [257, ord("I") + 1, ord("t") + 1, 258, 0, 0, 0, 0]
    assert rows[4, 1:].tolist() == model.subtoken_ids(["extraordinary"])[0]
    many = forms.numbers(range(3000), ["w"] * 3000)
    assert forms.rows(many)[:, 0].tolist() == list(range(3000))
    assert len(forms) == 3004


@pytest.mark.parametrize("window", [2, 3, 20])
def test_both_directions_go_through_all_of_the_text(window):
    text = stream(decoder())
    whole = text.token_types.rows(text.read(0, len(text)))
    batches = [b for b, _ in LMLoader(text, rows=2, window=window, seed=1, epochs=1, in_order=True)]
    steps = -(-len(text) // 2)
    for row, start in enumerate((0, len(text) - steps)):
        part = whole[start : start + steps + 1]  # what stands before it, and it
        for side, order in ((0, part), (1, part[::-1])):
            read = torch.cat([b.source.data[row, :, side] for b in batches]).numpy()
            right = torch.cat([b.target[row, :, side] for b in batches]).numpy()
            assert np.array_equal(read, order[:-1])
            assert np.array_equal(right, order[1:, 0])
    assert sum(b.count for b in batches) == 2 * steps


def test_the_loss_is_the_mean_of_both_directions():
    model = decoder()
    text = stream(model)
    (batch,) = (b for b, _ in LMLoader(text, rows=1, window=99, seed=1, epochs=1, in_order=True))
    total, count, _ = model.loss(batch.source, batch.target)
    given = tokens(text)
    ahead, back = lost(model, given)[False].sum(), lost(model, given.flip(1))[True].sum()
    close(total, (ahead + back) / 2)
    assert count == len(text) == batch.count
    assert (ahead - back).abs() > 1e-3


def test_text_in_pieces_is_text_in_one():
    model = decoder()
    text, sums = stream(model), []
    for window in (99, 4):
        state, total = None, 0.0
        for batch, _ in LMLoader(text, rows=2, window=window, seed=1, epochs=1, in_order=True):
            lost_here, _, state = model.loss(batch.source, batch.target, state)
            total = total + lost_here
            assert not any(part.requires_grad for part in state)
        sums.append(total)
    close(*sums)


def test_directions_have_weights_of_their_own_and_share_the_rest():
    model = decoder().train()
    text = stream(model)
    batch, _ = next(iter(LMLoader(text, rows=2, window=5, seed=1, epochs=1, in_order=True)))
    other = batch.source.data.clone()
    other[:, :, 1] = other[:, :, 1].flip(1)
    made = [model._read(Padded(data, batch.source.lengths), None).raw for data in (
        batch.source.data, other,
    )]  # fmt: skip
    assert torch.equal(made[0][:, :, 0], made[1][:, :, 0])  # the forward one has not noticed
    assert not torch.equal(made[0][:, :, 1], made[1][:, :, 1])
    model.loss(batch.source, batch.target)[0].backward()
    for layer in model.network.layers:
        for weight in layer.parameters():
            assert weight.grad[0].any()
            assert weight.grad[1].any()


def test_ids_are_spelled_as_the_vocabulary_spells_them():
    model = decoder().eval()
    model.set_vocabulary(["", "", "", "cat", "sees"])
    ids = Padded(torch.tensor([[2, 3, 4]]), torch.tensor([3]))
    pieces = torch.zeros(1, 3, 9, dtype=torch.long)
    for t, word in enumerate(["", "cat", "sees"]):
        spelled = model.subtoken_ids([word])[0]
        pieces[0, t, 1 : 1 + len(spelled)] = torch.tensor(spelled)
    close(model.features(ids), model.features(Padded(pieces, ids.lengths)))
    again = decoder(seed=1)
    again.load_state_dict(model.state_dict())
    close(again.eval().features(ids), model.features(ids))


def test_elmo_head_starts_with_the_end_of_sentence_row():
    head = LanguageModelHead(decoder(), SearchSettings(), bos=END, eos=END, window=0, overlap=0.5)
    assert head.bos_row.tolist() == [[END, 257, 258, 0, 0, 0, 0, 0, 0]]
    assert head.has_backward_lm
    assert head.is_stateful
    assert not head.is_bidirectional


def test_a_sample_of_everything_is_the_whole_softmax():
    torch.manual_seed(0)
    x, W, b = (torch.randn(*shape, requires_grad=True) for shape in ((2, 3, 5), (V, 5), (V,)))
    right = Padded(torch.randint(0, V, (2, 3)), torch.tensor([3, 2]))
    exact, _ = chunked_loss(x, W, b, right)
    wanted = torch.autograd.grad(exact, (x, W, b))
    sampled = sampled_loss(x, W, b, right, samples=100_000)
    close(sampled, exact)
    for a, g in zip(torch.autograd.grad(sampled, (x, W, b)), wanted, strict=True):
        close(a, g)


def test_a_sample_of_some_is_right_on_average():
    """exp(score) / P(drawn), summed over what was drawn, estimates the whole sum."""
    torch.manual_seed(0)
    x, W = torch.randn(1, 1, 5), torch.randn(V, 5)
    scores = (W @ x[0, 0]).double()
    right = Padded(torch.tensor([[0]]), torch.tensor([1]))
    drawn = torch.stack([sampled_loss(x, W, None, right, samples=7) for _ in range(4000)])
    # P(drawn) of a word by its rank; the right one is always there, and its score lowered too.
    rank = torch.arange(V).double()
    each = ((rank + 2) / (rank + 1)).log() / math.log(V + 1)
    assert each.sum() == pytest.approx(1)
    chance = 1 - (1 - each) ** 7
    own = scores[0].exp() / chance[0]
    estimate = (drawn.double().exp() * own).mean()
    wanted = own + scores[1:].exp().sum()
    assert estimate == pytest.approx(float(wanted), rel=0.05)


def test_the_sample_is_for_learning_only():
    model = decoder(samples=3)
    text = stream(model)
    batch, _ = next(iter(LMLoader(text, rows=2, window=5, seed=1, epochs=1, in_order=True)))
    model.eval()
    exact = model.loss(batch.source, batch.target)[0]
    assert torch.equal(exact, model.loss(batch.source, batch.target)[0])
    model.train()
    assert not torch.equal(exact, model.loss(batch.source, batch.target)[0])
    with pytest.raises(UserError, match="decoder 'elmo': 'samples' should be 0 or more, got -1"):
        decoder(samples=-1)
