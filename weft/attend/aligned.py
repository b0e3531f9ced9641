"""Soft alignment of two sequences: what stands in the one for each step of the other.

B rows   T steps of the first   S steps of the second   H width
"""

from torch import Tensor

from weft.attend.scores import masked_softmax
from weft.batch import Padded


def aligned(first: Padded, second: Padded, scores: Tensor) -> tuple[Tensor, Tensor]:
    """For each step of either sequence the average of the other one, by the scores of all pairs.

    (B, T, S) scores -> (B, T, H) made of the second, and (B, S, H) made of the first.
    """
    there = masked_softmax(scores, second.mask[:, None])  # (B, T, S)
    back = masked_softmax(scores.transpose(1, 2), first.mask[:, None])  # (B, S, T)
    of_second = there.to(second.data.dtype) @ second.data  # (B, T, H)
    of_first = back.to(first.data.dtype) @ first.data  # (B, S, H)
    return of_second, of_first
