"""Losses of labels: cross-entropy or margin, with weights of classes, or focal.

A weighted loss is a sum over the same texts or words as without weights: balanced weights average
1 over the training part, so that Σ w ℓ / n is the objective of scikit-learn's class_weight, and a
batch of rare classes is not scaled down by its own weights. Over the whole training part it equals
torch.nn.CrossEntropyLoss(weight), which divides by Σ w = n.

n texts or words   C labels   D levels of a tree of labels
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.batch.label_levels import LabelLevels
from weft.batch.loss_balance import LossBalance
from weft.decode.margin_losses import binary_margin_loss, margin_loss

SMALLEST_ERROR = 1e-7  # 1 − p, so that its power has a gradient


def label_loss(
    logits: Tensor,
    gold: Tensor,
    kind: str = "cross-entropy",
    balance: LossBalance | None = None,
    column: int = 0,
    smoothing: float = 0.0,
    row_weights: Tensor | None = None,
) -> Tensor:
    """Return the summed loss of logits (n, C) for labels (n,); labels below 0 cost none.

    `row_weights` (n,) multiply the losses.
    """
    balance = balance or LossBalance()
    weights = balance.class_weights(column, logits.device)  # (C,)
    if kind != "cross-entropy":
        losses = margin_loss(logits, gold, kind == "margin-sum")  # (n,)
        losses = losses if weights is None else losses * weights[gold.clamp(min=0)]
        return weighted_sum(losses, row_weights)
    if balance.gamma is not None:
        nats = F.cross_entropy(logits, gold, reduction="none", ignore_index=-1)  # (n,)
        return weighted_sum(focal(nats, balance.gamma), row_weights)
    how = "sum" if row_weights is None else "none"
    losses = F.cross_entropy(
        logits, gold, weights, reduction=how, ignore_index=-1, label_smoothing=smoothing
    )
    return weighted_sum(losses, row_weights)


def label_set_loss(
    logits: Tensor,
    wanted: Tensor,
    kind: str = "cross-entropy",
    balance: LossBalance | None = None,
    smoothing: float = 0.0,
    row_weights: Tensor | None = None,
) -> Tensor:
    """Return the summed loss of logits (n, C) for rows of zeros and ones (n, C).

    Weights are those of a label's positives, as `pos_weight` of torch.nn.BCEWithLogitsLoss;
    `row_weights` (n,) multiply the losses.
    """
    balance = balance or LossBalance()
    weights = balance.class_weights(0, logits.device)  # (C,)
    wanted = wanted.to(logits.dtype)
    if kind != "cross-entropy":
        losses = binary_margin_loss(logits, wanted)  # (n, C)
        losses = losses if weights is None else losses * torch.where(wanted > 0, weights, 1)
        return weighted_sum(losses, row_weights)
    if balance.gamma is not None:
        nats = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")  # (n, C)
        return weighted_sum(focal(nats, balance.gamma), row_weights)
    wanted = wanted * (1 - smoothing) + smoothing / 2
    how = "sum" if row_weights is None else "none"
    losses = F.binary_cross_entropy_with_logits(logits, wanted, reduction=how, pos_weight=weights)
    return weighted_sum(losses, row_weights)


def weighted_sum(losses: Tensor, row_weights: Tensor | None) -> Tensor:
    """Return the sum of losses (n, …), those of a row times its weight (n,)."""
    if row_weights is None:
        return losses.sum()
    return losses.reshape(len(losses), -1).sum(1) @ row_weights.to(losses.dtype)


def ancestor_loss(
    logits: Tensor, gold: Tensor, levels: LabelLevels, row_weights: Tensor | None = None
) -> Tensor:
    """Return −Σ log p(a) over the inner nodes a on the path to each label (n,), summed.

    p(a) is the sum of the probabilities of all labels below a, under the softmax over labels
    (n, C): the marginal form of the hierarchical cross-entropy (Bertinetto et al. 2020).
    """
    paths = levels.to(logits.device)[: logits.shape[1]]  # (C, D)
    log_probs = logits.log_softmax(1)  # (n, C)
    nats = logits.new_zeros(len(logits))
    for nodes in paths.T:
        right = nodes[gold][:, None]  # (n, 1)
        below = (nodes == right) & (right >= 0)  # (n, C)
        inner = below.sum(1) > 1  # a node of one label is the label itself
        kept = below | ~inner[:, None]  # all, where no node is counted: the sum is finite
        sums = log_probs.masked_fill(~kept, -torch.inf).logsumexp(1)  # (n,)
        nats = nats - sums.where(inner, 0.0)
    return weighted_sum(nats, row_weights)


def focal(nats: Tensor, gamma: float) -> Tensor:
    """Return −(1 − p)^γ log p for losses −log p: the focal loss (Lin et al. 2017, equation 4)."""
    errors = -torch.expm1(-nats)  # 1 − p
    return errors.clamp(min=SMALLEST_ERROR) ** gamma * nats
