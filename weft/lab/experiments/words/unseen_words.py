"""Letters say something about a word that was never seen."""

from collections.abc import Sequence

import numpy as np
import torch

from weft.batch import Padded
from weft.embed.spelling import encode_word
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import build, label_loss, minimise
from weft.model.compositions import Model

SUFFIXES = ("ing", "ly", "ness", "ed", "able")  # each makes another part of speech
WORDS_PER_CLASS, UNKNOWN = 120, 1
KINDS = ("words seen in training", "unseen words")


def draw_words(rng: np.random.Generator, count: int) -> list[tuple[str, int]]:
    """Draw words of a random stem and a suffix, with the suffix as label."""
    letters = list("abdefgiklmnoprstuv")
    stems = {"".join(rng.choice(letters, rng.integers(3, 7))) for _ in range(count)}
    return [(stem + s, i) for stem in sorted(stems) for i, s in enumerate(SUFFIXES)]


def read(words: Sequence[str], index: dict[str, int]) -> Padded:
    """Return one word a row: its number, and its letters."""
    ids = torch.tensor([[index.get(word, UNKNOWN)] for word in words])
    letters = Padded.from_rows([encode_word(word) for word in words]).data[:, None]  # (B, 1, W)
    return Padded(ids, torch.ones(len(words), dtype=torch.long), subtokens=(letters,))


def fit(model: Model, train: list[tuple[str, int]], index: dict[str, int], seed: int) -> None:
    """Train on random batches; a tenth of the words is read as unknown."""
    rng = np.random.default_rng(seed)

    def loss(update: int) -> torch.Tensor:
        chosen = [train[i] for i in rng.integers(len(train), size=64)]
        words = [w if rng.random() > 0.1 else w + "?" for w, _ in chosen]
        source = read([w.rstrip("?") for w in words], index)
        hidden = torch.tensor([[w.endswith("?")] for w in words])
        source.data[hidden] = UNKNOWN
        return label_loss(model(source), torch.tensor([label for _, label in chosen]))

    minimise(model, loss, 250, learning_rate=5e-3)


@torch.no_grad()
def score(model: Model, words: list[tuple[str, int]], index: dict[str, int]) -> float:
    """Return the fraction of words whose part of speech is right."""
    chosen = model(read([word for word, _ in words], index)).argmax(1)
    return float((chosen == torch.tensor([label for _, label in words])).float().mean())


def measure(seed: int) -> Table:
    """Return the accuracy on seen and unseen words, by how words are embedded."""
    rng = np.random.default_rng(seed)
    words = draw_words(rng, WORDS_PER_CLASS)
    cut = len(words) * 3 // 4 // len(SUFFIXES) * len(SUFFIXES)
    train, unseen = words[:cut], words[cut:]
    index = {word: 2 + i for i, (word, _) in enumerate(train)}
    embedders = {
        "table of words": {"kind": "lookup", "width": 24},
        "letters": {"kind": "character-cnn", "width": 24, "filters": [[2, 16], [4, 32]]},
    }
    scores: Table = {}
    for name, embedder in embedders.items():
        model = build(2 + len(index), len(SUFFIXES), embedder=embedder)
        fit(model, train, index, seed)
        kinds = dict(zip(KINDS, (train, unseen), strict=True))
        scores[name] = {kind: score(model, rows, index) for kind, rows in kinds.items()}
    return scores


def _holds(mean: Means) -> str:
    return (
        f"The part of speech of an unseen word is right in {mean('letters', KINDS[1]):.0%} of "
        f"cases when the network reads its letters, and in "
        f"{mean('table of words', KINDS[1]):.0%}, a guess, when it looks words up in a table."
    )


def _fails(mean: Means) -> str:
    return (
        f"On unseen words letters are right in {mean('letters', KINDS[1]):.0%} of cases, a table "
        f"of words in {mean('table of words', KINDS[1]):.0%}."
    )


EXPERIMENT = Experiment(
    claim="Networks that read characters handle words they have never seen.",
    decks=("001", "004"),
    why="All unseen words share one row of the table of words. Their letters are known, and in "
    "“flurbness” the end is enough.",
    data="450 generated words of a stem and one of five suffixes, which is the part of speech; the "
    "stems of the 150 unseen words occur nowhere else.",
    measure=measure,
    conditions=(
        (at("letters", KINDS[1]) - at("table of words", KINDS[1])).above(0.3),
        at("table of words", KINDS[0]).above(0.9),
    ),
    holds=_holds,
    fails=_fails,
    x="words",
    y="accuracy",
    limits=(0, 1),
    seconds=4,
)
