"""Does `weft train --recipe gpt` learn as well as a bare transformers loop? One JSON line a run.

    python bench/gpt_schedule.py --data DATA --record gpt-schedule
    python bench/gpt_schedule.py --data DATA --sizes 4x128 --minutes 1

For each size, LAYERSxWIDTH: the recipe with its own learning rate, warm-up and betas, one epoch
of `lm/wiki_en`; the same with 20 epochs ahead and a time limit; and for each a GPT-2 of
transformers in a plain loop of AdamW, β₂ = 0.95, 100 updates of linear warm-up and a cosine, over
the same batches in the same order, with our learning rate and with the one usual for its size. The
dev loss of all is measured by transformers, in nats a token, after our weights were exported.
"""

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Record

import weft
from weft import config as configuration
from weft.batch.lm_windows import TokenStream
from weft.run import lm_data
from weft.run.convert import export
from weft.run.data import Data, example_source
from weft.run.split import Splits
from weft.train.settings import Settings

USUAL = {768: 6e-4, 384: 1e-3, 128: 1e-3}  # GPT-3's small model; nanoGPT's "baby" and smaller ones
WARMUP, BETAS = 100, (0.9, 0.95)


def corpus(root: Path, part: str, megabytes: float) -> Any:
    """A part of `lm/wiki_en`, paragraph by paragraph, up to so many megabytes."""
    (path,) = (root / "lm/wiki_en").glob(f"{part}.txt*")
    read = example_source(Data(), str(path), mode="texts")

    def examples() -> Iterator[Any]:
        left = megabytes * 1e6
        for example in read():
            left -= len(example.text)
            if left < 0:
                return
            yield example

    return examples


def train_weft(job: dict[str, Any], folder: Path) -> tuple[dict[str, Any], TokenStream, Settings]:
    """Train the recipe; return what came of it, the tokens it learned from and its settings."""
    kept: list[tuple[TokenStream, Settings]] = []
    usual = lm_data.build_stream

    def keep(run: Any, *others: Any) -> TokenStream:
        kept.append((usual(run, *others), run.settings))
        return kept[-1][0]

    shape = {"layers": job["layers"], "hidden": job["hidden"], "heads": job["heads"]}
    changes = {f"decoder.{name}": value for name, value in shape.items()}
    changes |= {"train.epochs": job["epochs"], "train.minutes": job["minutes"]}
    changes |= {"train.patience": 0, **job["changes"]}
    if job["tokenizer"]:
        changes["tokenizer.path"] = job["tokenizer"]
    config = configuration.recipe("gpt").with_values(changes, "bench")
    splits = Splits(
        corpus(job["root"], "train", job["megabytes"]), corpus(job["root"], "valid", 1e9), None
    )
    lm_data.build_stream = keep  # type: ignore[assignment]
    try:
        began = time.perf_counter()
        out = weft.train(config, folder / "run", splits=splits, quiet=True, device=job["device"])
    finally:
        lm_data.build_stream = usual
    rows = [json.loads(line) for line in open(folder / "run/metrics.jsonl", encoding="utf-8")]
    (stream, settings), steps = kept[0], [row["step"] for row in rows if "step" in row]
    made = {
        "updates": max(steps),
        "seconds": round(time.perf_counter() - began, 1),
        "dev_perplexity": round(out.figures["dev"]["perplexity"].value, 2),
        "learning_rate": settings.learning_rate,
        "notes": out.record["notes"][:1],
    }
    return made, stream, settings


