"""Language-model head: the loss of running text, and the log-probability of every token.

B rows   T steps   V words   F feature width   R scored tokens   W sub-tokens of a token
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.language_models import mask_tokens
from weft.decode.losses import chunked_loss, token_log_probs
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.protocols import DecoderHead, LanguageModelDecoder, State
from weft.tokens.subtoken_table import append_subtokens
from weft.tokens.vocabulary import PAD, SPECIALS, UNK

MASK_ID = SPECIALS.index(PAD)  # replaces a masked word: its vector is zero
MASK_STRIDE = 7  # distance between masked tokens: about as in training
DEFAULT_WINDOW = 35  # steps, for a decoder without a limit
PSEUDO_PERPLEXITY_NOTE = (
    "this model sees both sides of a word: its scores are pseudo-perplexities, not comparable "
    "with the perplexity of left-to-right models"
)
WARMUP_STEPS = 256  # steps that warm up a carried state
STATEFUL_ROW_STEPS = 1280  # steps of a row, including those


@dataclass(frozen=True)
class LMOutput:
    """Input tokens, and the decoder that reads them.

    The inputs precede the predicted tokens; for a bidirectional decoder they are those tokens.
    Each is an id, (B, T), or an id and sub-tokens, (B, T, 1+W).
    """

    head: "LanguageModelHead"
    source: Padded
    back: bool = False  # tokens in reverse order, for a backward decoder

    # Here, not in the task: the loss is computed in chunks, and all logits never exist at once.
    def loss(self, target: Tensor, carried: State = None) -> tuple[Tensor, int, State]:
        """Return the summed loss of target tokens (B, T), their number, and the state after them.

        With masking, every token counts as much as the masked ones do on average.
        """
        decoder, words = self.head.decoder, self.head.decoder.words
        if decoder.has_backward_lm:
            return decoder.loss(self.source, target, carried)
        targets = Padded(target, self.source.lengths)
        if decoder.needs_masking:
            masked, chosen = mask_tokens(self.source, MASK_ID, range(1, words.size))
            features = decoder.features(masked)  # (B, T, F)
            total, count = chunked_loss(features, words.weight, words.bias, targets, counted=chosen)
            return total * (target.numel() / max(count, 1)), target.numel(), None
        if not decoder.is_stateful:
            features = decoder.features(self.source)  # (B, T, F)
            return *chunked_loss(features, words.weight, words.bias, targets), None
        output = decoder.carry(self.source, carried)
        total, count = chunked_loss(output.features, words.weight, words.bias, targets)
        penalty = decoder.penalty(output, self.source)
        if penalty is not None:
            total = total + penalty
        return total, count, output.state

    @torch.no_grad()
    def logps(self, target: Tensor, scored: Tensor) -> Tensor:
        """Return the log-probabilities (R,) of the `scored` (B, T) target tokens, row by row."""
        if not self.head.decoder.needs_masking:
            return self._log_probs(self.source, target, scored)
        out = target.new_zeros(target.shape, dtype=torch.float32)
        steps = torch.arange(target.shape[1], device=target.device)
        for offset in range(MASK_STRIDE):
            now = self.source.mask & (steps % MASK_STRIDE == offset)  # (B, T)
            masked = self.source.with_data(self.source.data.masked_fill(now, MASK_ID))
            now = now & scored
            out[now] = self._log_probs(masked, target, now).float()
        return out[scored]

    @torch.no_grad()
    def words(self, rows: Tensor, steps: Tensor) -> Tensor:
        """Return log-probabilities (K, V) of all words at `rows` and `steps`, each (K,).

        The source holds blanks there already (`LanguageModelHead.blank`).
        """
        decoder = self.head.decoder
        features = decoder.features(self.source)[rows, steps]  # (K, F)
        logits = F.linear(features, decoder.words.weight, decoder.words.bias)  # (K, V)
        return logits.float().log_softmax(1)

    def _log_probs(self, source: Padded, target: Tensor, scored: Tensor) -> Tensor:
        decoder, words = self.head.decoder, self.head.decoder.words
        features = (decoder.backward_features if self.back else decoder.features)(source)
        return token_log_probs(features[scored], words.weight, words.bias, target[scored])


class LanguageModelHead(nn.Module, DecoderHead):
    """A language model in place of a head.

    A text is read in rows of `row_steps` steps: the last `new_steps` are scored, the others are
    context. For a decoder that carries its state, the context warms that state up: after so many
    steps its initial value no longer matters.
    """

    reads, task = "text", "language"
    decoder: LanguageModelDecoder

    def __init__(
        self,
        decoder: LanguageModelDecoder,
        search: SearchSettings,
        bos: int,
        eos: int,
        window: int,
        overlap: float,
    ):
        super().__init__()
        self.decoder, self.search = decoder, search
        self.bos, self.eos = bos, eos
        self.is_stateful, self.sync_free = decoder.is_stateful, decoder.sync_free
        self.is_bidirectional = not decoder.causal  # sees both sides of a word
        self.has_backward_lm = decoder.has_backward_lm
        self.note = PSEUDO_PERPLEXITY_NOTE if self.is_bidirectional else ""
        limit = decoder.max_positions
        if limit is not None and window > limit:
            raise UserError(
                f"task.window is {window}, but the decoder sees at most {limit} steps. Lower it "
                "or raise decoder.max_positions."
            )
        self.window = window or limit or DEFAULT_WINDOW
        stateful = self.is_stateful
        self.row_steps = max(STATEFUL_ROW_STEPS, 2 * self.window) if stateful else self.window
        context = WARMUP_STEPS if stateful else min(int(overlap * self.window), self.window - 1)
        self.new_steps = self.row_steps - context

    @property
    def blank(self) -> int:
        """The id in place of a word to fill in: the mask, or the unknown word if none is masked."""
        return MASK_ID if self.decoder.needs_masking else SPECIALS.index(UNK)

    @property
    def graph_decoder(self) -> LanguageModelDecoder:
        """The decoder, whose steps may be CUDA graphs."""
        return self.decoder

    @property
    def bos_row(self) -> np.ndarray:
        """The bos token: its id (1,), or with its sub-tokens (1, 1+W)."""
        decoder = self.decoder
        if not decoder.reads_subtokens:
            return np.array([self.bos], np.int64)
        subtokens = decoder.subtoken_ids([""])
        return append_subtokens(np.array([self.bos]), subtokens, decoder.max_subtokens)

    def start(self, rows: int, device: torch.device | None = None) -> State:
        """Return the state before the first token."""
        return self.decoder.start(rows, device)

    def forward(self, source: Padded, back: bool = False) -> LMOutput:
        return LMOutput(self, source, back)
