"""Sentences of CoNLL-U and column files and marked texts, as Examples.

A column keeps its name; one without a name goes by its number, from 0.
"""

import os
from collections.abc import Iterator

from weft.text.example import TAG_COLUMN, CharSpans, Example, Tally, WordAnnotations
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
    skipped: Tally | None = None,
) -> Iterator[Example]:
    """The sentences of a CoNLL-U file; the words are the syntactic ones."""
    for sentence in read_conllu(path, on_bad_row=on_bad_row, skipped=skipped):
        text, places = locate_words(sentence, disagree="join")
        columns = {name: tuple(sentence.column(name)) for name in COLUMNS[2:]}
        yield Example(
            text, WordAnnotations(columns, label or "upos"), sentence.sent_id or "", sentence.file,
            sentence.line, tuple(word.form for word in sentence.words), tuple(places),
        )  # fmt: skip


def read_column_examples(
    path: str | os.PathLike[str],
    *,
    text: int | str | None = None,
    label: int | str | None = None,
    on_bad_row: BadRowPolicy = "error",
    skipped: Tally | None = None,
) -> Iterator[Example]:
    """The sentences of a column file; the text is its words with spaces between them."""
    for sentence in read_columns(
        path, words=text, tags=label, on_bad_row=on_bad_row, skipped=skipped
    ):
        words = tuple(sentence.words)
        places = locate_spaced_words(words)
        width = min(len(row) for row in sentence.rows)
        names = sentence.layout.names or tuple(map(str, range(width)))
        columns = {name: tuple(sentence.column(i)) for i, name in enumerate(names[:width])}
        columns[TAG_COLUMN] = tuple(sentence.tags)
        yield Example(
            " ".join(words), WordAnnotations(columns, TAG_COLUMN), sentence.id, sentence.file,
            sentence.line, words, places,
        )  # fmt: skip


def read_span_examples(
    path: str | os.PathLike[str],
    *,
    brat: bool = False,
    on_bad_row: BadRowPolicy = "error",
    skipped: Tally | None = None,
) -> Iterator[Example]:
    """The texts of a file of spans; what its words are is for the task to say."""
    read = read_brat if brat else read_spans
    for one in read(path, on_bad_row=on_bad_row, skipped=skipped):
        yield Example(one.text, CharSpans(one.spans), one.id, one.file, one.line)
