"""The part of bench/gpu_generation.py that asks what a compiler could do besides for a GPT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from gpu_training import _ours, zipf
from record import spread
from torch import Tensor, nn

from weft.decode.decoders.transformer import GPT
from weft.kernels.compile import Compilable

if TYPE_CHECKING:
    from gpu_generation import Bench

# Blocks that the compiler sees as one.
TOGETHER = (1, 3, 12)


def gpt_ways(bench: Bench) -> None:
    """Updates of GPT-2 small with its blocks compiled one by one, by threes, and all at once."""
    words, hidden, layers, heads, steps, rows = (
        (211, 32, 3, 2, 16, 3) if bench.tiny else (50257, 768, 12, 12, 1024, 32)
    )
    ids = zipf(rows, steps, words, 1, bench.device)[0]
    for size in TOGETHER:
        name = f"{size} at a time"
        with bench.trying(f"gpt training, {name}"):
            bench.fresh()
            torch._dynamo.reset()
            torch.manual_seed(0)
            model = GPT(words, hidden, layers, heads, max_positions=steps, dropout=0.0)
            if size > 1:
                several = [model.blocks[i : i + size] for i in range(0, layers, size)]
                model.blocks = nn.ModuleList(Several(some) for some in several)
            update = _ours(bench, model.to(bench.device).train())
            made = bench.seconds(lambda: update(ids))  # noqa: B023
            for _ in range(3):
                update(ids)
            count = 3 if bench.tiny else 20
            times = [
                bench.seconds(lambda: [update(ids) for _ in range(count)])  # noqa: B023
                for _ in range(2)
            ]
            each = [1e3 * taken / count for taken in times]
            bench.line(
                f"gpt training, {name}", f"{min(each):.2f} ms an update",
                update_ms=spread(each), first_update_s=round(made, 1),
            )  # fmt: skip


class Several(Compilable):
    """Some blocks as one for the compiler."""

    def __init__(self, blocks: nn.ModuleList):
        super().__init__()
        # Not as modules that are compiled by themselves.
        self.__dict__["blocks"] = list(blocks)
        self.weights = nn.ParameterList(p for block in blocks for p in block.parameters())

    def forward(self, x: Tensor, *given: Any) -> tuple[Tensor, None, None]:
        for block in self.blocks:
            x, _, _ = block(x, *given)
        return x, None, None
