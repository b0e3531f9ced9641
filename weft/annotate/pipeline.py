"""Several models as one: sentences and words first, then every layer for all documents of a batch.

Sentences of many documents go through a model together; coreference reads whole documents.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from weft import predict
from weft.annotate.document import AnnotatedDocument, AnnotatedSentence, SourceText
from weft.annotate.segment import Segmenter, sentence_examples, split_document
from weft.errors import UserError
from weft.predict import Predictor
from weft.tasks.annotation import Annotation
from weft.tasks.tag_vocabulary import TagSpace
from weft.text.annotation.frames import Coreference
from weft.text.example import Example

MAX_BATCH_CHARACTERS = 400_000  # of documents that are annotated together, some 70,000 words
LAYERS = ("tags", "dependencies", "roles", "entities", "coreference")
TASKS = {  # that annotate, in the order of their models
    "sentences": "sentences",
    "tag": "tags or entities",
    "parse": "dependencies",
    "srl": "roles",
    "coref": "coreference",
}


@dataclass
class LayerSpeed:
    """The words that a model has read, and the seconds that it took."""

    words: int = 0
    seconds: float = 0.0

    @property
    def words_per_second(self) -> float:
        return self.words / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class LayerModel:
    """A model with its name, its task, and the layer that it gives."""

    name: str
    predictor: Predictor
    speed: LayerSpeed = field(default_factory=LayerSpeed, compare=False)

    @property
    def task(self) -> str:
        return str(self.predictor.config["task"]["kind"])

    @property
    def finds_spans(self) -> bool:
        """True for a tagger whose tags mark entities or chunks."""
        space = self.predictor.space
        return self.task == "tag" and isinstance(space, TagSpace) and bool(space.scheme)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of tags that it predicts."""
        return tuple(name for name in self.predictor.space.names if name != "deprel")

    @property
    def layers(self) -> tuple[str, ...]:
        if self.task == "tag":
            return ("entities",) if self.finds_spans else ("tags",)
        if self.task == "parse":
            return ("tags", "dependencies") if self.columns else ("dependencies",)
        return {"srl": ("roles",), "coref": ("coreference",)}.get(self.task, ())


