"""The parts of bench/gpu_generation.py that learn: a GPT against transformers, LSTMs against torch.

B rows   T steps   V words   H hidden width   L layers
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from record import ratios, spread
from torch import Tensor, nn

from weft.batch import Padded
from weft.batch.lm_windows import LMLoader, TokenStream
from weft.decode.decoders.transformer import GPT
from weft.decode.losses import chunked_loss
from weft.kernels.compile import compile_blocks
from weft.model import build_model
from weft.runtime import select_runtime
from weft.tasks.language import LanguageModelling
from weft.train.loop import fit
from weft.train.optim import build_optimisers, clip_gradients
from weft.train.settings import Settings
from weft.train.state import TrainState

if TYPE_CHECKING:
    from gpu_generation import Bench

PEAK = 989e12  # dense bf16 operations a second of an H200, by its data sheet
Work = Callable[[Tensor], Tensor]  # ids (B, T+1) -> loss of an update


def zipf(rows: int, steps: int, words: int, count: int, device: Any, seed: int = 1) -> list[Tensor]:
    """Made text (B, T+1) whose words are as unequally frequent as real ones, so that it teaches."""
    make = torch.Generator().manual_seed(seed)
    chances = 1 / torch.arange(2, words + 1).double()
    drawn = torch.multinomial(chances, count * rows * (steps + 1), replacement=True, generator=make)
    ids = drawn.view(count, rows, steps + 1) + 1
    return [one.to(device) for one in ids]


def gpt_train(bench: Bench) -> None:
    """Updates of GPT-2 small: ours in several ways, and transformers' compiled."""
    words, hidden, layers, heads, steps, rows = (
        (211, 32, 2, 2, 16, 3) if bench.tiny else (50257, 768, 12, 12, 1024, 32)
    )
    timed, curve = (3, 4) if bench.tiny else (40, 50)
    lines = zipf(rows, curve * steps - 1, words, 1, "cpu")[0]
    batches = [
        torch.cat([one.source.data, one.target[:, -1:]], 1).to(bench.device)
        for one, _ in islice(iter(_pieces(lines, steps)), curve)
    ]
    torch.manual_seed(0)
    first = GPT(words, hidden, layers, heads, max_positions=steps, dropout=0.0)
    start = {name: value.clone() for name, value in first.state_dict().items()}
    size = sum(p.numel() for p in first.parameters()) - steps * hidden
    operations = 6 * size + 12 * layers * hidden * steps  # a token, as in Chowdhery et al. (2022)

    def ours() -> Work:
        model = GPT(words, hidden, layers, heads, max_positions=steps, dropout=0.0)
        model.load_state_dict(start)
        return _ours(bench, model.to(bench.device).train())

    def fitted() -> Work:
        shape = {
            "hidden": hidden,
            "layers": layers,
            "heads": heads,
            "max_positions": steps,
            "dropout": 0.0,
        }
        return _fitted(bench, {"kind": "gpt", **shape}, start, lines, words, steps)

    def theirs() -> Work:
        return _theirs(bench, _gpt2(first, words, hidden, layers, heads, steps))

    # The peer first, so that nothing of ours can stand in its way.
    ways: dict[str, Callable[[], Work]] = {
        "transformers": theirs,
        "weft": fitted,
        "weft, loop of its own": ours,
    }
    curves: dict[str, list[Any]] = {}
    speeds: dict[str, list[float]] = {}
    for name, make in ways.items():
        with bench.trying(f"gpt training, {name}"):
            bench.fresh()
            update = make()

            def several(update: Work, given: list[Tensor], kept: list[Tensor]) -> None:
                kept += [update(ids) for ids in given]

            found: list[Tensor] = []
            made = bench.seconds(partial(several, update, batches[:1], found))
            several(update, batches[1:curve], found)
            curves[name] = [float(one) for one in found]
            times = [bench.seconds(partial(several, update, batches[:timed], [])) for _ in range(3)]
            speeds[name] = [timed * rows * steps / t for t in times]
            rate = spread(speeds[name], 0)["median"]
            share = rate * operations / PEAK
            kernels = [
                kernel for kernel, *_ in _kernels(bench, partial(several, update, batches[:1], []))
                if any(part in kernel.lower() for part in ("flash", "fmha", "cudnn", "attention"))
            ]  # fmt: skip
            bench.line(
                f"gpt training, {name}", f"{rate:,.0f} tokens/s, {share:.1%} MFU",
                tokens_per_second=spread(speeds[name], 0), mfu=round(share, 4),
                first_update_s=round(made, 1), losses=[round(x, 4) for x in curves[name][::10]],
                memory_gb=round(bench.runtime.peak_memory() / 2**30, 1), attention=kernels[:4],
                order=torch._C._get_sdp_priority_order(),
            )  # fmt: skip
            del update
    best = max(
        (n for n in speeds if n.startswith("weft")), key=lambda n: max(speeds[n]), default=""
    )
    for name in {"weft", best} & set(speeds) if "transformers" in speeds else ():
        found = ratios(speeds[name], speeds["transformers"])
        bench.line(
            f"gpt training, {name} over transformers", f"{found['median']:.2f}×", ratio=found
        )
    if "weft" in curves:
        apart = {
            name: max(abs(a - b) for a, b in zip(found, curves["weft"], strict=True))
            for name, found in curves.items() if name != "weft"
        }  # fmt: skip
        told = ", ".join(f"{name} {value:.4f}" for name, value in apart.items())
        bench.line(
            f"gpt training, largest distance of {curve} losses from weft's", told, distance=apart
        )


