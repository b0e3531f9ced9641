"""The parts of bench/gpu_generation.py that write: a GPT and a Marian, against transformers.

B rows   T steps   P places of a room   N heads   K width per head
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from decoding import END, WIDTH, Batch, Transformers, Weft, agreement, batches, marian
from gpu_training import _gpt2, _kernels
from record import ratios, spread
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from weft.batch import Padded
from weft.decode.cuda_graphs.decode_step import DecodeGraphs
from weft.decode.decoders import kv_cache as rooms
from weft.decode.decoders.lazy_source import LazySource
from weft.decode.decoders.transformer import GPT
from weft.decode.search.search import Constraints, search
from weft.decode.search.settings import SearchSettings

if TYPE_CHECKING:
    from gpu_generation import Bench

# How Weft may take a step: one by one, as a graph, and with compiled kernels in the graph.
WAYS: dict[str, dict[str, Any]] = {
    "graphs": {},
    "graphs, step compiled": {"compiled": True},
}
FEW = ("graphs",)


def made_graphs(bench: Bench, decoder: Any, **how: Any) -> DecodeGraphs:
    """Graphs of a decoder on the device; on a processor, plain calls over the same memory."""
    capture = bench.runtime.capture_graph if bench.runtime.has_cuda_graphs else (lambda work: work)
    return DecodeGraphs(decoder, capture, **how)


def _gpt(bench: Bench) -> tuple[GPT, tuple[int, ...], int, int]:
    """GPT-2 small with random weights, its shape, and the tokens of a prompt and behind it."""
    shape = (211, 32, 2, 2, 128) if bench.tiny else (50257, 768, 12, 12, 1024)
    torch.manual_seed(0)
    made = GPT(*shape[:4], max_positions=shape[4], dropout=0.0, tied=False).eval()
    with torch.no_grad():
        made.words.scored.normal_(std=0.1)  # type: ignore[union-attr]  # so that few words nearly tie
    return (made, shape, 5, 20) if bench.tiny else (made, shape, 32, 256)


def _prompts(bench: Bench, rows: int, steps: int, words: int) -> Tensor:
    make = torch.Generator().manual_seed(rows)
    return torch.randint(1, words, (rows, steps), generator=make).to(bench.device)


@torch.no_grad()
def _continued(ours: GPT, ids: Tensor, more: int, graphs: DecodeGraphs | None) -> list[list[int]]:
    settings, rules = SearchSettings(method="greedy", max_length=more), Constraints(forbidden=[0])
    rows = Padded(ids[:, :-1], torch.full((len(ids),), ids.shape[1] - 1))
    state = ours.prefill(rows, ours.start(len(ids), ids.device))[1]
    step, how, faster = ours.step, settings, None
    if graphs is not None:
        step, state, how, faster = graphs.prepare(state, settings, rules)
    found = search(
        step, state, how, batch=len(ids), bos=ids[:, -1], eos=0, constraints=rules, wrap_step=faster
    )
    return [row[0].ids for row in found]


def gpt_decode(bench: Bench) -> None:
    """Greedy continuation by GPT-2 small, one prompt and many; in single precision to be equal."""
    first, shape, before, more = _gpt(bench)
    theirs: Any = None
    with bench.trying("gpt decoding, transformers"):
        theirs = _gpt2(first, *shape, tie_word_embeddings=False)
    many = 3 if bench.tiny else 32
    for dtype, rows in ((torch.bfloat16, 1), (torch.bfloat16, many), (torch.float32, 1)):
        ours, peer = first.to(bench.device, dtype), None
        if theirs is not None and dtype == torch.bfloat16:
            peer = theirs.to(bench.device, dtype).eval()
        ids = _prompts(bench, rows, before, shape[0])
        _gpt_ways(bench, ours, peer, ids, more, str(dtype).removeprefix("torch."))


def _gpt_ways(bench: Bench, ours: GPT, peer: Any, ids: Tensor, more: int, kind: str) -> None:
    what, wanted = f"gpt decoding, {kind}, batch {len(ids)}", None
    rates: dict[str, list[float]] = {}

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

    full = kind == "bfloat16"
    measured("weft, step by step", lambda: _continued(ours, ids, more, None), 2 if full else 1)
    for name in WAYS if full else FEW:
        how = WAYS[name]
        with bench.trying(f"{what}, weft, {name}"):
            bench.fresh()
            graphs = made_graphs(bench, ours, **how)
            measured(
                f"weft, {name}",
                lambda graphs=graphs: _continued(ours, ids, more, graphs),  # type: ignore[misc]
                bench.repeats if full else 1,
            )
            if graphs.problem:
                told = graphs.problem[:300]
                bench.line(f"{what}, weft, {name}", f"NOTE {told}", trouble=told)
    if peer is not None:
        bench.fresh()
        measured("transformers, compiled", lambda: _generated(peer, ids, more), 3)
    _compare(bench, what, rates)


def _generated(peer: Any, ids: Tensor, more: int) -> list[list[int]]:
    with torch.no_grad():
        out = peer.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
            min_new_tokens=more, max_new_tokens=more, cache_implementation="static",
            pad_token_id=0, suppress_tokens=[0],
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
        source = LazySource(batch.padded(self.pad).to(self.device), self.read)
        settings = SearchSettings(
            num_beams=5, max_length=batch.steps, length_normalisation="length", length_penalty=1.0
        )
        found = self.head(source).generate(settings, Constraints(forbidden=[END, self.pad]))
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
    """Translations by a beam of five, one sentence and many; in single precision to be equal."""
    words, many = (211, 3) if bench.tiny else (58101, 64)
    model = marian(words)
    for dtype, rows in ((torch.bfloat16, 1), (torch.bfloat16, many), (torch.float32, 1)):
        half = dtype == torch.bfloat16
        work = sentences(2 if bench.tiny or rows > 1 else 6, rows, words)
        ours = OnDevice(model, bench, dtype)
        peer = PeerOnDevice(model, bench, dtype) if half else None
        kind = str(dtype).removeprefix("torch.")
        _marian_ways(bench, ours, peer, work, f"marian decoding, {kind}, batch {rows}")


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

    full = peer is not None
    measured("weft, step by step", weft, 2 if full else 1)
    for name in WAYS if full else FEW:
        how = WAYS[name]
        with bench.trying(f"{what}, weft, {name}"):
            bench.fresh()
            graphs = weft.head.graphs = made_graphs(bench, weft.decoder, **how)
            measured(f"weft, {name}", weft, bench.repeats if full else 1)
            if graphs.problem:
                told = graphs.problem[:300]
                bench.line(f"{what}, weft, {name}", f"NOTE {told}", trouble=told)
        weft.head.graphs = None
    if peer is not None:
        bench.fresh()
        measured("transformers", peer, 3)
    _compare(bench, what, rates)


# Rows, beams of a prompt, heads, places and where rows stand: GPT-2 small alone and in a batch,
# Marian's beams alone and in a batch.
ROOMS = ((1, 1, 12, 320, 160), (32, 1, 12, 320, 160), (5, 5, 8, 64, 20), (320, 5, 8, 64, 20))
SHAPES = (None, (256, 8), (128, 8), (128, 4), (64, 8), (64, 4), (64, 2), (32, 4), (32, 2))
CALLS = 50


def room(bench: Bench) -> None:
    """One step of attention over a room: the kernel, in several shapes, against PyTorch's."""
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        for sizes in ROOMS:
            rows, beams = sizes[:2]
            kind = str(dtype).removeprefix("torch.")
            what = f"room, {kind}, {rows} rows" + (f" of {beams} beams" if beams > 1 else "")
            with bench.trying(what):
                _room(bench, what, dtype, most, *sizes)
        for rows in (1, 64):
            with bench.trying(f"memory, {dtype}, {rows} prompts"):
                _memory(bench, dtype, most, rows)


