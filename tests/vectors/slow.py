"""word2vec and fastText written out slowly: the same draws, the same blocks, in 64 bits."""

import numpy as np

from weft.vectors.targets import alias_table, huffman, keep

FULL = (1 << 64) - 1
GROUP = 6


class Draws:
    """SplitMix64."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def bits(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & FULL
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & FULL
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & FULL
        return z ^ (z >> 31)

    def below(self, limit: int) -> int:
        return ((self.bits() >> 32) * limit) >> 32


def meet(rows: np.ndarray, table: np.ndarray, aims: list[tuple[int, float, float]], rate: float):
    """Input rows (P, E) against (output row, label, weight), in blocks of GROUP."""
    for start in range(0, len(aims), GROUP):
        block = aims[start : start + GROUP]
        outputs = np.array([table[place] for place, _, _ in block])
        labels = np.array([label for _, label, _ in block])
        weights = np.array([weight for _, _, weight in block])
        gains = (labels - 1 / (1 + np.exp(-rows @ outputs.T))) * weights * rate
        old = rows.copy()
        rows += gains @ outputs
        for column, (place, _, _) in enumerate(block):
            table[place] += gains[:, column] @ old


def drawn(draws: Draws, sure: np.ndarray, alias: np.ndarray) -> int:
    z = draws.bits()
    cell = ((z >> 32) * len(sure)) >> 32
    return cell if (z & 0xFFFFFFFF) < sure[cell] else int(alias[cell])


def learn(
    sentences, counts, inputs, outputs, method, window, negative, rate, sample, seed, pieces=None
) -> None:
    """Learn from sentences of ids, changing the two tables; `negative` 0 uses the tree."""
    draws = Draws(seed)
    kept = keep(counts, sample)
    sure, alias = alias_table(counts, 0.5 if method == "fasttext" else 0.75)
    ends, nodes, turns = huffman(counts)
    paths = [
        [(int(n), float(t), 1.0) for n, t in zip(a, b, strict=True)]
        for a, b in zip(np.split(nodes, ends[:-1]), np.split(turns, ends[:-1]), strict=True)
    ]

    def aimed(word: int) -> list[tuple[int, float, float]]:
        """What predicts a word, filled to whole blocks by what weighs nothing."""
        aims = [(word, 1.0, 1.0)] if negative else list(paths[word])
        for _ in range(negative):
            noise = drawn(draws, sure, alias)
            aims += [(noise, 0.0, 1.0)] * (noise != word)
        return aims + [(0, 0.0, 0.0)] * (-len(aims) % GROUP)

    for sentence in sentences:
        line = [word for word in sentence if (draws.bits() >> 32) < kept[word]]
        for here, word in enumerate(line):
            reach = window - draws.below(window)
            around = line[max(0, here - reach) : here] + line[here + 1 : here + reach + 1]
            if not around:
                continue
            if method == "fasttext":
                aims = [step for other in around for step in aimed(other)]
                sources = pieces[word]
            else:
                aims, sources = aimed(word), around
            if method == "skipgram":
                rows = inputs[around]
                before = rows.copy()
                meet(rows, outputs, aims, rate)
                np.add.at(inputs, around, rows - before)
                continue
            hidden = inputs[sources].mean(axis=0, keepdims=True)
            before = hidden.copy()
            meet(hidden, outputs, aims, rate)
            np.add.at(inputs, sources, np.repeat(hidden - before, len(sources), axis=0))
