"""Promises every encoder keeps. A new encoder is picked up by name; nobody edits this file."""

import copy

import pytest
import torch

from tests.fixtures.attention import MASKS, SCORES, build_spec
from tests.fixtures.shapes import checked
from weft import registry
from weft.batch import Padded
from weft.encode.cells import FORMULA_CELLS
from weft.model.build import build_encoder

WIDTH = 6
LENGTHS = [5, 0, 1, 3]
SMALL = {
    "bag": {},
    "cnn": {"hidden": 7, "widths": [2, 3]},
    "highway": {},
    "mlp": {"hidden": 3, "window": 3},
    "rnn": {"hidden": 3},
    "windowed-rnn": {"hidden": 3, "window": 4},
    "transformer": {"hidden": 4, "heads": 2, "layers": 1, "feed_forward": 5},
}
HEADS = {"kind": "transformer", "hidden": 6, "heads": 3}
VARIANTS = [
    *({**HEADS, "[attention]": {"score": score}} for score in SCORES),
    *({**HEADS, "[attention]": {"score": s, **m}} for s in SCORES[::2] for m in MASKS),
    {"kind": "bag", "hidden": 7, "activation": "tanh"},
    {"kind": "mlp", "hidden": 5, "window": 4, "layers": 1, "activation": "gelu"},
    {"kind": "cnn", "hidden": 3, "widths": [2, 5], "layers": 2, "stride": 2},
    {"kind": "cnn", "hidden": 3, "layers": 2, "dilation": [1, 2], "residual": True},
    {"kind": "cnn", "hidden": 3, "layers": 2, "residual": True, "norm": "after"},
    {"kind": "cnn", "hidden": 3, "layers": 2, "residual": True, "norm": "before"},
    {"kind": "rnn", "hidden": 3, "cell": "rnn", "output_layer": True, "initial": "trained"},
    {"kind": "rnn", "hidden": 3, "cell": "gru", "layers": 2, "initial": "trained"},
    {"kind": "rnn", "hidden": 3, "layers": 2, "initial": "trained", "dropout": 0.3},
    {"kind": "rnn", "hidden": 3, "layers": 2, "bidirectional": False, "initial": "trained"},
    *({"kind": "rnn", "hidden": 3, "cell": cell, "layers": 2} for cell in FORMULA_CELLS),
    *({"kind": "rnn", "hidden": 3, "cell": cell, "initial": "trained"} for cell in FORMULA_CELLS),
    {"kind": "rnn", "hidden": WIDTH, "cell": "sum", "bidirectional": False},
    {"kind": "rnn", "hidden": WIDTH, "cell": "tanh-sum", "bidirectional": False},
    {"kind": "transformer", "hidden": 6, "heads": 3, "norm": "post", "positions": "none"},
    {
        "kind": "transformer",
        "hidden": 4,
        "heads": 2,
        "positions": "learned",
        "cls": True,
        "max_positions": 11,
    },
]
STACKS = [
    [{"kind": "cnn", "hidden": 5, "widths": [3]}, {"kind": "rnn", "hidden": 3}],
    [
        {"kind": "rnn", "hidden": 3, "bidirectional": False},
        {"kind": "rnn", "hidden": 2, "cell": "tied-lstm"},
        {"kind": "highway"},
    ],
    [
        {"kind": "cnn", "hidden": 4, "widths": [2], "stride": 2},
        {"kind": "transformer", "hidden": 4, "heads": 2, "layers": 1},
    ],
    [
        {"kind": "mlp", "hidden": 4, "window": 3},
        {"kind": "transformer", "hidden": 4, "heads": 2, "layers": 1, "cls": True},
    ],
    [{"kind": "bag", "hidden": 7, "activation": "tanh"}],
]
CASES = [{"kind": n, **SMALL.get(n, {})} for n in sorted(registry.parts("encoder"))] + VARIANTS
CASES += STACKS


def sample(lengths=LENGTHS, extra=0, garbage=9.0):
    torch.manual_seed(0)
    data = torch.randn(len(LENGTHS), max(LENGTHS), WIDTH)[: len(lengths), : max(lengths)]
    data = torch.nn.functional.pad(data, (0, 0, 0, extra))
    x = Padded(data, torch.tensor(lengths))
    return Padded(data.masked_fill(~x.mask[..., None], garbage), x.lengths, parents=tree(x))


def tree(x):
    """A binary tree in every row, for encoders that read one."""
    parents = (torch.arange(x.data.shape[1]) - 1).div(2, rounding_mode="floor")
    return torch.where(x.mask, parents, -1)


def build(spec):
    torch.manual_seed(1)
    if isinstance(spec, list):
        return build_encoder({"encoder": spec}, WIDTH).eval()
    return build_spec("encoder", spec, input_size=WIDTH).eval()


@pytest.fixture(params=CASES, ids=str)
def encoder(request):
    return build(request.param)


def test_output_has_the_promised_width_and_length(encoder):
    out = encoder(sample())
    expected = [-(-(n + encoder.leading) // encoder.stride) for n in LENGTHS]
    assert out.lengths.tolist() == expected
    assert out.data.shape == (4, max(expected), encoder.output_size)
    assert not out.data[~out.mask].any()
    assert out.data[out.mask].any(-1).all()


def test_padding_does_not_change_answers(encoder):
    short, long = encoder(sample(garbage=0.0)), encoder(sample(extra=4, garbage=99.0))
    for a, b in zip(short.rows(), long.rows(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_rows_do_not_see_each_other(encoder):
    x = sample()
    together = encoder(x).rows()
    for i, n in enumerate(LENGTHS):
        alone = Padded(
            x.data[i : i + 1, :n], x.lengths[i : i + 1], parents=x.parents[i : i + 1, :n]
        )
        torch.testing.assert_close(encoder(alone).rows()[0], together[i], rtol=1e-5, atol=1e-5)


def test_every_parameter_learns(encoder):
    if not list(encoder.parameters()):
        return
    torch.manual_seed(2)
    out = encoder.train()(sample()).data
    (out * torch.randn_like(out)).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        if "attention.key.bias" not in name:  # shifts all scores of a query alike: always zero
            assert parameter.grad.any(), name


def test_weights_alone_carry_the_answer(encoder):
    before = encoder(sample()).data
    saved = copy.deepcopy(encoder.state_dict())
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(0.5).add_(0.1)
    assert torch.equal(encoder(sample()).data, before) is not bool(saved)
    encoder.load_state_dict(saved)
    assert torch.equal(encoder(sample()).data, before)


def test_nothing_to_read(encoder):
    x = Padded(
        torch.zeros(2, 0, WIDTH), torch.zeros(2, dtype=torch.long), parents=torch.zeros(2, 0)
    )
    out = encoder(x)
    assert out.data.shape == (2, encoder.leading, encoder.output_size)


def test_gradients(encoder):
    lengths = [3, 0, 1]
    encoder = encoder.double()
    x = sample(lengths)
    data = x.data.double().requires_grad_()

    def run(data, *_):
        return encoder(Padded(data, x.lengths, parents=x.parents)).data

    parameters = [p for p in encoder.parameters() if p.numel() < 20]
    assert torch.autograd.gradcheck(run, (data, *parameters))


def test_shape_comments_are_true(encoder):
    assert checked("weft.encode", lambda: encoder(sample())) >= 1


@pytest.mark.parametrize("name", sorted(registry.parts("encoder")))
def test_the_defaults_work(name):
    encoder = build({"kind": name})
    assert encoder(sample()).data.shape[-1] == encoder.output_size
