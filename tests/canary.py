"""Parts from outside Weft that tell when they were imported or called."""

import os
from pathlib import Path

from torch import nn

from weft.batch import Padded

IMPORTED = "WEFT_CANARY_IMPORTED"
os.environ[IMPORTED] = "yes"


def touch(path: str = "") -> None:
    """What an attacker would call with arguments of his own."""
    Path(path).write_text("called", "utf-8")


class Twice(nn.Module):
    """An encoder of a user's own."""

    def __init__(self, input_size: int):
        super().__init__()
        self.output_size = input_size

    def forward(self, x: Padded) -> Padded:
        return x.with_data(2 * x.data)
