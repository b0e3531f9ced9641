"""W3, the feed-forward language model: h1 = V_{w-n} ⊕ … ⊕ V_{w-1}, h2 = f(h1 W1 + b1), softmax."""

import math

import numpy as np
import pytest
import torch

from weft.batch import Padded
from weft.decode.decoders.language_models import FeedForwardLM

V, E, H, C = 13, 3, 7, 5  # words, embedding width, hidden width, words of context

ACTIVATIONS = {
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
}


def slide_probs(model, words, f):
    """Return P(next word | the last C words) as the slide writes it, in double precision."""
    table = model.words.table.weight.detach().double().numpy()
    W1, b1 = model.hidden.weight.detach().double().numpy().T, model.hidden.bias.detach().numpy()
    W2, b2 = model.words.scored.detach().double().numpy().T, model.words.bias.detach().numpy()
    h1 = np.concatenate([table[word] for word in words])  # the oldest word first
    h2 = np.vectorize(f)(h1 @ W1 + b1)
    raised = np.exp(h2 @ W2 + b2)
    return raised / raised.sum()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nnlm_is_a_softmax_over_the_hidden_layer_of_concatenated_vectors(name):
    torch.manual_seed(3)
    model = FeedForwardLM(V, E, C, H, activation=name).eval()
    torch.nn.init.normal_(model.words.table.weight[1:])
    torch.nn.init.normal_(model.words.bias)
    words = [2, 3, 5, 7, 11, 4, 12]
    logits = model(Padded(torch.tensor([words]), torch.tensor([len(words)])))
    probs = logits[0].softmax(1).detach().numpy()  # (T, V)
    for t in range(C - 1, len(words)):
        right = slide_probs(model, words[t - C + 1 : t + 1], ACTIVATIONS[name])
        np.testing.assert_allclose(probs[t], right, atol=1e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nnlm_loss_is_the_cross_entropy_of_the_next_word(name):
    torch.manual_seed(5)
    model = FeedForwardLM(V, E, C, H, activation=name).eval()
    words = [3, 2, 6, 9, 1, 8]
    probs = slide_probs(model, words[:C], ACTIVATIONS[name])
    logits, _ = model.step(torch.tensor(words[C - 1 : C]), torch.tensor([words[: C - 1]]))
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(words[C:]))
    assert loss.item() == pytest.approx(-math.log(probs[words[C]]), abs=1e-5)


def test_default_activation_is_tanh():
    torch.manual_seed(7)
    default = FeedForwardLM(V, E, C, H)
    torch.manual_seed(7)
    named = FeedForwardLM(V, E, C, H, activation="tanh")
    rows = Padded(torch.tensor([[2, 3, 5, 7]]), torch.tensor([4]))
    assert torch.equal(default(rows), named(rows))
