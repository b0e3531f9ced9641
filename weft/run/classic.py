"""Runs of classical models: texts in memory, one fit, and progress on the way.

Language models stream their texts instead, and keep only ids.
"""

import time
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from weft import registry
from weft.classic.progress import FitProgress
from weft.config import Config, FilledSections
from weft.decode.search import settings
from weft.errors import UserError
from weft.machine import require_memory
from weft.predict.classic import ClassicEngine, truncate_text
from weft.protocols import ClassicModel
from weft.run.context import RunContext, TrainingResult
from weft.run.data import Source, labelled_only, not_weighted_error
from weft.tasks.language import LanguageModelling, LMVocabulary
from weft.tasks.tag import Tag
from weft.tasks.task import compute_metrics
from weft.text.example import Example, SkipCounter
from weft.train.logger import truncate_metrics

TOKENISE_CHUNK_TEXTS = 10_000
MAX_SILENT_SECONDS = 30  # without a log line, if there is no bar
# Texts and their targets; of a task about words, Examples and a table each.
LabelledTexts = tuple[list[str | Example], Any]


def fill_sections(config: Config) -> FilledSections:
    """Return the model's sections with all defaults filled in.

    A language model also has a tokenizer, trained by its task as for neural models, and search
    settings.
    """
    out: FilledSections = {"classic": registry.fill("classic", config["classic"])}
    if config["task"].get("kind") != "language":
        return out
    tokenizer = {"kind": "word", **config["tokenizer"]}
    path = tokenizer.pop("path", "")
    filled = registry.fill("tokenizer", tokenizer)
    generate = registry.check(
        settings.SearchSettings, {"method": "sample", **config["generate"]}, "[generate]"
    )
    return {"tokenizer": {**filled, "path": path} if path else filled, **out, "generate": generate}


