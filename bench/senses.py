"""Word senses by clustering contexts, measured with pseudo-words (Gale et al. 1992).

    python bench/senses.py --data DATA [--pairs 100] [--limit LINES] [--record senses]

DATA has the layout of the benchmark data (lm/wiki_en/train.txt.xz). Two words of similar frequency
become one pseudo-word in the text; vectors are trained on that text, the occurrences of each
pseudo-word are clustered, and a cluster stands for the word that most of it was. Accuracy is the
fraction of occurrences in the right cluster under the best one-to-one matching; the baseline calls
everything the more frequent word. `chosen` is how often the silhouette chooses two senses.
"""

import lzma
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
from record import Record, options

from weft.vectors.corpus import corpus
from weft.vectors.senses import ContextReader, find_senses
from weft.vectors.word2vec import train_vectors


def choose_pairs(counts: Counter, pairs: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of words that occur 100 to 2,000 times and about as often as each other."""
    random = np.random.default_rng(seed)
    words = sorted(w for w, n in counts.items() if w.isalpha() and 100 <= n <= 2000 and len(w) > 3)
    chosen = [words[i] for i in random.permutation(len(words))[: 20 * pairs]]
    chosen.sort(key=lambda word: counts[word])
    near = list(zip(chosen[::2], chosen[1::2], strict=False))
    return [near[i] for i in random.permutation(len(near))[:pairs]]


def read_tokens(path: Path, limit: int) -> list[list[str]]:
    with (
        lzma.open(path, "rt", encoding="utf-8") as lines,
        tempfile.NamedTemporaryFile("w", suffix=".txt") as file,
    ):
        file.writelines(islice(lines, limit or None))
        file.flush()
        text = corpus([file.name], min_count=1)
    words, ids = np.array(text.words, dtype=object), np.asarray(text.ids)
    return [list(words[part]) for part in np.split(ids, text.ends[:-1])]


def score(labels: np.ndarray, gold: np.ndarray) -> float:
    """Accuracy under the better of the two matchings."""
    right = float((labels == gold).mean())
    return max(right, 1 - right)


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--limit", type=int, default=0, help="lines of the text; 0 for all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    record = Record(arguments.record)
    path = Path(arguments.data) / "lm" / "wiki_en" / "train.txt.xz"
    sentences = read_tokens(path, arguments.limit)
    counts = Counter(word for sentence in sentences for word in sentence)
    pairs = choose_pairs(counts, arguments.pairs, seed=1)
    pseudo = {word: f"{a}_{b}" for a, b in pairs for word in (a, b)}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        for sentence in sentences:
            file.write(" ".join(pseudo.get(word, word) for word in sentence) + "\n")
        file.flush()
        text = corpus([file.name], min_count=1, tokenizer="whitespace")
        learn = corpus([file.name], min_count=5, tokenizer="whitespace")
    vectors = train_vectors(
        learn, "skipgram", epochs=arguments.epochs, threads=arguments.threads, deterministic=True
    )
    flat = np.array([word for sentence in sentences for word in sentence], dtype=object)
    baseline = [max(counts[a], counts[b]) / (counts[a] + counts[b]) for a, b in pairs]
    for window in (5, 10):
        for weighting in ("idf", "uniform"):
            reader = ContextReader(text, vectors, window, weighting)
            found = find_senses(reader, [f"{a}_{b}" for a, b in pairs], 2, examples=0)
            scores = [
                score(one.labels, flat[one.positions] == a)
                for one, (a, _) in zip(found, pairs, strict=True)
            ]
            auto = find_senses(reader, [one.word for one in found], 0, examples=0)
            record.line(
                "pseudo-words", window=window, weighting=weighting, pairs=len(pairs),
                occurrences=sum(len(one.positions) for one in found),
                accuracy=round(float(np.mean(scores)), 4),
                lowest=round(min(scores), 4), median=round(float(np.median(scores)), 4),
                baseline=round(float(np.mean(baseline)), 4),
                chosen=round(float(np.mean([len(one.senses) == 2 for one in auto])), 4),
            )  # fmt: skip


if __name__ == "__main__":
    main()
