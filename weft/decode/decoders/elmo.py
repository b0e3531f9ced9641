"""The biLM of ELMo (Peters et al. 2018): forward and backward language models, one softmax.

B rows   T steps   D directions   W bytes of a word   V words   E embedding width
R scored words   N sampled words
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.language_models import BPTTOutput
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer
from weft.decode.losses import chunked_loss
from weft.embed.elmo import SMALL_FILTERS, BiLMNetwork, BiLMState
from weft.errors import UserError
from weft.protocols import LanguageModelDecoder
from weft.registry import register


@register("decoder", "elmo")
class BiLM(nn.Module, LanguageModelDecoder):
    """A forward and a backward character LSTM, trained together.

    The embedder 'elmo' is its network. It steps as the forward language model. Words given as ids
    are spelled by the vocabulary (see `set_vocabulary`), words of running text by the text.
    `samples` > 0 uses a sampled softmax over that many words, drawn by their frequency rank in the
    vocabulary (Jean et al. 2015). `layer_norm` normalises the output of each layer.
    `model` names a checkpoint to start from; the constructor never opens it.
    """

    causal, is_stateful = True, True
    has_backward_lm = reads_subtokens = True

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 256,
        character_width: int = 16,
        filters: tuple[tuple[int, ...], ...] = SMALL_FILTERS,
        highway_layers: int = 2,
        max_bytes: int = 50,
        hidden: int = 1024,
        layers: int = 2,
        clip: float = 3.0,
        layer_norm: bool = False,
        dropout: float = 0.1,
        samples: int = 0,
        model: str = "",
    ):
        super().__init__()
        where = "decoder 'elmo'"
        if samples < 0:
            raise UserError(f"{where}: 'samples' should be 0 or more, got {samples}.")
        self.network = BiLMNetwork(
            where, width, character_width, filters, highway_layers, max_bytes, hidden, layers, clip,
            dropout, layer_norm,
        )  # fmt: skip
        self.words = OutputLayer(vocabulary_size, width, width, tied=True, deviation=width**-0.5)
        self.dropout, self.samples, self.model = nn.Dropout(dropout), samples, model
        self.sync_free = not samples
        self.max_subtokens = max_bytes + 2  # bytes of a word, with its begin and end marks
        self.spellings: Tensor
        self.register_buffer("spellings", torch.zeros(vocabulary_size, self.max_subtokens).short())
        self.set_vocabulary([str(i) for i in range(vocabulary_size)])  # until the vocabulary is set

    def set_vocabulary(self, vocabulary: Sequence[str]) -> None:
        """Store the spelling of each word."""
        for i, row in enumerate(self.subtoken_ids(vocabulary)):
            spelled = torch.tensor(row, dtype=torch.short)
            self.spellings[i] = F.pad(spelled, (0, self.max_subtokens - len(row)))

    def subtoken_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Return the bytes of each token, counted from 1; 0 is padding."""
        return self.network.characters.subtoken_ids(words)

    @property
    def input_layer(self) -> nn.Module:
        """The convolutions over the characters of a word."""
        return self.network.characters

    def start(self, batch: int, device: torch.device | None = None) -> BiLMState:
        """Return the initial state of the forward model: zeros."""
        return self.network.zero_state(batch, 1, device)

    def step(self, ids: Tensor, state: BiLMState) -> tuple[Tensor, BiLMState]:
        """Return the logits (B, V) of the word after `ids` (B,), and the next state."""
        output, state = self.step_features(ids, state)
        return self.words.logits(output.features[:, 0]), state

    def step_features(self, ids: Tensor, state: BiLMState) -> tuple[DecoderOutput, BiLMState]:
        """Run one step without the output layer, (B, 1, E)."""
        row = Padded(ids[:, None], torch.ones(len(ids), dtype=torch.long))
        output = self._read(row, state)
        return DecoderOutput(output.features[:, :, 0], output.raw[:, :, 0], None), output.state

    def carry(self, ids: Padded, state: BiLMState | None = None) -> BPTTOutput:
        """Run one window and return its state, detached; see `loss` for both directions."""
        output = self._read(ids, state)
        cut = BiLMState(*(part.detach() for part in output.state))
        features, raw, dropped = (x[:, :, 0] for x in (output.features, output.raw, output.dropped))
        return BPTTOutput(features, cut, raw, dropped)

    def features(self, ids: Padded) -> Tensor:
        """Return features (B, T, E) of every step."""
        return self._read(ids, None).features[:, :, 0]

    def backward_features(self, ids: Padded) -> Tensor:
        """Return features (B, T, E) of the backward model; the rows are in reverse order."""
        return self._read(ids, None, back=True).features[:, :, 0]

    def forward(self, ids: Padded) -> Tensor:
        logits = self.words.logits(self.features(ids))  # (B, T, V)
        return logits

    def loss(
        self, source: Padded, target: Tensor, carried: BiLMState | None = None
    ) -> tuple[Tensor, int, BiLMState]:
        """Return the summed loss, averaged over directions; the steps; and the state after them.

        The source (B, T, 2, 1+W) has the input word of each direction at every step, the target
        (B, T, 2) the word that follows it in that direction.
        """
        output = self._read(source, carried)
        features = output.features.flatten(1, 2)  # (B, T*2, E)
        targets = Padded(target.flatten(1), 2 * source.lengths)
        weight, bias = self.words.weight, self.words.bias
        if self.samples and self.training:
            total = sampled_loss(features, weight, bias, targets, self.samples)
        else:
            total, _ = chunked_loss(features, weight, bias, targets)
        state = BiLMState(*(part.detach() for part in output.state))
        return total / 2, int(source.lengths.sum()), state

    def _read(self, source: Padded, state: BiLMState | None, back: bool = False) -> BPTTOutput:
        """Read ids (B, T), tokens with bytes (B, T, 1+W), or both directions (B, T, 2, 1+W)."""
        data = source.data
        spelled = self.spellings[data].long() if data.dim() == 2 else data[..., 1:]
        if spelled.dim() == 3:
            spelled = spelled[:, :, None]  # (B, T, D, W)
        B, T, D, W = spelled.shape
        rows = Padded(spelled.reshape(B, T * D, W), D * source.lengths)
        words = self.network.embed_words(rows).data.view(
            B, T, D, self.network.width
        )  # (B, T, D, E)
        lengths = None if source.full else source.lengths
        layers, after = self.network.run(words.permute(2, 0, 1, 3), state, back, lengths)
        raw = layers[-1].permute(1, 2, 0, 3)  # (B, T, D, E)
        dropped = self.dropout(raw)  # (B, T, D, E)
        return BPTTOutput(dropped, after, raw, dropped)


