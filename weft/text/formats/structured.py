"""Read CoNLL-U and column files and texts with spans as Examples.

A column keeps its name; one without a name is called by its number, from 0.
"""

import os
from collections.abc import Iterator

from weft.text.example import TAG_COLUMN, CharSpans, Example, SkipCounter, WordAnnotations
from weft.text.formats.conll import read_columns
from weft.text.formats.conllu import read_conllu
from weft.text.formats.conllu_offsets import locate_spaced_words, locate_words
from weft.text.formats.conllu_sentence import COLUMNS
from weft.text.formats.standoff import read_brat, read_spans
from weft.text.line_source import BadRowPolicy


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
