"""Sentences of CoNLL-U and column files and marked texts, as Examples.

A column keeps its name; one without a name goes by its number, from 0.
"""

import os
from collections.abc import Iterator

from weft.text.example import TAG, Example, Layers, Marks, Tally
from weft.text.formats.conll import read_columns
from weft.text.formats.conllu import read_conllu
from weft.text.formats.conllu_offsets import offsets, spaced
from weft.text.formats.conllu_sentence import COLUMNS
from weft.text.formats.standoff import read_brat, read_spans
from weft.text.line_source import Handling


def conllu_examples(
    path: str | os.PathLike[str],
    *,
    label: str = "",
    problems: Handling = "error",
    tally: Tally | None = None,
) -> Iterator[Example]:
    """The sentences of a CoNLL-U file; the words are the syntactic ones."""
    for sentence in read_conllu(path, problems=problems, tally=tally):
        text, places = offsets(sentence, disagree="join")
        columns = {name: tuple(sentence.column(name)) for name in COLUMNS[2:]}
        yield Example(
            text, Layers(columns, label or "upos"), sentence.sent_id or "", sentence.file,
            sentence.line, tuple(word.form for word in sentence.words), tuple(places),
        )  # fmt: skip


def column_examples(
    path: str | os.PathLike[str],
    *,
    text: int | str | None = None,
    label: int | str | None = None,
    problems: Handling = "error",
    tally: Tally | None = None,
) -> Iterator[Example]:
    """The sentences of a column file; the text is its words with spaces between them."""
    for sentence in read_columns(path, words=text, tags=label, problems=problems, tally=tally):
        words = tuple(sentence.words)
        places = spaced(words)
        width = min(len(row) for row in sentence.rows)
        names = sentence.layout.names or tuple(map(str, range(width)))
        columns = {name: tuple(sentence.column(i)) for i, name in enumerate(names[:width])}
        columns[TAG] = tuple(sentence.tags)
        yield Example(
            " ".join(words), Layers(columns, TAG), sentence.id, sentence.file, sentence.line,
            words, places,
        )  # fmt: skip


def marked_examples(
    path: str | os.PathLike[str],
    *,
    brat: bool = False,
    problems: Handling = "error",
    tally: Tally | None = None,
) -> Iterator[Example]:
    """The texts of a file of spans; what its words are is for the task to say."""
    read = read_brat if brat else read_spans
    for one in read(path, problems=problems, tally=tally):
        yield Example(one.text, Marks(one.spans), one.id, one.file, one.line)