def _memory(bench: Bench, dtype: torch.dtype, most: float, rows: int) -> None:
    """One step of five beams over a memory of 32 steps, 23 of them real: Marian's."""
    beams, heads, steps, width, real = 5, 8, 32, 64, 23
    torch.manual_seed(0)
    asked = torch.randn(rows * beams, 1, heads * width).to(bench.device, dtype)
    keys, values = torch.randn(2, rows, steps, heads, width).to(bench.device, dtype).transpose(2, 3)
    lengths = torch.full((rows,), real, device=bench.device)
    mask = torch.arange(steps, device=bench.device) < lengths[:, None, None, None]
    q = asked.view(-1, 1, heads, width).transpose(1, 2)  # (R, N, 1, K)
    folded = asked.view(rows, beams, heads, width).transpose(1, 2)  # (B, N, W, K)

    def usual() -> Tensor:
        found = scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
        return found.transpose(1, 2).reshape(asked.shape)

    def kernel() -> Tensor:
        return rooms.cross_attend(q, keys, values, lengths)

    apart = float((kernel().float() - usual().float()).abs().max())
    taken = [_microseconds(bench, work) for work in (usual, kernel)]
    bench.line(
        f"memory, {str(dtype).removeprefix('torch.')}, {rows} prompts",
        ("" if apart <= most else "WRONG ")
        + f"{apart:.2g} apart, usual {taken[0]} µs, kernel {taken[1]} µs",
        apart=apart, usual_us=taken[0], kernel_us=taken[1],
    )  # fmt: skip


