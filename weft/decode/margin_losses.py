"""Margin (hinge) losses of scores: the right label must win by 1.

Crammer and Singer (2001) count the strongest wrong label, Weston and Watkins (1999) every wrong
one. Several labels a text are as many binary decisions, each with a hinge of its own.

n texts or words   C labels
"""

from torch import Tensor


def margin_loss(scores: Tensor, gold: Tensor, every: bool = False) -> Tensor:
    """Return the hinge loss (n,) of scores (n, C) for gold labels (n,); labels below 0 cost none.

    max(0, 1 + max_{y≠g} s_y − s_g), or with `every` Σ_{y≠g} max(0, 1 + s_y − s_g).
    """
    counted = gold >= 0  # (n,)
    gold = gold.clamp(min=0)[:, None]  # (n, 1)
    margins = 1 + scores - scores.gather(1, gold)  # (n, C)
    hinges = margins.clamp(min=0).scatter(1, gold, 0.0)  # (n, C)
    loss = hinges.sum(1) if every else hinges.amax(1)
    return loss.masked_fill(~counted, 0.0)


def binary_margin_loss(scores: Tensor, wanted: Tensor) -> Tensor:
    """Return max(0, 1 − y s) of scores (n, C), where y is 1 for wanted labels and −1 for others."""
    return (1 - (2 * wanted.to(scores.dtype) - 1) * scores).clamp(min=0)
