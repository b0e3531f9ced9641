"""One word in many contexts: its vector at each place where it stands, and what is nearest to it.

n occurrences   H width of a vector   T tokens of a text
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import torch

from weft.batch import Padded
from weft.batch.indexer import Row
from weft.errors import UserError
from weft.inference.lm_scoring import lm_head
from weft.inference.lm_states import num_layers, token_states
from weft.predict.neural import NeuralEngine
from weft.predict.predictor import Predictor
from weft.tasks.language import LMVocabulary
from weft.text.example import Example
from weft.tokens.subtoken_table import append_subtokens

MAX_LM_STEPS = 1024  # of a language model that reads any length
LM_BATCH_ROWS = 16
MAX_NEIGHBOURS = 3  # other occurrences that are listed of each


@dataclass(frozen=True)
class Occurrence:
    """A place where the word stands, and what is known of the text."""

    text: str
    start: int
    end: int
    label: str = ""
    where: str = ""

    @property
    def parts(self) -> tuple[str, str, str]:
        """The text before the word, the word as written, and the text after it."""
        return self.text[: self.start], self.text[self.start : self.end], self.text[self.end :]

    def excerpt(self, room: int) -> tuple[str, str, str]:
        """The same, shortened to so many characters on each side of the word."""
        before, word, after = (" ".join(part.split()) for part in self.parts)
        gap = " " if self.text[: self.start].endswith((" ", "\n", "\t")) else ""
        before = f"…{before[-room:].lstrip()}" if len(before) > room else before
        space = " " if self.text[self.end : self.end + 1].isspace() else ""
        after = f"{after[:room].rstrip()}…" if len(after) > room else after
        return before + gap, word, space + after


@dataclass(frozen=True)
class Contexts:
    """Every occurrence of a word with its vector in its context."""

    word: str
    found: tuple[Occurrence, ...]
    vectors: np.ndarray  # (n, H)
    layer: int | None  # of the network; None: the last
    cut: bool = False  # there are more texts with the word
    truncated: int = 0  # occurrences beyond what the model reads of a long text

    @cached_property
    def cosines(self) -> np.ndarray:
        """(n, n) how alike the vectors are."""
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        unit = self.vectors / np.maximum(lengths, 1e-12)
        return unit @ unit.T

    @cached_property
    def nearest(self) -> list[list[tuple[int, float]]]:
        """The nearest other occurrences of each, with their cosines."""
        others = self.cosines.copy()
        np.fill_diagonal(others, -np.inf)
        order = np.argsort(-others, axis=1, kind="stable")[
            :, : min(MAX_NEIGHBOURS, len(others) - 1)
        ]
        return [
            [(int(j), float(others[i, j])) for j in row] for i, row in enumerate(order)
        ]  # fmt: skip

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the texts have, in the order of the file."""
        return tuple(dict.fromkeys(one.label for one in self.found if one.label))

    @property
    def label_agreement(self) -> tuple[int, int]:
        """The number of labelled occurrences whose nearest one has the same label, and of all."""
        pairs = [
            (one.label, self.found[near[0][0]].label)
            for one, near in zip(self.found, self.nearest, strict=True)
            if one.label and near
        ]
        return sum(own == other for own, other in pairs), len(pairs)


def find_contexts(
    predictor: Predictor,
    examples: Iterable[Example],
    word: str,
    layer: int | None = None,
    limit: int | None = None,
) -> Contexts:
    """The vectors of a word wherever it stands, in one layer or as the model's states.

    Upper and lower case are one word. Of a word with several tokens the vector is their mean. At
    most `limit` texts that hold the word are read.
    """
    engine = _check_engine(predictor, layer)
    holding = _find_word(examples, _pattern(word))
    texts = list(islice(holding, limit))
    if not texts:
        raise UserError(
            f"The word “{word}” does not occur in these texts. Choose another for --contexts."
        )
    vectors: dict[tuple[int, int, int], np.ndarray] = {}
    plain = [one.text for one, _ in texts]
    iterate = _iterate_lm_states if engine.model.traits.is_lm else _iterate_states
    for rows, states in iterate(engine, plain, layer):
        for row, own in zip(rows, states.rows(), strict=True):
            tokens = own.float().cpu().numpy()[-len(row.ids) :]  # without a [CLS] of the encoder
            for start, end in texts[row.text][1]:
                if (vector := _mean_vector(row, tokens, start, end)) is not None:
                    vectors.setdefault((row.text, start, end), vector)
    if not vectors:
        raise UserError(f"The model truncates these texts before the word “{word}”.")
    positions = sorted(vectors)
    return Contexts(
        word,
        tuple(_occurrence(texts[i][0], start, end) for i, start, end in positions),
        np.stack([vectors[position] for position in positions]),
        layer,
        next(holding, None) is not None,
        sum(len(spans) for _, spans in texts) - len(positions),
    )