def profile(bench: Bench) -> None:
    """Where the time of an update of GPT-2 small goes: the kernels that take longest."""
    words, hidden, layers, heads, steps, rows = (
        (211, 32, 2, 2, 16, 3) if bench.tiny else (50257, 768, 12, 12, 1024, 32)
    )
    torch.manual_seed(0)
    first = GPT(words, hidden, layers, heads, max_positions=steps, dropout=0.0)
    update = _ours(bench, first.to(bench.device).train())
    ids = zipf(rows, steps, words, 1, bench.device)[0]
    for _ in range(4):
        update(ids)
    profiled(bench, "profile", lambda: update(ids))


def profiled(bench: Bench, question: str, update: Callable[[], Any], most: int = 40) -> None:
    """Lines of where the time of an update goes."""
    count, seconds = 5, 0.0

    def several() -> None:
        nonlocal seconds
        seconds = bench.seconds(lambda: [update() for _ in range(count)])

    found = _kernels(bench, several)
    busy = sum(taken for _, taken, _ in found)
    bench.line(
        question, update_ms=round(1e3 * seconds / count, 2), kernels=len(found),
        busy_ms=round(busy / count, 2), idle=round(max(1 - busy / (1e3 * seconds), 0.0), 3),
    )  # fmt: skip
    for name, taken, calls in found[:most]:
        each = {"ms": round(taken / count, 3), "calls": calls / count}
        bench.line(f"{question}, kernel", kernel=name, **each)


def _kernels(bench: Bench, work: Callable[[], Any]) -> list[tuple[str, float, int]]:
    """Name, milliseconds and number of calls of the kernels of some work, the longest first."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity

    gpu = bench.runtime.has_cuda_graphs
    kinds = [ProfilerActivity.CUDA] if gpu else [ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds) as profiler:
        work()
        bench.runtime.wait()
    found = []
    for event in profiler.key_averages():
        taken = event.self_device_time_total if gpu else event.self_cpu_time_total
        if event.device_type == (DeviceType.CUDA if gpu else DeviceType.CPU) and taken:
            found.append((event.key[:90], taken / 1e3, event.count))
    return sorted(found, key=lambda one: -one[1])


def _pieces(lines: Tensor, steps: int) -> LMLoader:
    """Lines of text (B, …) as batches of some steps, in order, again and again."""
    stream = TokenStream(2)
    stream.append(lines.flatten().numpy().astype(np.int32))
    return LMLoader(
        stream.close(), rows=len(lines), window=steps, seed=1, epochs=10**6, in_order=True
    )


def _fitted(
    bench: Bench, decoder: dict[str, Any], start: dict[str, Tensor], lines: Tensor, words: int,
    steps: int,
) -> Work:  # fmt: skip
    """Updates by the product's own loop; it goes through the lines by itself."""
    parts = {"task": {"kind": "language", "window": steps}, "decoder": decoder, "generate": {}}
    model = build_model(parts, vocabulary_size=words, outputs=(words, 2, 3)).to(bench.device)
    model.head.decoder.load_state_dict(start)
    settings = Settings(learning_rate=6e-4, weight_decay=0.1, epochs=10**6)
    runtime = select_runtime(str(bench.device), "bf16")
    trainee = TrainState.fresh(model, settings)
    updates = fit(
        trainee, LanguageModelling(window=steps), _pieces(lines, steps), settings, runtime
    )

    def update(ids: Tensor) -> Tensor:
        progress = next(updates)
        if failure := trainee.speedup_failure:
            bench.line("gpt training, weft", f"NOTE {failure}", trouble=failure)
            trainee.speedup_failure = ""
        return progress.total / progress.count

    return update


