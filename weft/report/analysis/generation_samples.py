"""Answers that are texts, system beside system: samples, and where they differ the most.

n test texts
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from weft.compare.format import figure
from weft.compare.trial import Result, Trial
from weft.doctor.checks.target_stats import target_text
from weft.metrics.generation.rouge import longest_common_subsequence
from weft.metrics.generation.text_overlap import Chrf

SAMPLES, APART, ENDS = 6, 6, 5  # texts shown: all over the file, in dispute, best and worst
MOST = 20_000  # texts that are looked at
LONG = 700  # characters of a text that are shown
EDGE = 0.2  # nats a word that a text must differ by to be worth a look


@dataclass(frozen=True)
class Side:
    """What one system made of a text."""

    recipe: str
    score: float  # chrF of the answer; of a language model the perplexity of the text
    shown: str  # the score for people
    text: Markup  # the answer with what the reference has not marked; empty of language models


@dataclass(frozen=True)
class Sample:
    """One test text, what it should become, and what systems made of it."""

    text: str
    right: str
    sides: tuple[Side, ...]
    where: str = ""  # file and line, where they are known
    said: str = ""  # the answer of a single system, whole


@dataclass(frozen=True)
class Written:
    """What the page shows of texts that were written or foretold."""

    kind: str  # the task
    recipes: tuple[str, ...]
    n: int
    samples: tuple[Sample, ...]
    apart: tuple[Sample, ...]  # where systems differ the most
    best: tuple[Sample, ...]  # of the first system, as are the next
    worst: tuple[Sample, ...]


def written(finished: Sequence[tuple[Trial, Result]], order: Sequence[str]) -> Written | None:
    """The first training of each recipe, text by text; `order` begins with the chosen one.

    None where there is nothing to show: no such answers, or not of the same texts.
    """
    trials: dict[str, Trial] = {}
    for trial, _ in finished:
        trials.setdefault(trial.recipe, trial)
    trials = {name: trials[name] for name in order if name in trials}
    kind = next((trial.writes for trial in trials.values()), "")
    answers = {name: list(islice(trial.answers(), MOST)) for name, trial in trials.items()}
    if not kind or len({len(rows) for rows in answers.values()}) != 1:
        return None
    table = _Table(kind, answers)
    first, n = next(iter(answers)), table.n
    spread = np.linspace(0, n - 1, min(SAMPLES, n)).round().astype(int).tolist()
    ranked = np.argsort(-table.good[0], kind="stable").tolist()
    gaps = table.good.max(0) - table.good.min(0)
    apart = [i for i in np.argsort(-gaps, kind="stable").tolist() if gaps[i] > table.least]
    worst = [i for i in reversed(ranked) if not table.perfect(i)]
    return Written(
        kind=kind,
        recipes=tuple(answers),
        n=n,
        samples=tuple(map(table.sample, dict.fromkeys(spread))),
        apart=tuple(table.sample(i) for i in apart[:APART]) if len(answers) > 1 else (),
        best=tuple(table.sample(i, [first]) for i in ranked[:ENDS]),
        worst=tuple(table.sample(i, [first]) for i in worst[:ENDS]),
    )


def sentence_scores(said: Sequence[str], right: Sequence[Any]) -> np.ndarray:
    """(n,) chrF of each answer alone."""
    measure = Chrf()
    measure.add(said, [one if isinstance(one, str) else list(one) for one in right])
    rows = np.hstack([measure.table(), np.ones((measure.n, 1))])
    return measure.statistics()["chrf"](rows)


def marked(said: str, right: str) -> Markup:
    """An answer whose words that the reference does not have, in this order, are marked."""
    words = cut(said).split()
    same = set(longest_common_subsequence(words, cut(right).split()))
    out = [
        escape(word) if i in same else Markup('<mark class="off">{}</mark>').format(word)
        for i, word in enumerate(words)
    ]
    return Markup(" ").join(out) if out else Markup('<span class="quiet">nothing</span>')


def cut(text: str) -> str:
    """A text that is not longer than a page can show."""
    return text if len(text) <= LONG else f"{text[:LONG]}…"


class _Table:
    """Every answer of every system, and how good each is."""

    def __init__(self, kind: str, answers: dict[str, list[dict[str, Any]]]) -> None:
        self.kind, self.answers = kind, answers
        self.names = list(answers)
        self.rows = answers[self.names[0]]
        self.n = len(self.rows)
        self.metric = "chrf" if kind == "seq2seq" else "perplexity"
        self.least = 0.0 if kind == "seq2seq" else EDGE
        self.scores = np.stack([self._scores(answers[name]) for name in self.names])
        self.good = self.scores if kind == "seq2seq" else -np.log(np.maximum(self.scores, 1e-9))

    def _scores(self, rows: list[dict[str, Any]]) -> np.ndarray:
        if self.kind == "seq2seq":
            return sentence_scores([row["value"] for row in rows], [row["label"] for row in rows])
        from weft.run.text_scores import NatsPerWord

        measure = NatsPerWord("perplexity", ends=True)
        measure.add(rows, [row["text"] for row in rows])
        return np.exp(np.minimum(measure.table()[:, 0] / np.maximum(measure.table()[:, 1], 1), 50))

    def perfect(self, i: int) -> bool:
        return self.kind == "seq2seq" and self.scores[0, i] > 100 - 1e-6

    def sample(self, i: int, names: Sequence[str] = ()) -> Sample:
        right = _right(self.rows[i]["label"]) if self.kind == "seq2seq" else ""
        sides = []
        for name in names or self.names:
            score = float(self.scores[self.names.index(name), i])
            value = self.answers[name][i]["value"]
            text = marked(value, right) if self.kind == "seq2seq" else Markup("")
            sides.append(Side(name, score, figure(score, self.metric), text))
        return Sample(cut(self.rows[i]["text"]), cut(right), tuple(sides))


def _right(label: Any) -> str:
    return target_text(tuple(label) if isinstance(label, list) else label)
