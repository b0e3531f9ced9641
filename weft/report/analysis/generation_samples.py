"""Generated texts of several systems side by side: samples, and the largest differences.

n test texts
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from weft.compare.format import format_metric
from weft.compare.trial import Result, Trial
from weft.doctor.checks.target_stats import target_text
from weft.metrics.generation.rouge import longest_common_subsequence
from weft.metrics.generation.text_overlap import Chrf

N_SAMPLES, N_DISAGREEMENTS, N_EXTREMES = (
    6,
    6,
    5,
)  # texts shown: spread over the file, most different, best and worst
MAX_TEXTS = 20_000  # of a test set that are scored
MAX_CHARACTERS = 700  # of a text that are shown
MIN_GAP_NATS = 0.2  # per word, between the best and the worst system


@dataclass(frozen=True)
class SystemOutput:
    """The output of one system for a text."""

    recipe: str
    score: float  # chrF of the output; perplexity of the text for a language model
    score_text: str  # the formatted score
    text: Markup  # the output with differences marked; empty for language models


@dataclass(frozen=True)
class GenerationSample:
    """One test text, its reference and the outputs of the systems."""

    text: str
    reference: str
    outputs: tuple[SystemOutput, ...]
    where: str = ""  # file and line, if known
    output: str = ""  # the full output of a single system


@dataclass(frozen=True)
class GenerationSamples:
    """The samples of generation or language models shown in the report."""

    kind: str  # the task
    recipes: tuple[str, ...]
    n: int
    samples: tuple[GenerationSample, ...]
    disagreements: tuple[GenerationSample, ...]  # with the largest differences between systems
    best: tuple[GenerationSample, ...]  # of the first system, like `worst`
    worst: tuple[GenerationSample, ...]


def collect_samples(
    finished: Sequence[tuple[Trial, Result]], order: Sequence[str]
) -> GenerationSamples | None:
    """Collect the outputs of the first run of each recipe; `order` starts with the chosen one.

    Return None if there are no outputs, or not for the same texts.
    """
    trials: dict[str, Trial] = {}
    for trial, _ in finished:
        trials.setdefault(trial.recipe, trial)
    trials = {name: trials[name] for name in order if name in trials}
    kind = next((trial.writes for trial in trials.values()), "")
    predictions = {
        name: list(islice(trial.read_predictions(), MAX_TEXTS)) for name, trial in trials.items()
    }
    if not kind or len({len(rows) for rows in predictions.values()}) != 1:
        return None
    table = _ScoreTable(kind, predictions)
    first, n = next(iter(predictions)), table.n
    evenly = np.linspace(0, n - 1, min(N_SAMPLES, n)).round().astype(int).tolist()
    ranked = np.argsort(-table.goodness[0], kind="stable").tolist()
    gaps = table.goodness.max(0) - table.goodness.min(0)
    most_different = [
        i for i in np.argsort(-gaps, kind="stable").tolist() if gaps[i] > table.min_gap
    ]
    worst = [i for i in reversed(ranked) if not table.is_perfect(i)]
    return GenerationSamples(
        kind=kind,
        recipes=tuple(predictions),
        n=n,
        samples=tuple(map(table.sample, dict.fromkeys(evenly))),
        disagreements=tuple(table.sample(i) for i in most_different[:N_DISAGREEMENTS])
        if len(predictions) > 1
        else (),
        best=tuple(table.sample(i, [first]) for i in ranked[:N_EXTREMES]),
        worst=tuple(table.sample(i, [first]) for i in worst[:N_EXTREMES]),
    )


def sentence_chrf(
    predicted: Sequence[str], references: Sequence[str | Sequence[str]]
) -> np.ndarray:
    """Return the (n,) chrF of each single output."""
    chrf = Chrf()
    chrf.add(predicted, [one if isinstance(one, str) else list(one) for one in references])
    rows = np.hstack([chrf.table(), np.ones((chrf.n, 1))])
    scores: np.ndarray = chrf.statistics()["chrf"](rows)
    return scores


def diff_markup(output: str, reference: str) -> Markup:
    """Return an output with the words that do not align with the reference marked."""
    words = truncate(output).split()
    same = set(longest_common_subsequence(words, truncate(reference).split()))
    out = [
        escape(word) if i in same else Markup('<mark class="off">{}</mark>').format(word)
        for i, word in enumerate(words)
    ]
    return Markup(" ").join(out) if out else Markup('<span class="quiet">(empty)</span>')


def truncate(text: str) -> str:
    """Shorten a text to what the page shows."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


class _ScoreTable:
    """All outputs of all systems, and their scores."""

    def __init__(self, kind: str, answers: dict[str, list[dict[str, Any]]]) -> None:
        self.kind, self.answers = kind, answers
        self.names = list(answers)
        self.rows = answers[self.names[0]]
        self.n = len(self.rows)
        self.metric = "chrf" if kind == "seq2seq" else "perplexity"
        self.min_gap = 0.0 if kind == "seq2seq" else MIN_GAP_NATS
        self.scores = np.stack([self._scores(answers[name]) for name in self.names])
        self.goodness = self.scores if kind == "seq2seq" else -np.log(np.maximum(self.scores, 1e-9))

    def _scores(self, rows: list[dict[str, Any]]) -> np.ndarray:
        if self.kind == "seq2seq":
            return sentence_chrf([row["value"] for row in rows], [row["label"] for row in rows])
        from weft.run.text_scores import NatsPerWord

        nats = NatsPerWord("perplexity", ends=True)
        nats.add(rows, [row["text"] for row in rows])
        table = nats.table()
        perplexity: np.ndarray = np.exp(np.minimum(table[:, 0] / np.maximum(table[:, 1], 1), 50))
        return perplexity

    def is_perfect(self, i: int) -> bool:
        return self.kind == "seq2seq" and self.scores[0, i] > 100 - 1e-6

    def sample(self, i: int, names: Sequence[str] = ()) -> GenerationSample:
        reference = _reference(self.rows[i]["label"]) if self.kind == "seq2seq" else ""
        outputs = []
        for name in names or self.names:
            score = float(self.scores[self.names.index(name), i])
            value = self.answers[name][i]["value"]
            text = diff_markup(value, reference) if self.kind == "seq2seq" else Markup("")
            outputs.append(SystemOutput(name, score, format_metric(score, self.metric), text))
        return GenerationSample(truncate(self.rows[i]["text"]), truncate(reference), tuple(outputs))


def _reference(label: str | list[str]) -> str:
    return target_text(tuple(label) if isinstance(label, list) else label)
