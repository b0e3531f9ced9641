"""The part of bench/gpu_generation.py that measures the loss of a large vocabulary.

R words that count   V words
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from record import spread

from weft.batch import Padded
from weft.decode.losses import chunked_loss, sequence_loss

if TYPE_CHECKING:
    from gpu_generation import Bench

# Columns at a time and warps of the kernel that makes slopes of scores.
SHAPES = ((4096, 8), (4096, 16), (8192, 8), (8192, 16), (8192, 32), (16384, 16), (16384, 32))


def loss(bench: Bench) -> None:
    """The loss of a large vocabulary in chunks, against the plain one: equal, and how fast."""
    rows, width, words = (67, 16, 1013) if bench.tiny else (32768, 768, 50257)
    device = bench.device
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        for smoothing in (0.0, 0.1):
            with bench.trying("fused loss"):
                x = torch.randn(1, 67, width, device=device, dtype=dtype).requires_grad_()
                w = (torch.randn(words, width, device=device) * 0.05).to(dtype).requires_grad_()
                b = (torch.randn(words, device=device) * 0.1).to(dtype).requires_grad_()
                right = Padded(torch.randint(words, (1, 67), device=device), torch.tensor([67]))
                found, _ = chunked_loss(x, w, b, right, smoothing, chunk=20 * words)
                mine = torch.autograd.grad(found, (x, w, b))
                wide = [t.detach().double().requires_grad_() for t in (x, w, b)]
                scores = F.linear(*wide)
                total = F.cross_entropy(
                    scores[0], right.data[0], reduction="sum", label_smoothing=smoothing
                )
                theirs = torch.autograd.grad(total, wide)
                error = [
                    float((a.double() - e).norm() / e.norm())
                    for a, e in zip((found.detach(), *mine), (total.detach(), *theirs), strict=True)
                ]
                bound = 1e-5 if dtype == torch.float32 else 2e-2
                kind = str(dtype).removeprefix("torch.")
                bench.line(
                    "fused loss", "" if max(error) < bound else f"WRONG {kind} {error}",
                    dtype=kind, smoothing=smoothing, relative_error=[f"{e:.1e}" for e in error],
                    good=max(error) < bound,
                )  # fmt: skip
    with bench.trying("fused loss, speed"):
        x = torch.randn(1, rows, width, device=device, dtype=torch.bfloat16).requires_grad_()
        w = (torch.randn(words, width, device=device) * 0.05).requires_grad_()
        right = Padded(torch.randint(words, (1, rows), device=device), torch.tensor([rows]))
        low = bench.device.type

        def once(way: Callable[..., Any]) -> None:
            with torch.autocast(low, torch.bfloat16):
                total = way()
            total.backward()
            x.grad = w.grad = None

        ways: dict[str, Callable[[], Any]] = {
            "chunks": lambda: chunked_loss(x, w, None, right)[0],
            "plain": lambda: sequence_loss(F.linear(x, w), right)[0],
        }
        taken = {}
        for name, way in ways.items():
            once(way)
            taken[name] = [bench.seconds(lambda way=way: once(way)) for _ in range(bench.repeats)]
        bench.line(
            "fused loss, speed", f"{1e3 * spread(taken['chunks'], 6)['median']:.1f} ms, plain "
            f"{1e3 * spread(taken['plain'], 6)['median']:.1f} ms", rows=rows, words=words,
            seconds={name: spread(found, 5) for name, found in taken.items()},
        )  # fmt: skip
    if bench.runtime.has_cuda_graphs:
        with bench.trying("slopes"):
            _slopes(bench, rows // 4, words)


def _slopes(bench: Bench, rows: int, words: int) -> None:
    """How long the slopes of one chunk of scores take, by the shape of the kernel."""
    from weft.kernels.triton import cross_entropy as kernel

    scores = torch.randn(rows, -(-words // 64) * 64, device=bench.device, dtype=torch.bfloat16)
    ids = torch.randint(words, (rows,), device=bench.device)
    kept = kernel.BLOCK, kernel.NUM_WARPS
    for shape in SHAPES:
        kernel.BLOCK, kernel.NUM_WARPS = shape

        def several(count: int) -> None:
            for _ in range(count):
                kernel.fused_cross_entropy(scores, ids, words, 0.0, True)

        several(2)
        taken = min(bench.seconds(lambda: several(20)) for _ in range(3)) / 20
        told = f"{1e3 * taken:.3f} ms" + (" (the one in use)" if shape == kept else "")
        moved = round(3 * scores.nbytes / taken / 1e12, 2)  # read twice, written once
        bench.line(f"slopes, {shape[0]} columns, {shape[1]} warps", told, terabytes_per_s=moved)
    kernel.BLOCK, kernel.NUM_WARPS = kept
