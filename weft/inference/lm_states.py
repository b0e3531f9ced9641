"""The states of a language model at each token of a text, after reading that token.

B rows   T steps   E embedding width   H width of a state   W sub-tokens of a token
"""

import contextlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.elmo import BiLM
from weft.decode.decoders.language_models import BidirectionalLM, RecurrentLM
from weft.decode.decoders.transformer import TransformerDecoder
from weft.embed.characters import reverse_rows
from weft.inference.lm_scoring import lm_head
from weft.model import Model
from weft.protocols import LanguageModelDecoder
from weft.runtime import Runtime


def token_states(
    model: Model, rows: Sequence[np.ndarray], runtime: Runtime, layer: int | None = None
) -> Padded:
    """Return a vector per token (B, T, H) of rows of ids (T,), or of ids and sub-tokens (T, 1+W).

    Without `layer` it is that of the last one; 0 is the word vectors alone. A causal model reads
    the token before a text first, as in training.
    """
    head = lm_head(model)
    front = 0 if head.is_bidirectional else 1
    read = [np.concatenate([head.bos_row, row]) if front else row for row in rows]
    source = Padded.from_rows(read).to(runtime.device)
    model.eval()
    with torch.inference_mode(), runtime.autocast():
        states = layer_states(head.decoder, source)[-1 if layer is None else layer]
    return Padded(states[:, front:], source.lengths - front)


def num_layers(decoder: LanguageModelDecoder) -> int:
    """Return how many layers `layer_states` returns above the word vectors."""
    if isinstance(decoder, TransformerDecoder):
        return len(decoder.blocks)
    if isinstance(decoder, RecurrentLM):
        return int(decoder.net.num_layers)
    return int(decoder.num_layers) if isinstance(decoder, BidirectionalLM) else 1


def layer_states(decoder: LanguageModelDecoder, source: Padded) -> list[Tensor]:
    """Return the vectors (B, T, H) of every token: of the word alone, then of each layer."""
    if isinstance(decoder, BiLM):
        return _elmo_states(decoder, source)
    words = decoder.words.embed(source.data)  # (B, T, E)
    if isinstance(decoder, TransformerDecoder):
        features, blocks = _run_blocks(decoder, source)
        return [words, *blocks[:-1], features]
    if isinstance(decoder, RecurrentLM):
        _, steps = decoder.unroll(source)
        names = [f"layer {i + 1}" for i in range(num_layers(decoder))]
        return [words, *(torch.stack(steps[name], dim=1) for name in names)]
    if isinstance(decoder, BidirectionalLM):
        _, steps = decoder.unroll(source)
        return [words, *(_both(steps, i + 1, source) for i in range(num_layers(decoder)))]
    return [words, decoder.features(source)]


def _both(steps: dict[str, list[Tensor]], number: int, source: Padded) -> Tensor:
    """Return the forward state of each word beside its backward state, both after reading it."""
    ahead, back = (
        torch.stack(steps[f"layer {number} {side}"], dim=1) for side in ("forward", "backward")
    )
    return torch.cat([ahead, reverse_rows(back, source.lengths)], dim=2)  # (B, T, 2*H)


def _run_blocks(decoder: TransformerDecoder, source: Padded) -> tuple[Tensor, list[Tensor]]:
    """Return the features after the last norm, and the output of each block."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, out: tuple[Tensor, ...]) -> None:
        kept.append(out[0])

    assert isinstance(decoder, LanguageModelDecoder)
    with contextlib.ExitStack() as hooks:
        for block in decoder.blocks:
            hooks.callback(block.register_forward_hook(keep).remove)
        features = decoder.features(source)  # (B, T, H)
    return features, kept


def _elmo_states(decoder: BiLM, source: Padded) -> list[Tensor]:
    """Return the words by their characters, and the last layer of both directions."""
    # The token before a text stands first, and reversed it must stand first again.
    front, rest = source.data[:, :1], source.data[:, 1:]
    lengths = source.lengths - 1
    reversed_ = torch.cat([front, reverse_rows(rest, lengths)], dim=1)
    backward = decoder.backward_features(source.with_data(reversed_))  # (B, T, E)
    backward = torch.cat([backward[:, :1], reverse_rows(backward[:, 1:], lengths)], dim=1)
    words: Tensor = decoder.network.embed_words(source.with_data(source.data[..., 1:])).data
    return [words, torch.cat([decoder.features(source), backward], dim=2)]
