"""Sentences of Wikipedia to extract tuples from, one a line.

    python bench/openie_sentences.py --data DATA --count 100000 -o sentences.txt

Whole sentences of 6 to 45 words from random paragraphs of lm/wiki_en, without those of CaRB.
"""

import argparse
import lzma
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from weft.metrics.structure.carb import sentence_key
from weft.text.formats.documents import locate_sentences

WORDS = range(6, 46)
WHOLE = re.compile(r"[A-Z0-9\"“].*[a-z0-9)\"”][.!?][\"”]?")
REMOVED = re.compile(r"\(\s*[;,)]|\s[.,;]|\[|\]|[{}|<>=]")  # markup, or what it left behind


def sentences(paragraphs: Iterable[str]) -> Iterator[str]:
    """Yield the whole sentences of some paragraphs."""
    for paragraph in paragraphs:
        for start, end in locate_sentences(paragraph):
            text = " ".join(paragraph[start:end].split())
            if len(text.split()) in WORDS and WHOLE.fullmatch(text) and not REMOVED.search(text):
                yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", required=True)
    asked = parser.parse_args()
    root = Path(asked.data)
    left_out = {
        sentence_key(line)
        for part in ("dev", "test")
        for line in (root / f"openie/carb/sentences_{part}.txt").read_text("utf-8").splitlines()
    }
    with lzma.open(root / "lm/wiki_en/train.txt.xz", "rt", encoding="utf-8") as file:
        paragraphs = [line.strip() for line in file if line.strip()]
    random.Random(asked.seed).shuffle(paragraphs)
    with open(asked.output, "w", encoding="utf-8") as out:
        count = 0
        for text in sentences(paragraphs):
            if count == asked.count:
                break
            if (key := sentence_key(text)) not in left_out:
                left_out.add(key)
                out.write(f"{text}\n")
                count += 1
    print(f"{count} sentences")


if __name__ == "__main__":
    main()
