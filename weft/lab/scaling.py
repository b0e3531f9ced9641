"""Scaling of a recipe on the user's own text: loss against parameters, data and compute.

Every point is an ordinary run of `weft.train`, kept in its own folder, so that the same command
goes on where it stopped. Power laws are fitted to the losses; a larger model can be predicted from
them before it is trained.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from weft import config as configuration
from weft import jsonio
from weft.config import Config
from weft.errors import UserError
from weft.lab.plot import MARKERS
from weft.lab.power_law import PowerLaw, fit_power_law
from weft.report.charts.plots import ACCENT, INK, STYLE, to_svg
from weft.report.html import render, save
from weft.run.train import train
from weft.storage import lock_folder, write_text

MIN_POINTS = 3  # for an exponent with an interval
FLOPS_PER_WEIGHT = 6  # forward and backward, per weight and word read (Kaplan et al. 2020)
AXES = {
    "parameters": "parameters",
    "words": "words of training text",
    "compute": "compute (6 · parameters · words read, FLOP)",
}


@dataclass(frozen=True)
class Point:
    """One trained model: its size, its data, and the loss on dev."""

    size: int
    fraction: float
    parameters: int
    words: int  # in the training text
    compute: float
    loss: float  # bits per character of dev


@dataclass(frozen=True)
class Prediction:
    """The loss of a larger model, predicted before it was trained, and measured after."""

    point: Point
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """The relative error of the prediction."""
        return self.predicted / self.point.loss - 1


@dataclass(frozen=True)
class Scaling:
    """All points, and a law for each axis that has enough of them."""

    points: tuple[Point, ...]
    laws: Mapping[str, PowerLaw]
    prediction: Prediction | None


def measure_scaling(
    name: str,
    data: str,
    folder: Path,
    *,
    sizes: Sequence[int],
    fractions: Sequence[float] = (1.0,),
    setting: str = "",
    larger: int = 0,
    dev: str = "",
    changes: Mapping[str, object] = {},
    device: str = "auto",
    on_trained: Callable[[Point], None] = lambda point: None,
) -> Scaling:
    """Train a recipe for language models at several widths and on parts of the data.

    All sizes are trained on all the data, and the largest also on each fraction. `setting` is what
    a size sets, by default the decoder's `hidden`. `larger` is predicted from the other sizes, then
    trained.
    """
    base = configuration.recipe(name)
    kind = base["task"].get("kind", "classify")
    if kind != "language":
        raise UserError(
            f"weft lab scaling fits losses of language models; '{name}' is for the task "
            f"'{kind}'. Use gpt, lstm-lm, rnn-lm or nnlm."
        )
    if len(set(sizes)) < MIN_POINTS and len(set(fractions)) < MIN_POINTS:
        raise UserError("Give three --sizes or three --fractions at least: a law needs points.")
    if min(sizes) < 1 or not all(0 < fraction <= 1 for fraction in fractions):
        raise UserError("--sizes are 1 or more, and --fractions above 0 and at most 1.")
    if larger and larger <= max(sizes):
        raise UserError(f"--predict {larger} is no larger than the largest size, {max(sizes)}.")
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, "measuring scaling"):
        lines = _read_lines(Path(data))
        dev_path = Path(dev) if dev else folder / "dev.txt"
        if not dev:
            cut = max(1, len(lines) // 10)
            write_text(dev_path, "\n".join(lines[-cut:]) + "\n")
            lines = lines[:-cut]

        def run(size: int, fraction: float) -> Point:
            point = _train_point(
                base, lines, dev_path, folder, size, fraction, setting, changes, device
            )
            on_trained(point)
            return point

        points = [run(size, 1.0) for size in sorted(set(sizes))]
        points += [run(max(sizes), part) for part in sorted(set(fractions) - {1.0})]
        laws = fit_laws(points)
        prediction = None
        if larger:
            if "parameters" not in laws:
                raise UserError("--predict needs three --sizes or more to predict from.")
            # The law was fitted before this model was trained; only its size is taken from it.
            point = run(larger, 1.0)
            law = laws["parameters"]
            low, high = law.interval(point.parameters)
            prediction = Prediction(point, law.at(point.parameters), low, high)
    scaling = Scaling(tuple(points), laws, prediction)
    write_text(folder / "scaling.json", json.dumps(to_json(scaling), indent=1) + "\n")
    return scaling


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a text file that are not blank."""
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text. Convert it, or give another --data.") from None
    if len(lines) < 2:
        raise UserError(f"{path} needs two lines of text at least: one to train on, one for dev.")
    return lines


