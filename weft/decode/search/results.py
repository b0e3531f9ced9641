"""Results of a search: hypotheses, and the tokens of a text as they are found. No torch.

T steps   S source steps
"""

from dataclasses import dataclass

import numpy as np

from weft.errors import UserError


@dataclass(frozen=True)
class Hypothesis:
    """One output sequence of a search."""

    ids: list[int]  # including the forced prefix, excluding eos
    score: float  # normalised log-probability of the tokens after the prefix
    logps: list[float]  # by the model alone: one per id, and one for eos if it was reached
    ended: bool  # eos was reached; False: cut off at the limit
    forced: int = 0  # length of the forced prefix
    attention: np.ndarray | None = None  # (T, S) one row per entry of `logps`


@dataclass(frozen=True)
class StreamDelta:
    """The new tokens of one sequence since the last check."""

    row: int
    sample: int
    ids: list[int]  # without eos
    logps: list[float]  # as in `Hypothesis`
    ended: bool  # eos was reached
    last: bool  # the sequence is complete: eos or the limit was reached


def no_hypothesis_error(row: int) -> UserError:
    """Return the error for a row whose constraints exclude every sequence."""
    return UserError(
        f"Row {row}: no sequence is possible. The constraints (allowed, forbidden, "
        "no_repeat_ngram_size, min_length) exclude every token; loosen them."
    )


def nan_logits_error(row: int) -> UserError:
    """Return the error for a row whose logits are not numbers."""
    return UserError(
        f"Row {row}: the model's logits are NaN. Check its inputs and weights for NaN, "
        "or compute in a wider precision."
    )