class ClassicRun:
    """The training of a classical model."""

    def __init__(self, context: RunContext, section: FilledSections):
        self.section = section
        self.data, self.settings, self.splits = context.data, context.settings, context.splits
        self.task, self.space = context.task, context.space
        self.logger, self.tally = context.logger, context.tally
        self.on_evaluate = context.on_evaluate
        self.started = self.last_logged = time.perf_counter()
        self.result = TrainingResult()
        self.size = 0  # training texts

    def fit(self) -> tuple[ClassicEngine, TrainingResult]:
        """Train to the end; return the engine, and how training went."""
        self.part: ClassicModel = registry.build("classic", self.section)
        self._check_task()
        truncate_metrics(self.logger.folder / "metrics.jsonl", -1)
        if self.is_language_model:
            rows = self._tokenise(self.splits.train, self.tally)
            dev_rows = self._tokenise(self.splits.dev)
            self.part.fit_ids(rows, dev_rows, self._vocabulary, watch=self._on_progress)
            return ClassicEngine(self.part, self.space), self.result
        self.tally.enabled = True
        texts, targets, weights = self._load_split(self.splits.train, self.tally, "train")
        self.tally.enabled = False
        if not texts:
            raise UserError("There are no training examples left.")
        self.size = len(texts)
        weighted = {} if weights is None else {"row_weights": weights}
        if line := self.part.choose_features(texts, self.space):
            self.logger.info(line)
        self.part.fit(
            texts,
            targets,
            self.task,
            self.space,
            self.settings.seed,
            self._on_progress,
            dev=self.dev if self.part.tunes_on_dev and self.dev[0] else None,
            metric=self.settings.metric,
            balance=self.settings.class_balance,
            **weighted,
        )
        for line in self.part.remarks:
            self.logger.info(line)
        data = self.data
        engine = ClassicEngine(self.part, self.space, data.max_characters, data.truncate)
        return engine, self.result

    @property
    def is_language_model(self) -> bool:
        """True if the task is language modelling."""
        return isinstance(self.task, LanguageModelling)

    @property
    def is_structured(self) -> bool:
        """True if the task labels the words of a text."""
        return self.task.is_structured

    @property
    def pairs(self) -> bool:
        """True if the task has two input texts."""
        return self.task.pairs

    @property
    def _vocabulary(self) -> LMVocabulary:
        assert isinstance(self.space, LMVocabulary)
        return self.space

    def _check_task(self) -> None:
        kind = self.section["kind"]
        if self.is_language_model != self.part.is_lm:
            raise UserError(
                f"classic '{kind}' is not a language model, which the task 'language' needs. "
                "Use --recipe kneser-ney or ngram."
                if self.is_language_model
                else f"classic '{kind}' is a language model. Set task.kind to 'language'."
            )
        if self.pairs != self.part.pairs:
            raise UserError(
                f"classic '{kind}' reads one text, and this task is about two. Use --recipe "
                "tfidf-pair."
                if self.pairs
                else f"classic '{kind}' reads two texts. Set task.kind to 'pair-classify' or "
                "'pair-score'."
            )
        if self.task.loss_kind != "cross-entropy":
            hint = ": classic.classifier = 'svm' has a margin" if kind.startswith("tfidf") else ""
            raise UserError(
                f"task.loss is for networks; classic '{kind}' has a loss of its own{hint}. Remove "
                "task.loss."
            )
        if self.part.is_structured and not isinstance(self.task, Tag):
            raise UserError(f"classic '{kind}' tags words. Set task.kind to 'tag'.")
        if self.is_structured and not self.part.is_structured:
            raise UserError(
                f"classic '{kind}' answers about whole texts, and this task asks about their "
                "words. For tags, use --recipe crf."
            )

    @cached_property
    def dev(self) -> LabelledTexts:
        """The dev split, kept in memory for the evaluations."""
        return (
            self._load_split(self.splits.dev, SkipCounter(), "dev")[:2]
            if self.splits.dev
            else ([], np.empty(0))
        )

    def _load_split(
        self, source: Source, tally: SkipCounter, name: str
    ) -> tuple[list[str | Example], Any, np.ndarray | None]:
        """Return texts, targets, and the weights of rows unless all are 1."""
        texts: list[str | Example] = []
        weights: list[float] = []
        targets: list[Any] = []
        for example in self.logger.reading(labelled_only(source, self.data, tally), "reading"):
            try:
                targets.append(self.task.target(example, self.space))
            except UserError:
                if self.data.on_bad_row == "error":
                    raise
                continue  # a label of dev that training does not have; the notes will say so
            if example.weight != 1 and not self.part.takes_weights:
                raise not_weighted_error(example, f"classic '{self.section['kind']}'")
            weights.append(example.weight)
            if not self.is_structured:
                short, fraction = truncate_text(
                    example, self.data.max_characters, self.data.truncate
                )
                assert isinstance(short, Example)
                example = short
                if fraction < 1:
                    tally.add(
                        f"{name} texts read only in part", f"{example.where} ({fraction:.0%})"
                    )
            texts.append(example if self.is_structured or self.pairs else example.text)
            if len(targets) % TOKENISE_CHUNK_TEXTS == 0 and not self.is_structured:
                row = np.asarray(targets[-1])  # of several labels, a number for each that there is
                require_memory(
                    row.nbytes * (len(targets) + TOKENISE_CHUNK_TEXTS),
                    f"A table of {len(targets):,} texts by {row.size:,} labels",
                    "Merge or drop rare labels, or train on fewer texts.",
                )
        alike = all(weight == 1 for weight in weights)
        rows = targets if self.is_structured else np.array(targets)
        return texts, rows, None if alike else np.array(weights)

    def _tokenise(
        self, source: Source | None, tally: SkipCounter | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the ids of every text, read lazily."""
        if tally is not None:
            tally.enabled = True
        examples = source() if source is not None else iter(())
        texts = (example.text for example in self.logger.reading(examples, "reading"))
        tokenizer = self._vocabulary.tokenizer
        while chunk := list(islice(texts, TOKENISE_CHUNK_TEXTS)):
            yield from tokenizer.encode_ids(chunk)
        if tally is not None:
            tally.enabled = False

    def _on_progress(self, progress: FitProgress) -> bool:
        """Show progress; after an epoch, evaluate on dev and check the time limit."""
        self.logger.progress(progress.share, progress.what)
        if not progress.epoch:
            self._log_progress(progress)
            return True
        step = progress.epoch * self.size
        metrics = self._evaluate()
        values = {f"dev_{name}": value for name, value in metrics.items()}
        self.logger.event(
            "evaluation", step=step, epoch=progress.epoch, loss=progress.loss, **values
        )
        words = f"epoch {progress.epoch}  loss {progress.loss:.4f}"
        if metrics:
            metric = self.settings.metric or self.task.metric
            words += f"  dev {metric} {metrics[metric]:.4f}"
        self.logger.info(words)
        if self.on_evaluate is not None and metrics:
            self.on_evaluate(step, metrics)
        return progress.share == 1 or not self._is_over_time(progress.epoch)

    def _log_progress(self, progress: FitProgress) -> None:
        """Log a line now and then if no bar is shown."""
        now = time.perf_counter()
        if self.logger.bar is None and now - self.last_logged > MAX_SILENT_SECONDS:
            self.logger.info(f"{progress.share:.0%}  {progress.what}")
            self.last_logged = now

    def _evaluate(self) -> dict[str, float]:
        texts, targets = self.dev
        if not texts:
            return {}
        return compute_metrics(self.task, self.space, self.part.predict(texts), targets)

    def _is_over_time(self, epoch: int) -> bool:
        minutes = self.settings.minutes
        late = bool(minutes) and time.perf_counter() - self.started > 60 * minutes
        if late:
            reason = f"stopped by the clock after {epoch} of {self.part.epochs} epochs"
            self.result = TrainingResult(reason, epoch / self.part.epochs)
            self.logger.info(f"{reason} (train.minutes)")
        return late
