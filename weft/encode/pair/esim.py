"""ESIM (Chen et al. 2017): two encoded texts are aligned, compared, and read once more.

B rows   T steps of a text   S steps of the other   E width of a state   H hidden width
"""

import torch
from torch import Tensor, nn

from weft import registry
from weft.attend.scores import alignment_weights, soft_align
from weft.attend.settings import DOT_ATTENTION, Attention
from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.encode.pair.bi_encoder import Concat
from weft.encode.rnn import Recurrent
from weft.protocols import Pair, PairJoin
from weft.registry import register


@register("pair", "esim")
class ESIM(nn.Module, Pair):
    """Soft alignment of two BiLSTMs, enhanced, under another BiLSTM.

    e_ij = a_i·b_j (or another attention.score), ã_i = Σ_j softmax_j(e_ij) b_j, m = [a; ã; a − ã;
    a ⊙ ã], and the composition is a BiLSTM over relu(W m + b), the same for both texts. The encoder
    before it is the input encoding (an `rnn`), the pool is `mean+max`, and the head an `mlp` with
    tanh.
    """

    encodes_separately = True
    directions = 2  # of the composition
    has_attention = True

    def __init__(
        self,
        input_size: int,
        hidden: int = 300,
        dropout: float = 0.5,
        attention_config: Attention = DOT_ATTENTION,
    ):
        super().__init__()
        check_sizes("pair 'esim'", dropout, hidden=hidden)
        self.project = nn.Linear(4 * input_size, hidden)
        self.activation = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.compose = Recurrent(hidden, hidden)
        self.output_size = self.compose.output_size
        sizes = {"query_size": input_size, "memory_size": input_size}
        self.score = registry.build("score", {"kind": attention_config.score}, **sizes)

    def forward(self, first: Padded, second: Padded) -> tuple[Padded, Padded]:
        """(B, T, E) and (B, S, E) states -> (B, T, 2*H) and (B, S, 2*H)."""
        scores = self.score(first.data, second.data)  # (B, T, S)
        of_second, of_first = soft_align(first, second, scores)
        return self._compose_with(first, of_second), self._compose_with(second, of_first)

    def attention_weights(self, first: Padded, second: Padded) -> tuple[Tensor, Tensor]:
        """Return the soft alignment of each text with the other."""
        return alignment_weights(first, second, self.score(first.data, second.data))

    def join(self, width: int) -> PairJoin:
        """Return the module that combines two pooled vectors."""
        return Concat(width)

    def _compose_with(self, x: Padded, other: Tensor) -> Padded:
        states = x.data
        enhanced = torch.cat([states, other, states - other, states * other], dim=2)  # (B, T, 4*E)
        local = self.dropout(self.activation(self.project(enhanced)))  # (B, T, H)
        composed: Padded = self.compose(x.with_data(local))
        return composed
