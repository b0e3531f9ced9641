"""CoNLL-U: sentences of ten columns, kept so that what is not changed is written byte for byte."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from weft.errors import UserError
from weft.storage import atomic_write
from weft.text.example import Tally
from weft.text.formats.conllu_sentence import COLUMNS, EMPTY_CELL, METADATA
from weft.text.formats.conllu_sentence import Sentence as Sentence
from weft.text.formats.conllu_sentence import Word as Word
from weft.text.line_source import (
    NUL_BYTE,
    SKIP_HINT,
    UNDECODABLE,
    BadRowPolicy,
    BadRows,
    LineSource,
    not_utf8_message,
    nul_byte_message,
    strip_compression,
)
from weft.untrusted import parse_integer

_BOM = "\ufeff"
_ID = re.compile(r"[0-9]{1,9}(?:-[0-9]{1,9}|\.[0-9]{1,9})?")
_HEAD = re.compile(r"[0-9]{1,9}|_")


def read_conllu(
    path: str | os.PathLike[str],
    *,
    check: bool = True,
    on_bad_row: BadRowPolicy = "error",
    skipped: Tally | None = None,
) -> Iterator[Sentence]:
    """The sentences of a file, one at a time.

    With `check`, a sentence with a fault that `validate` finds stops the reading or, where problems
    are skipped, is left out and counted.
    """
    source = _SourceWithBom(path)
    faults = BadRows(source.name, on_bad_row, skipped)
    some = False
    for sentence in _parse_sentences(source, faults):
        found = next(iter(validate(sentence)), None) if check else None
        if found is not None:
            named = f"sentence '{sentence.sent_id}': " if sentence.sent_id else ""
            faults.found(found.kind, found.line, named + found.told)
            continue
        some = True
        yield sentence
    if not some and not os.path.getsize(source.path):
        raise UserError(f"{source.name}: the file is empty. Give it at least one sentence.")
    if not some:
        raise UserError(f"{source.name}: no sentence can be used. Look at the first lines of it.")


def is_conllu(lines: Iterable[str]) -> bool:
    """Whether lines have ten cells each, an id in the first and a head or _ in the seventh."""
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    return bool(rows) and all(
        len(row) == len(COLUMNS) and _ID.fullmatch(row[0]) and _HEAD.fullmatch(row[6])
        for row in rows[:100]
    )


def format(sentence: Sentence) -> str:
    """The sentence as it stood in its file, with the blank line that ends it."""
    breaks = sentence.breaks or ("\n",) * len(sentence.parts)
    lines = [f"{part}{end}" for part, end in zip(sentence.parts, breaks, strict=True)]
    return sentence.before + "".join(lines) + sentence.after


def write_conllu(sentences: Iterable[Sentence], path: str | os.PathLike[str]) -> None:
    """A file of these sentences, packed where its ending says so; complete or not at all."""
    from weft.text.write import open_text

    name = os.fspath(path)
    with atomic_write(name) as part, open_text(part, strip_compression(name)[1]) as out:
        for sentence in sentences:
            out.write(format(sentence))


def validate(sentence: Sentence) -> list["SentenceFault"]:
    """What is wrong with ids, ranges and heads; heads are judged only where there are any."""
    found = list(_id_faults(sentence))
    if not found and any(word.head != EMPTY_CELL for word in sentence.words):
        found = list(_head_faults(sentence)) or list(_tree_faults(sentence))
    return found


@dataclass(frozen=True)
class SentenceFault:
    """Something wrong with a sentence: where it stands and what to do about it."""

    kind: str
    sentence: Sentence
    row: Word | None
    told: str

    @property
    def line(self) -> int:
        """The line of the row, or of the sentence."""
        return self.sentence.line_of(self.row)

    @property
    def message(self) -> str:
        """The whole sentence, with file, line and sentence id."""
        return f"{self.sentence.where(self.row)}: {self.told}"


class _SourceWithBom(LineSource):
    """A source that remembers the byte order mark it took off."""

    mark = ""

    def _opening(self, raw: bytes) -> bytes:
        self.mark = _BOM if raw.startswith(_BOM.encode()) else ""
        return super()._opening(raw)


Lines = list[tuple[int, str, str]]  # (number, text, line break)
UnreadableRow = tuple[str, int, str]  # (kind, line, message)


def _parse_sentences(source: _SourceWithBom, problems: BadRows) -> Iterator[Sentence]:
    source.head(1)
    before = source.mark
    held: Sentence | None = None  # until it is known what stands after it
    for lines, after, flaw in _split_blocks(source):
        if all(text.startswith("#") for _, text, _ in lines) and not flaw:
            # Comments without a sentence, as at the end of a file, stay where they are.
            loose = "".join(text + end for _, text, end in lines) + after
            if held is None:
                before += loose
            else:
                held = replace(held, after=held.after + loose)
            continue
        if held is not None:
            yield held
        held = None
        flaw = flaw or _find_unreadable_row(lines)
        if flaw:
            problems.found(*flaw)
            continue
        held = _build_sentence(source.name, lines, before, after)
        before = ""
    if held is not None:
        yield held


def _split_blocks(source: LineSource) -> Iterator[tuple[Lines, str, UnreadableRow | None]]:
    """Lines that belong together, the blank ones after them, and what cannot be read in them."""
    lines: Lines = []
    after = ""
    flaw: UnreadableRow | None = None
    for number, raw in enumerate(source.raw(), 1):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            text = raw.decode("utf-8", "replace")
            flaw = flaw or (UNDECODABLE, number, not_utf8_message(error))
        bare = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
        if not bare.strip():
            after += text
            continue
        if after:
            yield lines, after, flaw
            lines, after, flaw = [], "", None
        if "\0" in bare:
            flaw = flaw or (NUL_BYTE, number, nul_byte_message(text))
        lines.append((number, bare, text[len(bare) :]))
    if lines or after:
        yield lines, after, flaw


def _find_unreadable_row(lines: Lines) -> UnreadableRow | None:
    """What keeps a row from being ten cells with an id."""
    named = next(
        (m[2] for _, t, _ in lines if (m := METADATA.fullmatch(t)) and m[1] == "sent_id"), ""
    )
    of = f"sentence '{named.strip()}': " if named else ""
    for number, text, _ in lines:
        if text.startswith("#"):
            continue
        cells = text.split("\t")
        if len(cells) != len(COLUMNS):
            told = f"{of}{len(cells)} columns, not {len(COLUMNS)}: '{text[:40]}'"
            fix = f"Separate ten cells by one tab each, with _ for an empty one, or {SKIP_HINT}"
            return "wrong number of columns", number, f"{told}. {fix}."
        if not _ID.fullmatch(cells[0]):
            told = f"{of}the id '{cells[0]:.40}' is neither a word (3), a range (3-4) nor an empty"
            return (
                "malformed id",
                number,
                f"{told} node (3.1). Number the words from 1, or {SKIP_HINT}.",
            )
    return None


def _build_sentence(file: str, lines: Lines, before: str, after: str) -> Sentence:
    parts = [text if text.startswith("#") else Word(*text.split("\t")) for _, text, _ in lines]
    breaks = tuple(end for _, _, end in lines)
    plain = all(end == "\n" for end in breaks)
    return Sentence(tuple(parts), file, lines[0][0], () if plain else breaks, before, after)


def _id_faults(sentence: Sentence) -> Iterator[SentenceFault]:
    """Words count 1, 2, 3…; a range stands before its first word, an empty node after its own."""
    rows = sentence.rows
    count = len(sentence.words)
    word = inner = reach = 0  # the last word, its last empty node, the end of the last range
    if not count:
        told = "no word, only ranges or empty nodes. Add the words, or remove the sentence."
        yield SentenceFault("no words", sentence, rows[0], told)
        return
    for row in rows:
        first, last = row.bounds
        if row.kind == "word":
            if first != word + 1:
                told = f"the id {row.id} follows {word}. Number the words 1, 2, 3… without gaps."
                yield SentenceFault("ids not in sequence", sentence, row, told)
                return
            word, inner = first, 0
        elif row.kind == "empty":
            inner += 1
            if row.id != f"{word}.{inner}":
                told = f"the empty node {row.id} stands where {word}.{inner} should. Renumber it."
                yield SentenceFault("ids not in sequence", sentence, row, told)
                return
        else:
            wrong = _find_range_fault(row, word, reach, count)
            if wrong:
                yield SentenceFault(wrong[0], sentence, row, wrong[1])
                return
            reach = last


def _find_range_fault(row: Word, word: int, reach: int, count: int) -> tuple[str, str] | None:
    first, last = row.bounds
    if first <= reach:
        told = f"the range {row.id} overlaps the one before, which ends at {reach}."
        return "overlapping ranges", f"{told} Give each word to one range only."
    if last < first:
        return "malformed range", f"the range {row.id} runs backwards. Write {last}-{first}."
    if first != word + 1:
        told = f"the range {row.id} stands after word {word}."
        return "ids not in sequence", f"{told} Put it on the line before word {first}."
    if last > count:
        told = f"the range {row.id} reaches beyond the last word, {count}."
        return "range beyond the sentence", f"{told} Correct its end."
    return None


def _head_faults(sentence: Sentence) -> Iterator[SentenceFault]:
    count = len(sentence.words)
    for row in sentence.words:
        head = parse_integer(row.head)
        if head is None:
            told = f"the head of word {row.id} is '{row.head:.40}'. Write a number, 0 for the root."
            yield SentenceFault("head not a number", sentence, row, told)
        elif head > count:
            told = f"the head of word {row.id} is {row.head}, but the sentence has {count} words."
            fix = "Correct it, or write 0 for the root."
            yield SentenceFault("head out of range", sentence, row, f"{told} {fix}")
        elif head == int(row.id):
            told = f"word {row.id} is its own head. Give it another, or 0 for the root."
            yield SentenceFault("self head", sentence, row, told)


def _tree_faults(sentence: Sentence) -> Iterator[SentenceFault]:
    words, heads = sentence.words, [0, *sentence.heads]
    roots = [word.id for word in words if int(word.head) == 0]
    if not roots:
        told = "no root: no word has the head 0. Give the main word the head 0."
        yield SentenceFault("no root", sentence, words[0], told)
    if len(roots) > 1:
        told = (
            f"{len(roots)} roots, words {', '.join(roots)}. Keep one head 0, hang the rest on it."
        )
        row = words[int(roots[1]) - 1]
        yield SentenceFault("two roots", sentence, row, told)
    state = [2] + [0] * len(words)  # 0 new, 1 on this path, 2 known to reach the root
    for start in range(1, len(heads)):
        path = []
        here = start
        while not state[here]:
            state[here] = 1
            path.append(here)
            here = heads[here]
        if state[here] == 1:
            ring = [*path[path.index(here) :], here]
            told = f"the heads go round in a circle, {' → '.join(map(str, ring))}."
            fix = "Give one of these words a head outside of it."
            yield SentenceFault("cycle", sentence, words[min(ring) - 1], f"{told} {fix}")
        for word in path:
            state[word] = 2
