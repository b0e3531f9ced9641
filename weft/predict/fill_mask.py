"""Fill-mask: the best words for each [MASK] or <mask> of a text, by a model of both sides.

Importable without torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.batch.indexer import Indexer
from weft.inference.windows import MaskedRow
from weft.predict.output import EngineInput, EngineOutput, plain_texts
from weft.tasks.mlm import MASK_PATTERN, FilledMasks, require_mask
from weft.tokens.offsets import SPACE_MARK
from weft.tokens.special_tokens import SpecialTokens
from weft.tokens.tokenizer import BYTE_LEVEL_SPACE, Tokenizer

if TYPE_CHECKING:
    from weft.model import Model

WORDS_PER_BLANK = 5


@dataclass(frozen=True)
class BlankLayout:
    """The id of a blank, the special tokens around a text, and the longest row."""

    blank: int
    frame: SpecialTokens
    limit: int | None


# Rows, the ids that may be predicted, and how many of the best are wanted -> ids and probabilities
# (K, count) at each row's masked steps.
PredictMasked = Callable[
    [Sequence[MaskedRow], np.ndarray, int], Sequence[tuple[np.ndarray, np.ndarray]]
]


def lm_layout(model: "Model") -> BlankLayout:
    """Return the layout of a language model that reads both sides of a word."""
    head = model.head
    end = (head.eos,) if model.parts["task"]["lines"] else ()
    return BlankLayout(head.blank, SpecialTokens(after=end), head.window)


def mlm_layout(indexer: Indexer) -> BlankLayout:
    """Return the layout of a masked language model."""
    mask = indexer.tokenizer.mask
    assert mask is not None
    return BlankLayout(mask, indexer.frame, indexer.limit)


def fill(
    texts: Sequence[str], indexer: Indexer, layout: BlankLayout, predict_masked: PredictMasked
) -> tuple[list[FilledMasks], np.ndarray]:
    """Return the best words for the blanks of each text, and (texts,) the fraction read."""
    rows: list[MaskedRow] = []
    owners: list[int] = []
    coverage = np.ones(len(texts))
    for i, text in enumerate(texts):
        if not text.strip():
            coverage[i] = 0.0
            continue
        for row, fraction in masked_rows(text, indexer, f"text {i + 1}", layout=layout):
            rows.append(row)
            owners.append(i)
            coverage[i] = fraction
    tokenizer = indexer.tokenizer
    blanks: list[list[tuple[tuple[str, float], ...]]] = [[] for _ in texts]
    predicted = predict_masked(rows, tokenizer.ordinary, WORDS_PER_BLANK)
    for owner, (ids, probs) in zip(owners, predicted, strict=True):
        for best, best_probs in zip(ids.tolist(), probs.tolist(), strict=True):
            words = (display_word(tokenizer, word) for word in best)
            blanks[owner].append(tuple(zip(words, best_probs, strict=True)))
    filled = [FilledMasks(text, tuple(own)) for text, own in zip(texts, blanks, strict=True)]
    return filled, coverage


def fill_or_score(
    inputs: Sequence[EngineInput],
    fill_masks: Callable[[Sequence[EngineInput]], EngineOutput],
    score_tokens: Callable[[Sequence[EngineInput]], EngineOutput],
) -> EngineOutput:
    """Fill the masks of texts that have some; score the tokens of the others."""
    blanks = [MASK_PATTERN.search(text) is not None for text in plain_texts(inputs)]
    if not any(blanks):
        return score_tokens(inputs)
    filled, scored = (
        [one for one, blank in zip(inputs, blanks, strict=True) if blank is wanted]
        for wanted in (True, False)
    )
    outputs = {True: fill_masks(filled), False: score_tokens(scored)}
    order = [(blank, blanks[:i].count(blank)) for i, blank in enumerate(blanks)]
    scores: list[Any] = [outputs[blank].scores[k] for blank, k in order]
    coverage = np.array([outputs[blank].coverage[k] for blank, k in order])
    parts = [() if blank else outputs[blank].parts[k] for blank, k in order]
    return EngineOutput(scores, coverage, parts)


def masked_rows(
    text: str,
    indexer: Indexer,
    where: str,
    offsets: bool = False,
    layout: BlankLayout | None = None,
) -> list[tuple[MaskedRow, float]]:
    """Return the text as rows with masked steps, each with the fraction that is read.

    A text longer than the model's limit becomes one row per blank, centred on it. With `offsets`,
    rows say where their tokens stand in the text.
    """
    tokenizer, layout = indexer.tokenizer, layout or mlm_layout(indexer)
    frame, blank = layout.frame, np.array([layout.blank], np.int32)
    parts = tokenizer.encode_ids(MASK_PATTERN.split(require_mask(text, where)))
    ids = np.concatenate([chunk for part in parts for chunk in (part, blank)][:-1])
    steps = (np.cumsum([len(part) + 1 for part in parts[:-1]]) - 1).tolist()
    places = _token_offsets(text, tokenizer) if offsets else None
    size = len(ids) if layout.limit is None else layout.limit - frame.num_added()
    leading = len(frame.before)

    def make_row(start: int, stop: int, masked: list[int]) -> MaskedRow:
        row = frame.wrap(ids[start:stop])[0]
        if places is None:
            return MaskedRow(row, masked)
        around = np.zeros((len(row), 2), np.int32)
        around[leading : leading + stop - start] = places[start:stop]
        return MaskedRow(row, masked, around)

    if len(ids) <= size:
        return [(make_row(0, len(ids), [leading + step for step in steps]), 1.0)]
    out = []
    for step in steps:
        start = min(max(step - size // 2, 0), len(ids) - size)
        out.append((make_row(start, start + size, [leading + step - start]), size / len(ids)))
    return out


def _token_offsets(text: str, tokenizer: Tokenizer) -> np.ndarray:
    """Return the offsets (T, 2) of the tokens between the masks, and of the masks."""
    masks = [found.span() for found in MASK_PATTERN.finditer(text)]
    starts = [0, *(end for _, end in masks)]
    parts = tokenizer.encode_batch(MASK_PATTERN.split(text))
    rows: list[np.ndarray] = []
    for k, (start, part) in enumerate(zip(starts, parts, strict=True)):
        rows.append(part.offsets.reshape(-1, 2) + start)
        rows.append(np.array(masks[k : k + 1], np.int64).reshape(-1, 2))
    return np.concatenate(rows)


def display_word(tokenizer: Tokenizer, word: int) -> str:
    """Return a token as text; a subtoken that continues a word keeps its "##"."""
    entry = tokenizer.vocabulary[word]
    if entry.startswith("##"):
        return entry
    return tokenizer.decode([word]).strip() or entry.lstrip(SPACE_MARK + BYTE_LEVEL_SPACE)
