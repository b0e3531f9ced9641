"""Interpret gradient diagnostics in words: good, a warning, or bad."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from weft.protocols import Saved

Level = Literal["good", "warning", "bad"]
Curve = list[tuple[int, float]]  # (steps from the end, strength relative to the end)
Finding = tuple[Level, str]
LEVELS: tuple[Level, ...] = ("good", "warning", "bad")

# Strength at the farthest step, before training or after it, whichever is weaker, against what is
# learned (bench/gradient_verdicts.py: the first word of 20 to 120 is the label, 20 epochs).
STRONG_GRADIENT, WEAK_GRADIENT, VANISHED_GRADIENT = 0.1, 4e-3, 1e-5
EXPLODING_WARNING, EXPLODING_BAD = 1e2, 1e4
UNGATED_CELLS = ("sum", "tanh-sum", "rnn")
MIN_STEPS = 5  # fewer say nothing about distance
MIN_FIRST_LAYER_RATIO = 1e-3  # gradient of the first layer relative to the last
MAX_INACTIVE_FRACTION = 0.5  # of a layer's units
MAX_RELATIVE_UPDATE = 0.1  # of the norm of the weights, per update
MAX_CLIP_RATIO = 100  # times train.clip_norm


@dataclass(frozen=True)
class GradientHealth:
    """The strength of gradients at the layers of a model, with a verdict."""

    step: int
    layers: dict[str, dict[str, float | None]]  # by name: gradient, weight, ratio, dead, saturated
    distances: dict[str, Curve]  # by layer, and "input"
    verdict: str
    level: Level
    start: dict[str, Curve] = field(default_factory=dict)  # distances before the first update

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Saved) -> "GradientHealth":
        """Read the output of `to_json`; other keys, as events have them, are ignored."""
        distances, start = (
            {
                name: [(int(step), float(value)) for step, value in curve]
                for name, curve in saved.get(key, {}).items()
            }
            for key in ("distances", "start")
        )
        layers = {name: dict(values) for name, values in saved["layers"].items()}
        return cls(int(saved["step"]), layers, distances, saved["verdict"], saved["level"], start)


@dataclass(frozen=True)
class Evidence:
    """The measurements behind a verdict."""

    layers: Mapping[str, Mapping[str, float | None]]
    distances: Mapping[str, Curve]
    flow: Mapping[str, float]  # gradient norm at each layer's states
    loss: float  # of a row, on average
    norm: float  # of the whole gradient
    clip: float  # train.clip_norm, 0 for none
    encoder: str
    cell: str  # of a recurrent encoder, otherwise empty
    pool: str
    direct: bool  # the pool reads steps between the first and the last
    context: str = ""  # the contextual embedder, if there is one
    start: Mapping[str, Curve] = field(default_factory=dict)  # distances before the first update
    predicts: bool = False  # tokens of running text, at distances from the predicted one
    attends: bool = False  # attention connects every step with the prediction
    window: int = 0  # steps that training sees at once, of running text


def interpret(evidence: Evidence) -> tuple[str, Level]:
    """Return the verdict in words, the worst finding first, and its level."""
    findings = _check_broken(evidence)
    if not findings:
        findings = [
            _check_distance(evidence),
            *_check_depth(evidence),
            *_check_units(evidence),
            *_check_update_size(evidence),
        ]
        findings.sort(key=lambda finding: -LEVELS.index(finding[0]))
    return " ".join(words for _, words in findings), findings[0][0]


def memory_curve(distances: Mapping[str, Curve]) -> tuple[str, Curve]:
    """Return the curve that shows how far the memory reaches, with the name of its layer.

    Every path from a step to the answer begins in the first layer. An LSTM carries its memory in
    its cells, so the stronger of cell and state counts; of two directions, the weaker.
    """
    sides: dict[str, list[Curve]] = {}
    for name, curve in distances.items():
        if name.split()[:2] == ["layer", "1"] and curve:
            sides.setdefault(name.removesuffix(" cell"), []).append(curve)
    joined = {name: _pointwise_max(curves) for name, curves in sides.items()}
    if not joined:
        return "input", list(distances.get("input", []))
    weakest = min(joined, key=lambda name: joined[name][-1][1])
    return weakest, joined[weakest]


def _pointwise_max(curves: list[Curve]) -> Curve:
    best: dict[int, float] = {}
    for curve in curves:
        for distance, value in curve:
            best[distance] = max(value, best.get(distance, 0.0))
    return sorted(best.items())


def _check_broken(evidence: Evidence) -> list[Finding]:
    """Check for gradients that are zero or not finite, which end the diagnosis."""
    broken = [name for name, layer in evidence.layers.items() if layer["gradient"] is None]
    if broken:
        words = f"The gradient of {_join_names(broken)} is not finite: lower train.learning_rate, "
        return [("bad", words + "or set train.clip_norm=1.")]
    if evidence.norm > 0:
        return []
    if evidence.loss < 1e-6:
        words = "The model is certain of every sampled row: no gradient is left."
        return [("good", words)]
    return [("bad", f"No gradient arrives anywhere, though the loss is {evidence.loss:.3g}.")]


def _check_distance(evidence: Evidence) -> Finding:
    name, curve = memory_curve(evidence.distances)
    if evidence.predicts:
        return _check_prediction(evidence, name, curve)
    if evidence.direct:
        path = f"Every step has a direct path to the answer (pool '{evidence.pool}')"
        return "good", f"{path}: distance does not matter."
    if not curve:
        return "good", "The sampled rows are empty."
    if not evidence.cell:
        return _check_receptive_field(evidence, curve)
    both = name.endswith(("forward", "backward"))
    # Each direction need only reach the middle: the other one covers the rest.
    far = curve[-1][0] // 2 if both else curve[-1][0]
    return _check_memory(evidence, name, [(k, value) for k, value in curve if k <= far])


def _check_prediction(evidence: Evidence, name: str, curve: Curve) -> Finding:
    """Check how far back a predicted token depends on the text before it."""
    window = f"no gradient comes from beyond a window of {evidence.window} tokens (task.window)."
    if evidence.attends:
        words = "Attention connects every step of a window with the prediction"
        return "good", f"{words}: distance does not matter, but {window}"
    if evidence.cell:
        level, words = _check_memory(evidence, name, curve)
        return level, f"{words} In training {window}"
    seen = max((distance for distance, value in curve if value > 0), default=-1) + 1
    return "warning", (
        f"The prediction depends on the last {seen} words alone (decoder '{evidence.encoder}'): "
        "longer dependencies cannot be learned; raise decoder.context, or try lstm-lm or gpt."
    )


def _check_receptive_field(evidence: Evidence, curve: Curve) -> Finding:
    """Check the receptive field: without memory, a step is either seen or not."""
    if evidence.context:
        words = f"Each vector of embedder '{evidence.context}' has read the text: distance does not"
        return "good", f"{words} matter."
    empty = [distance for distance, value in curve if value == 0]
    if not empty:
        words = f"The answer sees all of {curve[-1][0] + 1} steps: distance does not matter."
        return "good", words
    return "bad", (
        f"Nothing arrives from steps {empty[0]} and more before the end: pool '{evidence.pool}' of "
        f"encoder '{evidence.encoder}' does not see them; use pool 'mean', 'max' or 'attention'."
    )


def _check_memory(evidence: Evidence, name: str, curve: Curve) -> Finding:
    far = curve[-1][0]
    if far < MIN_STEPS:
        return "good", f"Texts of {far} steps are too short to tell how far the gradient reaches."
    at, peak = max(curve, key=lambda point: point[1])
    if peak >= EXPLODING_WARNING:
        return ("bad" if peak >= EXPLODING_BAD else "warning"), (
            f"The gradient of {name} grows by {_format_factor(peak)} over {at} steps: it explodes; "
            "set train.clip_norm=1, lower train.learning_rate, or try lstm."
        )
    try_, subject = _suggest(evidence), f"The gradient of {name}"
    first_name, first = memory_curve(evidence.start)
    first = [point for point in first if point[0] <= far]
    # Learning begins at the start: a gradient that vanishes there rarely gets the chance to grow,
    # and one that is strong afterwards need not have learned what lies that far back.
    if first and first[-1][1] < min(curve[-1][1], WEAK_GRADIENT):
        curve, subject = first, f"Before training the gradient of {first_name}"
        far = curve[-1][0]
    low = curve[-1][1]
    if low >= WEAK_GRADIENT:
        fraction = "all" if low >= 0.995 else f"{low:.0%}"
        slowly = ", if slowly" if low < STRONG_GRADIENT else ""
        return "good", (
            f"{subject} reaches {far} steps back with {fraction} of its strength: "
            f"dependencies that long can be learned{slowly}."
        )
    if low >= VANISHED_GRADIENT:
        return "warning", (
            f"{subject} falls by {_format_factor(1 / low)} over {far} steps: "
            f"dependencies that long are learned slowly, if at all; try {try_}."
        )
    gone, value = next(point for point in _envelope(curve) if point[1] < VANISHED_GRADIENT)
    end = f", by {_format_factor(1 / low)} over {far}" if low > 0 and value >= 10 * low else ""
    fall = f"falls by {_format_factor(1 / value)}" if value > 0 else "is gone"
    return "bad", (
        f"{subject} {fall} over {gone} steps{end}: the model cannot learn longer "
        f"dependencies; try {try_}."
    )


def _suggest(evidence: Evidence) -> str:
    """Return what carries a memory farther than this cell does."""
    if evidence.predicts:
        return "lstm-lm or gpt" if evidence.cell in UNGATED_CELLS else "gpt"
    if evidence.cell in UNGATED_CELLS:
        return "lstm or attention"
    open_gates = "encoder.forget_bias=4, " if evidence.cell == "lstm" else ""
    return f"{open_gates}pool 'attention' or a transformer"


def _envelope(curve: Curve) -> Curve:
    """Return the maximum from each distance on: steps that do not matter are no obstacle."""
    out, largest = [], 0.0
    for distance, value in reversed(curve):
        largest = max(largest, value)
        out.append((distance, largest))
    return out[::-1]


def _check_depth(evidence: Evidence) -> list[Finding]:
    """Check that the first layer gets a fair part of the last layer's gradient."""
    by_layer: dict[int, float] = {}
    for name, value in evidence.flow.items():
        number = int(name.split()[1])
        by_layer[number] = max(value, by_layer.get(number, 0.0))
    first, last = min(by_layer, default=0), max(by_layer, default=0)
    if (
        first == last
        or not by_layer[last]
        or by_layer[first] >= MIN_FIRST_LAYER_RATIO * by_layer[last]
    ):
        return []
    ratio = by_layer[first] / by_layer[last]
    lost = f"{_format_factor(1 / ratio)} less" if ratio else "none of the"
    return [
        (
            "warning",
            f"Layer {first} gets {lost} gradient than layer {last}: fewer layers, residual "
            "connections or norms would help it learn.",
        )
    ]


