"""A bidirectional RNN trained by masking or skipping words, as an embedder to fine-tune.

B rows   T steps   E embedding width   H hidden width   L layers
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft import registry
from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.embed.characters import reverse_rows
from weft.errors import UserError
from weft.protocols import Embedder, Encoder
from weft.registry import register

NETWORK_OPTIONS = ("width", "hidden", "layers", "cell", "by")
DECODER_PREFIX = "head.decoder."  # where a language model keeps the network
TABLE = "words.table.weight"


@register("embedder", "birnn")
class BiRNN(nn.Module, Embedder):
    """The states of a masked bi-RNN at each word: what stands before it, and what follows.

    The decoder 'bidirectional-lm' pre-trains it (--recipe masked-bilstm). A word is no longer
    masked or skipped here: its state has read it. `by` says how the directions are kept, "mask" in
    one net that is bidirectional in all layers, "skip" in two nets. `frozen` weights are not
    learned. `dropout` is on the words and on the states.
    """

    has_frozen_features = True

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 300,
        hidden: int = 300,
        layers: int = 1,
        cell: str = "lstm",
        by: Literal["mask", "skip"] = "mask",
        frozen: bool = False,
        dropout: float = 0.0,
        model: str = "",
    ):
        super().__init__()
        check_sizes("embedder 'birnn'", dropout, width=width, hidden=hidden, layers=layers)
        both = by == "mask"
        self.output_size, self.frozen, self.model = 2 * hidden, frozen, model
        self.depth = layers
        self.table = nn.Embedding(vocabulary_size, width, padding_idx=0)
        net = {"kind": "rnn", "hidden": hidden, "layers": layers, "cell": cell}
        net |= {"bidirectional": both, "dropout": dropout}
        self.nets = nn.ModuleList(
            registry.build("encoder", net, input_size=width) for _ in range(1 if both else 2)
        )
        self.dropout = nn.Dropout(dropout)
        self.requires_grad_(not frozen)

    @property
    def token_table(self) -> nn.Embedding:
        return self.table

    def train(self, mode: bool = True) -> "BiRNN":
        """Set the mode; a frozen network stays in eval mode, without dropout inside."""
        super().train(mode)
        if self.frozen:
            self.nets.train(False)
        return self

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Return the table's parameters, then those of each layer."""
        groups: list[list[nn.Parameter]] = [list(self.table.parameters())]
        for layer in range(self.depth):
            ends = (f"_l{layer}", f"_l{layer}_reverse")
            groups.append([p for name, p in self.nets.named_parameters() if name.endswith(ends)])
        return groups

    def layer(self, x: Padded, number: int) -> Padded:
        """Return the vectors of one layer; 0 is the words alone."""
        words = x.with_data(self.table(x.data))  # (B, T, E)
        if not number:
            return words
        first, second, name = self._nets[0], self._nets[-1], f"layer {number}"
        if first is second:
            steps = first.unroll(words)[1]
            ahead, back = steps[f"{name} forward"], steps[f"{name} backward"]
        else:
            ahead, back = first.unroll(words)[1][name], second.unroll(_reverse(words))[1][name]
        backward = reverse_rows(torch.stack(back, dim=1), x.lengths)  # (B, T, H)
        return x.with_data(torch.cat([torch.stack(ahead, dim=1), backward], dim=2))

    def forward(self, x: Padded) -> Padded:
        return self.from_cached(x, self.frozen_features(x).data)

    def frozen_features(self, x: Padded) -> Padded:
        """Return the states (B, T, 2*H) before dropout."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            vectors = self.table(x.data)  # (B, T, E)
            words = x.with_data(vectors if self.frozen else self.dropout(vectors))
            if len(self._nets) == 1:
                return self._nets[0](words)
            backward = _reverse(self._nets[1](_reverse(words)))
            return words.with_data(torch.cat([self._nets[0](words).data, backward.data], dim=2))

    def from_cached(self, x: Padded, features: Tensor) -> Padded:
        """Return the vectors from cached states."""
        vectors = self.dropout(features)  # (B, T, 2*H)
        return x.with_data(vectors)

    @property
    def _nets(self) -> list[Encoder]:
        """The recurrent nets, typed by their interface."""
        return [net for net in self.nets if isinstance(net, Encoder)]


def _reverse(x: Padded) -> Padded:
    return x.with_data(reverse_rows(x.data, x.lengths))


def embedder_section(decoder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the [embedder] section that matches a decoder 'bidirectional-lm'."""
    return {"kind": "birnn", **{name: decoder[name] for name in NETWORK_OPTIONS}}


def network_weights(weights: Mapping[str, Tensor], words: int) -> dict[str, Tensor]:
    """Extract the embedder's weights from a language model's; what scores words stays behind.

    The language model's table may have an entry for the end of a text after those of the `words`.
    """
    own = {
        name.removeprefix(DECODER_PREFIX): tensor
        for name, tensor in weights.items()
        if name.startswith(DECODER_PREFIX)
    }
    if TABLE not in own:
        raise UserError(
            "These are not the weights of a masked bi-RNN: pre-train one with --recipe "
            "masked-bilstm."
        )
    nets = {name: tensor for name, tensor in own.items() if name.startswith("nets.")}
    return {"table.weight": own[TABLE][:words], **nets}