def _ours(bench: Bench, model: GPT) -> Work:
    settings = Settings(learning_rate=6e-4, weight_decay=0.1)
    steppers = build_optimisers(model, settings)
    learned = list(model.parameters())
    compile_blocks(model)
    runtime = select_runtime(str(bench.device), "bf16")
    lengths = torch.full((1,), 0)

    def update(ids: Tensor) -> Tensor:
        given, right = ids[:, :-1], ids[:, 1:]
        with runtime.autocast(), runtime.attention_kernels():
            made = model.features(Padded(given, lengths))
            wanted = Padded(right, torch.full((len(ids),), right.shape[1]))
            total, count = chunked_loss(made, model.words.weight, model.words.bias, wanted)
            (total / count).backward()
        clip_gradients(learned, settings.clip_norm)
        for optimiser in steppers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return total.detach() / count

    return update


def _theirs(bench: Bench, model: Any) -> Work:
    model = model.to(bench.device).train()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, 6e-4, fused=True)

    def measured(given: Tensor, right: Tensor) -> Tensor:
        scores = model(input_ids=given, use_cache=False).logits
        return F.cross_entropy(scores.flatten(0, 1).float(), right.flatten())

    compiled = torch.compile(measured)

    def update(ids: Tensor) -> Tensor:
        with torch.autocast(bench.device.type, torch.bfloat16):
            found = compiled(ids[:, :-1], ids[:, 1:])
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return found.detach()

    return update


