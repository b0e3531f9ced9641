"""Losses in chunks against the plain ones, and inputs a decoder wrote itself."""

import pytest
import torch
import torch.nn.functional as F

from weft.batch import Padded
from weft.decode import losses
from weft.decode.decoders.language_models import RecurrentLM
from weft.decode.decoders.recurrent import RecurrentDecoder
from weft.decode.losses import (
    chunked_loss,
    mix_inputs,
    scheduled_sampling,
    sequence_loss,
    shift_right,
    token_log_probs,
)

V, H = 11, 5
LENGTHS = torch.tensor([7, 0, 3])


def case(dtype=torch.float32):
    torch.manual_seed(0)
    features = torch.randn(3, 7, H, dtype=dtype)
    targets = Padded(torch.randint(1, V, (3, 7)), LENGTHS)
    features[~targets.mask] = 99.0
    weight, bias = torch.randn(V, H, dtype=dtype), torch.randn(V, dtype=dtype)
    return [t.requires_grad_() for t in (features, weight, bias)], targets


def by_hand(features, weight, bias, targets, smoothing, counted=None):
    """Cross-entropy with the right answer smoothed, word by word."""
    total, count = 0.0, 0
    for row, n in enumerate(targets.lengths):
        for t in range(n):
            if counted is not None and not counted[row, t]:
                continue
            logp = (weight @ features[row, t] + bias).log_softmax(0)
            wanted = torch.full((V,), smoothing / V, dtype=logp.dtype)
            wanted[targets.data[row, t]] += 1 - smoothing
            total, count = total - (wanted * logp).sum(), count + 1
    return total, count


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("chunk", [1, 3 * V, 1000])
@pytest.mark.parametrize("some", [False, True])
def test_losses_and_their_gradients(smoothing, chunk, some):
    (features, weight, bias), targets = case()
    counted = (torch.arange(7) % 2 == 0).expand(3, 7) if some else None
    expected, count = by_hand(features, weight, bias, targets, smoothing, counted)
    wanted = torch.autograd.grad(expected * 3, (features, weight, bias))
    plain = sequence_loss(F.linear(features, weight, bias), targets, smoothing, counted)
    chunks = chunked_loss(features, weight, bias, targets, smoothing, counted, chunk)
    for total, words in (plain, chunks):
        assert words == count == (6 if some else 10)
        torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-5)
        for a, b in zip(
            torch.autograd.grad(total * 3, (features, weight, bias)), wanted, strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert not wanted[0][~targets.mask].any()


def test_full_rows_and_no_bias():
    (features, weight, _), _ = case()
    targets = Padded(torch.randint(1, V, (3, 7)), torch.tensor([7, 7, 7]))
    expected, _ = sequence_loss(features @ weight.T, targets)
    total, count = chunked_loss(features, weight, None, targets, chunk=4 * V)
    assert count == 21
    torch.testing.assert_close(total, expected)
    total.backward()
    assert weight.grad.any()


def test_nothing_to_count():
    (features, weight, bias), _ = case()
    none = Padded(torch.zeros(3, 7, dtype=torch.long), torch.tensor([0, 0, 0]))
    for total, count in (
        sequence_loss(F.linear(features, weight, bias), none),
        chunked_loss(features, weight, bias, none),
    ):
        assert count == 0
        assert total == 0
        total.backward()
        assert not weight.grad.any()


def test_only_required_inputs_get_a_gradient():
    (features, weight, bias), targets = case()
    chunked_loss(features.detach(), weight, bias.detach(), targets)[0].backward()
    assert features.grad is None
    assert bias.grad is None
    assert weight.grad.any()
    with torch.no_grad():
        total, _ = chunked_loss(features, weight, bias, targets)
    assert not total.requires_grad


def test_gradients_by_differences():
    (features, weight, bias), targets = case(torch.double)
    features = features.detach()[targets.mask].requires_grad_()
    ids = targets.data[targets.mask]
    whole = Padded(ids[None], torch.tensor([len(ids)]))

    def total(features, weight, bias):
        return chunked_loss(features[None], weight, bias, whole, 0.2, chunk=3 * V)[0]

    def each(features, weight, bias):
        return token_log_probs(features, weight, bias, ids, chunk=3 * V)

    assert torch.autograd.gradcheck(total, (features, weight, bias))
    assert torch.autograd.gradcheck(each, (features, weight, bias))
    assert torch.autograd.gradcheck(lambda f, w: each(f, w, None), (features, weight))


def test_the_score_of_one_word_each():
    (features, weight, bias), targets = case()
    rows, ids = features.flatten(0, 1), targets.data.flatten()
    expected = F.linear(rows, weight, bias).log_softmax(1)[torch.arange(21), ids]
    torch.testing.assert_close(token_log_probs(rows, weight, bias, ids, 2 * V), expected)
    assert token_log_probs(rows[:0], weight, bias, ids[:0]).shape == (0,)


def test_half_precision_adds_up_in_single():
    (features, weight, bias), targets = case()
    expected, _ = sequence_loss(F.linear(features, weight, bias), targets)
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = chunked_loss(features, weight, bias, targets, chunk=3 * V)
        each = token_log_probs(features.flatten(0, 1), weight, bias, targets.data.flatten())
    assert total.dtype == each.dtype == torch.float32
    torch.testing.assert_close(total, expected, rtol=0.02, atol=0.02)
    (total + each.sum()).backward()
    assert weight.grad.dtype == features.grad.dtype == torch.float32


def test_shift_right_prepends_bos():
    targets = Padded(torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([3, 2]))
    read = shift_right(targets, bos=2)
    assert read.data.tolist() == [[2, 5, 6], [2, 7, 0]]
    assert read.lengths.tolist() == [3, 2]


def decoders():
    torch.manual_seed(0)
    memory = Padded(torch.randn(3, 5, 4), torch.tensor([5, 2, 0]))
    attention = RecurrentDecoder(V, 4, width=3, hidden=H, input_feeding=True).eval()
    model = RecurrentLM(V, 3, H).eval()
    given = Padded(torch.randint(1, V, (3, 7)), torch.tensor([7, 7, 7]))
    yield attention, given, attention.start(memory), lambda ids: attention(ids, memory)
    yield model, given, model.start(3, "cpu"), model


def test_scheduled_sampling_from_none_to_all():
    for decoder, given, state, whole in decoders():
        features = scheduled_sampling(decoder, given, state, 0.0)
        scores = decoder.words.logits(features)
        torch.testing.assert_close(scores, whole(given), rtol=1e-5, atol=1e-5)
        scores = decoder.words.logits(scheduled_sampling(decoder, given, state, 1.0, sample=False))
        own = torch.cat([given.data[:, :1], scores.argmax(2)[:, :-1]], dim=1)
        expected = whole(Padded(own, given.lengths))
        torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)
        scores.sum().backward()
        assert all(p.grad is not None for p in decoder.net.parameters())


