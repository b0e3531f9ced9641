"""Two halves of a corpus trained apart, one turned onto the other: how many words find themselves?

    python bench/align.py --corpus FILE --epochs 5

FILE holds a tokenised sentence a line, spaces between tokens. Its odd lines are trained with one
seed and its even lines with another, so the two spaces share nothing but the language. Of the most
frequent words of both, `--pairs` drawn at random are learnt from and as many others are tested; a
word's translation is the word itself among all words of the other half. `--folder` keeps the two
sets of vectors for another run.
"""

import argparse
import random
import tempfile
from pathlib import Path

from record import Record, options
from vectors import trained

from weft.vectors.align import Space, align, identical, precision
from weft.vectors.store import Vectors

WAYS = {
    "rotation": {},
    "rotation, lengths count": {"normalise": False},
    "centred": {"centre": True},
    "refined 5 rounds": {"refine": 5},
}


def halves(asked: argparse.Namespace, folder: Path) -> list[Vectors]:
    """The vectors of odd and even lines, trained where they are not there yet."""
    places = [folder / f"half{number}.safetensors" for number in (1, 2)]
    if not all(place.exists() for place in places):
        texts = [folder / f"half{number}.txt" for number in (1, 2)]
        with (
            open(asked.corpus, "rb") as lines,
            open(texts[0], "wb") as a,
            open(texts[1], "wb") as b,
        ):
            for number, line in enumerate(lines):
                (b if number % 2 else a).write(line)
        for seed, (text, place) in enumerate(zip(texts, places, strict=True), 1):
            half = argparse.Namespace(**{**vars(asked), "corpus": str(text)})
            trained(half, "weft", asked.method, str(place.with_suffix("")), seed=seed)
            text.unlink()
    return [Vectors.load(place) for place in places]


def main() -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--folder", default="", help="where the vectors are kept")
    parser.add_argument("--method", default="skipgram")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.025)
    parser.add_argument("--epochs", type=int, default=5)
    asked = parser.parse_args()
    record = Record(asked.record)
    with tempfile.TemporaryDirectory() as spare:
        folder = Path(asked.folder or spare)
        folder.mkdir(exist_ok=True)
        measure(asked, record, *halves(asked, folder))


def measure(asked: argparse.Namespace, record: Record, source: Vectors, target: Vectors) -> None:
    """Every way of learning, on as many draws of the words as there are repeats."""
    shared = identical(source, target)
    for draw in range(asked.repeats):
        frequent = shared[: 2 * asked.pairs]
        random.Random(draw).shuffle(frequent)
        learnt, tested = frequent[: asked.pairs], frequent[asked.pairs :]
        rare = shared[5 * asked.pairs : 6 * asked.pairs]  # not among the words learnt from
        for way, settings in WAYS.items():
            found = align(source, target, learnt, **settings)
            space = Space(source, target, found)
            for kind, pairs in (("frequent", tested), ("rarer", rare)):
                for rule in ("csls", "cosine"):
                    figures = precision(space, pairs, csls=rule == "csls").to_json()
                    record.line(
                        "align", way=way, draw=draw, tested=kind, rule=rule,
                        vocabularies=[len(source), len(target)], learnt=len(learnt), **figures,
                    )  # fmt: skip


if __name__ == "__main__":
    main()
