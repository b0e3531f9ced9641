"""BiDAF (Seo et al. 2017): a passage read in the light of a question.

B rows   T steps of the passage   S steps of the question   E width of a step   H hidden width
"""

import torch
from torch import Tensor, nn

from weft import registry
from weft.attend.scores import masked_softmax
from weft.attend.settings import TRILINEAR_ATTENTION, Attention
from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.encode.rnn import Recurrent
from weft.protocols import Pair
from weft.registry import register


@register("pair", "bidaf")
class BiDAF(nn.Module, Pair):
    """Attention both ways between a question and a passage, then two BiLSTMs over the passage.

    A contextual BiLSTM makes u of the question and h of the passage. Of s_tj = w·[h_t; u_j; h_t ⊙
    u_j] come ũ_t = Σ_j softmax_j(s_tj) u_j and h̃ = Σ_t softmax_t(max_j s_tj) h_t, and of them
    g_t = [h_t; ũ_t; h_t ⊙ ũ_t; h_t ⊙ h̃]. M is a BiLSTM of `layers` over G, and a state is
    [g_t; m_t]. Another attention.score than this trilinear one replaces s. The paper has a
    `highway` encoder over words and characters before it, and behind it a head `span` with its
    `own_end`.
    """

    encodes_separately = True
    directions = 2
    has_attention = True

    def __init__(
        self,
        input_size: int,
        hidden: int = 100,
        layers: int = 2,
        dropout: float = 0.2,
        attention_config: Attention = TRILINEAR_ATTENTION,
    ):
        super().__init__()
        check_sizes("pair 'bidaf'", dropout, hidden=hidden, layers=layers)
        self.dropout = nn.Dropout(dropout)
        self.context = Recurrent(input_size, hidden)
        wide = self.context.output_size  # 2*H
        sizes = {"query_size": wide, "memory_size": wide}
        self.score = registry.build("score", {"kind": attention_config.score}, **sizes)
        self.model = Recurrent(4 * wide, hidden, layers, dropout=dropout)
        self.modelled = self.model.output_size  # how much of a state, at its end, is M
        self.output_size = 4 * wide + self.modelled

    def forward(self, question: Padded, passage: Padded) -> Padded:
        """(B, S, E) and (B, T, E) -> (B, T, 10*H), one state for each step of the passage."""
        u, h = self._read_both(question, passage)
        g = self._query_aware(h, u)  # (B, T, 8*H)
        modelled = self.model(h.with_data(self.dropout(g))).data  # (B, T, 2*H)
        return h.with_data(torch.cat([g, modelled], dim=2))

    def attention_weights(self, question: Padded, passage: Padded) -> tuple[Tensor, Tensor]:
        """Return question-to-passage weights, alike for all its words, and passage-to-question."""
        u, h = self._read_both(question, passage)
        to_question, to_passage = self._weights(h, u)
        return to_passage[:, None].expand(-1, u.data.shape[1], -1), to_question

    def _read_both(self, question: Padded, passage: Padded) -> tuple[Padded, Padded]:
        """Return the contextual states u of the question and h of the passage."""
        u: Padded = self.context(question.with_data(self.dropout(question.data)))
        h: Padded = self.context(passage.with_data(self.dropout(passage.data)))
        return u, h

    def _weights(self, h: Padded, u: Padded) -> tuple[Tensor, Tensor]:
        """Return the weights of each passage step on the question (B, T, S), and on itself."""
        scores = self.score(h.data, u.data)  # (B, T, S)
        to_question = masked_softmax(scores, u.mask[:, None])  # (B, T, S)
        lowest = torch.finfo(scores.dtype).min
        nearest = scores.masked_fill(~u.mask[:, None], lowest).amax(2)  # (B, T)
        return to_question, masked_softmax(nearest, h.mask)

    def _query_aware(self, h: Padded, u: Padded) -> Tensor:
        """Each state of the passage beside what it means for the question."""
        to_question, to_passage = self._weights(h, u)
        attended = to_question.to(u.data.dtype) @ u.data  # (B, T, 2*H)
        query_aware = (to_passage.to(h.data.dtype)[:, None] @ h.data).expand_as(
            h.data
        )  # (B, T, 2*H)
        return torch.cat([h.data, attended, h.data * attended, h.data * query_aware], dim=2)
