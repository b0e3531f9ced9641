"""Score the tokens of texts with a language model of torch, in windows that overlap as context.

B rows   T steps of a row   N tokens of a text   W pieces of a token
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from weft.batch import Padded
from weft.decode.heads.lm import LanguageModelHead
from weft.inference.windows import ScoringWindow, TextScorer, WindowSettings
from weft.model import Model
from weft.runtime import Runtime


def lm_head(model: Model) -> LanguageModelHead:
    """Return the head of a language model."""
    assert isinstance(model.head, LanguageModelHead)
    return model.head


def window_settings(head: LanguageModelHead) -> WindowSettings:
    """Return the windows that a language model reads."""
    return WindowSettings(head.row_steps, head.new_steps, head.is_bidirectional, head.bos_row)


def score_texts(
    model: Model,
    texts: Iterable[np.ndarray],
    runtime: Runtime,
    running: bool = False,
    backward: bool = False,
) -> Iterator[np.ndarray]:
    """Yield the log-probabilities (N,) of the ids (N,) of each text, in order; see TextScorer.

    With `backward` the texts come reversed and the backward language model scores them.
    """
    model.eval()
    head = lm_head(model)

    def score_batch(
        windows: Sequence[ScoringWindow],
        inputs: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
    ) -> np.ndarray:
        source, target = Padded.from_rows(inputs), Padded.from_rows(targets)
        scored = _scored_mask(windows, source)
        with torch.inference_mode(), runtime.autocast():
            source = source.to(runtime.device)
            output = head(source, back=True) if backward else head(source)
            ids = target.data if target.data.dim() == 2 else target.data[..., 0]  # (B, T)
            log_probs = output.logps(ids.to(runtime.device), scored.to(runtime.device))
        values: np.ndarray = log_probs.float().cpu().numpy()
        return values

    yield from TextScorer(window_settings(head), score_batch).score(texts, running)


def _scored_mask(rows: Sequence[ScoringWindow], inputs: Padded) -> torch.Tensor:
    """Return a mask (B, T), True at steps that are scored."""
    steps = torch.arange(inputs.data.shape[1])
    first = torch.tensor([row.start - row.low for row in rows])[:, None]
    last = torch.tensor([row.stop - row.low for row in rows])[:, None]
    return (steps >= first) & (steps < last)
