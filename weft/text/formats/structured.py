"""Read CoNLL-U and column files and texts with spans as Examples.

A column keeps its name; one without a name is called by its number, from 0. Paragraphs of CoNLL-U
begin at `# newpar` or `# newdoc`; their sentences are joined as in the original text.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from weft.text.example import TAG_COLUMN, CharSpans, Example, SkipCounter, WordAnnotations
from weft.text.formats.conll import read_columns
from weft.text.formats.conllu import read_conllu
from weft.text.formats.conllu_offsets import locate_spaced_words, locate_words
from weft.text.formats.conllu_sentence import COLUMNS, Sentence
from weft.text.formats.standoff import read_brat, read_spans
from weft.text.line_source import BadRowPolicy

SENTENCE = "sentence"  # the column of the tags, and the label of the spans
BEGIN, INSIDE = f"B-{SENTENCE}", f"I-{SENTENCE}"
MAX_PARAGRAPH_WORDS = 500  # longer ones are cut between sentences; so are files without marks
MARKS = ("newpar", "newdoc")


def read_conllu_examples(
    path: str | os.PathLike[str],
    *,
    label: str = "",
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Example]:
    """Yield the sentences of a CoNLL-U file; the words are the syntactic ones."""
    for sentence in read_conllu(path, on_bad_row=on_bad_row, skipped=skipped):
        text, offsets = locate_words(sentence, disagree="join")
        columns = {name: tuple(sentence.column(name)) for name in COLUMNS[2:]}
        yield Example(
            text, WordAnnotations(columns, label or "upos"), sentence.sent_id or "", sentence.file,
            sentence.line, tuple(word.form for word in sentence.words), tuple(offsets),
        )  # fmt: skip


def read_column_examples(
    path: str | os.PathLike[str],
    *,
    text: int | str | None = None,
    label: int | str | None = None,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Example]:
    """Yield the sentences of a column file; the text is its words joined by spaces."""
    for sentence in read_columns(
        path, words=text, tags=label, on_bad_row=on_bad_row, skipped=skipped
    ):
        words = tuple(sentence.words)
        offsets = locate_spaced_words(words)
        width = min(len(row) for row in sentence.rows)
        names = sentence.layout.names or tuple(map(str, range(width)))
        columns = {name: tuple(sentence.column(i)) for i, name in enumerate(names[:width])}
        columns[TAG_COLUMN] = tuple(sentence.tags)
        yield Example(
            " ".join(words), WordAnnotations(columns, TAG_COLUMN, sentence.label), sentence.id,
            sentence.file, sentence.line, words, offsets,
        )  # fmt: skip


def read_span_examples(
    path: str | os.PathLike[str],
    *,
    brat: bool = False,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Example]:
    """Yield the texts of a file of spans; the task decides on the words."""
    read = read_brat if brat else read_spans
    for span_text in read(path, on_bad_row=on_bad_row, skipped=skipped):
        yield Example(
            span_text.text, CharSpans(span_text.spans), span_text.id, span_text.file, span_text.line
        )


def read_paragraphs(
    path: str | os.PathLike[str],
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Example]:
    """Yield each paragraph as an Example whose words are tagged by sentence, in IOB2."""
    for sentences in group_paragraphs(read_conllu(path, on_bad_row=on_bad_row, skipped=skipped)):
        yield join_sentences(sentences)


def group_paragraphs(
    sentences: Iterable[Sentence], max_words: int = MAX_PARAGRAPH_WORDS
) -> Iterator[list[Sentence]]:
    """Group the sentences of each paragraph; several of them have at most `max_words`."""
    group: list[Sentence] = []
    size = 0
    for sentence in sentences:
        count = len(sentence.words)
        if group and (starts_paragraph(sentence) or size + count > max_words):
            yield group
            group, size = [], 0
        group.append(sentence)
        size += count
    if group:
        yield group


def starts_paragraph(sentence: Sentence) -> bool:
    """Return whether a comment marks the sentence as the first of a paragraph or document."""
    return any(comment.lstrip("# ").split(" ", 1)[0] in MARKS for comment in sentence.comments)


def mark_paragraph(sentence: Sentence, first: bool) -> Sentence:
    """Return the sentence with a mark if it is the first of a paragraph that has none."""
    if not first or starts_paragraph(sentence):
        return sentence
    breaks = ("\n", *sentence.breaks) if sentence.breaks else ()
    return replace(sentence, parts=("# newpar", *sentence.parts), breaks=breaks)


def join_sentences(sentences: Sequence[Sentence]) -> Example:
    """Return the running text of some sentences, with the offsets of all words in it."""
    text, tags = "", []
    offsets: list[tuple[int, int]] = []
    for sentence in sentences:
        own, places = locate_words(sentence, disagree="join")
        offsets += [(start + len(text), end + len(text)) for start, end in places]
        tags += [BEGIN, *[INSIDE] * (len(places) - 1)]
        text += own.rstrip() + " " * _has_space_after(sentence)
    first = sentences[0]
    words = tuple(chain.from_iterable((w.form for w in one.words) for one in sentences))
    return Example(
        text.rstrip(), WordAnnotations({SENTENCE: tuple(tags)}, SENTENCE), first.sent_id,
        first.file, first.line, words, tuple(offsets),
    )  # fmt: skip


def _has_space_after(sentence: Sentence) -> bool:
    """Return whether a space follows the last token, which may be a multi-word token."""
    last = len(sentence.words)
    covering = [row for row in sentence.ranges if row.bounds[1] == last]
    return (covering or sentence.words)[-1].has_space_after