def _room(
    bench: Bench, what: str, dtype: torch.dtype, most: float, rows: int, beams: int, heads: int,
    places: int, at: int,
) -> None:  # fmt: skip
    width = 8 if bench.tiny else 64
    torch.manual_seed(0)
    made = torch.randn(rows, 1, 3 * heads * width).to(bench.device, dtype)
    q, k, v = (x.view(rows, 1, heads, width).transpose(1, 2) for x in made.chunk(3, -1))
    first = torch.randn(2, rows, heads, places, width).to(bench.device, dtype)
    position = torch.full((rows,), at, device=bench.device)
    table = torch.randint(beams, (rows, places), dtype=torch.int32).to(bench.device)
    told = None if beams == 1 else table  # (B, P)
    here, there = (tuple(first.clone().unbind()) for _ in range(2))
    # As when a past moves: every row has its own.
    if told is not None:
        moved = rooms._writer_rows(told, beams)
        there = tuple(rooms._gather_past(x, moved).contiguous() for x in there)
    alone = rooms.plan_write(position, 1, there[0], None, 0)

    def usual() -> Tensor:
        return alone.attend(q, k, v, there).transpose(1, 2).flatten(2)  # type: ignore[arg-type]

    def kernel(shape: tuple[int, int] | None) -> Tensor:
        if not rooms.has_kernel(bench.device, dtype, width):
            return rooms.self_attend(q, k, v, *here, position, told, beams)
        from weft.kernels.triton.decode_attention import decode_self_attention

        return decode_self_attention(q, k, v, *here, position, told, beams, shape)

    apart = float((kernel(None).float() - usual().float()).abs().max())
    taken = {"usual": _microseconds(bench, usual)}
    for shape in SHAPES[: 1 if bench.tiny else None]:
        taken[f"kernel {shape or 'as chosen'}"] = _microseconds(bench, lambda: kernel(shape))  # noqa: B023
    best = min((name for name in taken if name != "usual"), key=lambda name: taken[name])
    bench.line(
        what,
        ("" if apart <= most else "WRONG ") + f"{apart:.2g} apart, usual {taken['usual']} µs, "
        f"kernel {taken['kernel as chosen']} µs, best {best} {taken[best]} µs",
        apart=apart, microseconds=taken,
    )  # fmt: skip


