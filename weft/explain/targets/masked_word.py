"""A masked word: log p(word | the rest of the text).

B rows   T steps   E embedding width   V words
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded
from weft.errors import UserError, near_miss
from weft.explain.explanation import ExplainedWord
from weft.explain.targets.target import RowTarget, TargetRequest
from weft.explain.words import own_words
from weft.inference.windows import MaskedRow
from weft.model import EncoderModel
from weft.predict.fill_mask import WORDS_PER_BLANK, display_word, masked_rows
from weft.predict.neural import NeuralEngine
from weft.predict.predictor import Predictor
from weft.tasks.mlm import MASK_PATTERN
from weft.tasks.task import Answer
from weft.text.example import Example
from weft.tokens.tokenizer import Tokenizer
from weft.untrusted import parse_integer


def requests_of(
    predictor: Predictor, examples: Sequence[Example], word: str, target: str
) -> list[TargetRequest]:
    """Explain one blank of each text, by default the one filled with the least certainty."""
    answers = predictor(examples)
    pairs = zip(examples, answers, strict=True)
    return [request_blank(predictor, one.text, answer, word, target) for one, answer in pairs]


def request_blank(
    predictor: Predictor, text: str, answer: Answer, word: str = "", target: str = ""
) -> TargetRequest:
    """Explain the word of a blank, by its number from 1, or another `target` word there.

    A hidden word is read as the mask token, which the model has learned to read as nothing.
    """
    engine = cast(NeuralEngine, predictor.engine)
    tokenizer = engine.indexer.tokenizer
    blank = choose_blank(answer, word)
    row, step = find_row(masked_rows(text, engine.indexer, "input", offsets=True), blank)
    assert row.offsets is not None
    assert tokenizer.mask is not None
    ids = torch.from_numpy(row.ids.astype(np.int64))[None].to(engine.runtime.device)
    source = Padded(ids, torch.tensor([len(row.ids)]))
    with torch.inference_mode():
        logps = engine.model.run(source).scores.head.logps
        states = engine.encoder_model.encode(engine.model.embed(source)).data[:, step]
        found = logps(states)[0].double().cpu().numpy()  # (V,)
    chosen = find_token(tokenizer, target) if target else int(rank_words(tokenizer, found)[0])
    inside = (row.offsets[:, 1] > row.offsets[:, 0]) & (row.ids != tokenizer.mask)
    words, owned = own_words(text, row.offsets[inside])
    owners = np.full(len(row.ids), -1)
    owners[inside] = owned

    def score(model: EncoderModel, embedded: Padded) -> Tensor:
        states = model.encode(embedded)
        out: Tensor = model.head.logps(states.data[:, step])[:, chosen, None]
        return out

    name = display_word(tokenizer, chosen)
    spot = RowTarget(
        engine.encoder_model, source, owners, words.tolist(), score, text, name, (step,), 0,
        tokenizer.mask, [found.span() for found in MASK_PATTERN.finditer(text)],
    )  # fmt: skip
    return TargetRequest(spot, answer, describe_blank(tokenizer, text, blank, found, chosen))


def describe_blank(
    tokenizer: Tokenizer, text: str, blank: int, logps: np.ndarray, chosen: int
) -> ExplainedWord:
    """Return a blank with its most probable words, of log-probabilities (V,), and the chosen."""
    best = rank_words(tokenizer, logps)[:WORDS_PER_BLANK].tolist()
    probs = {display_word(tokenizer, i): float(np.exp(logps[i])) for i in (*best, chosen)}
    start = [found.start() for found in MASK_PATTERN.finditer(text)][blank]
    first = display_word(tokenizer, best[0])
    return ExplainedWord(-1, f"blank {blank + 1}", "word", first, tuple(probs.items()), start=start)


def rank_words(tokenizer: Tokenizer, logps: np.ndarray) -> np.ndarray:
    """Return the ids of the words that may fill a blank, the most probable first."""
    ids: np.ndarray = tokenizer.ordinary[np.argsort(-logps[tokenizer.ordinary], kind="stable")]
    return ids


def choose_blank(answer: Answer, word: str) -> int:
    """Return the index of the named blank, or of the one filled with the least certainty."""
    if not word:
        return int(np.argmin([words[0][1] for words in answer.blanks]))
    number, most = parse_integer(word) or 0, len(answer.blanks)
    if not 1 <= number <= most:
        raise UserError(
            f"--word {word}: choose one of the {most} blanks by its number, from 1 to {most}."
        )
    return number - 1


def find_row(rows: Sequence[tuple[MaskedRow, float]], blank: int) -> tuple[MaskedRow, int]:
    """Return the row of a blank and its step: one row has all blanks, or each has its own."""
    if len(rows) == 1:
        return rows[0][0], rows[0][0].steps[blank]
    return rows[blank][0], rows[blank][0].steps[0]


def find_token(tokenizer: Tokenizer, target: str) -> int:
    """Return the token that is displayed as `target`."""
    names = {display_word(tokenizer, i): i for i in reversed(tokenizer.ordinary.tolist())}
    if target in names:
        return names[target]
    raise UserError(
        f"Unknown target '{target}': the model has no such token.{near_miss(target, names)}"
    )