def fit_laws(points: Sequence[Point]) -> dict[str, PowerLaw]:
    """Fit loss against parameters, words and compute, each with the other things equal."""
    whole = [point for point in points if point.fraction == 1]
    largest = max(point.size for point in points)
    groups = {
        "parameters": whole,
        "words": [point for point in points if point.size == largest],
        "compute": whole,
    }
    return {
        axis: fit_power_law([float(getattr(p, axis)) for p in group], [p.loss for p in group])
        for axis, group in groups.items()
        if len({getattr(p, axis) for p in group}) >= MIN_POINTS
    }


def to_json(scaling: Scaling) -> dict[str, object]:
    """Return everything measured, for scaling.json."""
    prediction = scaling.prediction
    return {
        "points": [asdict(point) for point in scaling.points],
        "exponents": {a: [law.exponent, law.low, law.high] for a, law in scaling.laws.items()},
        "prediction": prediction and {**asdict(prediction), "error": prediction.error},
    }


def _train_point(
    base: Config,
    lines: Sequence[str],
    dev: Path,
    folder: Path,
    size: int,
    fraction: float,
    setting: str,
    changes: Mapping[str, object],
    device: str,
) -> Point:
    """Train one model, or read what an earlier call has measured."""
    run_folder = folder / "runs" / f"{size}-{fraction:g}"
    done = run_folder / "point.json"
    if done.is_file():
        return Point(**jsonio.read(done))
    part = lines[: max(1, round(fraction * len(lines)))]
    path = folder / f"train-{fraction:g}.txt"
    write_text(path, "\n".join(part) + "\n")
    values: dict[str, object] = {setting or "decoder.hidden": size}
    if base["decoder"]["kind"] == "gpt" and not setting:
        values["decoder.heads"] = next(n for n in (6, 4, 2, 1) if size % n == 0)
    elif "width" in base["decoder"] and not setting:
        values["decoder.width"] = size
    config = base.with_values({**values, **changes}, "weft lab scaling")
    result = train(
        config, run_folder, train=str(path), dev=str(dev), device=device, quiet=True, overwrite=True
    )
    words = sum(len(line.split()) for line in part)
    parameters = result.predictor.parameters
    epochs = float(config["train"].get("epochs", 10))
    # Perplexities per token would not compare: each part of the data has tokens of its own.
    loss = result.figures["dev"]["bits_per_character"].value
    compute = FLOPS_PER_WEIGHT * parameters * words * epochs
    point = Point(size, fraction, parameters, words, compute, loss)
    write_text(done, json.dumps(asdict(point)) + "\n")
    return point


def write_scaling_page(scaling: Scaling, folder: Path, command: str) -> Path:
    """Write scaling.html with a chart per law."""
    charts = [(axis, law, plot_law(scaling, axis)) for axis, law in scaling.laws.items()]
    save(
        folder / "scaling.html",
        render("scaling.html", scaling=scaling, charts=charts, axes=AXES, command=command),
    )
    return folder / "scaling.html"


def plot_law(scaling: Scaling, axis: str) -> str:
    """Plot the losses over one axis with the fitted line, and the prediction if there is one."""
    law, prediction = scaling.laws[axis], scaling.prediction
    chosen = [
        p
        for p in scaling.points
        if (p.size == max(q.size for q in scaling.points) if axis == "words" else p.fraction == 1)
    ]
    with matplotlib.rc_context({**STYLE, "font.size": 10}):
        figure = Figure(figsize=(6.6, 3.8), layout="constrained")
        axes = figure.add_subplot()
        x = sorted(float(getattr(p, axis)) for p in chosen)
        axes.plot(
            [float(getattr(p, axis)) for p in chosen], [p.loss for p in chosen], MARKERS[0],
            color=INK, label="trained",
        )  # fmt: skip
        if prediction is not None and axis == "parameters":
            far = float(prediction.point.parameters)
            x.append(far)
            axes.errorbar(
                [far], [prediction.predicted],
                yerr=[[prediction.predicted - prediction.low],
                      [prediction.high - prediction.predicted]],
                color=ACCENT, marker=MARKERS[2], capsize=4, lw=1, label="predicted, 95 %",
            )  # fmt: skip
            axes.plot([far], [prediction.point.loss], MARKERS[1], color=INK, label="then trained")
        label = f"loss ∝ x^{law.exponent:.3f}"
        axes.plot(x, [law.at(value) for value in x], color=ACCENT, lw=1.5, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks([round(p.loss, 2) for p in chosen])
        axes.set_xlabel(AXES[axis])
        axes.set_ylabel("loss on dev (bits per character)")
        figure.legend(loc="outside upper left", ncols=4, frameon=False)
        return to_svg(figure, f"scaling-{axis}")