def _microseconds(bench: Bench, work: Callable[[], Any]) -> float:
    """How long one of many calls in a graph takes."""

    def several() -> None:
        for _ in range(CALLS):
            work()

    again: Callable[[], None] = several
    if bench.runtime.has_cuda_graphs:
        several()
        bench.runtime.wait()
        again = bench.runtime.capture_graph(several)
    again()
    return round(1e6 * min(bench.seconds(again) for _ in range(5)) / CALLS, 2)


# What the compiler may be asked for besides, and for which batches.
TUNED: dict[str, dict[str, Any]] = {"products": {"max_autotune_gemm": True}}


def decode_profile(bench: Bench) -> None:
    """Where the time of a compiled step goes: the kernels that take longest."""
    _profiles(bench, gpt=[(1, ""), (32, "")], translation=[(1, ""), (64, "")])


def decode_products(bench: Bench) -> None:
    """The same where every product of matrices is tried in many ways."""
    _profiles(bench, gpt=[(32, "products")], translation=[(1, "products"), (64, "products")])


def _profiles(bench: Bench, gpt: list[tuple[int, str]], translation: list[tuple[int, str]]) -> None:
    first, shape, before, more = _gpt(bench)
    ours = first.to(bench.device, torch.bfloat16)
    for rows, tuned in gpt:
        rows = min(rows, 3) if bench.tiny else rows
        what = f"profile of gpt decoding, batch {rows} {tuned}"
        ids = _prompts(bench, rows, before, shape[0])
        graphs = made_graphs(bench, ours, compiled=True, options=TUNED.get(tuned))
        with bench.trying(what):
            begun = bench.seconds(lambda: _continued(ours, ids, more, graphs))  # noqa: B023
            _profiled(bench, what, graphs, before + more // 2, begun)
        bench.fresh()
    if not translation:
        return
    words = 211 if bench.tiny else 58101
    weft = OnDevice(marian(words), bench, torch.bfloat16)
    for rows, tuned in translation:
        rows = min(rows, 3) if bench.tiny else rows
        what = f"profile of marian decoding, batch {rows} {tuned}"
        graphs = made_graphs(bench, weft.decoder, compiled=True, options=TUNED.get(tuned))
        weft.head.graphs = graphs
        with bench.trying(what):
            (batch,) = sentences(1, rows, words)
            begun = bench.seconds(lambda: weft(batch))  # noqa: B023
            _profiled(bench, what, graphs, batch.steps // 2, begun)
        bench.fresh()


def _profiled(bench: Bench, what: str, graphs: DecodeGraphs, at: int, begun: float) -> None:
    """The kernels of the step that was captured, from some place of the cache on."""
    ((slot,),) = graphs.buffers.values()
    ((_, step),) = slot.graphs.items()
    count = 3 if bench.tiny else 10
    seconds = 0.0

    def several() -> None:
        nonlocal seconds
        slot.run.time.zero_()
        slot.run.state.position.fill_(at)
        seconds = bench.seconds(lambda: [step() for _ in range(count)])

    with torch.no_grad():
        several()
        plain, found = seconds, _kernels(bench, several)
    busy, calls = sum(taken for _, taken, _ in found), sum(calls for *_, calls in found)
    bench.line(
        what,
        f"{1e6 * plain / count:,.0f} µs a step, {calls / count:.0f} kernels, "
        f"busy {1e3 * busy / count:,.0f} µs",
        step_us=round(1e6 * plain / count, 1), busy_us=round(1e3 * busy / count, 1),
        kernels=calls / count, first_s=round(begun, 1), trouble=graphs.problem[:300],
    )  # fmt: skip
    for name, taken, calls in found[:24]:
        bench.line("kernel", kernel=name, us=round(1e3 * taken / count, 2), calls=calls / count)
