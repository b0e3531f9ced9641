"""The antecedent of a mention: scores of the words that its head may be linked to, and of none.

The candidates are those that the model finds in the whole document; they stay the same while words
are hidden. A hidden word is like no other word, so it has lost its form, too.

B rows   T words   K candidates of a word
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from weft.decode.heads.semantics.coreference import CoreferenceOutput
from weft.explain.targets.bracket import FORBIDDEN_SCORE

NO_ANTECEDENT = "no antecedent"


@dataclass(frozen=True)
class Link:
    """A mention: its head, its words, the candidates, and the best one, -1 for none."""

    head: int
    span: tuple[int, int]
    candidates: tuple[int, ...]
    probs: tuple[float, ...]  # (K + 1,) of none, and of each candidate

    @property
    def antecedent(self) -> int:
        """The most probable candidate, or -1."""
        best = max(range(len(self.probs)), key=self.probs.__getitem__)
        return self.candidates[best - 1] if best else -1


@torch.no_grad()
def find_links(output: CoreferenceOutput) -> tuple[list[Link], list[Link]]:
    """Return the predicted mentions of one document in its order; and each word as a mention."""
    (document,) = output.documents()
    table, _ = output.head.resolve(document)
    found = output.head.find_antecedents(document)
    words = []
    for head, (real, own, scores) in enumerate(
        zip(found.real, found.words, found.scores, strict=True)
    ):
        logits = torch.cat([scores.new_zeros(1), scores[real]])
        candidates, probs = own[real].tolist(), logits.softmax(0).tolist()
        words.append(Link(head, (head, head + 1), tuple(candidates), tuple(probs)))
    lines = sorted(table.tolist(), key=lambda line: (line[2], -line[3]))
    mentions = [replace(words[head], span=(start, end)) for head, _, start, end in lines]
    return mentions, words


def link_logits(output: CoreferenceOutput, head: int, candidates: tuple[int, ...]) -> Tensor:
    """(B, T + 1) the scores of no antecedent and of each word; of words that are no candidates,
    as good as -inf."""
    size = output.states.data.shape[1]
    rows = []
    for document in output.documents():
        own = document.states.new_full((size + 1,), FORBIDDEN_SCORE, dtype=torch.float32)
        words = torch.tensor((candidates,), device=own.device, dtype=torch.long)  # (1, K)
        steps = torch.tensor([head], device=own.device)
        scores = output.head.score_pairs(
            document, steps, words, output.head.rough(document.states),
            output.head.pairs.antecedent(document.states),
        )  # fmt: skip
        index = torch.cat([words.new_zeros(1), words[0] + 1])  # (K + 1,)
        rows.append(own.index_copy(0, index, torch.cat([scores.new_zeros(1), scores[0]])))
    return torch.stack(rows)
