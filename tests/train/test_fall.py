"""How far the loss fell, part by part."""

import pytest
import torch

from weft.batch import Position
from weft.train.fall import FEWEST, Fall
from weft.train.loop import Progress


def told(losses, first=0):
    """What is found of a training with one loss an update; `first` ones were not seen."""
    fall, n = Fall(), len(losses)
    for i, loss in enumerate(losses):
        if i >= first:
            total = torch.tensor(3 * loss)
            fall.add(Progress(i, Position(), (i + 1) / n, 0.1, 3, total, total, (), False))
    return fall.ends


def test_the_start_and_the_lowest():
    falling = [1.0] * 3 + [0.5] * 97 + [0.2] * 3 + [0.6] * 17  # 6 updates a part, 5 in the first
    start, lowest = told(falling)
    assert start == pytest.approx((3 * 1.0 + 2 * 0.5) / 5)
    assert 0.2 < lowest < 0.5
    assert told([0.7] * 120) == pytest.approx((0.7, 0.7))


def test_too_little_tells_nothing():
    assert told([0.7] * (FEWEST - 1)) is None
    assert told([0.7] * 120, first=60) is None  # a run that went on