def train_bare(
    job: dict[str, Any],
    stream: TokenStream,
    settings: Settings,
    size: int,
    updates: int,
    peak: float,
) -> Any:
    """A GPT-2 of transformers in a plain loop, over the batches that ours read."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    drop = job["dropout"]
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=size, n_positions=256, n_embd=job["hidden"], n_layer=job["layers"],
            n_head=job["heads"], resid_pdrop=drop, embd_pdrop=drop, attn_pdrop=drop,
        )
    ).to(job["device"])  # fmt: skip
    model.train()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, peak, BETAS)

    def rate(step: int) -> float:
        if step < WARMUP:
            return step / WARMUP
        return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(updates - WARMUP, 1)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    batches = lm_data.LMLoader(
        stream, rows=lm_data.windows_per_batch(len(stream), 256, settings), window=256,
        seed=settings.seed, epochs=settings.epochs, in_order=False,
    )  # fmt: skip
    for step, (batch, _) in enumerate(batches):
        if step == updates:
            break
        ids, target = batch.source.data.to(job["device"]), batch.target.to(job["device"])
        with torch.autocast(job["device"], torch.bfloat16, enabled=job["device"] != "cpu"):
            logits = model(ids).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
    return model


@torch.no_grad()
def dev_loss(model: Any, ids: np.ndarray, device: str) -> float:
    """Nats a token over windows of 256 that follow each other, in single precision."""
    model.to(device).eval()
    total, count = 0.0, 0
    starts = range(0, len(ids) - 257, 256)
    for some in (starts[i : i + 32] for i in range(0, len(starts), 32)):
        rows = torch.from_numpy(np.stack([ids[s : s + 257] for s in some]).astype(np.int64))
        rows = rows.to(device)
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        total, count = total + float(loss) * rows[:, 1:].numel(), count + rows[:, 1:].numel()
    return total / count


def compare(job: dict[str, Any], record: Record, folder: Path) -> None:
    """Ours and the bare loops, of one size, with or without a time limit."""
    from transformers import GPT2LMHeadModel

    made, stream, settings = train_weft(job, folder)
    predictor = weft.load(folder / "run", device="cpu")
    space: Any = predictor.space
    texts = [example.text for example in corpus(job["root"], "valid", 1e9)()]
    ids = np.concatenate([np.asarray(one) for one in space.ids(texts)])
    export(folder / "run", folder / "hf")
    ours = dev_loss(GPT2LMHeadModel.from_pretrained(folder / "hf"), ids, job["device"])
    size = len(predictor.engine.indexer.tokenizer)  # type: ignore[attr-defined]
    bare = {}
    for peak in dict.fromkeys((settings.learning_rate, USUAL.get(job["hidden"], 1e-3))):
        model = train_bare(job, stream, settings, size, made["updates"], peak)
        bare[f"{peak:g}"] = round(dev_loss(model, ids, job["device"]), 4)
    best = min(bare.values())
    record.line(
        "GPT against a bare loop", layers=job["layers"], hidden=job["hidden"],
        minutes=job["minutes"], dev_loss=round(ours, 4), bare=bare,
        worse_percent=round(100 * (ours / best - 1), 2), tokens=len(stream), **made,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA", ""))
    parser.add_argument("--sizes", default="12x768,6x384,4x128")
    parser.add_argument("--minutes", default="0,1", help="time limits; 0: one epoch, no limit")
    parser.add_argument("--megabytes", type=float, default=1e9, help="of text, for dry runs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--record", default="")
    asked = parser.parse_args()
    record = Record(asked.record)
    tokenizer = Path(tempfile.mkdtemp()) / "tokenizer.json"  # of the first run, for all others
    common = {"root": Path(asked.data), "device": asked.device, "megabytes": asked.megabytes}
    for size in asked.sizes.split(","):
        layers, hidden = map(int, size.split("x"))
        shape = {"layers": layers, "hidden": hidden, "heads": max(hidden // 64, 2), "dropout": 0.2}
        for minutes in map(float, asked.minutes.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                job = {
                    **common, **shape, "minutes": minutes, "epochs": 20 if minutes else 1,
                    "changes": {}, "tokenizer": str(tokenizer) if tokenizer.is_file() else "",
                }  # fmt: skip
                compare(job, record, Path(folder))
                shutil.copy(Path(folder) / "run/model/tokenizer.json", tokenizer)


if __name__ == "__main__":
    main()
