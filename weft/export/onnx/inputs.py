"""The inputs of a graph, by what an embedder reads.

D distinct words   W sub-tokens of a word   N windows   S steps of a window   P steps of a word
"""

from dataclasses import dataclass

from weft.export.onnx.graph import Steps, Value


@dataclass(frozen=True, eq=False)
class SpelledWords:
    """Words by their spelling: each distinct word once, and which one stands at each step."""

    spelled: Value  # (D, W) sub-token ids, 0 behind those of a word
    index: Value  # (B, T) rows of `spelled`
    steps: Steps  # of the words, for their lengths


@dataclass(frozen=True, eq=False)
class SubwordSteps:
    """Windows of sub-token ids that a Transformer reads, and the steps of each word in them."""

    steps: Steps  # (N, S)
    index: Value  # (B, T, P) steps of each word, counted through all windows; -1: none
    words: Steps  # of the words, for their lengths
