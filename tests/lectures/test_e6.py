"""Decks 000, 001, 004: deep and bidirectional networks, and the three initial states."""

import pytest
import torch

from weft import UserError
from weft.batch import Padded
from weft.encode.rnn import Cell, Recurrent, num_states
from weft.model import build_model
from weft.registry import describe_type

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
B, T, E, H, L = 3, 7, 5, 2, 2
CELLS = Cell.__args__


def build(cell, **options):
    torch.manual_seed(1)
    encoder = Recurrent(E, H, L, cell, **options)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return encoder.eval()


def sample():
    torch.manual_seed(0)
    return Padded(torch.randn(B, T, E), torch.tensor([7, 0, 5]))


def random_state(encoder):
    parts = [torch.randn(B, L * encoder.directions, H) for _ in range(encoder.num_states)]
    return parts[0] if len(parts) == 1 else tuple(parts)


def copy_state(encoder, state):
    """Write one row's state into the trained initial state."""
    parts = [state] if torch.is_tensor(state) else state
    for start, part in zip(encoder.starts, parts, strict=True):
        start.copy_(part)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
@torch.no_grad()
def test_a_given_initial_state_is_the_state_before_the_first_step(cell, bidirectional):
    """rnn(initial_state, inputs): as if each row had been trained to start there."""
    encoder, x = build(cell, bidirectional=bidirectional, initial="trained"), sample()
    state = random_state(encoder)
    got = encoder(x, initial_state=state).rows()
    for i, n in enumerate(x.lengths.tolist()):
        row = state[i] if torch.is_tensor(state) else tuple(part[i] for part in state)
        copy_state(encoder, row)
        alone = Padded(x.data[i : i + 1, :n], x.lengths[i : i + 1])
        torch.testing.assert_close(got[i], encoder(alone).rows()[0], **CLOSE)


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_the_result_of_a_previous_computation_continues_it(cell):
    """Deck 001: h_0 is zero, a result of previous computation, or trainable."""
    encoder, x = build(cell, bidirectional=False, initial="trained"), sample()
    whole = encoder(x)
    lengths = x.lengths.clamp(max=4)
    first, state = encoder.encode_with_state(Padded(x.data[:, :4], lengths))
    second, last = encoder.encode_with_state(Padded(x.data[:, 4:], x.lengths - lengths), state)
    torch.testing.assert_close(first.data, whole.data[:, :4], **CLOSE)
    torch.testing.assert_close(second.data, whole.data[:, 4:], **CLOSE)
    once = encoder.encode_with_state(x)[1]
    for a, b in zip(as_parts(last), as_parts(once), strict=True):
        torch.testing.assert_close(a, b, **CLOSE)


def as_parts(state):
    return [state] if torch.is_tensor(state) else list(state)


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_the_last_state_is_where_each_direction_ends(cell):
    encoder, x = build(cell), sample()
    states, last = encoder.encode_with_state(x)
    torch.testing.assert_close(states.data, encoder(x).data, **CLOSE)
    hidden = as_parts(last)[0]
    assert hidden.shape == (B, L * 2, H)
    assert len(as_parts(last)) == num_states(cell)
    for i, n in enumerate(x.lengths.tolist()):
        top = torch.cat([states.data[i, n - 1, :H], states.data[i, 0, H:]]) if n else None
        expected = torch.zeros(2 * H) if top is None else top  # an empty row stays where it was
        torch.testing.assert_close(hidden[i, -2:].flatten(), expected, **CLOSE)


def test_zero_is_the_default_and_trained_learns():
    x = sample()
    plain, trained = build("gru"), build("gru", initial="trained")
    assert not list(plain.starts)
    trained(x).data.sum().backward()
    assert trained.starts[0].grad.any()


def test_the_given_state_gets_a_gradient():
    encoder, x = build("lstm"), sample()
    state = tuple(part.requires_grad_() for part in random_state(encoder))
    encoder(x, initial_state=state).data.sum().backward()
    for part in state:
        assert part.grad[0].any()
        assert not part.grad[1].any()  # the empty row


@pytest.mark.parametrize(
    ("cell", "state", "message"),
    [
        ("gru", torch.zeros(B, H), "should be one tensor of 3 × 4 × 2 .*, got 3 × 2"),
        ("lstm", torch.zeros(B, 4, H), "should be two tensors, h and c, of 3 × 4 × 2 .*, got"),
        ("sum", (torch.zeros(B, 4, H),) * 2, "should be one tensor of 3 × 4 × 2"),
    ],
)
def test_a_state_of_another_shape(cell, state, message):
    with pytest.raises(UserError, match=message):
        build(cell)(sample(), initial_state=state)


def model_of(**encoder):
    parts = {
        "embedder": {"kind": "lookup", "width": E},
        "encoder": encoder,
        "pool": {"kind": "last"},
        "head": {"kind": "linear"},
    }
    torch.manual_seed(1)
    return build_model(parts, vocabulary_size=11, outputs=3).eval()


@torch.no_grad()
def test_a_vector_of_each_text_can_start_the_encoder_of_a_model():
    model = model_of(kind="rnn", cell="gru", hidden=H)
    source = Padded(torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([3, 2]))
    start = torch.randn(2, 2, H)
    states = model.encode(model.embed(source), initial_state=start)
    scores = model.apply_head(model.pool_states(states)[0], source)
    expected = model.encoder(model.embed(source), initial_state=start)
    assert torch.equal(states.data, expected.data)
    assert not torch.allclose(scores, model(source))


def test_an_encoder_without_a_state_says_so():
    model = model_of(kind="cnn", hidden=H)
    source = Padded(torch.tensor([[3, 4, 5]]), torch.tensor([3]))
    with pytest.raises(UserError, match="initial_state is for one text and an encoder of kind"):
        model.encode(model.embed(source), initial_state=torch.zeros(1, 1, H))


def test_cells_are_choices_of_one_option():
    assert describe_type(Cell).startswith("one of 'sum', 'tanh-sum', 'rnn'")
