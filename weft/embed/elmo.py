"""ELMo (Peters et al. 2018): words from their characters, through an LSTM in each direction.

S directions   B rows   T steps   W bytes of a word   E width of a word and of a projected state
H cells   L layers
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.embed.characters import CharacterCNN, reverse_rows
from weft.embed.contextual import ScalarMix
from weft.embed.spelling import encode_word
from weft.errors import UserError
from weft.protocols import Embedder, WeightMatrices
from weft.registry import register

Filters = tuple[tuple[int, ...], ...]
SMALL_FILTERS: Filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256))
BOUNDARY_WORD = ""  # what stands at both ends of a sentence is spelled as a word without letters
NETWORK_OPTIONS = (
    "width",
    "character_width",
    "filters",
    "highway_layers",
    "max_bytes",
    "hidden",
    "layers",
    "clip",
    "layer_norm",
)
LM_NETWORK_PREFIX = "head.decoder.network."  # where a language model keeps the network


class BiLMState(NamedTuple):
    """The LSTM states after the last step."""

    hidden: Tensor  # (B, S, L, E)
    cell: Tensor  # (B, S, L, H)


class ProjectedLSTM(nn.Module, WeightMatrices):
    """An LSTM whose state is projected before it is read again (Sak et al. 2014).

    Both directions run side by side, each with weights of its own. Cells and projected states stay
    within ± `clip`, 0: wherever they are. On one core, 32 rows of 20 steps with 1,024 cells and a
    projection to 256, forward and back: 0.60 s, and 0.47 to 0.59 s with PyTorch's own, which cannot
    clip.
    """

    def __init__(self, width: int, hidden: int, clip: float):
        super().__init__()
        self.clip = clip
        self.enter = nn.Parameter(torch.empty(2, 4 * hidden, width))
        self.again = nn.Parameter(torch.empty(2, 4 * hidden, width))
        self.bias = nn.Parameter(torch.zeros(2, 4 * hidden))
        self.project = nn.Parameter(torch.empty(2, width, hidden))
        with torch.no_grad():
            for weight in (self.enter, self.again, self.project):
                gates = 1 if weight is self.project else 4
                for side in range(2):
                    for gate in weight[side].chunk(gates):
                        gate.copy_(nn.init.xavier_uniform_(torch.empty_like(gate)))
            self.bias[:, hidden : 2 * hidden] = 1.0  # PyTorch's order: input, forget, cell, output

    def weight_matrices(self) -> list[Tensor]:
        """Return the matrices of each direction, one per gate."""
        hidden = self.project.shape[2]
        gates = [gate for weight in (self.enter, self.again) for gate in weight.split(hidden, 1)]
        return [side for weight in (*gates, self.project) for side in weight.unbind()]

    def forward(
        self, x: Tensor, hidden: Tensor, cell: Tensor, sides: slice
    ) -> tuple[Tensor, list[Tensor]]:
        """The states (S, B, T, E) of inputs (S, B, T, E), and the cells (S, B, H) of every step."""
        S, B, T, E = x.shape
        enter, again, project = (
            weight[sides].transpose(1, 2) for weight in (self.enter, self.again, self.project)
        )
        steps = x.transpose(1, 2).reshape(S, T * B, E)
        projected = torch.baddbmm(self.bias[sides, None], steps, enter)  # (S, T*B, 4*H)
        again, project = (
            again.to(projected.dtype),
            project.to(projected.dtype),
        )  # once, not every step
        hidden, states, cells = hidden.to(projected.dtype), [], []
        cell = cell.to(torch.promote_types(projected.dtype, torch.float32))  # sums of many steps
        for now in projected.view(S, T, B, -1).unbind(1):  # (S, B, 4*H)
            gates = torch.baddbmm(now, hidden, again)  # (S, B, 4*H)
            open_, keep, fresh, leave = gates.chunk(4, 2)
            cell = self._clip(keep.sigmoid() * cell + open_.sigmoid() * fresh.tanh())
            out = (leave.sigmoid() * cell.tanh()).to(projected.dtype)  # (S, B, H)
            hidden = self._clip(torch.bmm(out, project))
            states.append(hidden)
            cells.append(cell)
        return torch.stack(states, 2), cells

    def _clip(self, x: Tensor) -> Tensor:
        return x.clamp(-self.clip, self.clip) if self.clip else x


class DirectionalLayerNorm(nn.Module):
    """Layer normalisation (Ba et al. 2016) with a gain and a bias for each direction."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, width))
        self.bias = nn.Parameter(torch.zeros(2, width))

    def forward(self, x: Tensor, sides: slice) -> Tensor:
        normed = F.layer_norm(x, x.shape[-1:])  # (S, B, T, E)
        weight, bias = (part[sides, None, None].to(x.dtype) for part in (self.weight, self.bias))
        return normed.to(x.dtype) * weight + bias