def sampled_loss(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Padded, samples: int
) -> Tensor:
    """Return the summed sampled-softmax loss of features (B, T, E) (Jean et al. 2015).

    `samples` words are drawn, lower ids more often, and each counts once:
    P(v) = log((v + 2) / (v + 1)) / log(V + 1). A logit is lowered by the log-probability of its
    word being sampled, so that the expected gradient is that of the full softmax. The target is
    always included; if it was also sampled, it counts once.
    """
    V = len(weight)
    x, gold = features[targets.mask], targets.data[targets.mask]  # (R, E), (R,)
    uniform = torch.rand(samples, device=x.device, dtype=torch.float64)
    drawn = (uniform * math.log(V + 1)).expm1().long().clamp(0, V - 1).unique()  # (N,)
    others = F.linear(x, weight[drawn], None if bias is None else bias[drawn])  # (R, N)
    others = others.float() - _log_inclusion_prob(drawn, V, samples)
    others = others.masked_fill(drawn == gold[:, None], -math.inf)
    target = (x * weight[gold]).sum(1).float()  # (R,)
    if bias is not None:
        target = target + bias[gold]
    target = target - _log_inclusion_prob(gold, V, samples)  # (R,)
    logits = torch.cat([target[:, None], others], 1)  # (R, 1+N)
    return (logits.logsumexp(1) - target).sum()


def _log_inclusion_prob(ids: Tensor, words: int, samples: int) -> Tensor:
    """Return the log-probability of each word being sampled at least once."""
    rank = ids.double()
    each = ((rank + 2) / (rank + 1)).log() / math.log(words + 1)
    return (-(samples * (-each).log1p()).expm1()).log().float()