def _check_units(evidence: Evidence) -> list[Finding]:
    findings: list[Finding] = []
    for name, layer in evidence.layers.items():
        dead, saturated = layer["dead"], layer["saturated"]
        if dead is not None and dead >= MAX_INACTIVE_FRACTION:
            words = f"{dead:.0%} of the units of {name} are zero at every sampled step"
            findings.append(("warning", f"{words}: a lower train.learning_rate kills fewer."))
        if saturated is not None and saturated >= MAX_INACTIVE_FRACTION:
            words = f"{saturated:.0%} of the values of {name} are saturated"
            findings.append(("warning", f"{words}, which lets hardly any gradient through."))
    return findings


def _check_update_size(evidence: Evidence) -> list[Finding]:
    findings: list[Finding] = []
    jumps = [
        name
        for name, layer in evidence.layers.items()
        if (layer["ratio"] or 0.0) > MAX_RELATIVE_UPDATE
    ]
    if jumps:
        most = max(evidence.layers[name]["ratio"] or 0.0 for name in jumps)
        words = f"One update changes {_join_names(jumps)} by up to {most:.0%} of the weights' size"
        findings.append(("warning", f"{words}: lower train.learning_rate."))
    if evidence.clip and evidence.norm > MAX_CLIP_RATIO * evidence.clip:
        times = evidence.norm / evidence.clip
        words = f"The gradient is {times:.0f} times longer than train.clip_norm"
        findings.append(("warning", f"{words}: every update is cut short."))
    return findings


def _join_names(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _format_factor(value: float) -> str:
    """Format a factor: a power of ten from 1,000 on."""
    if value < 1000:
        return f"a factor of {value:.0f}"
    power = str(math.floor(math.log10(value) + 1e-9))
    return "10" + power.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
