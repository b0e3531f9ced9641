"""The part of bench/gpu_generation.py that fills in hidden words: BERT-base against transformers.

B rows   T steps   V words
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpu_training import profiled, zipf
from record import ratios, spread
from torch import Tensor

from weft.batch.documents import Documents
from weft.batch.loader import LabelledBatch
from weft.batch.mlm_collator import Masking, MLMLabels
from weft.batch.mlm_collator import MLMLoader as Batches
from weft.model import Model, build_model
from weft.runtime import select_runtime
from weft.tasks.mlm import MaskedLM
from weft.tokens.special_tokens import SpecialTokens
from weft.train.loop import fit
from weft.train.settings import Settings
from weft.train.state import TrainState

if TYPE_CHECKING:
    from gpu_generation import Bench

MASK, ORDINARY = 6, 7  # the mask, and the first id that is a word
RATE = {"learning_rate": 1e-4, "weight_decay": 0.01}
CURVE = 30  # updates before the clock runs


def bert_short(bench: Bench) -> None:
    """Updates of BERT-base, rows of 128 tokens with 15 % chosen, dropout 0.1."""
    _compared(bench, *((5, 16) if bench.tiny else (256, 128)))


def bert_long(bench: Bench) -> None:
    """The same with rows of 512."""
    _compared(bench, *((3, 32) if bench.tiny else (64, 512)))


def bert_short_plain(bench: Bench) -> None:
    """Rows of 128 without dropout."""
    _compared(bench, *((5, 16) if bench.tiny else (256, 128)), dropout=0.0)


def bert_long_plain(bench: Bench) -> None:
    """Rows of 512 without dropout."""
    _compared(bench, *((3, 32) if bench.tiny else (64, 512)), dropout=0.0)


def _compared(bench: Bench, rows: int, window: int, dropout: float = 0.1) -> None:
    words, hidden, layers, heads = (211, 24, 2, 2) if bench.tiny else (30522, 768, 12, 12)
    timed, curve = (3, 8) if bench.tiny else (40, CURVE)
    # More than is read, because the last batch of an epoch is smaller: it would be compiled anew.
    ids = zipf(1, (curve + 5 * timed) * rows * window, words - ORDINARY, 1, "cpu")[0].flatten()
    documents = Documents()
    documents.append([(ids + ORDINARY - 1).numpy().astype(np.int32)])
    masking = Masking(
        MASK,
        np.arange(ORDINARY, words),
        SpecialTokens((4,), (5,), (5,)),
        window,
        next_sentence=False,
    )
    stream = partial(Batches, documents.close(), masking, rows=rows, seed=1, epochs=10**6)
    embedder = {
        "kind": "bert", "hidden": hidden, "layers": layers, "heads": heads,
        "max_positions": max(window, 64), "segments": 2, "dropout": dropout,
        "attention_dropout": dropout,
    }  # fmt: skip
    parts = {
        "embedder": embedder, "encoder": {"kind": "none"}, "pool": {"kind": "mean"},
        "head": {"kind": "masked"},
    }  # fmt: skip
    torch.manual_seed(0)
    ours = build_model(parts, vocabulary_size=words, outputs=(words, False))
    theirs = _bert(ours, words, hidden, layers, heads, embedder["limit"], dropout)
    plain = "" if dropout else " without dropout"
    what, speeds = f"bert training, {rows} × {window}{plain}", {}
    # The peer first, so that nothing of ours can stand in its way.
    ways: dict[str, Callable[[], Iterator[Tensor]]] = {
        "transformers": lambda: _theirs(bench, theirs, iter(stream())),
        "weft": lambda: _ours(bench, ours, stream(), window),
    }
    if bench.alone:
        del ways["transformers"]
    for name, make in ways.items():
        with bench.trying(f"{what}, {name}"):
            bench.fresh()
            updates = make()

            def several(count: int, kept: list[Tensor], updates: Any = updates) -> None:
                kept += islice(updates, count)

            found: list[Tensor] = []
            made = bench.seconds(partial(several, 1, found))
            several(curve - 1, found)
            times = [bench.seconds(partial(several, timed, [])) for _ in range(3)]
            speeds[name] = [timed * rows * window / taken for taken in times]
            rate = spread(speeds[name], 0)
            bench.line(
                f"{what}, {name}", f"{rate['median']:,.0f} tokens/s", tokens_per_second=rate,
                first_update_s=round(made, 1), losses=[round(float(x), 3) for x in found[::10]],
                memory_gb=round(bench.runtime.peak_memory() / 2**30, 1),
            )  # fmt: skip
            if bench.alone:
                profiled(bench, f"{what}, profile", lambda updates=updates: next(updates))
            del updates
    if len(speeds) == 2:
        ratio = ratios(speeds["weft"], speeds["transformers"])
        told = f"{what}, weft over transformers"
        bench.line(told, f"{ratio['median']:.2f}×", ratio=ratio)


def _ours(bench: Bench, model: Model, batches: Batches, window: int) -> Iterator[Tensor]:
    """Losses of updates by the product's own loop."""
    settings = Settings(**RATE, epochs=10**6)
    runtime, task = (
        select_runtime(str(bench.device), "bf16"),
        MaskedLM(window=window, next_sentence=False),
    )
    trainee = TrainState.fresh(model.to(bench.device), settings)
    for progress in fit(trainee, task, batches, settings, runtime):
        if failure := trainee.speedup_failure:
            bench.line("bert training, weft", f"NOTE {failure}", trouble=failure)
            trainee.speedup_failure = ""
        yield progress.total / progress.count


