"""The convolutional decoder against the paper's formulas, written step by step."""

import pytest
import torch

from weft.batch import Padded
from weft.decode.decoders.convolutional import ConvolutionalDecoder, WeightNormConv
from weft.errors import UserError

V, M, E, H, K = 11, 6, 5, 7, 3
LENGTHS = [3, 2, 7]


def build(**options):
    torch.manual_seed(1)
    options = {"width": E, "hidden": H, "layers": 2, "kernel": K, "max_positions": 5, **options}
    decoder = ConvolutionalDecoder(V, M, **options).eval()
    for module in decoder.modules():
        if isinstance(
            module, WeightNormConv
        ):  # lengths and biases of their own, or they would not show
            torch.nn.init.normal_(module.bias)
            torch.nn.init.uniform_(module.length, 0.5, 2.0)
    return decoder


def memory(width=M):
    torch.manual_seed(2)
    return Padded(torch.randn(3, 7, width), torch.tensor(LENGTHS))


def words(steps=5):
    torch.manual_seed(4)
    return Padded(torch.randint(1, V, (3, steps)), torch.full((3,), steps))


def matrix(layer):
    """Weight normalisation: w = g v / |v|, and the span as the last axis."""
    rows = [
        g * v / v.square().sum().sqrt() for g, v in zip(layer.length, layer.direction, strict=True)
    ]
    return torch.stack(rows)


def apply(layer, x):
    return matrix(layer)[:, :, 0] @ x + layer.bias


@pytest.mark.parametrize("with_words", [False, True])
def test_every_block_is_the_papers(with_words):
    decoder = build()
    ids, source = words(), memory()
    embedded = Padded(memory(E).data * 0.7, source.lengths) if with_words else None
    scores = decoder(ids, source, embedded)
    half = 0.5**0.5
    for row, length in enumerate(LENGTHS):
        z = [apply(decoder.memory, s) for s in source.data[row, :length]]
        values = z
        if with_words:
            values = [(a + b) * half for a, b in zip(z, embedded.data[row], strict=False)]
        g = [
            decoder.words.table.weight[i] + decoder.positions.table[t]
            for t, i in enumerate(ids.data[row])
        ]
        x = [apply(decoder.enter, v) for v in g]
        for block in decoder.blocks:
            padded = [torch.zeros(H)] * (K - 1) + x
            out = []
            for t in range(5):
                kernel = matrix(block.convolve)
                made = sum(kernel[:, :, k] @ padded[t + k] for k in range(K)) + block.convolve.bias
                y = made[:H] * torch.sigmoid(made[H:])
                query = (apply(block.query, y) + g[t]) * half
                weights = torch.stack([query @ s for s in z]).softmax(0)
                found = sum(w * v for w, v in zip(weights, values, strict=True))
                context = apply(block.context, found * length * (1 / length) ** 0.5)
                out.append(((y + context) * half + x[t]) * half)
            x = out
        for t in range(5):
            left = apply(decoder.leave, x[t])
            expected = decoder.words.scored @ left + decoder.words.bias
            torch.testing.assert_close(scores[row, t], expected, rtol=1e-5, atol=1e-5)


def test_first_weights_keep_the_variance():
    torch.manual_seed(0)
    layer = WeightNormConv(64, 257, 3, gain=4.0)
    out = layer(torch.randn(11, 23, 64))
    assert 3.5 < out.var() < 4.5
    # The paper's 4 makes up for a gate that halves; a gate that varies lets a little more through.
    assert 1.0 < torch.nn.functional.glu(out[..., :256], dim=2).var() < 1.5


def test_positions_end():
    decoder = build()
    with pytest.raises(UserError, match=r"6 steps, but the positions of decoder 'cnn' end at 5. R"):
        decoder(words(6), memory())
    state = decoder.start(memory())
    for column in words(5).data.unbind(1):
        _, state = decoder.step(column, state)
    with pytest.raises(UserError, match=r"A sequence has 6 steps"):
        decoder.step(column, state)


def test_source_words_of_another_width():
    with pytest.raises(UserError, match=r"words of width 6 to states of width 5. Set decoder.wid"):
        build().start(memory(), embedded=memory())
