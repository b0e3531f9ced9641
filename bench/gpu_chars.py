"""The part of bench/gpu_generation.py that trains a GPT of characters, as `weft train` does."""

from __future__ import annotations

import gzip
import math
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from weft.config import recipe
from weft.run.train import train

if TYPE_CHECKING:
    from gpu_generation import Bench


def chars(bench: Bench) -> None:
    """Tiny Shakespeare: nine tenths to learn from, the rest to validate, to the character."""
    text = _text(Path(bench.data) / "lm" / "tinyshakespeare")
    text = text[:30000] if bench.tiny else text
    cut = int(0.9 * len(text))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, part in (("train", text[:cut]), ("dev", text[cut:])):
            (place / f"{name}.txt").write_text(part, "utf-8")
        batches = cut / (64 * 256)
        epochs = 1 if bench.tiny else round(3000 / batches)
        sets = {
            "task.lines": False, "task.window": 256, "tokenizer": {"kind": "character"},
            "train.epochs": epochs, "train.batch_size": 64, "train.learning_rate": 1e-3,
            "train.beta2": 0.99, "train.weight_decay": 0.1, "train.schedule": "cosine",
            "train.warmup": 0.02, "train.evaluate_every": 10**6 if bench.tiny else 250,
            "train.patience": 0, "train.save_every": 10**6,
            "data.train": str(place / "train.txt"), "data.dev": str(place / "dev.txt"),
        }  # fmt: skip
        if bench.tiny:
            sets |= {"decoder.hidden": 12, "decoder.layers": 1, "decoder.heads": 2}
            sets |= {"decoder.max_positions": 32, "task.window": 32}
        begun, curve = time.perf_counter(), []

        def heard(step: int, figures: dict[str, float]) -> None:
            nats = figures["bits_per_character"] * math.log(2)
            curve.append([step, round(nats, 4), round(time.perf_counter() - begun, 1)])
            bench.line("character GPT, validation", step=step, nats=nats, seconds=curve[-1][2])

        config = recipe("gpt").with_values(sets, "bench")
        device = str(bench.device)
        done = train(
            config, bench.folder or place / "run", device=device, on_evaluate=heard, quiet=True
        )
        seconds = time.perf_counter() - begun
    best = min(curve, key=lambda one: one[1])
    first = next((one for one in curve if one[1] <= 1.47), None)
    bench.line(
        "character GPT", f"{best[1]:.4f} nats at update {best[0]}, {seconds:.0f} s in all, "
        f"1.47 after {first[2] if first else '—'} s", best=best, curve=curve,
        seconds=round(seconds, 1), parameters=done.predictor.engine.parameters,
        reached=first,
    )  # fmt: skip


def _text(folder: Path) -> str:
    packed = folder / "input.txt.gz"
    if packed.is_file():
        with gzip.open(packed, "rt", encoding="utf-8") as file:
            return file.read()
    return (folder / "input.txt").read_text("utf-8")
