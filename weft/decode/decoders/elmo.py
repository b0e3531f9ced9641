"""The language models of ELMo (Peters et al. 2018): one forward, one backward, with one softmax.

B rows   T steps   D directions   W bytes of a word   V words   E width of a word   R words that
count   N words that are drawn
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.language_models import BPTTOutput
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer
from weft.decode.losses import chunked_loss
from weft.embed.elmo import SMALL_FILTERS, BiLMNetwork, BiLMState
from weft.errors import UserError
from weft.registry import register


@register("decoder", "elmo")
class BiLM(nn.Module):
    """A forward and a backward LSTM over the characters of words, trained together.

    What it learns is how words are read: the embedder 'elmo' is its network. By itself it is the
    forward language model; the backward one is asked for with `back`, and reads what it is given in
    the order it is given. Words that come as ids are spelled as the vocabulary spells them, see
    `know`; those of running text as they stand there. With `samples` the softmax is over so many
    words drawn by their rank, which must be that of the vocabulary (Jean et al. 2015), 0: all.
    `model` names where its weights come from; the constructor never opens it.
    """

    causal, reads_source = True, False
    has_backward_lm = True
    limit: int | None = None

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 256,
        character_width: int = 16,
        filters: tuple[tuple[int, ...], ...] = SMALL_FILTERS,
        highways: int = 2,
        letters: int = 50,
        hidden: int = 1024,
        layers: int = 2,
        clip: float = 3.0,
        dropout: float = 0.1,
        samples: int = 0,
        model: str = "",
    ):
        super().__init__()
        where = "decoder 'elmo'"
        if samples < 0:
            raise UserError(f"{where}: 'samples' should be 0 or more, got {samples}.")
        self.network = BiLMNetwork(
            where, width, character_width, filters, highways, letters, hidden, layers, clip, dropout
        )
        self.words = OutputLayer(vocabulary_size, width, width, tied=True, deviation=width**-0.5)
        self.dropout, self.samples, self.model = nn.Dropout(dropout), samples, model
        self.widest = letters + 2  # pieces of a word, with what begins and what ends it
        self.spellings: Tensor
        self.register_buffer("spellings", torch.zeros(vocabulary_size, self.widest).short())
        self.set_vocabulary([str(i) for i in range(vocabulary_size)])  # until it is told better

    @property
    def sync_free(self) -> bool:
        """Whether learning never waits for the device, if rows are full."""
        return not self.samples

    def set_vocabulary(self, vocabulary: Sequence[str]) -> None:
        """Learn how each word is spelled."""
        for i, row in enumerate(self.pieces(vocabulary)):
            spelled = torch.tensor(row, dtype=torch.short)
            self.spellings[i] = F.pad(spelled, (0, self.widest - len(row)))

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """The bytes of each token, counted from 1; 0 is left for padding."""
        return self.network.characters.subtoken_ids(words)

    def start(self, batch: int, device: Any = None) -> BiLMState:
        """The state of the forward model before the first word: zero."""
        return self.network.zero_state(batch, 1, device)

    def step(self, ids: Tensor, state: BiLMState) -> tuple[Tensor, BiLMState]:
        """The scores (B, V) of the word after `ids` (B,), and the state that follows."""
        read, state = self.step_features(ids, state)
        return self.words.logits(read.features[:, 0]), state

    def step_features(self, ids: Tensor, state: BiLMState) -> tuple[DecoderOutput, BiLMState]:
        """One step without the scores, (B, 1, E)."""
        row = Padded(ids[:, None], torch.ones(len(ids), dtype=torch.long))
        made = self._read(row, state)
        return DecoderOutput(made.features[:, :, 0], made.raw[:, :, 0], None), made.state

    def carry(self, ids: Padded, state: BiLMState | None = None) -> BPTTOutput:
        """A piece of text and the state after it, cut from the graph; see `loss` for both ways."""
        made = self._read(ids, state)
        cut = BiLMState(*(part.detach() for part in made.state))
        features, raw, dropped = (x[:, :, 0] for x in (made.features, made.raw, made.dropped))
        return BPTTOutput(features, cut, raw, dropped)

    def features(self, ids: Padded, back: bool = False) -> Tensor:
        """What is scored at every step, (B, T, E)."""
        return self._read(ids, None, back).features[:, :, 0]

    def forward(self, ids: Padded) -> Tensor:
        scores = self.words.logits(self.features(ids))  # (B, T, V)
        return scores

    def loss(
        self, source: Padded, target: Tensor, carried: BiLMState | None = None
    ) -> tuple[Tensor, int, BiLMState]:
        """The mean of what both directions lose, summed over steps; how many; the state after.

        The source (B, T, 2, 1+W) has, at every step, a word for each direction to read, and the
        target (B, T, 2) the one that follows it there.
        """
        made = self._read(source, carried)
        features = made.features.flatten(1, 2)  # (B, T*2, E)
        right = Padded(target.flatten(1), 2 * source.lengths)
        weight, bias = self.words.weight, self.words.bias
        if self.samples and self.training:
            total = sampled_loss(features, weight, bias, right, self.samples)
        else:
            total, _ = chunked_loss(features, weight, bias, right)
        state = BiLMState(*(part.detach() for part in made.state))
        return total / 2, int(source.lengths.sum()), state

    def _read(self, given: Padded, state: BiLMState | None, back: bool = False) -> BPTTOutput:
        """Ids (B, T), tokens with their bytes (B, T, 1+W), or both ways (B, T, 2, 1+W)."""
        data = given.data
        spelled = self.spellings[data].long() if data.dim() == 2 else data[..., 1:]
        if spelled.dim() == 3:
            spelled = spelled[:, :, None]  # (B, T, D, W)
        B, T, D, W = spelled.shape
        rows = Padded(spelled.reshape(B, T * D, W), D * given.lengths)
        words = self.network.embed_words(rows).data.view(
            B, T, D, self.network.width
        )  # (B, T, D, E)
        lengths = None if given.full else given.lengths
        layers, after = self.network.run(words.permute(2, 0, 1, 3), state, back, lengths)
        raw = layers[-1].permute(1, 2, 0, 3)  # (B, T, D, E)
        dropped = self.dropout(raw)  # (B, T, D, E)
        return BPTTOutput(dropped, after, raw, dropped)


def sampled_loss(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Padded, samples: int
) -> Tensor:
    """The summed loss of features (B, T, E) among some words only (Jean et al. 2015).

    As many words are drawn as `samples` says, the more often the lower their id, and each counts
    once: P(v) = log((v + 2) / (v + 1)) / log(V + 1). What a word scores is lowered by the logarithm
    of how probable it was to be among them, so that the gradient is that of the whole softmax on
    average. The right word is always there; where it was drawn too, it counts once.
    """
    V = len(weight)
    x, right = features[targets.mask], targets.data[targets.mask]  # (R, E), (R,)
    chance = torch.rand(samples, device=x.device, dtype=torch.float64)
    drawn = (chance * math.log(V + 1)).expm1().long().clamp(0, V - 1).unique()  # (N,)
    others = F.linear(x, weight[drawn], None if bias is None else bias[drawn])  # (R, N)
    others = others.float() - _log_inclusion_prob(drawn, V, samples)
    others = others.masked_fill(drawn == right[:, None], -math.inf)
    own = (x * weight[right]).sum(1).float()  # (R,)
    if bias is not None:
        own = own + bias[right]
    own = own - _log_inclusion_prob(right, V, samples)  # (R,)
    among = torch.cat([own[:, None], others], 1)  # (R, 1+N)
    return (among.logsumexp(1) - own).sum()


def _log_inclusion_prob(ids: Tensor, words: int, samples: int) -> Tensor:
    """The logarithm of how probable each word was to be drawn at least once."""
    place = ids.double()
    each = ((place + 2) / (place + 1)).log() / math.log(words + 1)
    return (-(samples * (-each).log1p()).expm1()).log().float()
