"""The answer to a question: log p(start) + log p(end) of its span in the passage.

B rows   T steps   E embedding width
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded
from weft.batch.indexer import Row
from weft.decode.heads.answer_span import AnswerSpanOutput
from weft.errors import UserError
from weft.explain.targets.target import RowTarget, TargetRequest
from weft.explain.words import mark_separator, own_words, token_offsets
from weft.model import EncoderModel
from weft.predict.neural import NeuralEngine
from weft.predict.predictor import Predictor
from weft.predict.rows import passage_window
from weft.tasks.extractive_qa import ExtractiveQA
from weft.tasks.task import Answer
from weft.text.example import PAIR_SEPARATOR, Example

NO_ANSWER_STEP = -1


def request_answer(
    predictor: Predictor, example: Example, answer: Answer, target: str = ""
) -> TargetRequest:
    """Explain the predicted answer, or another span of the passage.

    Question and passage are explained as one text. Of a passage in several windows, the one with
    the answer is explained; without an answer, the one that speaks against it most.
    """
    engine = cast(NeuralEngine, predictor.engine)
    span = _find_span(example, answer, target)
    row, source, (first, last) = _find_window(engine, predictor.task, example, span)
    second = len(example.text) + len(PAIR_SEPARATOR)
    offsets = np.array(token_offsets(row, second), np.int32).reshape(-1, 2)
    assert row.spans is not None
    inside = ~(row.spans == 0).all(1)
    words, owned = own_words(example.full_text, offsets[inside])
    owners = np.full(source.data.shape[1], -1)
    owners[: len(inside)][inside] = owned
    front = row.second if engine.model.traits.is_bi_encoder else 0
    steps = sorted({max(first, 0) + front, max(last, 0) + front})

    def score(model: EncoderModel, embedded: Padded) -> Tensor:
        pooled, _ = model.pool_states(model.encode(embedded))
        return score_span(model.head(pooled), first, last)[:, None]

    value = target or str(answer.value) or "no answer"
    spot = RowTarget(
        engine.encoder_model, source, owners, words.tolist(), score, example.full_text, value,
        tuple(steps), second, engine.indexer.tokenizer.unknown, [mark_separator(second)],
    )  # fmt: skip
    return TargetRequest(spot, answer)


def score_span(output: AnswerSpanOutput, first: int, last: int) -> Tensor:
    """(B,) log p(start) + log p(end); step -1 stands for "no answer"."""
    starts, ends = output.starts.log_softmax(1), output.ends.log_softmax(1)  # (B, 1+T)
    return starts[:, first + 1] + ends[:, last + 1]


def _find_span(example: Example, answer: Answer, target: str) -> tuple[int, int] | None:
    """Return the characters of the explained answer in the passage; None for no answer."""
    if target:
        start = (example.other or "").find(target)
        if start < 0:
            raise UserError(
                f"Unknown target '{target}': it does not occur in the passage. Copy a span of it."
            )
        return start, start + len(target)
    if answer.structure is None or not answer.structure.spans:
        return None
    start, end, _ = answer.structure.spans[0]
    return start, end


def _find_window(
    engine: NeuralEngine, task: object, example: Example, span: tuple[int, int] | None
) -> tuple[Row, Padded, tuple[int, int]]:
    """Return the window of the span, alone in its batch, and the first and last step in it."""
    assert isinstance(task, ExtractiveQA)
    windows: list[tuple[float, Row, Padded]] = []
    passage = example.other or ""
    for rows, source in engine.batches([example]):
        with torch.inference_mode():
            scores = engine.model(source).decode()
        for b, row in enumerate(rows):
            windows.append((scores[b].nothing, row, _select_row(source, b)))
    if not windows:
        raise UserError(f"{example.where}: the model reads nothing of this text.")
    if span is None:
        _, row, source = min(windows, key=lambda one: one[0])
        return row, source, (NO_ANSWER_STEP, NO_ANSWER_STEP)
    wanted = np.array([span], np.int64)
    for _, row, source in windows:
        own = passage_window(engine.traits, row, passage, 0).spans
        first, last = task.locate_answer(wanted, own).tolist()
        if first >= 0:
            return row, source, (first, last)
    raise UserError(
        f"{example.where}: no window that the model reads has all of '{passage[slice(*span)]}'."
    )


def _select_row(source: Padded, b: int) -> Padded:
    size, second = int(source.lengths[b]), source.second
    return Padded(
        source.data[b : b + 1, :size],
        source.lengths[b : b + 1],
        tuple(piece[b : b + 1, :size] for piece in source.subtokens),
        second=None if second is None else second[b : b + 1],
    )


def requests_of(
    predictor: Predictor, examples: Sequence[Example], target: str
) -> list[TargetRequest]:
    """Return what is explained of each question."""
    prepared = [one for one in predictor.prepare_inputs(examples) if isinstance(one, Example)]
    answers = predictor(prepared, parts=True)  # with start and end distributions, to draw
    pairs = zip(prepared, answers, strict=True)
    return [request_answer(predictor, one, answer, target) for one, answer in pairs]
