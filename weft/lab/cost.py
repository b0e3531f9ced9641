"""Cost of an encoder against the length of the text: time, memory, and steps one after another.

Time is measured, forward and backward. Memory is what the forward pass keeps for the backward one,
counted tensor by tensor. Operations are counted by torch's own formulas. The sequential depth is
the longest chain of steps of which each needs the one before.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from weft import registry
from weft.attend.settings import build_part
from weft.attend.transformer_block import TransformerBlock
from weft.batch import Padded
from weft.encode.cnn import CNN
from weft.encode.rnn import Recurrent
from weft.errors import UserError, unknown_name
from weft.lab.plot import MARKERS
from weft.lab.power_law import PowerLaw, fit_power_law
from weft.report.charts.plots import SERIES, STYLE, to_svg
from weft.report.html import render, save
from weft.runtime import Runtime, select_runtime, use_threads
from weft.storage import write_text

WIDTH = 64
_BLOCK = {"kind": "transformer", "hidden": WIDTH, "layers": 1, "heads": 4, "dropout": 0.0}
_CELL = {"kind": "rnn", "hidden": WIDTH, "bidirectional": False}
ENCODERS: dict[str, dict[str, Any]] = {  # by the names of the lecture's table
    "rnn": {**_CELL, "cell": "rnn"},
    "gru": {**_CELL, "cell": "gru"},
    "lstm": {**_CELL, "cell": "lstm"},
    "cnn": {"kind": "cnn", "hidden": WIDTH, "widths": [3]},
    "transformer": _BLOCK,  # a fused kernel computes the weights in blocks, and keeps none
}
SELF_ATTENTION = "self-attention"  # a block with all n × n weights in memory, as in the lecture
REPEATS = 7  # of each time; the shortest counts, since others only delay it
LONG_FRACTION = 8  # exponents are fitted on lengths from the longest divided by this
MEASURES = {
    "seconds": "time of forward and backward (s)",
    "kept_bytes": "memory kept for the backward pass (bytes)",
    "operations": "operations of the forward pass",
    "sequential_steps": "steps one after another",
}


@dataclass(frozen=True)
class Cost:
    """The cost of one encoder at one length."""

    encoder: str
    length: int
    seconds: float
    kept_bytes: int
    operations: int
    sequential_steps: int


@dataclass(frozen=True)
class Growth:
    """The costs of an encoder, and the exponent of the length for each measure."""

    encoder: str
    costs: tuple[Cost, ...]
    laws: Mapping[str, PowerLaw]


def measure_costs(
    encoders: Sequence[str],
    lengths: Sequence[int],
    *,
    batch: int = 1,
    device: str = "cpu",
    repeats: int = REPEATS,
    on_measured: Callable[[str, int], None] = lambda encoder, length: None,
) -> list[Growth]:
    """Measure encoders, by name or as name:key=value:…, at every length, on one thread."""
    if len(set(lengths)) < 3 or min(lengths) < 1:
        raise UserError(f"--lengths needs three different lengths from 1 on, got {list(lengths)}.")
    if batch < 1 or repeats < 1:
        raise UserError(f"batch and repeats are 1 or more, got {batch} and {repeats}.")
    runtime = select_runtime(device)
    growths = []
    with use_threads(1):
        for name in encoders:
            encoder = build_encoder(name).to(runtime.device)
            costs = []
            for length in sorted(set(lengths)):
                costs.append(_measure(name, encoder, length, batch, runtime, repeats))
                on_measured(name, length)
            growths.append(Growth(name, tuple(costs), fit_growth(costs)))
    return growths


class SelfAttention(nn.Module):
    """One Transformer block that computes every weight before it uses any."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([TransformerBlock(WIDTH, 4, 4 * WIDTH)])

    def forward(self, x: Padded) -> Padded:
        states, _ = self.blocks[0](x.data, None, return_weights=True)
        return x.with_data(states)


def build_encoder(name: str) -> nn.Module:
    """Build an encoder of width 64 by the name of its kind or cell, with settings after colons."""
    kind, *settings = name.split(":")
    if name == SELF_ATTENTION:
        return SelfAttention()
    known = {*ENCODERS, SELF_ATTENTION, *registry.parts("encoder")}
    if kind not in known:
        raise unknown_name("encoder", kind, known, "--encoders")
    section = dict(ENCODERS.get(kind, {"kind": kind}))
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UserError(f"--encoders: '{setting}' should be key=value, as in lstm:layers=2.")
        try:
            section[key] = json.loads(value)
        except ValueError:
            section[key] = value
    encoder: nn.Module = build_part("encoder", section, {}, input_size=WIDTH)
    return encoder


