"""The parts of bench/gpu_generation.py that write: a GPT and a Marian, against transformers.

B rows   T steps
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from decoding import END, WIDTH, Batch, Transformers, Weft, agreement, batches, marian
from gpu_training import _gpt2
from record import ratios, spread
from torch import Tensor

from weft.batch import Padded
from weft.decode.graphs import Graphs
from weft.decode.search import Rules, search
from weft.decode.search_settings import Settings
from weft.decode.transformer import GPT
from weft.decode.unread import Unread

if TYPE_CHECKING:
    from gpu_generation import Bench

# How Weft may take a step: one by one, as a graph, and with compiled kernels in the graph.
WAYS: dict[str, dict[str, Any]] = {
    "graphs": {},
    "graphs, step compiled": {"compiled": True},
}
FEW = ("graphs",)


def made_graphs(bench: Bench, decoder: Any, **how: Any) -> Graphs:
    """Graphs of a decoder on the device; on a processor, plain calls over the same memory."""
    capture = bench.runtime.captured if bench.runtime.graphs else (lambda work: work)
    return Graphs(decoder, capture, **how)


def gpt_decode(bench: Bench) -> None:
    """Greedy continuation by GPT-2 small, one prompt and many."""
    words, hidden, layers, heads, room = (
        (211, 32, 2, 2, 128) if bench.tiny else (50257, 768, 12, 12, 1024)
    )
    before, more = (5, 20) if bench.tiny else (32, 256)
    torch.manual_seed(0)
    first = GPT(words, hidden, layers, heads, limit=room, dropout=0.0, tied=False).eval()
    with torch.no_grad():
        first.words.scored.normal_(std=0.1)  # type: ignore[union-attr]  # so that few words nearly tie
    theirs: Any = None
    with bench.trying("gpt decoding, transformers"):
        theirs = _gpt2(first, words, hidden, layers, heads, room, tie_word_embeddings=False)
    for dtype in (torch.bfloat16, torch.float32):
        ours = first.to(bench.device, dtype)
        peer = None if theirs is None else theirs.to(bench.device, dtype).eval()
        for rows in (1, 3) if bench.tiny else (1, 32):
            if dtype == torch.float32 and rows > 1:
                continue
            make = torch.Generator().manual_seed(rows)
            ids = torch.randint(1, words, (rows, before), generator=make).to(bench.device)
            _gpt_ways(bench, ours, peer, ids, more, str(dtype).removeprefix("torch."))


def _gpt_ways(bench: Bench, ours: GPT, peer: Any, ids: Tensor, more: int, kind: str) -> None:
    settings = Settings(method="greedy", limit=more)
    rules = Rules(forbidden=[0])
    what, wanted = f"gpt decoding, {kind}, batch {len(ids)}", None
    rates: dict[str, list[float]] = {}

    @torch.no_grad()
    def write(graphs: Graphs | None) -> list[list[int]]:
        rows = Padded(ids[:, :-1], torch.full((len(ids),), ids.shape[1] - 1))
        state = ours.extend(rows, ours.start(len(ids), ids.device))[1]
        step, how, faster = ours.step, settings, None
        if graphs is not None:
            step, state, how, faster = graphs.ready(state, settings, rules)
        found = search(
            step, state, how, batch=len(ids), bos=ids[:, -1], eos=0, rules=rules, faster=faster
        )
        return [row[0].ids for row in found]

    def measured(name: str, work: Callable[[], list[list[int]]], turns: int) -> None:
        nonlocal wanted
        with bench.trying(f"{what}, {name}"):
            begun = bench.seconds(work)
            found = work()
            wanted = wanted or found
            rates[name] = [len(ids) * more / bench.seconds(work) for _ in range(turns)]
            same = sum(a == b for a, b in zip(found, wanted, strict=True))
            agreed = sum(
                next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), more)
                for a, b in zip(found, wanted, strict=True)
            ) / len(ids)
            rate = spread(rates[name], 0)
            bench.line(
                f"{what}, {name}", f"{rate['median']:,.0f} tokens/s, {same}/{len(ids)} equal",
                tokens_per_second=rate, first_s=round(begun, 1), equal_to_eager=same,
                of=len(ids), tokens_before_they_differ=round(agreed, 1),
            )  # fmt: skip

    measured("weft, step by step", lambda: write(None), 2)
    for name in WAYS if kind == "bfloat16" else FEW:
        how = WAYS[name]
        with bench.trying(f"{what}, weft, {name}"):
            bench.fresh()
            graphs = made_graphs(bench, ours, **how)
            measured(f"weft, {name}", lambda graphs=graphs: write(graphs), bench.repeats)  # type: ignore[misc]
            if graphs.trouble:
                told = graphs.trouble[:300]
                bench.line(f"{what}, weft, {name}", f"NOTE {told}", trouble=told)
    if peer is not None:
        for name, more_options in (("static cache", {"disable_compile": True}), ("compiled", {})):
            if (name == "compiled") != (kind == "bfloat16"):
                continue
            bench.fresh()
            turns = 2 if len(ids) == 1 else 3
            measured(
                f"transformers, {name}",
                lambda more_options=more_options: _generated(peer, ids, more, more_options),  # type: ignore[misc]
                turns,
            )
    _compare(bench, what, rates)


def _generated(peer: Any, ids: Tensor, more: int, options: dict[str, Any]) -> list[list[int]]:
    with torch.no_grad():
        out = peer.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
            min_new_tokens=more, max_new_tokens=more, cache_implementation="static",
            pad_token_id=0, suppress_tokens=[0], **options,
        )  # fmt: skip
    return out[:, ids.shape[1] :].tolist()


def _compare(bench: Bench, what: str, rates: dict[str, list[float]]) -> None:
    ours = {
        name: spread(r)["median"] for name, r in rates.items() if name.startswith("weft, graphs")
    }
    best = max(ours, key=lambda name: ours[name], default="")
    for name in rates:
        if name.startswith("transformers") and best:
            size = min(len(rates[best]), len(rates[name]))
            found = ratios(rates[best][:size], rates[name][:size])
            bench.line(
                f"{what}, {best} over {name}", f"{found['median']:.2f}×", best=best, ratio=found
            )


class OnDevice(Weft):
    """Marian's weights in our encoder and decoder, on a device."""

    def __init__(self, theirs: Any, bench: Bench, dtype: torch.dtype):
        super().__init__(theirs)
        self.device, self.dtype = bench.device, dtype
        for part in (self.encoder, self.decoder, self.head):
            part.to(bench.device, dtype)
            if hasattr(part, "positions"):
                part.positions.table = part.positions.table.to(bench.device, dtype)
        self.head.graphs = None

    @torch.no_grad()
    def __call__(self, batch: Batch) -> list[tuple[list[int], float]]:
        source = Unread(batch.padded(self.pad).to(self.device), self.read)
        settings = Settings(width=5, limit=batch.steps, normalise="length", alpha=1.0)
        found = self.head(source).written(settings, Rules(forbidden=[END, self.pad]))
        return [(row[0].ids, row[0].score) for row in found]

    def read(self, source: Padded) -> Padded:
        """What `Model` does with ids before the decoder reads them."""
        vectors = self.decoder.words.table(source.data) * WIDTH**0.5  # (B, S, E)
        return self.encoder(source.with_data(vectors))