class BiLMNetwork(nn.Module):
    """The network of both language models: they share how a word is read, not the LSTMs.

    Each layer reads the one before it; from the second on, what it reads is added to what it says.
    With `layer_norm` that sum is normalised: h^l = LN(LSTM(h^{l-1}) + h^{l-1}). Dropout is on what
    a layer reads, as in the authors' code.
    """

    def __init__(
        self,
        where: str,
        width: int,
        character_width: int,
        filters: Filters,
        highway_layers: int,
        max_bytes: int,
        hidden: int,
        layers: int,
        clip: float,
        dropout: float = 0.0,
        layer_norm: bool = False,
    ):
        super().__init__()
        sizes = {"width": width, "character_width": character_width, "max_bytes": max_bytes}
        check_sizes(where, dropout, hidden=hidden, layers=layers, **sizes)
        if clip < 0 or highway_layers < 0:
            raise UserError(f"{where}: 'clip' and 'highway_layers' should be 0 or more.")
        if not filters or any(len(pair) != 2 or min(pair) < 1 for pair in filters):
            pairs = [list(pair) for pair in filters]
            raise UserError(f"{where}: 'filters' should be pairs [width, count], got {pairs}.")
        self.width, self.hidden = width, hidden
        self.characters = CharacterCNN(
            width, character_width, filters, highway_layers, max_bytes=max_bytes
        )
        self.characters.dedupe_in_training = True  # there is no dropout in it, so nothing is lost
        self.layers = nn.ModuleList(ProjectedLSTM(width, hidden, clip) for _ in range(layers))
        self.norms = nn.ModuleList(
            DirectionalLayerNorm(width) for _ in range(layers if layer_norm else 0)
        )
        self.dropout = dropout

    def embed_words(self, x: Padded) -> Padded:
        """(B, T, W) bytes -> (B, T, E), a vector a word without its context."""
        words: Padded = self.characters(x)
        return words

    def boundary_vector(self) -> Tensor:
        """Return the vector (E,) of the sentence boundary."""
        spelled = torch.tensor(
            [encode_word(BOUNDARY_WORD)], device=self.characters.table.weight.device
        )
        return self.characters.embed_words(spelled)[0]

    def zero_state(self, rows: int, sides: int, device: torch.device | None = None) -> BiLMState:
        """Return the zero state before the first step."""
        like = self.characters.table.weight
        shape = (rows, sides, len(self.layers))
        hidden, cell = (
            torch.zeros(*shape, size, dtype=like.dtype, device=device)
            for size in (self.width, self.hidden)
        )
        return BiLMState(hidden, cell)

    def run(
        self,
        x: Tensor,
        memory: BiLMState | None = None,
        back: bool = False,
        lengths: Tensor | None = None,
    ) -> tuple[list[Tensor], BiLMState]:
        """The states (S, B, T, E) of every layer, and what is known after each row's last step.

        Of one direction it is the forward one, or with `back` the other, which reads the vectors
        x (S, B, T, E) in the order they are given too. Where not all rows are full, `lengths` (B,)
        says how long each is.
        """
        S, B, T, _ = x.shape
        memory = self.zero_state(B, S, x.device) if memory is None else memory
        sides = slice(0, 2) if S == 2 else slice(1, 2) if back else slice(0, 1)
        layers, hidden, cells = [], [], []
        for i, layer in enumerate(self.layers):
            x = F.dropout(x, self.dropout, self.training)
            before = [part[:, :, i].transpose(0, 1) for part in memory]  # (S, B, E), (S, B, H)
            if not T:
                layers.append(x)
                hidden.append(before[0])
                cells.append(before[1])
                continue
            states, taken = layer(x, *before, sides)
            x = states + x if i else states  # (S, B, T, E)
            x = self.norms[i](x, sides) if self.norms else x  # (S, B, T, E)
            layers.append(x)
            hidden.append(_final_state(states.unbind(2), before[0], lengths))
            cells.append(_final_state(taken, before[1], lengths))
        return layers, BiLMState(
            *(torch.stack(part, 2).transpose(0, 1) for part in (hidden, cells))
        )


def _final_state(steps: Sequence[Tensor], before: Tensor, lengths: Tensor | None) -> Tensor:
    """(S, B, H) the state after each row's last step; a row of none keeps the one before."""
    if lengths is None:
        return steps[-1]
    states = torch.stack([before.to(steps[0].dtype), *steps], 2)  # (S, B, T+1, H)
    index = lengths.to(states.device)[None, :, None, None].expand(
        len(states), -1, 1, before.shape[2]
    )
    return states.gather(2, index).squeeze(2)


