"""How well is raw text cut into sentences and words? One JSON line for each part.

    python bench/segmentation.py --data DATA --record segmentation

Trains the recipe `sentence-splitter` on the train part of UD English-EWT and annotates the raw text
of the others: paragraphs (`# newpar`, `# newdoc`) separated by blank lines, sentences joined as
`SpaceAfter=No` says. A sentence or word counts if its characters, without white space, are those of
gold, as in the scorer of CoNLL 2018; words of a multi-word token that spell it out have characters
of their own, others share those of the token. `rules` has no model: the rule for sentences and the
regular expression for words.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from record import Record, options

import weft
from weft.annotate import Pipeline
from weft.annotate.document import SourceText
from weft.annotate.segment import Segmenter
from weft.text.formats.conllu import read_conllu
from weft.text.formats.structured import group_paragraphs, join_sentences
from weft.tokens.word_segmenter import split_shared_offsets

Spans = set[tuple[int, int]]  # in characters that are not white space


def raw_text(path: str) -> tuple[str, Spans, Spans]:
    """The raw text of a treebank, its sentences and its words."""
    parts, words, sentences, offset = [], [], [], 0
    for group in group_paragraphs(read_conllu(path), sys.maxsize):
        example = join_sentences(group)
        places = [(a + offset, b + offset) for a, b in split_shared_offsets(example)]
        words += places
        at = 0
        for sentence in group:
            own = places[at : at + len(sentence.words)]
            sentences.append((own[0][0], own[-1][1]))
            at += len(own)
        parts.append(example.text)
        offset += len(example.text) + 2
    text = "\n\n".join(parts)
    return text, without_space(text, sentences), without_space(text, words)


def without_space(text: str, spans: Iterable[tuple[int, int]]) -> Spans:
    counts = [0]
    for letter in text:
        counts.append(counts[-1] + (not letter.isspace()))
    return {(counts[a], counts[b]) for a, b in spans}


def f1(found: Sequence[Spans], gold: Sequence[Spans]) -> float:
    right = sum(len(a & b) for a, b in zip(found, gold, strict=True))
    return round(200 * right / max(sum(map(len, found)) + sum(map(len, gold)), 1), 2)


def annotate(segmenter: Segmenter, text: str) -> tuple[Spans, Spans]:
    (sentences,) = segmenter.split([SourceText(text)])
    places = [place for one in sentences for place in one.places]
    spans = [(one.start, one.end) for one in sentences]
    return without_space(text, spans), without_space(text, places)


def main() -> None:
    parser = options(__doc__, 1)
    parser.add_argument("--data", required=True, help="the folder of the benchmark data")
    parser.add_argument("--runs", default="runs/segmentation", help="a splitter, if there is one")
    parser.add_argument("--parts", default="dev,test")
    args = parser.parse_args()
    record = Record(args.record)
    treebank = f"{args.data}/parsing/ud_english_ewt/en_ewt-ud-{{}}.conllu.gz"
    if not Path(args.runs).exists():
        values = {f"data.{part}": treebank.format(part) for part in ("train", "dev")}
        config = weft.recipe("sentence-splitter").with_values(values, "bench")
        weft.train(config, args.runs, quiet=True)
    trained = Pipeline.load([args.runs])
    for name, segmenter in (("model", trained.segmenter), ("rules", Segmenter(None))):
        for part in args.parts.split(","):
            text, sentences, words = raw_text(treebank.format(part))
            found = annotate(segmenter, text)
            record.line(
                "raw text", segmenter=name, data="ewt", part=part,
                sentence_f1=f1([found[0]], [sentences]), word_f1=f1([found[1]], [words]),
                sentences=len(sentences), words=len(words),
            )  # fmt: skip


if __name__ == "__main__":
    main()
