"""A sentence vector: how far it points where the vector of the whole text does.

B rows   T steps   H width of the vector
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded
from weft.errors import UserError
from weft.explain.targets.target import RowTarget, TargetRequest
from weft.explain.words import own_words
from weft.model import EncoderModel
from weft.predict.neural import NeuralEngine
from weft.predict.predictor import Predictor
from weft.tasks.task import Answer
from weft.text.example import Example


class VectorTarget(RowTarget):
    """The projection of the text's vector on its own direction, e(x′) · e(x) / |e(x)|².

    It is 1 for the whole text. The cosine itself has no gradient there: it is at its maximum.
    """

    def probs(self, hidden: np.ndarray) -> np.ndarray:
        """(M,) the projection itself: a vector has no probability."""
        return self.log_probs(hidden)


def requests_of(predictor: Predictor, examples: Sequence[Example]) -> list[TargetRequest]:
    """Explain the vector of each text; of a long text, that of its first window."""
    return [request_vector(predictor, one.text) for one in examples]


def request_vector(predictor: Predictor, text: str) -> TargetRequest:
    """Explain the vector of one text."""
    engine = cast(NeuralEngine, predictor.engine)
    windows = [(row, source, b) for rows, source in engine.batches([text])
               for b, row in enumerate(rows)]  # fmt: skip
    if not windows:
        raise UserError("The model reads nothing of this text.")
    row, batch, b = min(windows, key=lambda one: one[0].start)
    size = int(batch.lengths[b])
    pieces = tuple(piece[b : b + 1, :size] for piece in batch.subtokens)
    source = Padded(batch.data[b : b + 1, :size], batch.lengths[b : b + 1], pieces)
    assert row.spans is not None
    inside = row.spans[:, 1] > row.spans[:, 0]
    words, owned = own_words(text, row.spans[inside])
    owners = np.full(size, -1)
    owners[: len(inside)][inside] = owned
    with torch.inference_mode():
        vector = engine.model.run(source).text_vector[0].double()  # (H,)
    direction = vector / vector.square().sum().clamp(min=1e-30)  # (H,)

    def score(model: EncoderModel, embedded: Padded) -> Tensor:
        pooled, _ = model.pool_states(model.encode(embedded))
        assert isinstance(pooled, Tensor)
        return (pooled.double() @ direction)[:, None]

    spot = VectorTarget(
        engine.encoder_model, source, owners, words.tolist(), score, text, "vector",
        unknown=engine.indexer.tokenizer.unknown,
    )  # fmt: skip
    return TargetRequest(spot, Answer(None, 0.0))
