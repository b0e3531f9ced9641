"""A tag for every word: parts of speech, features, chunks, entities; one column or several.

T words   K columns
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError, unknown_name
from weft.metrics.structure.chunks import SpanF1
from weft.metrics.structure.tags import TagAccuracy, metric_name
from weft.metrics.value import MetricRepr, MetricValue
from weft.protocols import Saved, Section
from weft.registry import register
from weft.tasks.annotation import Annotation, Decoded
from weft.tasks.confidence.calibration import LossKind
from weft.tasks.tag_vocabulary import TagSpace, decode_tags, read_column, require_annotations
from weft.tasks.task import Answer, Loss, StructuredTask
from weft.text.annotation import schemes
from weft.text.annotation.spans import align_tags
from weft.text.example import TAG_COLUMN, CharSpans, Example, SkipCounter, WordAnnotations
from weft.text.formats.structured import SENTENCE
from weft.tokens.pretokenizer import word_spans

if TYPE_CHECKING:
    from weft.batch import LabelledBatch
    from weft.decode.heads.tag import TagOutput

UNCALIBRATED_NOTE = "margins are no log-probabilities: the probabilities of tags are not calibrated"
INSPECTED_SENTENCES = 1000  # sentences whose tags say whether they mark spans


def join_parts(parts: Sequence[Decoded]) -> Decoded:
    """Join the parts of one sentence."""
    if len(parts) == 1:
        return parts[0]
    tables = [part.table for part in parts] or [np.zeros((0, 1), np.int64)]
    probs = [part.probs for part in parts] or [np.zeros((0, 1), np.float32)]
    return Decoded(
        np.concatenate(tables), np.concatenate(probs),
        tuple(word for part in parts for word in part.words),
        tuple(place for part in parts for place in part.places),
    )  # fmt: skip


@register("task", "tag")
class Tag(StructuredTask[TagSpace]):
    """A tag for every word, from one or several `columns` of the file.

    With a `scheme` (IO, IOB1, IOB2, BILOU, BIOES) the tags of the first column mark spans, and
    spans are what is answered and measured; `invalid` tags are repaired as conlleval reads them,
    or an error. The model learns spans in the marks of `learn`, whatever those of the file are:
    to tell where a span ends and which are of one word helps it (CoNLL-2000: 93.5 to 93.6 F1).
    `loss` is cross-entropy or a margin, as in 'classify'; a CRF's is structured: the gold sequence
    must beat every other by as many points as they differ in words (Taskar et al. 2003).
    """

    head = "tags"
    has_classes = True
    takes_weights = True

    def __init__(
        self,
        columns: list[str] = [],  # noqa: B006 -- never changed; a list is what a config holds
        scheme: str = "",
        invalid: str = "repair",
        learn: str = "BIOES",
        loss: LossKind = "cross-entropy",
    ) -> None:
        self.columns = tuple(columns)
        self.scheme = schemes.canonical_scheme(scheme) if scheme else ""
        if invalid not in ("error", "repair"):
            raise unknown_name("way with invalid tags", invalid, ("error", "repair"), "task 'tag'")
        self.invalid, self.loss_kind = invalid, loss
        self.learn = schemes.canonical_scheme(learn) if learn else self.scheme
        one = metric_name(self.columns[0]) if self.columns else "tag"
        self.metric = "f1" if self.scheme else one if len(self.columns) < 2 else "all"

    @staticmethod
    def infer(settings: Section, examples: Iterable[Example]) -> dict[str, object]:
        """Infer the column and its scheme from the file, unless configured."""
        first = list(islice(examples, INSPECTED_SENTENCES))
        if any(isinstance(e.label, CharSpans) for e in first):
            return {"columns": [TAG_COLUMN], "scheme": settings.get("scheme") or "IOB2"}
        some = [e for e in first if isinstance(e.label, WordAnnotations)]
        if not some or not isinstance(some[0].label, WordAnnotations):
            return {}
        columns = list(settings.get("columns") or [some[0].label.main])
        out: dict[str, object] = {"columns": columns}
        if "scheme" not in settings:
            rows = [read_column(e, columns[0]) for e in some]
            marks = {tag[:2] for tags in rows for tag in tags}
            spanned = "O" in marks and all(m == "O" or m[1:] == "-" for m in marks)
            try:
                out["scheme"] = schemes.recognise(rows) if spanned and len(marks) > 1 else ""
            except UserError as error:
                raise UserError(f"{some[0].file}: {error}") from None
        return out

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Convert spans to tags of words; spans that cut a word are widened and counted."""
        if not isinstance(example.label, CharSpans):
            return self._check_scheme(example, tally)
        places = tuple(word_spans(example.text))
        found = align_tags(example.label.spans, places, scheme=self.scheme or "IOB2")
        for moved in found.adjusted:
            tally.add("spans that do not fall on words moved", f"{example.where} ({moved})")
        words = tuple(example.text[start:end] for start, end in places)
        return replace(
            example,
            label=WordAnnotations({TAG_COLUMN: found.tags}, TAG_COLUMN),
            words=words,
            places=places,
        )

    def _check_scheme(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example; count tags that its scheme does not allow, or raise a UserError."""
        if self.scheme and isinstance(example.label, WordAnnotations):
            fault = schemes.find_fault(read_column(example, self.columns[0]), self.scheme)
            if fault and self.invalid == "error":
                raise UserError(
                    f"{example.sentence_where}: word {fault[0] + 1}: {fault[1]} Mend it, or set "
                    "task.invalid=repair."
                )
            if fault:
                tally.add("sentences with invalid tags repaired", example.where)
        return example

    def space(self, examples: Iterable[Example]) -> TagSpace:
        """Return the tags of each column; for spans, every mark of every label."""
        names: tuple[str, ...] = self.columns
        seen: list[set[str]] = []
        where = "input"
        for example in examples:
            where = example.file or where
            names = names or (require_annotations(example).main,)
            seen = seen or [set() for _ in names]
            for found, name in zip(seen, names, strict=True):
                found.update(read_column(example, name))
        if not seen or not any(seen):
            message = "there are no tagged words. Give CoNLL-U, column or span files."
            raise UserError(f"{where}: {message}")
        scheme = self.learn if self.scheme else ""
        if scheme:
            seen[0] = all_tags(seen[0], scheme)
        return TagSpace(names, tuple(tuple(sorted(tags)) for tags in seen), scheme)

    def load_space(self, saved: Saved) -> TagSpace:
        return TagSpace.from_json(saved)

    def target(self, example: Example, space: TagSpace) -> np.ndarray:
        """Return the tag ids (T, K)."""
        columns = self._columns(example, space)
        ids = [[space.number(k, tag) for tag in tags] for k, tags in enumerate(columns)]
        table: np.ndarray = np.array(ids, np.int64).T
        return table

    def _columns(self, example: Example, space: TagSpace) -> list[tuple[str, ...]]:
        """Return the tags of an example as the model learns them."""
        columns = [read_column(example, name) for name in space.names]
        if space.scheme:
            columns[0] = tuple(schemes.convert(columns[0], self.scheme, space.scheme, "repair"))
        return columns

    def classes(self, target: np.ndarray, space: TagSpace) -> tuple[np.ndarray, ...]:
        """Return the tags by column; O is a class like the others."""
        return tuple(target.T)

    def loss(self, scores: "TagOutput", batch: "LabelledBatch") -> Loss:  # type: ignore[override]  # a head's own
        """Return the summed loss of the tags, and the words."""
        total, words = scores.loss(batch.target, self.loss_kind, batch.balance, batch.row_weights)
        return Loss(total, words if batch.row_weights is None else batch.count)

    def note(self, space: TagSpace) -> str:
        return "" if self.loss_kind == "cross-entropy" else UNCALIBRATED_NOTE

    def answers(self, scores: Sequence[Decoded], space: TagSpace) -> list[Answer]:
        """Return the tags of each text or, with a scheme, the spans with their offsets."""
        return [self._answer(found, space) for found in scores]

    def _answer(self, decoded: Decoded, space: TagSpace) -> Answer:
        columns = decode_tags(decoded.table, space)
        probs = tuple(decoded.probs.ravel().tolist())
        seen = self._annotate(decoded.words, decoded.places, columns, space.scheme)
        value: tuple[str | list[str] | dict[str, str | int], ...]
        if not space.scheme:
            several = len(columns) > 1
            value = tuple(map(list, zip(*columns, strict=True))) if several else columns[0]
            return Answer(value, decoded.score, scores=probs, structure=seen)
        spans = schemes.tags_to_spans(columns[0], space.scheme, "repair")
        value = tuple(
            {"label": label, "start": start, "end": end, "text": " ".join(decoded.words[i:j])}
            for (start, end, label), (_, i, j) in zip(seen.spans, spans, strict=True)
        )
        return Answer(value, decoded.score, scores=probs, structure=seen)

    def gold(
        self, example: Example, space: TagSpace, predicted: Answer | None = None
    ) -> Annotation:
        """Return the gold annotation."""
        columns = self._columns(example, space)
        return self._annotate(
            example.words, example.places, columns, space.scheme, example.text
        )  # fmt: skip

    def _annotate(
        self,
        words: tuple[str, ...],
        places: tuple[tuple[int, int], ...],
        columns: Sequence[tuple[str, ...]],
        scheme: str,
        text: str = "",
    ) -> Annotation:
        """Return the annotation, with tags in the scheme of the file."""
        if not scheme:
            tags = tuple(map(" ".join, zip(*columns, strict=True)))
            return Annotation("tags", words, places, text, tags)
        found = schemes.tags_to_spans(columns[0], scheme, "repair")
        spans = tuple((places[i][0], places[j - 1][1], label) for label, i, j in found)
        tags = tuple(schemes.spans_to_tags(found, len(words), self.scheme))
        return Annotation("spans", words, places, text, tags, spans)

    def predict_targets(self, scores: Sequence[Decoded], space: TagSpace) -> list[np.ndarray]:
        return [found.table for found in scores]

    def build_metric(self, space: TagSpace) -> "TagMetric":
        return TagMetric(space)


@register("task", "sentences")
class SplitSentences(Tag):
    """The sentences of running text, as spans: of each word, whether it begins one.

    Learned from CoNLL-U: the sentences of a paragraph (`# newpar`, `# newdoc`) are read as one
    text. How words are cut is learned with it, from the offsets of the words.
    """

    file_format = "paragraphs"
    shares_heads_of = "tag"

    def __init__(self, loss: LossKind = "cross-entropy") -> None:
        super().__init__([SENTENCE], "IOB2", learn="IOB2", loss=loss)

    @staticmethod
    def infer(settings: Section, examples: Iterable[Example]) -> dict[str, object]:
        """Infer nothing: the column and its scheme are fixed."""
        return {}


class TagMetric(MetricRepr):
    """Words with the right tag, and the right spans where tags mark spans."""

    def __init__(self, space: TagSpace) -> None:
        self.space = space
        self.tagging = TagAccuracy(space.names)
        self.chunks = SpanF1()

    def add(self, predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> None:
        ours = [decode_tags(tags, self.space) for tags in predicted]
        theirs = [decode_tags(tags, self.space) for tags in gold]
        self.tagging.add(ours, theirs)
        if self.space.scheme:
            prediction, true = (
                [schemes.tags_to_spans(columns[0], self.space.scheme, "repair") for columns in rows]
                for rows in (ours, theirs)
            )
            self.chunks.add(prediction, true)

    def merge(self, other: "TagMetric") -> None:
        self.tagging.merge(other.tagging)
        self.chunks.merge(other.chunks)

    @property
    def n(self) -> int:
        return self.tagging.n

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        values = self.tagging.compute(resamples, seed, level)
        if self.space.scheme:
            values = {**self.chunks.compute(resamples, seed, level), **values}
        return values


def all_tags(tags: Iterable[str], scheme: str) -> set[str]:
    """Return all tags of a scheme for the labels of some tags."""
    labels = {label for mark, label in map(schemes.split_tag, tags) if mark != schemes.OUTSIDE}
    found = {schemes.OUTSIDE}
    for label in labels:
        for length in (1, 3):
            found.update(schemes.spans_to_tags([schemes.Span(label, 0, length)], length, scheme))
        if scheme == "IOB1":
            found.add(f"B-{label}")
    return found
