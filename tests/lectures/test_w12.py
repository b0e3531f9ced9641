"""W12, auto-encoders: y = s(W x̃ + b), z = s(Wᵀ y + b'), loss on x; and a text from its own vector.

x̃ = corrupt(x): Vincent et al. 2008. The sequence auto-encoder: Dai & Le 2015.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from weft.batch import LabelledBatch, Padded
from weft.model import build_model
from weft.tasks.seq2seq import Seq2Seq
from weft.text.example import Example, SkipCounter
from weft.vectors.autoencode import Denoising, SequenceToItself

V, E, H = 11, 3, 5


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_a_corrupted_bag_is_rebuilt_and_compared_with_the_whole_bag(monkeypatch):
    torch.manual_seed(3)
    model = Denoising(V, H, noise=0.4).train()
    torch.nn.init.normal_(model.bias)
    source = Padded.from_rows([[3, 5, 5, 7]])
    draws = torch.rand(1, V)
    monkeypatch.setattr(torch, "rand_like", lambda rows: draws)
    loss = float(model.losses(model(source), source).detach()[0])
    W, b, c = (p.detach().double().numpy() for p in (model.weight, model.hidden_bias, model.bias))
    x = [1.0 if word in (3, 5, 7) else 0.0 for word in range(V)]
    corrupt = [x[v] if draws[0, v] >= 0.4 else 0.0 for v in range(V)]
    assert corrupt != x
    y = [sigmoid(sum(W[v, h] * corrupt[v] for v in range(V)) + b[h]) for h in range(H)]
    z = [sigmoid(sum(W[v, h] * y[h] for h in range(H)) + c[v]) for v in range(V)]
    expected = -sum(
        x[v] * math.log(z[v]) + (1 - x[v]) * math.log(1 - z[v]) for v in range(2, V)
    )  # padding and unknown words are no words of a bag
    assert loss == pytest.approx(expected, rel=1e-5)


def test_a_sequence_is_written_from_the_state_that_read_its_corruption(monkeypatch):
    torch.manual_seed(3)
    model = SequenceToItself(V, E, H, noise=0.5).train()
    words = [3, 7, 4, 9]
    source = Padded.from_rows([words])
    draws = torch.tensor([[0.9, 0.1, 0.8, 0.2]])
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: draws)
    loss = model.losses(model(source), source).detach()[0]
    net, table = model.encoder.net, model.table.table.weight
    weights = [getattr(net, f"{n}_l0") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    state = (torch.zeros(1, H), torch.zeros(1, H))
    for word in [3, 1, 4, 1, model.end]:  # x̃: the second and the fourth word are unknown
        state = torch.lstm_cell(table[word][None], state, *weights)
    total = 0.0
    for word in [*words, model.end]:  # x, each word from the ones before it
        total -= F.log_softmax(model.head(state[0]), 1)[0, word]
        state = torch.lstm_cell(table[word][None], state, *weights)
    torch.testing.assert_close(loss, total.detach(), atol=1e-5, rtol=1e-5)
    model.eval()
    clean = model.losses(model(source), source)[0]
    assert (clean - loss).abs() > 1e-3  # nothing is corrupted after training


CONFIG = {
    "task": {"kind": "seq2seq", "autoencode": True, "shared": True},
    "embedder": {"kind": "lookup", "width": E, "shared": True},
    "encoder": {"kind": "rnn", "hidden": H, "bidirectional": False},
    "decoder": {"kind": "rnn", "width": E, "hidden": 7, "source": "start"},
    "generate": {},
}


def test_the_recipes_decoder_sees_the_text_through_one_vector():
    """log p(x) = Σ_t log softmax(W s_t + b), s_0 = tanh(W_0 h_n + b_0), h_n the encoder's last."""
    torch.manual_seed(3)
    model = build_model(CONFIG, vocabulary_size=V, outputs=(V + 2, V, V + 1)).eval()
    decoder, words = model.head.decoder, [3, 7, 4, 9]
    source = Padded.from_rows([words])
    target = torch.tensor([[*words, V + 1]])[:, :, None]
    task = Seq2Seq(shared=True, autoencode=True)
    loss = task.loss(model(source), LabelledBatch(source, np.zeros(1, int), target, 5))
    states = model.encoder(model.embed(source)).data
    last = states[:, -1]
    torch.testing.assert_close(decoder.source_vector(model.encode_source(source)), last)
    first = torch.tanh(decoder.first(last)).view(1, 2, 1, 7)
    state = (first[:, 0, 0], first[:, 1, 0])
    net, table = decoder.net, decoder.words.table.weight
    weights = [getattr(net, f"{n}_l0") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    total = 0.0
    for before, word in zip([V, *words], [*words, V + 1], strict=True):
        state = torch.lstm_cell(table[before][None], state, *weights)
        total -= F.log_softmax(decoder.words.logits(state[0]), 1)[0, word]
    torch.testing.assert_close(loss.total, total, atol=1e-5, rtol=1e-5)
    assert loss.count == 5


def test_the_target_of_a_text_is_the_text():
    example = Seq2Seq(shared=True, autoencode=True).prepare(Example("a b c", "9"), SkipCounter())
    assert example.label == "a b c"
