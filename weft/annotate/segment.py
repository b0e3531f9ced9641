"""Cut documents into paragraphs, paragraphs into words and sentences.

A blank line ends a paragraph, and with it the sentence. Inside, a model of the task `sentences`
decides; without one, the rule of `weft.text.formats.documents`: a full stop, question or
exclamation mark before white space and anything but a lower-case letter, unless an abbreviation.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from weft.annotate.document import AnnotatedSentence, SourceText
from weft.predict import Predictor
from weft.tasks.annotation import CharSpan
from weft.text.annotation import schemes
from weft.text.example import Example
from weft.text.formats.documents import locate_sentences
from weft.tokens.pretokenizer import split_words

MAX_SENTENCE_WORDS = 250  # longer ones are cut: a parser takes the square of their length
MAX_DOCUMENT_CHARACTERS = 50_000  # longer ones are annotated in parts, some 8,000 words each
BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")

Words = tuple[tuple[str, ...], tuple[CharSpan, ...], list[int]]  # and where sentences begin


def split_document(document: SourceText) -> Iterator[SourceText]:
    """Yield a document, or the parts of a long one, cut at a blank line, a line end or a space."""
    text, start, part = document.text, 0, 0
    while len(text) - start > MAX_DOCUMENT_CHARACTERS:
        end = find_cut(text, start)
        part += 1
        yield replace(document, text=text[start:end], start=document.start + start, part=part)
        start = end
    if part:
        yield replace(document, text=text[start:], start=document.start + start, part=part + 1)
    else:
        yield document


def find_cut(text: str, start: int = 0) -> int:
    """Return where the part of a long text that begins at `start` ends."""
    most = start + MAX_DOCUMENT_CHARACTERS
    for mark in ("\n\n", "\n", " "):
        if (found := text.rfind(mark, start + MAX_DOCUMENT_CHARACTERS // 2, most)) >= 0:
            return found + len(mark)
    return most


def split_paragraphs(text: str) -> list[CharSpan]:
    """Return the paragraphs of a text, without the white space around them."""
    edges = [0, *(edge for match in BLANK_LINE.finditer(text) for edge in match.span()), len(text)]
    out = []
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        paragraph = text[start:end]
        if bare := paragraph.strip():
            first = start + len(paragraph) - len(paragraph.lstrip())
            out.append((first, first + len(bare)))
    return out


class Segmenter:
    """Finds words and sentences by a trained model, or by rules.

    Without a model, words are cut as the first of the `others` learned to cut them.
    """

    def __init__(self, splitter: Predictor | None, others: Sequence[Predictor] = ()) -> None:
        self.splitter = splitter
        learned = (one.engine.word_segmenter for one in others)
        segmenter = next(filter(None, learned), None)
        self._split_words = split_words if segmenter is None else segmenter.words_of

    def split(self, documents: Sequence[SourceText]) -> list[list[AnnotatedSentence]]:
        """Return the sentences of each document."""
        paragraphs = [split_paragraphs(one.text) for one in documents]
        texts = [
            Example(one.text[start:end], file=one.file, line=one.line)
            for one, spans in zip(documents, paragraphs, strict=True)
            for start, end in spans
        ]
        segmented = iter(
            map(self._apply_rules, texts) if self.splitter is None else self._predict(texts)
        )
        return [
            [
                sentence
                for start, _ in spans
                for sentence in _build_sentences(next(segmented), start)
            ]
            for spans in paragraphs
        ]

    def _predict(self, texts: Sequence[Example]) -> Iterator[Words]:
        assert self.splitter is not None
        for answer in self.splitter.stream(texts):
            found = answer.structure
            assert found is not None
            begins = [
                i for i, tag in enumerate(found.tags) if schemes.split_tag(tag)[0] == "B" or not i
            ]
            yield found.words, found.places, begins

    def _apply_rules(self, example: Example) -> Words:
        words, places = self._split_words(example.text)
        starts = [start for start, _ in locate_sentences(example.text)]
        begins: list[int] = []
        last = -1
        for number, (start, _) in enumerate(places):
            sentence = max(bisect_right(starts, start) - 1, 0)
            if sentence != last:
                begins.append(number)
                last = sentence
        return tuple(words), tuple(places), begins


def _build_sentences(found: Words, offset: int) -> Iterator[AnnotatedSentence]:
    """Yield the sentences of a paragraph that begins at an offset; long ones are cut."""
    words, places, begins = found
    edges = [*begins, len(words)]
    for first, last in pairwise(edges):
        for start in range(first, last, MAX_SENTENCE_WORDS):
            end = min(start + MAX_SENTENCE_WORDS, last)
            own = tuple((a + offset, b + offset) for a, b in places[start:end])
            yield AnnotatedSentence(own[0][0], own[-1][1], words[start:end], own, start == 0)


def sentence_examples(
    documents: Iterable[tuple[SourceText, Sequence[AnnotatedSentence]]],
) -> Iterator[Example]:
    """Yield each sentence as an Example with words, their offsets in it, and its origin."""
    for document, sentences in documents:
        for number, one in enumerate(sentences, 1):
            places = tuple((start - one.start, end - one.start) for start, end in one.places)
            name = f"{document.id or 'text'}-{number}"
            text = document.text[one.start : one.end]
            yield Example(text, None, name, document.file, document.line, one.words, places)