def test_sampled_words_follow_the_distribution():
    torch.manual_seed(0)
    model = RecurrentLM(V, 3, H).eval()
    with torch.no_grad():
        model.words.bias.normal_()[1] = -1.0
    given = Padded(torch.ones(4001, 2, dtype=torch.long), torch.full((4001,), 2))
    chosen = []
    model.words.table.register_forward_hook(lambda _, ids, __: chosen.append(ids[0]))
    scheduled_sampling(model, given, model.start(4001), 1.0)
    shares = torch.bincount(chosen[1].flatten(), minlength=V) / 4001
    expected = model(Padded(given.data[:1, :1], torch.tensor([1])))[0, 0].softmax(0)
    assert (shares - expected).abs().max() < 0.03
    chosen.clear()
    scheduled_sampling(model, given, model.start(4001), 0.25, sample=False)
    best = expected.argmax()
    assert 0.2 < (chosen[1] == best).float().mean() < 0.3


def test_two_passes_mix_what_was_given_and_what_was_written():
    torch.manual_seed(0)
    given = Padded(torch.ones(101, 7, dtype=torch.long), torch.full((101,), 7))
    given.lengths[0] = 2
    out = mix_inputs(given, torch.full_like(given.data, 2), 0.3)
    assert (out.data[:, 0] == 1).all()
    assert not out.data[0, 2:].any()
    assert 0.25 < (out.data[1:, 1:] == 2).float().mean() < 0.35


def in_place(scores, ids, words, smoothing, wanted):
    """What the kernel of a GPU does, by PyTorch: scores become slopes, zero behind the words."""
    assert scores.shape[1] % 64 == 0
    logp = scores[:, :words].float().log_softmax(1)
    aim = torch.full_like(logp, smoothing / words)
    aim.scatter_add_(1, ids[:, None], torch.full((len(ids), 1), 1 - smoothing))
    if wanted:
        scores.zero_()
        scores[:, :words] = logp.exp() - aim
    return -(aim * logp).sum(1)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("chunk", [64, 1000])
def test_words_are_aligned_for_a_kernel(monkeypatch, smoothing, chunk):
    (features, weight, bias), targets = case()
    expected, count = by_hand(features, weight, bias, targets, smoothing)
    wanted = torch.autograd.grad(expected * 3, (features, weight, bias))
    monkeypatch.setattr(losses, "_fused_kernel", lambda w: in_place)
    total, words = chunked_loss(features, weight, bias, targets, smoothing, chunk=chunk)
    assert words == count
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(torch.autograd.grad(total * 3, (features, weight, bias)), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        again, _ = chunked_loss(features, weight, bias, targets, smoothing, chunk=chunk)
    torch.testing.assert_close(again, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_target_below_zero_costs_nothing(smoothing):
    (features, weight, bias), _ = case()
    given = features.detach().flatten(0, 1).requires_grad_()  # (B*T, F)
    ids = torch.arange(len(given)) % len(weight)
    ids[::3] = -1
    kept = (ids >= 0).nonzero().squeeze(1)
    whole = Padded(ids[None], torch.tensor([len(ids)]))
    some = Padded(ids[kept][None], torch.tensor([len(kept)]))
    expected, _ = chunked_loss(given[kept][None], weight, bias, some, smoothing)
    wanted = torch.autograd.grad(expected, (given, weight, bias))
    total, _ = chunked_loss(given[None], weight, bias, whole, smoothing, chunk=5 * len(weight))
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(torch.autograd.grad(total, (given, weight, bias)), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