def _check_engine(predictor: Predictor, layer: int | None) -> NeuralEngine:
    """The engine, where it has a vector for each token, and the layer is one that it has."""
    engine = predictor.engine
    if not isinstance(engine, NeuralEngine) or engine.input_kind in ("vectors", "trees"):
        raise UserError(
            "--contexts needs a model with a vector for each token: a pre-trained network "
            "(`weft convert FOLDER -o MODEL`), a language model, or a model trained with an "
            "encoder."
        )
    if layer is None:
        return engine
    if engine.model.traits.is_lm:
        most = num_layers(lm_head(engine.model).decoder)
    else:
        networks = [e for e in engine.model.embedder_parts if e.layer_groups()]
        if len(networks) != 1:
            raise UserError("--layer is for models of a pre-trained network; this one has none.")
        most = len(networks[0].layer_groups()) - 1
    if not 0 <= layer <= most:
        raise UserError(f"--layer should be from 0 (the words alone) to {most}, got {layer}.")
    return engine


def _pattern(word: str) -> re.Pattern[str]:
    if not word.strip():
        raise UserError("--contexts should name a word, got nothing.")
    joined = r"\s+".join(re.escape(part) for part in word.split())
    return re.compile(rf"(?<!\w){joined}(?!\w)", re.IGNORECASE)


def _find_word(
    examples: Iterable[Example], pattern: re.Pattern[str]
) -> Iterator[tuple[Example, list[tuple[int, int]]]]:
    """The texts in which the word stands, and where; of a pair each text by itself."""
    for example in examples:
        for text in (example.text, example.other):
            if spans := [match.span() for match in pattern.finditer(text or "")]:
                label, file, line = example.label, example.file, example.line
                yield Example(text or "", label, file=file, line=line), spans


def _iterate_states(
    engine: NeuralEngine, texts: Sequence[str], layer: int | None
) -> Iterator[tuple[list[Row], Padded]]:
    """Rows with the states (B, T, H) of their steps."""
    model = engine.encoder_model
    for rows, source in engine.batches(texts):
        with torch.inference_mode():
            states = model.encode(model.embed(source)) if layer is None else None
            inputs = zip(model.embedder_parts, model.embedder_inputs(source), strict=True)
            for embedder, x in inputs:
                if layer is not None and embedder.layer_groups():
                    states = embedder.layer(x, layer)
        assert states is not None
        if states.data.shape[1] < source.data.shape[1]:
            raise UserError("With a stride above 1 there is no vector for each token.")
        yield rows, states


def _iterate_lm_states(
    engine: NeuralEngine, texts: Sequence[str], layer: int | None
) -> Iterator[tuple[list[Row], Padded]]:
    """Rows of a language model with the states (B, T, H) of their tokens.

    A text longer than the decoder sees is read in windows that overlap by half.
    """
    decoder = lm_head(engine.model).decoder
    space = LMVocabulary(engine.indexer.tokenizer, lines=engine.model.parts["task"]["lines"])
    size = (decoder.max_positions or MAX_LM_STEPS) - 1  # one stands before the text
    rows = []
    for i, (ids, offsets) in enumerate(space.places(texts)):
        for start in range(0, max(len(ids) - size // 2, 1), max(size // 2, 1)):
            window = slice(start, start + size)
            spans = np.array(offsets[window], np.int64).reshape(-1, 2)
            rows.append(Row(i, ids[window], (), 1.0, spans))
    for batch in (rows[k : k + LM_BATCH_ROWS] for k in range(0, len(rows), LM_BATCH_ROWS)):
        tokens = [row.ids for row in batch]
        if decoder.reads_subtokens:
            tokens = [
                append_subtokens(row.ids, decoder.subtoken_ids(words), decoder.max_subtokens)
                for row, words in ((row, _written_tokens(row, texts[row.text])) for row in batch)
            ]
        yield batch, token_states(engine.model, tokens, engine.runtime, layer)


def _written_tokens(row: Row, text: str) -> list[str]:
    assert row.spans is not None
    return [text[start:end] for start, end in row.spans.tolist()]


def _mean_vector(row: Row, vectors: np.ndarray, start: int, end: int) -> np.ndarray | None:
    """Return the mean vector (H,) of the tokens of a span; None if the row holds only a part."""
    assert row.spans is not None
    begins, ends = row.spans.T
    own = np.flatnonzero((begins < end) & (ends > start))
    if not len(own) or begins[own[0]] > start or ends[own[-1]] < end:
        return None
    return vectors[own].mean(0)


def _occurrence(example: Example, start: int, end: int) -> Occurrence:
    label = example.label if isinstance(example.label, (str, float)) else ""
    where = example.where if example.file else ""
    return Occurrence(example.text, start, end, str(label), where)
