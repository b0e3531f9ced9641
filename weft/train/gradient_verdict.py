"""What a reading of the gradients means, in words: good, a warning, or bad."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["good", "warning", "bad"]
Curve = list[tuple[int, float]]  # (steps from the end, strength relative to the end)
Finding = tuple[Level, str]
LEVELS: tuple[Level, ...] = ("good", "warning", "bad")

# What a far step adds to the gradient has to be found among what all nearer steps add: with 1/100
# of their strength that takes in the order of 10⁴ examples, with 10⁻⁴ a hundred million. In
# bench/health.py nets still learned at 1/1700, slowly, and none did below 10⁻⁴.
STRONG, WEAK, GONE = 0.1, 1e-2, 1e-4
GROWING, BURSTING = 1e2, 1e4
SHORT = 5  # steps; over fewer nothing can be said about distance
SHALLOW = 1e-3  # of the last layer's gradient, left at the first layer
SILENT = 0.5  # share of a layer's units
JUMP = 0.1  # of the weights' own length, changed by one update
OVERLONG = 100  # times train.clip


@dataclass(frozen=True)
class Health:
    """One reading: how gradients reach the layers of a model, and what that means."""

    step: int
    layers: dict[str, dict[str, float | None]]  # by name: gradient, weight, ratio, dead, saturated
    distances: dict[str, Curve]  # by layer, and "input"
    verdict: str
    level: Level

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Health":
        """Read back what `to_json` gave; other keys, as an event has them, are left out."""
        distances = {
            name: [(int(step), float(value)) for step, value in curve]
            for name, curve in saved["distances"].items()
        }
        layers = {name: dict(values) for name, values in saved["layers"].items()}
        return cls(int(saved["step"]), layers, distances, saved["verdict"], saved["level"])


@dataclass(frozen=True)
class Evidence:
    """Everything a verdict is made from."""

    layers: Mapping[str, Mapping[str, float | None]]
    distances: Mapping[str, Curve]
    flow: Mapping[str, float]  # length of the whole gradient at each layer's states
    loss: float  # of a row, on average
    norm: float  # of the whole gradient
    clip: float  # train.clip, 0 for none
    encoder: str
    cell: str  # of a recurrent encoder, otherwise empty
    pool: str
    direct: bool  # the pool reads steps between the first and the last
    context: str = ""  # the embedder whose vectors have read the text already, where there is one


def judge(seen: Evidence) -> tuple[str, Level]:
    """The verdict in words, the gravest finding first, and its level."""
    findings = _broken(seen)
    if not findings:
        findings = [_distance(seen), *_depth(seen), *_units(seen), *_size(seen)]
        findings.sort(key=lambda finding: -LEVELS.index(finding[0]))
    return " ".join(words for _, words in findings), findings[0][0]


def carried(distances: Mapping[str, Curve]) -> tuple[str, Curve]:
    """The curve that says how far the model's memory reaches, with the name of its layer.

    Every path from a step to the answer begins in the first layer. An LSTM carries its memory in
    its cells, so the stronger of cell and state counts; of two directions, the weaker.
    """
    sides: dict[str, list[Curve]] = {}
    for name, curve in distances.items():
        if name.split()[:2] == ["layer", "1"] and curve:
            sides.setdefault(name.removesuffix(" cell"), []).append(curve)
    joined = {name: _pointwise(curves) for name, curves in sides.items()}
    if not joined:
        return "input", list(distances.get("input", []))
    weakest = min(joined, key=lambda name: joined[name][-1][1])
    return weakest, joined[weakest]


def _pointwise(curves: list[Curve]) -> Curve:
    best: dict[int, float] = {}
    for curve in curves:
        for distance, value in curve:
            best[distance] = max(value, best.get(distance, 0.0))
    return sorted(best.items())


def _broken(seen: Evidence) -> list[Finding]:
    """What leaves nothing else to look at."""
    broken = [name for name, layer in seen.layers.items() if layer["gradient"] is None]
    if broken:
        words = f"The gradient of {_names(broken)} is not finite: lower train.learning_rate, "
        return [("bad", words + "or set train.clip=1.")]
    if seen.norm > 0:
        return []
    if seen.loss < 1e-6:
        words = "The model is certain of every row that was looked at: no gradient is left."
        return [("good", words)]
    return [("bad", f"No gradient arrives anywhere, though the loss is {seen.loss:.3g}.")]


def _distance(seen: Evidence) -> Finding:
    name, curve = carried(seen.distances)
    if seen.direct:
        path = f"Every step has a direct path to the answer (pool '{seen.pool}')"
        return "good", f"{path}: distance does not matter."
    if not curve:
        return "good", "The rows that were looked at are empty."
    if not seen.cell:
        return _field(seen, curve)
    both = name.endswith(("forward", "backward"))
    # Where one direction has far to go the other has not: each need only reach the middle.
    far = curve[-1][0] // 2 if both else curve[-1][0]
    return _memory(seen, name, [(k, value) for k, value in curve if k <= far])


def _field(seen: Evidence, curve: Curve) -> Finding:
    """Without memory, a step is either seen or not."""
    if seen.context:
        words = f"Each vector of embedder '{seen.context}' has read the text: distance does not"
        return "good", f"{words} matter."
    empty = [distance for distance, value in curve if value == 0]
    if not empty:
        words = f"The answer sees all of {curve[-1][0] + 1} steps: distance does not matter."
        return "good", words
    return "bad", (
        f"Nothing arrives from steps {empty[0]} and more before the end: pool '{seen.pool}' of "
        f"encoder '{seen.encoder}' does not see them; use pool 'mean', 'max' or 'attention'."
    )


def _memory(seen: Evidence, name: str, curve: Curve) -> Finding:
    far = curve[-1][0]
    if far < SHORT:
        return "good", f"Over {far} steps there is no telling how far the gradient would reach."
    at, peak = max(curve, key=lambda point: point[1])
    if peak >= GROWING:
        return ("bad" if peak >= BURSTING else "warning"), (
            f"The gradient of {name} grows by {_factor(peak)} over {at} steps: it explodes; "
            "set train.clip=1, lower train.learning_rate, or try lstm."
        )
    try_ = "lstm or attention" if seen.cell == "rnn" else "pool 'attention' or a transformer"
    low = curve[-1][1]
    if low >= WEAK:
        share = "all" if low >= 0.995 else f"{low:.0%}"
        return "good", (
            f"The gradient of {name} reaches {far} steps back with {share} of its strength: "
            f"dependencies that long can be learned{'' if low >= STRONG else ', if slowly'}."
        )
    if low >= GONE:
        return "warning", (
            f"The gradient of {name} falls by {_factor(1 / low)} over {far} steps: dependencies "
            f"that long are learned slowly, if at all; try {try_}."
        )
    first, value = next(point for point in _envelope(curve) if point[1] < GONE)
    end = f", by {_factor(1 / low)} over {far}" if low > 0 and value >= 10 * low else ""
    fall = f"falls by {_factor(1 / value)}" if value > 0 else "is gone"
    return "bad", (
        f"The gradient of {name} {fall} over {first} steps{end}: the model cannot learn longer "
        f"dependencies; try {try_}."
    )


def _envelope(curve: Curve) -> Curve:
    """What still arrives from so far back or farther: steps that do not matter are no obstacle."""
    out, most = [], 0.0
    for distance, value in reversed(curve):
        most = max(most, value)
        out.append((distance, most))
    return out[::-1]


def _depth(seen: Evidence) -> list[Finding]:
    """Whether the first layer gets its part of the gradient that the last one gets."""
    by_layer: dict[int, float] = {}
    for name, value in seen.flow.items():
        number = int(name.split()[1])
        by_layer[number] = max(value, by_layer.get(number, 0.0))
    first, last = min(by_layer, default=0), max(by_layer, default=0)
    if first == last or not by_layer[last] or by_layer[first] >= SHALLOW * by_layer[last]:
        return []
    share = by_layer[first] / by_layer[last]
    lost = f"{_factor(1 / share)} less" if share else "none of the"
    return [
        (
            "warning",
            f"Layer {first} gets {lost} gradient than layer {last}: fewer layers, residual "
            "connections or norms would help it learn.",
        )
    ]


def _units(seen: Evidence) -> list[Finding]:
    found: list[Finding] = []
    for name, layer in seen.layers.items():
        dead, saturated = layer["dead"], layer["saturated"]
        if dead is not None and dead >= SILENT:
            words = f"{dead:.0%} of the units of {name} are zero at every step that was looked at"
            found.append(("warning", f"{words}: a lower train.learning_rate kills fewer."))
        if saturated is not None and saturated >= SILENT:
            words = f"{saturated:.0%} of the values of {name} are saturated"
            found.append(("warning", f"{words}, which lets hardly any gradient through."))
    return found


def _size(seen: Evidence) -> list[Finding]:
    found: list[Finding] = []
    jumps = [name for name, layer in seen.layers.items() if (layer["ratio"] or 0.0) > JUMP]
    if jumps:
        most = max(seen.layers[name]["ratio"] or 0.0 for name in jumps)
        words = f"One update changes {_names(jumps)} by up to {most:.0%} of the weights' size"
        found.append(("warning", f"{words}: lower train.learning_rate."))
    if seen.clip and seen.norm > OVERLONG * seen.clip:
        times = seen.norm / seen.clip
        words = f"The gradient is {times:.0f} times longer than train.clip"
        found.append(("warning", f"{words}: every update is cut short."))
    return found


def _names(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _factor(value: float) -> str:
    """A factor as people say it: the power of ten from 1,000 on."""
    if value < 1000:
        return f"a factor of {value:.0f}"
    power = str(math.floor(math.log10(value) + 1e-9))
    return "10" + power.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
