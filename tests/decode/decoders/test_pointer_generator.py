"""The pointer-generator against the paper's formulas, under every decoder with attention."""

import pytest
import torch
from torch import nn

from weft.batch import Padded
from weft.decode.decoders.convolutional import ConvolutionalDecoder
from weft.decode.decoders.pointer_generator import PointerGenerator, extend_ids, ids_with_oov
from weft.decode.decoders.recurrent import RecurrentDecoder
from weft.decode.decoders.transformer import Seq2SeqTransformerDecoder
from weft.decode.search.state import reorder
from weft.errors import UserError
from weft.tokens.vocabulary import Vocabulary

V, M, X = 11, 6, 2
LENGTHS = [3, 2, 7, 0]
DECODERS = {
    "rnn": lambda: RecurrentDecoder(V, M, width=5, hidden=7),
    "rnn with coverage": lambda: RecurrentDecoder(V, M, width=5, hidden=7, coverage=True),
    "bahdanau": lambda: RecurrentDecoder(
        V, M, width=5, hidden=7, attention="bahdanau", coverage=True
    ),
    "cnn": lambda: ConvolutionalDecoder(V, M, width=5, hidden=7, layers=2),
    "transformer": lambda: Seq2SeqTransformerDecoder(V, M, 4, 2, 2, 5),
}


@pytest.fixture(params=DECODERS)
def pointer(request):
    torch.manual_seed(1)
    return PointerGenerator(DECODERS[request.param](), M).eval()


def case():
    torch.manual_seed(2)
    memory = Padded(torch.randn(4, 7, M), torch.tensor(LENGTHS))
    source = Padded(torch.randint(4, V + X, (4, 7)), memory.lengths)
    source.data[0, :3] = torch.tensor([5, V + 1, 5])  # a word twice, and a stranger
    source.data[~source.mask] = 5
    targets = Padded(torch.randint(2, V, (4, 5)), torch.tensor([5, 5, 3, 5]))
    targets.data[0, :3] = torch.tensor([5, V + 1, 9])
    return memory, source, targets


def test_the_distribution_is_the_papers(pointer):
    memory, source, targets = case()
    logp = pointer(targets, memory, source, X)
    assert logp.shape == (4, 5, V + X)
    assert logp.isfinite().all()
    read_ids = torch.where(targets.data < V, targets.data, 1)
    read = pointer.decoder.read(Padded(read_ids, targets.lengths), memory)
    for row, length in enumerate(LENGTHS):
        for t in range(targets.lengths[row]):
            weights = read.weights[row, t, :length]
            context = weights @ memory.data[row, :length]
            word = pointer.decoder.words.table.weight[read_ids[row, t]]
            gate = pointer.gate(torch.cat([context, read.hidden[row, t], word])).sigmoid()
            gate = gate if length else torch.ones(1)
            own = pointer.decoder.words.logits(read.features[row, t]).softmax(0)
            expected = torch.cat([gate * own, torch.zeros(X)])
            for i in range(length):
                expected[source.data[row, i]] += (1 - gate[0]) * weights[i]
            torch.testing.assert_close(logp[row, t].exp(), expected, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(logp[row, t].exp().sum(), torch.tensor(1.0))


def test_stepping_is_the_same_as_all_at_once(pointer):
    memory, source, targets = case()
    whole = pointer(Padded(targets.data, torch.full((4,), 5)), memory, source, X)
    for state in (pointer.start(memory, source, X), pointer.start(memory, source, X).per_prompt()):
        for t, column in enumerate(targets.data.unbind(1)):
            logp, state = pointer.step(column, state)
            torch.testing.assert_close(logp, whole[:, t], rtol=1e-5, atol=1e-5)
    order = torch.tensor([2, 0])
    state = reorder(pointer.start(memory, source, X), order)
    logp, _ = pointer.step(targets.data[order, 0], state)
    torch.testing.assert_close(logp, whole[order, 0], rtol=1e-5, atol=1e-5)


def test_the_loss_scores_only_the_targets(pointer):
    memory, source, targets = case()
    given = Padded(targets.data.roll(1, 1), targets.lengths)
    logp = pointer(given, memory, source, X)
    right = logp.gather(2, targets.data[..., None])[..., 0]
    total, count = pointer.loss(given, targets, memory, source)
    assert count == 18
    torch.testing.assert_close(total, -right[targets.mask].sum(), rtol=1e-5, atol=1e-5)
    total.backward()
    whole = {n: p.grad.clone() for n, p in pointer.named_parameters()}
    pointer.zero_grad()
    (-pointer(given, memory, source, X).gather(2, targets.data[..., None])[..., 0])[
        targets.mask
    ].sum().backward()
    for name, parameter in pointer.named_parameters():
        assert whole[name].isfinite().all()
        torch.testing.assert_close(parameter.grad, whole[name], rtol=1e-4, atol=1e-5)


def test_coverage_counts_attention_given_twice(pointer):
    memory, source, targets = case()
    plain, _ = pointer.loss(targets, targets, memory, source)
    total, _ = pointer.loss(targets, targets, memory, source, coverage=0.5)
    ids = Padded(torch.where(targets.data < V, targets.data, 1), targets.lengths)
    weights = pointer.decoder.read(ids, memory).weights
    expected = 0.0
    for row in range(4):
        had = torch.zeros(7)
        for t in range(targets.lengths[row]):
            expected += torch.minimum(weights[row, t], had).sum()
            had = had + weights[row, t]
    torch.testing.assert_close(total - plain, 0.5 * expected, rtol=1e-4, atol=1e-4)


def test_every_parameter_learns(pointer):
    memory, source, targets = case()
    pointer.train().loss(targets, targets, memory, source, coverage=1.0)[0].backward()
    for name, parameter in pointer.named_parameters():
        assert parameter.grad.isfinite().all(), name
        if not name.endswith("key.bias"):
            assert parameter.grad.any(), name


def test_certainty_does_not_overflow(pointer):
    memory, source, targets = case()
    for opening in (-200.0, 200.0):
        nn.init.constant_(pointer.gate.bias, opening)
        pointer.zero_grad()
        total, _ = pointer.loss(targets, targets, memory, source)
        total.backward()
        assert total.isfinite()
        assert all(p.grad.isfinite().all() for p in pointer.parameters())
        assert not pointer(targets, memory, source, X).isnan().any()


def test_half_precision_runs(pointer):
    memory, source, targets = case()
    exact = pointer(targets, memory, source, X)
    with torch.autocast("cpu", torch.bfloat16):
        logp = pointer(targets, memory, source, X)
        total, _ = pointer.loss(targets, targets, memory, source, coverage=1.0)
    assert logp.dtype == total.dtype == torch.float32
    torch.testing.assert_close(logp.exp(), exact.exp(), rtol=0.1, atol=0.05)
    total.backward()


def test_source_oov_words_get_extended_ids():
    vocabulary = Vocabulary(["<pad>", "<unk>", "a", "b"])
    source, oov_words = extend_ids([["a", "x", "y", "x"], ["z", "b"]], vocabulary)
    assert source.data.tolist() == [[2, 4, 5, 4], [4, 3, 0, 0]]
    assert oov_words == [["x", "y"], ["z"]]
    targets = ids_with_oov([["y", "z", "a"], ["z"]], vocabulary, oov_words)
    assert targets.data.tolist() == [[5, 1, 2], [4, 0, 0]]


def test_copying_needs_attention():
    message = r"Copying needs attention, but decoder 'rnn' has none. Set decoder.source = \"att"
    with pytest.raises(UserError, match=message):
        PointerGenerator(RecurrentDecoder(V, M, source="start"), M)
