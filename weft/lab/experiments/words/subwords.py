"""Sub-words share what inflected forms have in common, which pays while forms are rare."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows
from weft.tokens.subword import BPE
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.word import Word

SIZES = (100, 400, 1600, 6400)
STEMS, TEXT_WORDS = 150, 5
ENDINGS = ("", "en", "om", "uks", "ita", "oren", "alis", "emur")


def draw_texts(
    rng: np.random.Generator, stems: list[str], polarity: np.ndarray, count: int
) -> tuple[list[str], list[int]]:
    """Draw texts of inflected words; most of their stems have the polarity that is the label."""
    texts, labels = [], []
    for _ in range(count):
        label = int(rng.integers(2))
        same = rng.choice(np.flatnonzero(polarity == label), 4)
        other = rng.choice(np.flatnonzero(polarity != label), TEXT_WORDS - 4)
        words = [stems[i] + ENDINGS[rng.integers(len(ENDINGS))] for i in (*same, *other)]
        texts.append(" ".join(rng.permutation(words)))
        labels.append(label)
    return texts, labels


def learn(tokenizer: Tokenizer, train: Rows, test: Rows, seed: int) -> float:
    """Train a bag of tokens and return its accuracy on the test texts."""
    model = build(len(tokenizer), 2, embedder={"kind": "lookup", "width": 16})
    fit_rows(model, train, seed, 200, learning_rate=1e-2, weight_decay=0.05)
    return accuracy(model, test)


def measure(seed: int) -> Table:
    """Return the accuracy of bags of words and of sub-words, by the number of texts."""
    rng = np.random.default_rng(seed)
    consonants, vowels = list("bdfgklmnprstvz"), list("aeiou")
    stems = [
        "".join(rng.choice(part) for part in (consonants, vowels, consonants, vowels, consonants))
        for _ in range(STEMS)
    ]
    polarity = rng.integers(2, size=STEMS)
    test_texts, test_labels = draw_texts(rng, stems, polarity, 500)
    scores: Table = {"words": {}, "sub-words": {}}
    for size in SIZES:
        texts, labels = draw_texts(rng, stems, polarity, size)
        tokenizers = {
            "words": Word(min_count=1).train(texts),
            "sub-words": BPE(vocab_size=350, min_count=1).train(texts),
        }
        for name, tokenizer in tokenizers.items():
            train = Rows(tokenizer.encode_ids(texts), labels)
            test = Rows(tokenizer.encode_ids(test_texts), test_labels)
            scores[name][size] = learn(tokenizer, train, test, seed)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"From 400 texts, sub-words get {mean('sub-words', 400):.0%} right and words "
        f"{mean('words', 400):.0%}; from 6,400 texts, where every form has been seen, "
        f"{mean('sub-words', 6400):.0%} and {mean('words', 6400):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"Sub-words and words get {mean('sub-words', 400):.0%} and {mean('words', 400):.0%} right "
        f"from 400 texts, {mean('sub-words', 6400):.0%} and {mean('words', 6400):.0%} from 6,400."
    )


GAP = {size: at("sub-words", size) - at("words", size) for size in SIZES}
EXPERIMENT = Experiment(
    claim="Sub-words beat words on a small corpus, and the lead shrinks as the corpus grows.",
    decks=("004",),
    why="150 stems with 8 endings are 1,200 words; a small corpus shows each form once or never, "
    "but each stem several times.",
    data="Texts of five inflected words; the label is the polarity of most stems. BPE with 350 "
    "pieces against one row per word, 100 to 6,400 texts.",
    measure=measure,
    conditions=(GAP[400].above(0.05), (GAP[400] - GAP[6400]).above(0.03)),
    holds=_holds,
    fails=_fails,
    x="training texts",
    y="accuracy",
    limits=(0, 1),
    log_x=True,
    seconds=5,
)