def _theirs(
    bench: Bench, model: Any, batches: Iterator[tuple[LabelledBatch, Any]]
) -> Iterator[Tensor]:
    """The same of transformers' model with its own loss: scores of all steps, labels of some."""
    model = model.to(bench.device).train()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, RATE["learning_rate"], fused=bench.device.type == "cuda")
    compiled = torch.compile(lambda ids, labels: model(input_ids=ids, labels=labels).loss)
    for batch, _ in batches:
        ids, labels = batch.source.data, _labels(batch)
        assert batch.source.full
        with torch.autocast(bench.device.type, torch.bfloat16):
            loss = compiled(ids.to(bench.device), labels.to(bench.device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        yield loss.detach()


def _labels(batch: LabelledBatch) -> Tensor:
    """(B, T) what stood at chosen steps, -100 at the others."""
    wanted = MLMLabels.of(batch.target)
    labels = torch.full((len(batch.source), batch.source.data.shape[1] + 1), -100)
    places = torch.where(
        wanted.positions < 0, labels.shape[1] - 1, wanted.positions
    )  # behind the end
    labels = labels.scatter(1, places, torch.where(wanted.ids < 0, -100, wanted.ids))
    return labels[:, :-1].contiguous()


def _bert(
    ours: Model, words: int, hidden: int, layers: int, heads: int, limit: int, dropout: float
) -> Any:
    """transformers' BERT with our weights."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=words, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * hidden, max_position_embeddings=limit, attn_implementation="sdpa",
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    model, embedder, head = BertForMaskedLM(config), ours.embedders[0], ours.head
    below, last = model.bert.embeddings, model.cls.predictions
    pairs: list[tuple[Any, Any]] = [
        (embedder.table, below.word_embeddings),
        (embedder.positions, below.position_embeddings),
        (embedder.segments, below.token_type_embeddings),
        (embedder.norm, below.LayerNorm),
        (head.dense, last.transform.dense),
        (head.norm, last.transform.LayerNorm),
    ]
    for block, layer in zip(embedder.blocks, model.bert.encoder.layer, strict=True):  # type: ignore[arg-type, union-attr]
        attention: Any = block.attention
        pairs += [
            (attention.query, layer.attention.self.query),
            (attention.key, layer.attention.self.key),
            (attention.value, layer.attention.self.value),
            (attention.output, layer.attention.output.dense),
            (block.attention_norm, layer.attention.output.LayerNorm),
            (block.feed_in, layer.intermediate.dense),
            (block.feed_out, layer.output.dense),
            (block.feed_norm, layer.output.LayerNorm),
        ]
    for mine, other in pairs:
        other.load_state_dict(mine.state_dict())
    return model