class PeerOnDevice(Transformers):
    """transformers' generate on a device."""

    def __init__(self, model: Any, bench: Bench, dtype: torch.dtype):
        super().__init__(copy.deepcopy(model).to(bench.device, dtype))
        self.device = bench.device

    def __call__(self, batch: Batch) -> list[tuple[list[int], float]]:
        moved = replace(batch)
        object.__setattr__(moved, "padded", lambda pad: batch.padded(pad).to(self.device))
        return super().__call__(moved)


def sentences(count: int, size: int, words: int) -> list[Batch]:
    """Batches of sentences of 8 to 31 words, for each of which 32 are written."""
    found = batches(4 * count, size, words)
    found = [batch for batch in found if batch.steps < 32]
    return [replace(batch, steps=32) for batch in found[:: len(found) // count][:count]]


def marian_decode(bench: Bench) -> None:
    """Translations by a beam of five, one sentence and many."""
    words = 211 if bench.tiny else 58101
    model = marian(words)
    ours = {dtype: OnDevice(model, bench, dtype) for dtype in (torch.float32, torch.bfloat16)}
    for rows in (1, 3) if bench.tiny else (1, 64):
        work = sentences(2 if bench.tiny else (6 if rows == 1 else 2), rows, words)
        for dtype, weft in ours.items():
            peer = PeerOnDevice(model, bench, dtype)
            kind = str(dtype).removeprefix("torch.")
            _marian_ways(bench, weft, peer, work, f"marian decoding, {kind}, batch {rows}")


def _marian_ways(bench: Bench, weft: OnDevice, peer: Any, work: list[Batch], what: str) -> None:
    rates: dict[str, list[float]] = {}
    wanted: Any = None
    total = sum(len(batch.rows) for batch in work)

    def measured(name: str, way: Callable[[Batch], Any], turns: int) -> None:
        nonlocal wanted
        with bench.trying(f"{what}, {name}"):
            begun = bench.seconds(lambda: [way(batch) for batch in work])
            found = [one for batch in work for one in way(batch)]
            wanted = wanted or found
            rates[name] = [
                total / bench.seconds(lambda: [way(batch) for batch in work]) for _ in range(turns)
            ]
            rate, agreed = spread(rates[name], 2), agreement(wanted, found)
            told = f"{rate['median']:,.1f} sentences/s, {agreed['equal']}/{agreed['of']} equal"
            bench.line(
                f"{what}, {name}", told, sentences_per_second=rate, first_s=round(begun, 1),
                **agreed,
            )  # fmt: skip

    measured("weft, step by step", weft, 2)
    # In single precision one compiled step is enough to see that sentences stay the same.
    for name in WAYS if weft.dtype == torch.bfloat16 or len(work[0].rows) == 1 else FEW:
        how = WAYS[name]
        with bench.trying(f"{what}, weft, {name}"):
            bench.fresh()
            graphs = weft.head.graphs = made_graphs(bench, weft.decoder, **how)
            measured(f"weft, {name}", weft, bench.repeats)
            if graphs.trouble:
                told = graphs.trouble[:300]
                bench.line(f"{what}, weft, {name}", f"NOTE {told}", trouble=told)
        weft.head.graphs = None
    bench.fresh()
    measured("transformers", peer, 2)
    _compare(bench, what, rates)
