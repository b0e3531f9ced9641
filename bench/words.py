"""Words of raw text: the regular expression against the cuts that a treebank teaches.

    python bench/words.py --data DATA
    python bench/words.py --data DATA --sentences 200

DATA is laid out as in bench/quality.py, with parsing/. The figure is the harmonic mean of precision
and recall of (start, end), on the raw sentences of the test part. Words of a multi-word token count
each by itself where they spell it out ("do", "n't"), else the token counts as one.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from record import Record, options, spread

from weft.text.example import Example
from weft.text.read import read
from weft.tokens.pretokenizer import split_words
from weft.tokens.word_segmenter import WordSegmenter, split_shared_offsets

TREEBANKS = {
    "English-EWT": "parsing/ud_english_ewt/en_ewt-ud-{}.conllu.gz",
    "French-Sequoia": "parsing/ud_french_sequoia/fr_sequoia-ud-{}.conllu.gz",
    "Turkish-IMST": "parsing/ud_turkish_imst/tr_imst-ud-{}.conllu.gz",
}
BAR = {"English-EWT": 0.985}


def f1(cut: Callable[[str], Any], examples: Iterable[Example]) -> float:
    """Harmonic mean of precision and recall of the places of words."""
    right = said = true = 0
    for example in examples:
        wanted, found = set(split_shared_offsets(example)), set(cut(example.text)[1])
        right, said, true = right + len(wanted & found), said + len(found), true + len(wanted)
    return 2 * right / (said + true)


def speed(cut: Callable[[str], Any], examples: list[Example], repeats: int) -> dict[str, Any]:
    """Words in a second; what was cut once before is known in later repeats."""
    rates = []
    for _ in range(repeats):
        began = time.perf_counter()
        words = sum(len(cut(example.text)[0]) for example in examples)
        rates.append(words / (time.perf_counter() - began))
    return spread(rates, 0)


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--sentences", type=int, default=0, help="learn from so many; 0: all")
    parser.add_argument("--part", default="test")
    given = parser.parse_args()
    if not given.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    record = Record(given.record)
    for name, path in TREEBANKS.items():
        train, test = (
            list(read(Path(given.data) / path.format(part))) for part in ("train", given.part)
        )
        train = train[: given.sentences or None]
        began = time.perf_counter()
        cuts = WordSegmenter.train(train)
        took = time.perf_counter() - began
        assert cuts is not None, "the treebank has no words that differ"
        bar = {}
        if name in BAR:
            bar = {"bar": BAR[name], "passed": f1(cuts.words_of, test) >= BAR[name]}
        record.line(
            "words of raw text", treebank=name, sentences=len(train), part=given.part,
            f1=round(f1(cuts.words_of, test), 4), f1_regular=round(f1(split_words, test), 4),
            rules=len(cuts.rules.sure), pieces=len(cuts.pieces), bytes=len(cuts.to_json().encode()),
            train_seconds=round(took, 2),
            words_per_second=speed(cuts.words_of, test, given.repeats),
            regular_per_second=speed(split_words, test, given.repeats), **bar,
        )  # fmt: skip


if __name__ == "__main__":
    main()