def _gpt2(
    ours: GPT, words: int, hidden: int, layers: int, heads: int, steps: int, **more: Any
) -> Any:
    """transformers' GPT-2 with our weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=words, n_positions=steps, n_embd=hidden, n_layer=layers, n_head=heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=0,
        attn_implementation="sdpa", **more,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    inner = model.transformer
    with torch.no_grad():
        inner.wte.weight.copy_(ours.words.table.weight)
        inner.wpe.weight.copy_(ours.positions.table)
        if ours.words.scored is not None:
            model.lm_head.weight.copy_(ours.words.scored)
        for block, layer in zip(ours.blocks, inner.h, strict=True):
            attention: Any = block.attention
            three = (attention.query, attention.key, attention.value)
            layer.attn.c_attn.weight.copy_(torch.cat([one.weight for one in three]).T)
            layer.attn.c_attn.bias.copy_(torch.cat([one.bias for one in three]))
            for mine, other in (
                (attention.output, layer.attn.c_proj),
                (block.feed_in, layer.mlp.c_fc),
                (block.feed_out, layer.mlp.c_proj),
            ):
                other.weight.copy_(mine.weight.T)  # type: ignore[operator, union-attr]
                other.bias.copy_(mine.bias)
            layer.ln_1.load_state_dict(block.attention_norm.state_dict())  # type: ignore[union-attr, operator]
            layer.ln_2.load_state_dict(block.feed_norm.state_dict())  # type: ignore[union-attr, operator]
        inner.ln_f.load_state_dict(ours.norm.state_dict())
    return model


class Bare(nn.Module):
    """The loop that everybody writes: embedding, LSTM, linear, cross-entropy."""

    def __init__(self, words: int, hidden: int):
        super().__init__()
        self.table = nn.Embedding(words, hidden)
        self.net = nn.LSTM(hidden, hidden, 2, batch_first=True)
        self.out = nn.Linear(hidden, words)

    def forward(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        states, state = self.net(self.table(ids), state)
        return self.out(states), state


def lstm(bench: Bench) -> None:
    """Updates of LSTM language models, 2 × 650 and 2 × 1500, through the product's own loop."""
    words = 211 if bench.tiny else 33278
    rows, steps = 20, 35
    small = bench.device.type == "cpu"
    updates = 3 if bench.tiny else (2 if small else 200)
    for hidden in (13,) if bench.tiny else (650, 1500):
        speeds: dict[str, list[float]] = {}
        for half in (False,) if small else (False, True):
            kind = "bf16" if half else "fp32"
            with bench.trying(f"lstm {hidden} {kind}"):
                runs = {
                    f"torch.nn.LSTM, {kind}": _bare(bench, words, hidden, rows, steps, half),
                    f"weft, {kind}": _weft(bench, words, hidden, rows, steps, half),
                }
                for turn in range(bench.repeats + 1):
                    for name, run in runs.items():
                        seconds = bench.seconds(lambda run=run: run(updates))  # type: ignore[misc]
                        if turn:
                            rate = updates * rows * steps / seconds
                            speeds.setdefault(name, []).append(rate)
        for name, found in speeds.items():
            rate = spread(found, 0)
            bench.line(
                f"lstm 2 × {hidden}, {name}", f"{rate['median']:,.0f} tokens/s",
                tokens_per_second=rate, vocabulary=words, batch=[rows, steps],
            )  # fmt: skip
        for kind, other in (("fp32", "fp32"), ("bf16", "bf16"), ("bf16", "fp32")):
            one, two = f"weft, {kind}", f"torch.nn.LSTM, {other}"
            if one in speeds and two in speeds:
                found = ratios(speeds[one], speeds[two])
                told = f"lstm 2 × {hidden}, weft {kind} over torch {other}"
                bench.line(told, f"{found['median']:.2f}×", ratio=found)


def _bare(bench: Bench, words: int, hidden: int, rows: int, steps: int, half: bool) -> Callable:
    torch.manual_seed(0)
    model = Bare(words, hidden).to(bench.device).train()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    ids = zipf(rows, 50 * steps, words, 1, "cpu")[0]
    low = torch.autocast(bench.device.type, torch.bfloat16) if half else contextlib.nullcontext()
    state: Any = None

    def run(updates: int) -> None:
        nonlocal state
        for i in range(updates):
            at = i % 50 * steps
            given = ids[:, at : at + steps].to(bench.device)
            right = ids[:, at + 1 : at + steps + 1].to(bench.device)
            with low:
                scores, state = model(given, state)
                found = F.cross_entropy(scores.flatten(0, 1), right.flatten())
            state = tuple(part.detach() for part in state)
            optimiser.zero_grad()
            found.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimiser.step()

    return run


def _weft(bench: Bench, words: int, hidden: int, rows: int, steps: int, half: bool) -> Callable:
    torch.manual_seed(0)
    parts = {
        "task": {"kind": "language", "window": steps},
        "decoder": {"kind": "rnn-lm", "width": hidden, "hidden": hidden, "layers": 2},
        "generate": {},
    }
    model = build_model(parts, vocabulary_size=words, outputs=(words, 2, 3)).to(bench.device)
    settings = Settings(optimiser="adam", learning_rate=1e-3, clip_norm=0.25, epochs=10**6)
    stream = TokenStream(2)
    stream.append(zipf(rows, 50 * steps, words, 1, "cpu")[0].flatten().numpy().astype(np.int32))
    pieces = LMLoader(
        stream.close(), rows=rows, window=steps, seed=1, epochs=settings.epochs, in_order=True
    )
    runtime = select_runtime(str(bench.device), "bf16" if half else "fp32")
    updates = fit(
        TrainState.fresh(model, settings),
        LanguageModelling(window=steps),
        pieces,
        settings,
        runtime,
    )

    def run(count: int) -> None:
        for _ in islice(updates, count):
            pass

    return run
