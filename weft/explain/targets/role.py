"""Semantic roles: the scores of the roles of one span for one predicate, of senses, of predicates.

A softmax of the scores gives probabilities: of a CRF, those of all tag sequences in which exactly
this span has the role; of labelled spans, those of the span times those of its label.

B rows   T words   C tags   R roles
"""

import torch
from torch import Tensor

from weft.batch import Padded
from weft.decode.heads.crf import CRF
from weft.decode.heads.crf_dp import accumulation_dtype
from weft.decode.heads.roles import (
    Predicates,
    RoleCRFHead,
    RoleOutput,
    RoleSpanHead,
    index_predicates,
)
from weft.explain.targets.bracket import FORBIDDEN_SCORE

MIN_REST = 1e-12  # probability left for no role


def role_logits(output: RoleOutput, predicate: int, start: int, end: int) -> Tensor:
    """(B, R + 1) the scores of the roles of a span, the last of none; rows have one length."""
    states, predicates = _same_word(output.states, predicate)
    head = output.head
    if isinstance(head, RoleCRFHead):
        emissions = head.emissions(states, predicates)
        return _span_scores(head.chain, emissions.data, start, end)
    assert isinstance(head, RoleSpanHead)
    logits, _, first, last = head.score_spans(states, predicates)
    labels = head.labels.pairs(first[:, start], last[:, end - 1]).float().log_softmax(1)  # (B, R)
    logit = logits[:, start, end - 1, None]  # (B, 1)
    return torch.cat([logit + labels, torch.zeros_like(logit)], dim=1)


def predicate_logits(output: RoleOutput) -> Tensor:
    """(B, T, 2) the scores of a word being a predicate, and of being none."""
    logits = output.predicates.float()
    return torch.stack([logits, torch.zeros_like(logits)], dim=2)


def sense_logits(output: RoleOutput, predicate: int) -> tuple[Tensor, list[int]]:
    """Return the scores (B, K) of the senses that a predicate can have, and their numbers."""
    states, predicates = _same_word(output.states, predicate)
    words = states.data[predicates.rows, predicates.words]  # (B, H)
    scores, senses = output.head.senses(words, output.groups(predicates))
    known = [number for number in senses[0].tolist() if number >= 0]
    return scores[:, : len(known)], known


def _same_word(states: Padded, predicate: int) -> tuple[Padded, Predicates]:
    rows = torch.arange(len(states)).numpy()
    words = torch.full((len(states),), predicate).numpy()
    return states.with_data(states.data.float()), index_predicates(rows, words, states)


def _span_scores(chain: CRF, emissions: Tensor, start: int, end: int) -> Tensor:
    """(B, R + 1) log-sums of the sequences in which a span has each role, and of the others.

    As plain steps and not `chain.log_partition`, whose gradient cannot be taken again.
    """
    own = emissions.to(accumulation_dtype(emissions.device))  # (B, T, C)
    weights = (chain.start, chain.transitions, chain.end)
    rules = (chain.may_start, chain.may_follow, chain.may_end)
    begin, follow, finish = (
        w.to(own.dtype).masked_fill(~rule, FORBIDDEN_SCORE)
        for w, rule in zip(weights, rules, strict=True)
    )
    left = own[:, 0] + begin  # (B, C)
    for t in range(1, start + 1):
        left = (left[:, :, None] + follow).logsumexp(1) + own[:, t]
    right = finish.expand_as(left)  # of the steps after one, given its tag
    after: Tensor | None = None  # of a span that ends where it should
    for t in range(own.shape[1] - 1, start, -1):
        if t == end:
            after = _without_inside(right + own[:, t], follow)
        right = ((right + own[:, t])[:, None] + follow).logsumexp(2)
    total = (left + right).logsumexp(1)  # (B,)
    after = finish.expand_as(left) if after is None else after
    first = torch.arange(1, own.shape[2], 2, device=own.device)  # the B of each role
    inside = first + 1
    score = left[:, first]  # (B, R)
    for t in range(start + 1, end):
        step = follow[first if t == start + 1 else inside, inside]
        score = score + step + own[:, t, inside]
    score = score + after[:, first if end == start + 1 else inside]
    share = (score - total[:, None]).logsumexp(1).exp()  # (B,) of all sequences
    rest = total + (1 - share).clamp(min=MIN_REST).log()
    return torch.cat([score, rest[:, None]], dim=1)


def _without_inside(ahead: Tensor, follow: Tensor) -> Tensor:
    """(B, C) sums over the next tags of `ahead` (B, C), without the I of the same role."""
    tags = torch.arange(follow.shape[0], device=follow.device)
    role = (tags + 1) // 2  # 0 is O
    goes_on = (role[:, None] == role) & (tags % 2 == 0) & (tags > 0)
    return (ahead[:, None] + follow.masked_fill(goes_on, FORBIDDEN_SCORE)).logsumexp(2)
