"""Positions against Vaswani's formula."""

import math

import pytest
import torch

from weft.embed.position import LearnedPositions, SinusoidalPositions, sinusoidal_table
from weft.errors import UserError


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids_are_their_formula(width):
    table = sinusoidal_table(11, width)
    for t in range(11):
        for i in range(width):
            angle = t / 10000 ** (2 * (i // 2) / width)
            expected = math.cos(angle) if i % 2 else math.sin(angle)
            assert table[t, i].item() == pytest.approx(expected, abs=1e-5)


def test_sinusoids_have_no_end_and_are_not_saved():
    position = SinusoidalPositions(6, max_positions=5)
    assert not position.state_dict()
    torch.testing.assert_close(position(torch.zeros(1, 11, 6))[0], sinusoidal_table(11, 6))
    torch.testing.assert_close(position(torch.ones(1, 3, 6))[0], sinusoidal_table(3, 6) + 1)


def test_learned_positions_end():
    position = LearnedPositions(3, max_positions=5)
    x = torch.zeros(2, 4, 3)
    torch.testing.assert_close(position(x)[1], position.table[:4])
    with pytest.raises(UserError, match="6 steps, but learned positions end at 5"):
        position(torch.zeros(1, 6, 3))
