"""Annotated documents as CoNLL-U; layers without a column are in MISC.

TokenRange gives the characters of a token in the document, as UDPipe writes it. Entity has the
brackets of coreference, as CorefUD writes them; NER the tag of an entity in IOB2; Predicate a
sense, and Roles the arguments of that predicate, in words of the sentence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from weft.annotate.document import VERB, AnnotatedDocument, AnnotatedSentence
from weft.predict.conllu import sentence_of
from weft.tasks.annotation import Annotation
from weft.text.annotation.schemes import Span
from weft.text.annotation.spans import align_tags
from weft.text.formats.conllu import format
from weft.text.formats.conllu_sentence import COLUMNS, EMPTY_CELL

ENTITY_COMMENT = "# global.Entity = eid"  # of CorefUD: brackets hold the entity alone
OUTSIDE = "O"


def format_document(document: AnnotatedDocument) -> str:
    """Return the sentences of a document, with comments that mark it and its paragraphs."""
    name = document.name or "text"
    out = []
    mentions = document.sentence_mentions()
    for number, sentence in enumerate(document.sentences, 1):
        start, end = sentence.start, sentence.end
        relative = tuple((a - start, b - start) for a, b in sentence.places)
        plain = Annotation("tags", sentence.words, relative, document.text[start:end])
        rows = sentence_of(plain, f"{name}-{number}")
        for column in set(sentence.tags) & set(COLUMNS[2:]):
            rows = rows.with_column(column, [tag or EMPTY_CELL for tag in sentence.tags[column]])
        if sentence.heads:
            rows = rows.with_column("head", sentence.heads)
            rows = rows.with_column("deprel", sentence.relations)
        rows = rows.with_column("misc", _misc_cells(document, sentence, next(mentions)))
        comments = [f"# newdoc id = {name}"] if number == 1 else []
        if number == 1 and "coreference" in document.layers:
            comments.append(ENTITY_COMMENT)
        comments += ["# newpar"] if sentence.begins_paragraph else []
        out.append(format(replace(rows, parts=(*comments, *rows.parts))))
    return "".join(out)


def _misc_cells(
    document: AnnotatedDocument,
    sentence: AnnotatedSentence,
    mentions: Sequence[tuple[str, int, int]],
) -> list[str]:
    """Return the MISC cell of each word of a sentence."""
    cells: list[list[str]] = [[] for _ in sentence.words]
    text = document.text
    for cell, (_, end) in zip(cells, sentence.places, strict=True):
        if end < len(text) and not text[end].isspace():
            cell.append("SpaceAfter=No")
    for cell, (start, end) in zip(cells, sentence.places, strict=True):
        cell.append(f"TokenRange={start}:{end}")
    for cell, brackets in zip(cells, _mention_brackets(mentions, len(cells)), strict=True):
        cell += [f"Entity={brackets}"] if brackets else []
    if "entities" in document.layers:
        inside = [Span(label, a, b) for a, b, label in document.entities
                  if sentence.start <= a and b <= sentence.end]  # fmt: skip
        tags = align_tags(inside, sentence.places).tags
        for cell, tag in zip(cells, tags, strict=True):
            cell += [f"NER={_escape(tag)}"] if tag != OUTSIDE else []
    for word, sense, roles in sentence.frames:
        arguments = [f"{_escape(r)}:{i + 1}-{j}" for r, i, j in roles if r != VERB]
        cells[word].append(f"Predicate={_escape(sense)}")
        cells[word] += [f"Roles={','.join(arguments)}"] if arguments else []
    for name in sentence.tags:
        if name not in COLUMNS:
            key = name[:1].upper() + name[1:]
            for cell, tag in zip(cells, sentence.tags[name], strict=True):
                cell.append(f"{_escape(key)}={_escape(tag)}")
    return ["|".join(cell) or EMPTY_CELL for cell in cells]


def _mention_brackets(mentions: Sequence[tuple[str, int, int]], size: int) -> Iterator[str]:
    """Yield the brackets at each word: those that close, the inner first, then those that open."""
    for word in range(size):
        closing = sorted((m for m in mentions if m[2] == word + 1 and m[1] < word),
                         key=lambda m: -m[1])  # fmt: skip
        opening = sorted((m for m in mentions if m[1] == word), key=lambda m: -m[2])
        closed = [f"e{chain})" for chain, _, _ in closing]
        opened = [f"(e{chain})" if end == word + 1 else f"(e{chain}" for chain, _, end in opening]
        yield "".join((*closed, *opened))


def _escape(value: str) -> str:
    """Return a value without the characters that MISC reserves."""
    return value.replace("|", "\\p").replace("=", "\\e").replace("\t", " ").replace("\n", " ")