class Pipeline:
    """Models that annotate plain text together, each one layer or several.

    At most one model splits sentences, one finds entities, one parses, one labels roles and one
    resolves coreference; taggers predict different columns.
    """

    def __init__(self, models: Mapping[str, Predictor]) -> None:
        self.models = [LayerModel(name, predictor) for name, predictor in models.items()]
        if not self.models:
            raise UserError("Name at least one model.")
        _check_models(self.models)
        splitters = [one for one in self.models if one.task == "sentences"]
        self.splitter = splitters[0] if splitters else None
        self.annotators = [one for one in self.models if one.task != "sentences"]
        others = [one.predictor for one in self.annotators]
        self.segmenter = Segmenter(self.splitter.predictor if self.splitter else None, others)
        self.segmentation = LayerSpeed()  # of sentences and words, by model or by rules
        self.parts = 0  # documents that were annotated in parts

    @classmethod
    def load(
        cls, folders: Sequence[str | Path], *, device: str = "auto", weights: str = "float32"
    ) -> "Pipeline":
        """Load model or run folders; each must answer as it did when it was saved."""
        return cls({str(one): predict.load(one, device=device, weights=weights) for one in folders})

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that the models give, in the order of LAYERS."""
        found = {layer for one in self.annotators for layer in one.layers}
        return tuple(layer for layer in LAYERS if layer in found)

    def __call__(self, texts: Iterable[str | SourceText]) -> list[AnnotatedDocument]:
        """Annotate documents, in order; long ones become several."""
        if isinstance(texts, str):
            raise UserError("Call the pipeline with a list of texts, not a single string.")
        return list(self.stream(texts))

    def stream(self, texts: Iterable[str | SourceText]) -> Iterator[AnnotatedDocument]:
        """Yield annotated documents in order, in bounded memory.

        A document of more than MAX_DOCUMENT_CHARACTERS is annotated in parts, which chains of
        coreference do not leave.
        """
        batch: list[SourceText] = []
        size = 0
        for one in texts:
            for part in split_document(SourceText(one) if isinstance(one, str) else one):
                self.parts += part.part == 1
                if batch and size + len(part.text) > MAX_BATCH_CHARACTERS:
                    yield from self._annotate(batch)
                    batch, size = [], 0
                batch.append(part)
                size += len(part.text)
        if batch:
            yield from self._annotate(batch)

    def _annotate(self, documents: Sequence[SourceText]) -> list[AnnotatedDocument]:
        """Annotate documents together, layer by layer."""
        began = time.perf_counter()
        sentences = self.segmenter.split(documents)
        words = sum(len(one.words) for own in sentences for one in own)
        self.segmentation.words += words
        self.segmentation.seconds += time.perf_counter() - began
        entities: list[list[tuple[int, int, str]]] = [[] for _ in documents]
        mentions: list[tuple[tuple[str, int, int], ...]] = [() for _ in documents]
        for model in self.annotators:
            began = time.perf_counter()
            if model.task == "coref":
                mentions = self._resolve(model, documents, sentences)
            else:
                self._label(model, documents, sentences, entities)
            model.speed.words += words
            model.speed.seconds += time.perf_counter() - began
        return [
            AnnotatedDocument(source, self.layers, tuple(own), tuple(spans), chains)
            for source, own, spans, chains in zip(
                documents, sentences, entities, mentions, strict=True
            )
        ]

    def _label(
        self,
        model: LayerModel,
        documents: Sequence[SourceText],
        sentences: list[list[AnnotatedSentence]],
        entities: list[list[tuple[int, int, str]]],
    ) -> None:
        """Add the layers of one model to every sentence, or its spans to the entities."""
        pairs = zip(documents, sentences, strict=True)
        answers = model.predictor.stream(sentence_examples(pairs))
        for own, spans in zip(sentences, entities, strict=True):
            for k, sentence in enumerate(own):
                found = next(answers).structure
                assert found is not None
                if model.finds_spans:
                    start = sentence.start
                    spans += [(a + start, b + start, label) for a, b, label in found.spans]
                else:
                    own[k] = _add_layer(sentence, found, model)

    def _resolve(
        self,
        model: LayerModel,
        documents: Sequence[SourceText],
        sentences: Sequence[Sequence[AnnotatedSentence]],
    ) -> list[tuple[tuple[str, int, int], ...]]:
        """Return the mentions of each document; one without words has none."""
        examples = [_document_example(*one) for one in zip(documents, sentences, strict=True)]
        answers = iter(model.predictor.stream([one for one in examples if one.words]))
        out = []
        for example in examples:
            found = next(answers).structure if example.words else None
            out.append(found.mentions if found else ())
        return out


def _check_models(models: Sequence[LayerModel]) -> None:
    """Raise UserError for a model that annotates no words, or two that annotate the same."""
    owners: dict[str, str] = {}
    for model in models:
        if model.task not in TASKS:
            raise UserError(
                f"{model.name} is of the task '{model.task}', which annotates no words of running "
                f"text. Models of these tasks do: {', '.join(TASKS)}."
            )
        given = (
            [f"column '{name}'" for name in model.columns]
            if model.task == "tag" and not model.finds_spans
            else [TASKS[model.task] if model.task != "tag" else "entities"]
        )
        if model.task == "parse":
            given += [f"column '{name}'" for name in model.columns]
        for layer in given:
            if layer in owners:
                raise UserError(
                    f"{owners[layer]} and {model.name} both give the {layer}. Leave one out."
                )
            owners[layer] = model.name


def _add_layer(
    sentence: AnnotatedSentence, found: Annotation, model: LayerModel
) -> AnnotatedSentence:
    """Return the sentence with tags, heads or frames of a prediction."""
    if found.words != sentence.words:
        raise UserError(
            f"{model.name} reads the sentence '{' '.join(sentence.words)[:60]}' as other words. "
            "It cannot be used in a pipeline."
        )
    out = sentence
    if found.tags:
        rows = [tag.split(" ") for tag in found.tags]
        columns = {name: tuple(row[k] for row in rows) for k, name in enumerate(model.columns)}
        out = replace(out, tags={**out.tags, **columns})
    if found.heads:
        out = replace(out, heads=found.heads, relations=found.relations)
    return replace(out, frames=found.frames) if found.frames else out


def _document_example(document: SourceText, sentences: Sequence[AnnotatedSentence]) -> Example:
    """Return the words of a document with the beginnings of its sentences."""
    starts: list[int] = []
    words: list[str] = []
    places: list[tuple[int, int]] = []
    for one in sentences:
        starts.append(len(words))
        words += one.words
        places += one.places
    label = Coreference((), tuple(starts) or (0,))
    return Example(
        document.text, label, document.id, document.file, document.line, tuple(words),
        tuple(places),
    )  # fmt: skip