def fit_growth(costs: Sequence[Cost]) -> dict[str, PowerLaw]:
    """Fit cost against length where the texts are long: the exponent is about the limit."""
    ordered = sorted(costs, key=lambda cost: cost.length)
    long = [c for c in ordered if c.length * LONG_FRACTION >= ordered[-1].length]
    chosen = long if len(long) >= 3 else ordered[-3:]
    lengths = [cost.length for cost in chosen]
    return {
        measure: fit_power_law(lengths, [float(getattr(cost, measure)) for cost in chosen])
        for measure in MEASURES
    }


def count_operations(encoder: nn.Module, source: Padded) -> int:
    """Count the multiplications and additions of a forward pass, step by step for recurrence."""
    # A fused recurrent kernel is one call whose operations torch does not count.
    run = encoder.unroll if isinstance(encoder, Recurrent) else encoder
    with (
        FlopCounterMode(display=False) as counter,
        sdpa_kernel(SDPBackend.MATH),  # nor those of a fused attention
        torch.no_grad(),
    ):
        run(source)
    return int(counter.get_total_flops())


def count_kept_bytes(encoder: nn.Module, source: Padded) -> int:
    """Count the bytes of the tensors that a forward pass keeps for the backward pass."""
    parameters = {p.untyped_storage().data_ptr() for p in encoder.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = encoder(source)  # holds what was kept until it is counted
        total = sum(kept.values())
    del out
    return total


def count_sequential_steps(encoder: nn.Module, length: int) -> int:
    """Count the steps that cannot be done at the same time."""
    if isinstance(encoder, Recurrent):
        return encoder.net.num_layers * length
    if isinstance(encoder, CNN):
        return len(encoder.layers)
    return len(getattr(encoder, "blocks", getattr(encoder, "layers", [encoder])))


def _measure(
    name: str, encoder: nn.Module, length: int, batch: int, runtime: Runtime, repeats: int
) -> Cost:
    generator = torch.Generator().manual_seed(length)
    data = torch.randn(batch, length, WIDTH, generator=generator).to(runtime.device)
    source = Padded(data.requires_grad_(), torch.full((batch,), length))
    times = []
    for _ in range(repeats + 1):
        runtime.wait()
        started = time.perf_counter()
        encoder(source).data.sum().backward()
        runtime.wait()
        times.append(time.perf_counter() - started)
    return Cost(
        name, length, min(times[1:]), count_kept_bytes(encoder, source),
        count_operations(encoder, source), count_sequential_steps(encoder, length),
    )  # fmt: skip


def write_cost_page(growths: Sequence[Growth], folder: Path, command: str) -> Path:
    """Write cost.html with a chart per measure, and cost.json."""
    rows = [
        {
            "encoder": growth.encoder,
            "costs": [asdict(cost) for cost in growth.costs],
            "exponents": {m: [law.exponent, law.low, law.high] for m, law in growth.laws.items()},
        }
        for growth in growths
    ]
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "cost.json", json.dumps(rows, indent=1) + "\n")
    charts = [(title, plot_cost(growths, measure)) for measure, title in MEASURES.items()]
    page = render("cost.html", growths=growths, charts=charts, measures=MEASURES, command=command)
    save(folder / "cost.html", page)
    return folder / "cost.html"


def plot_cost(growths: Sequence[Growth], measure: str) -> str:
    """Plot one measure against the length, both logarithmic, with the fitted lines."""
    with matplotlib.rc_context({**STYLE, "font.size": 10}):
        figure = Figure(figsize=(6.6, 3.8), layout="constrained")
        axes = figure.add_subplot()
        for i, growth in enumerate(growths):
            colour, law = SERIES[i % len(SERIES)], growth.laws[measure]
            lengths = [cost.length for cost in growth.costs]
            values = [getattr(cost, measure) for cost in growth.costs]
            label = f"{growth.encoder}: n^{law.exponent:.2f}"
            axes.plot(lengths, values, MARKERS[i % len(MARKERS)], color=colour, ms=5)
            axes.plot(lengths, [law.at(n) for n in lengths], color=colour, lw=1.5, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(sorted({cost.length for growth in growths for cost in growth.costs}))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("words in the text")
        axes.set_ylabel(MEASURES[measure])
        figure.legend(loc="outside upper left", ncols=3, frameon=False)
        return to_svg(figure, f"cost-{measure}")