@register("embedder", "elmo")
class Elmo(nn.Module, Embedder):
    """ELMo vectors: the states of a forward and a backward language model at each word.

    The states of both lie side by side, in each of the `layers` and in the one below, which is the
    word from its characters twice. With `mix` they are mixed by learned weights, otherwise the last
    is taken; with `norm` each is brought to mean 0 and deviation 1 before. `frozen` weights are not
    learned, those of the mix are. `dropout` is on the vectors that come out. `layer_norm` is that
    of the language models. The paper's sizes are width 512, hidden 4096, and filters up to [6, 512]
    and [7, 1024].
    """

    reads_subtokens = True
    has_frozen_features = True

    def __init__(
        self,
        width: int = 256,
        character_width: int = 16,
        filters: tuple[tuple[int, ...], ...] = SMALL_FILTERS,
        highway_layers: int = 2,
        max_bytes: int = 50,
        hidden: int = 1024,
        layers: int = 2,
        clip: float = 3.0,
        layer_norm: bool = False,
        mix: bool = True,
        norm: bool = False,
        frozen: bool = False,
        dropout: float = 0.0,
        model: str = "",
    ):
        super().__init__()
        where = "embedder 'elmo'"
        check_sizes(where, dropout)
        self.network = BiLMNetwork(
            where, width, character_width, filters, highway_layers, max_bytes, hidden, layers, clip,
            layer_norm=layer_norm,
        )  # fmt: skip
        self.output_size, self.max_bytes, self.norm = 2 * width, max_bytes, norm
        self.frozen, self.model = frozen, model
        self.mix = ScalarMix(layers + 1) if mix else None
        self.dropout = nn.Dropout(dropout)
        self.network.requires_grad_(not frozen)

    @property
    def scalar_mix(self) -> ScalarMix | None:
        return self.mix

    def subtoken_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Return the byte ids of each token, from 1; 0 is padding."""
        return self.network.characters.subtoken_ids(words)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Return the network's parameters, from the characters to the last LSTMs."""
        groups = [list(p.parameters()) for p in (self.network.characters, *self.network.layers)]
        for group, norm in zip(groups[1:], self.network.norms, strict=False):
            group += norm.parameters()
        return groups

    def layers(self, x: Padded) -> list[Tensor]:
        """(B, T, 2*E) for the words and for each layer, forward beside backward."""
        words = self.network.embed_words(x)
        lengths, vectors = words.lengths, words.data  # (B, T, E)
        mark = self.network.boundary_vector().to(vectors.dtype).expand(len(vectors), 1, -1)
        ahead = torch.cat([mark, vectors], 1)  # (B, T+1, E)
        back = torch.cat([mark, reverse_rows(vectors, lengths)], 1)  # (B, T+1, E)
        layers = [torch.cat([vectors, vectors], 2)]
        for states in self.network.run(torch.stack([ahead, back]))[0]:
            forward, backward = states[:, :, 1:]  # (B, T, E) each
            layers.append(torch.cat([forward, reverse_rows(backward, lengths)], 2))
        return layers

    def layer(self, x: Padded, number: int) -> Padded:
        """Return the vectors of one layer; 0 is the words from their characters."""
        return x.with_data(self.layers(x)[number])

    def forward(self, x: Padded) -> Padded:
        return self.from_cached(x, self.frozen_features(x).data)

    def frozen_features(self, x: Padded) -> Padded:
        """Return the layers of each word before mixing (B, T, L*2*E), or the last layer."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            layers = self.layers(x) if self.mix is not None else self.layers(x)[-1:]
            if self.norm:
                layers = [F.layer_norm(states, states.shape[-1:]) for states in layers]
            return x.with_data(torch.cat(layers, -1))

    def from_cached(self, x: Padded, features: Tensor) -> Padded:
        """Return the vectors from cached features."""
        mixed = features if self.mix is None else self.mix.mix_concatenated(features)
        vectors = self.dropout(mixed)  # (B, T, 2*E)
        return x.with_data(vectors)


def embedder_section(decoder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the [embedder] section that matches a language model's decoder 'elmo'."""
    options = {name: decoder[name] for name in NETWORK_OPTIONS if name in decoder}
    return {"kind": "elmo", **options, "frozen": True}


def network_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Extract the embedder's weights, without the scalar mix, from a language model's."""
    network = {
        f"network.{name.removeprefix(LM_NETWORK_PREFIX)}": weight
        for name, weight in weights.items()
        if name.startswith(LM_NETWORK_PREFIX)
    }
    if not network:
        raise UserError(
            "These are not the weights of an ELMo: pre-train one with --recipe elmo-pretrain."
        )
    return network
