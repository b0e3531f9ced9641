"""Per-text statistics of generation and language-model metrics, for paired tests.

n texts   K numbers of a text
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.metrics.bootstrap import safe_divide
from weft.metrics.per_sentence import PairedComparison, SentenceMetric, compare_paired
from weft.metrics.perplexity import count_text
from weft.metrics.sentence_counts import Statistic
from weft.protocols import Section
from weft.run.data import Data
from weft.run.split import file_digest
from weft.tasks.task import AnyTask
from weft.tasks.text_metrics import TextMetrics
from weft.text.formats.parallel import resolve_files
from weft.text.tables.table import find_table

TEXT_TASKS = ("seq2seq", "language")  # tasks whose answers are texts, or what texts cost
CHECKPOINT = "checkpoint"  # what a training begins with, among the contents that decide it
SavedAnswer = dict[str, Any]  # a line of predictions.jsonl; the task decides what it holds


class NatsPerWord(SentenceMetric):
    """Mean nats per word; exp of it is the perplexity.

    Models are paired on this logarithm: perplexity itself is dominated by its largest values.
    Words are those of the text, whatever the model's tokens.
    """

    def __init__(self, metric: str, ends: bool) -> None:
        super().__init__(2)  # nats, words
        self.metric, self.ends = metric, ends  # with `ends`, the end of a text counts as a word

    def add(self, predicted: Sequence[SavedAnswer], gold: Sequence[str]) -> None:
        """Add texts: each with its token perplexity and token count."""
        for answer, text in zip(predicted, gold, strict=True):
            nats = math.log(max(answer["value"], 1e-300)) * answer["tokens"]
            self.add_row([nats, count_text(text).words + self.ends])

    def statistics(self) -> Mapping[str, Statistic]:
        return {self.metric: lambda sums: safe_divide(sums[:, 0], sums[:, 1])}


def content_digests(data: Data, pretrained: str = "") -> dict[str, str]:
    """Return a digest of each file that a [data] section names, and of its parallel files.

    The digest of the initial checkpoint is included, if there is one.
    """
    paths = {"train": data.train, "dev": data.dev, "test": data.test}
    digests = {
        name: "".join(map(_source_digest, resolve_files(path, data.target, data.references)))
        for name, path in paths.items()
        if path
    }
    if pretrained:
        from weft.convert.locate import locate

        digests[CHECKPOINT] = file_digest(str(locate(pretrained)))
    return digests


def _source_digest(path: str) -> str:
    found = find_table(path)
    return file_digest(path) if found is None else found[1].fingerprint()


def initial_checkpoint(full: Section) -> str:
    """Return the initial checkpoint of a resolved configuration, or ""."""
    tables = full.get("embedder", full.get("decoder", {}))
    listed = tables if isinstance(tables, list) else [tables]
    return next((str(one["model"]) for one in listed if one.get("model")), "")


def sentence_measure(
    task: AnyTask, metric: str, seeds: Sequence[Sequence[SavedAnswer]]
) -> SentenceMetric | None:
    """Return the per-text counts behind a corpus metric, averaged over the seeds.

    BLEU, chrF and perplexity do not change when all counts are multiplied, so that this is the
    figure of the answers of all seeds together. None where the figure is no such sum, or where
    the trainings did not answer the same texts.
    """
    tables = []
    for answers in seeds:
        measure = _metric_of(task, metric)
        if measure is None:
            return None
        if isinstance(measure, NatsPerWord):
            measure.add(answers, [a["text"] for a in answers])
        else:
            measure.add([a["value"] for a in answers], [a["label"] for a in answers])
        tables.append(measure.table())
    pooled = _metric_of(task, metric)
    if pooled is None or len({len(table) for table in tables}) != 1:
        return None
    pooled.rows = [tuple(row) for row in np.mean(tables, axis=0).tolist()]
    return pooled


def compare_systems(
    task: AnyTask,
    metric: str,
    first: Sequence[Sequence[SavedAnswer]],
    second: Sequence[Sequence[SavedAnswer]],
) -> PairedComparison | None:
    """Compare two systems by paired bootstrap, each with the answers of its seeds."""
    one, other = (sentence_measure(task, metric, seeds) for seeds in (first, second))
    if one is None or other is None or one.n != other.n:
        return None
    return compare_paired(one, other, metric)


def _metric_of(task: AnyTask, metric: str) -> SentenceMetric | None:
    """Return a new accumulator of one metric of a task."""
    if "perplexity" in metric:
        return NatsPerWord(metric, task.lines)
    whole = task.build_metric(None)  # nothing of the answers' space is needed: they are texts here
    for each in whole.metrics if isinstance(whole, TextMetrics) else (whole,):
        # A metric with a table of its own is no sum of rows.
        if not isinstance(each, SentenceMetric) or type(each).table is not SentenceMetric.table:
            continue
        if metric in each.statistics():
            return each
    return None
