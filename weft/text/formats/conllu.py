"""Read and write CoNLL-U; unchanged parts of a sentence are written byte for byte."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from weft.errors import UserError
from weft.storage import atomic_write
from weft.text.example import SkipCounter
from weft.text.formats.conllu_sentence import COLUMNS, EMPTY_CELL, METADATA
from weft.text.formats.conllu_sentence import ConlluRow as ConlluRow
from weft.text.formats.conllu_sentence import Sentence as Sentence
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
    skipped: SkipCounter | None = None,
) -> Iterator[Sentence]:
    """Yield the sentences of a file.

    With `check`, a sentence that fails `validate` is an error or, if bad rows are skipped, dropped
    and counted.
    """
    source = _SourceWithBom(path)
    bad_rows = BadRows(source.name, on_bad_row, skipped)
    has_sentences = False
    for sentence in _parse_sentences(source, bad_rows):
        fault = next(iter(validate(sentence)), None) if check else None
        if fault is not None:
            named = f"sentence '{sentence.sent_id}': " if sentence.sent_id else ""
            bad_rows.report(fault.kind, fault.line, named + fault.reason)
            continue
        has_sentences = True
        yield sentence
    if not has_sentences and not os.path.getsize(source.path):
        raise UserError(f"{source.name}: the file is empty. Add at least one sentence.")
    if not has_sentences:
        raise UserError(f"{source.name}: no usable sentence. Check its first lines.")


def is_conllu(lines: Iterable[str]) -> bool:
    """Return whether lines have ten cells, the first an id, the seventh a head or _."""
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    return bool(rows) and all(
        len(row) == len(COLUMNS) and _ID.fullmatch(row[0]) and _HEAD.fullmatch(row[6])
        for row in rows[:100]
    )


def format(sentence: Sentence) -> str:
    """Format the sentence as in its file, with the final blank line."""
    breaks = sentence.breaks or ("\n",) * len(sentence.parts)
    lines = [f"{part}{end}" for part, end in zip(sentence.parts, breaks, strict=True)]
    return sentence.before + "".join(lines) + sentence.after


def write_conllu(sentences: Iterable[Sentence], path: str | os.PathLike[str]) -> None:
    """Write sentences to a file atomically, compressed if its ending says so."""
    from weft.text.write import open_text

    name = os.fspath(path)
    with atomic_write(name) as part, open_text(part, strip_compression(name)[1]) as out:
        for sentence in sentences:
            out.write(format(sentence))


def validate(sentence: Sentence) -> list["SentenceFault"]:
    """Return the faults of ids, ranges and heads; heads are checked only if there are any."""
    faults = list(_id_faults(sentence))
    if not faults and any(word.head != EMPTY_CELL for word in sentence.words):
        faults = list(_head_faults(sentence)) or list(_tree_faults(sentence))
    return faults


@dataclass(frozen=True)
class SentenceFault:
    """A fault of a sentence, its row, and how to fix it."""

    kind: str
    sentence: Sentence
    row: ConlluRow | None
    reason: str

    @property
    def line(self) -> int:
        """The line of the row, or of the sentence."""
        return self.sentence.line_of(self.row)

    @property
    def message(self) -> str:
        """The full message, with file, line and sentence id."""
        return f"{self.sentence.where(self.row)}: {self.reason}"


class _SourceWithBom(LineSource):
    """A source that remembers the byte order mark it removed."""

    mark = ""

    def _opening(self, raw: bytes) -> bytes:
        self.mark = _BOM if raw.startswith(_BOM.encode()) else ""
        return super()._opening(raw)


Lines = list[tuple[int, str, str]]  # (number, text, line break)
UnreadableRow = tuple[str, int, str]  # (kind, line, message)


def _parse_sentences(source: _SourceWithBom, bad_rows: BadRows) -> Iterator[Sentence]:
    source.head(1)
    before = source.mark
    pending: Sentence | None = None  # until what follows it is known
    for lines, after, flaw in _split_blocks(source):
        if all(text.startswith("#") for _, text, _ in lines) and not flaw:
            # Comments without a sentence, as at the end of a file, keep their position.
            loose = "".join(text + end for _, text, end in lines) + after
            if pending is None:
                before += loose
            else:
                pending = replace(pending, after=pending.after + loose)
            continue
        if pending is not None:
            yield pending
        pending = None
        flaw = flaw or _find_unreadable_row(lines)
        if flaw:
            bad_rows.report(*flaw)
            continue
        pending = _build_sentence(source.name, lines, before, after)
        before = ""
    if pending is not None:
        yield pending


def _split_blocks(source: LineSource) -> Iterator[tuple[Lines, str, UnreadableRow | None]]:
    """Yield the lines of a block, the blank lines after it, and its first unreadable row."""
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
    """Return the first row that is not ten cells with an id, if any."""
    named = next(
        (m[2] for _, t, _ in lines if (m := METADATA.fullmatch(t)) and m[1] == "sent_id"), ""
    )
    of = f"sentence '{named.strip()}': " if named else ""
    for number, text, _ in lines:
        if text.startswith("#"):
            continue
        cells = text.split("\t")
        if len(cells) != len(COLUMNS):
            reason = f"{of}{len(cells)} columns instead of {len(COLUMNS)}: '{text[:40]}'"
            fix = f"Separate ten cells by one tab each, with _ for an empty one, or {SKIP_HINT}"
            return "wrong number of columns", number, f"{reason}. {fix}."
        if not _ID.fullmatch(cells[0]):
            reason = (
                f"{of}the id '{cells[0]:.40}' is neither a word (3), a range (3-4) nor an empty"
            )
            return (
                "malformed id",
                number,
                f"{reason} node (3.1). Number the words from 1, or {SKIP_HINT}.",
            )
    return None


def _build_sentence(file: str, lines: Lines, before: str, after: str) -> Sentence:
    parts = [text if text.startswith("#") else ConlluRow(*text.split("\t")) for _, text, _ in lines]
    breaks = tuple(end for _, _, end in lines)
    plain = all(end == "\n" for end in breaks)
    return Sentence(tuple(parts), file, lines[0][0], () if plain else breaks, before, after)


def _id_faults(sentence: Sentence) -> Iterator[SentenceFault]:
    """Check ids: words count 1, 2, 3…; a range precedes its first word, an empty node follows."""
    rows = sentence.rows
    count = len(sentence.words)
    word = inner = reach = 0  # the last word, its last empty node, the end of the last range
    if not count:
        reason = "no word, only ranges or empty nodes. Add the words, or remove the sentence."
        yield SentenceFault("no words", sentence, rows[0], reason)
        return
    for row in rows:
        first, last = row.bounds
        if row.kind == "word":
            if first != word + 1:
                reason = f"id {row.id} follows {word}. Number the words 1, 2, 3… without gaps."
                yield SentenceFault("ids not in sequence", sentence, row, reason)
                return
            word, inner = first, 0
        elif row.kind == "empty":
            inner += 1
            if row.id != f"{word}.{inner}":
                reason = f"empty node {row.id} should be {word}.{inner}. Renumber it."
                yield SentenceFault("ids not in sequence", sentence, row, reason)
                return
        else:
            wrong = _find_range_fault(row, word, reach, count)
            if wrong:
                yield SentenceFault(wrong[0], sentence, row, wrong[1])
                return
            reach = last


def _find_range_fault(row: ConlluRow, word: int, reach: int, count: int) -> tuple[str, str] | None:
    first, last = row.bounds
    if first <= reach:
        reason = f"range {row.id} overlaps the previous one, which ends at {reach}."
        return "overlapping ranges", f"{reason} Put each word in one range only."
    if last < first:
        return "malformed range", f"range {row.id} runs backwards. Write {last}-{first}."
    if first != word + 1:
        reason = f"range {row.id} comes after word {word}."
        return "ids not in sequence", f"{reason} Put it on the line before word {first}."
    if last > count:
        reason = f"range {row.id} extends beyond the last word, {count}."
        return "range beyond the sentence", f"{reason} Correct its end."
    return None


def _head_faults(sentence: Sentence) -> Iterator[SentenceFault]:
    count = len(sentence.words)
    for row in sentence.words:
        head = parse_integer(row.head)
        if head is None:
            reason = (
                f"the head of word {row.id} is '{row.head:.40}'. Write a number, 0 for the root."
            )
            yield SentenceFault("head not a number", sentence, row, reason)
        elif head > count:
            reason = f"the head of word {row.id} is {row.head}, but the sentence has {count} words."
            fix = "Correct it, or write 0 for the root."
            yield SentenceFault("head out of range", sentence, row, f"{reason} {fix}")
        elif head == int(row.id):
            reason = f"word {row.id} is its own head. Give it another, or 0 for the root."
            yield SentenceFault("self head", sentence, row, reason)


def _tree_faults(sentence: Sentence) -> Iterator[SentenceFault]:
    words, heads = sentence.words, [0, *sentence.heads]
    roots = [word.id for word in words if int(word.head) == 0]
    if not roots:
        reason = "no root: no word has head 0. Give the main word head 0."
        yield SentenceFault("no root", sentence, words[0], reason)
    if len(roots) > 1:
        reason = (
            f"{len(roots)} roots, words {', '.join(roots)}. Keep one head 0, attach the rest to it."
        )
        row = words[int(roots[1]) - 1]
        yield SentenceFault("two roots", sentence, row, reason)
    state = [2] + [0] * len(words)  # 0 new, 1 on this path, 2 reaches the root
    for start in range(1, len(heads)):
        path = []
        node = start
        while not state[node]:
            state[node] = 1
            path.append(node)
            node = heads[node]
        if state[node] == 1:
            ring = [*path[path.index(node) :], node]
            reason = f"the heads form a cycle, {' → '.join(map(str, ring))}."
            fix = "Give one of these words a head outside the cycle."
            yield SentenceFault("cycle", sentence, words[min(ring) - 1], f"{reason} {fix}")
        for word in path:
            state[word] = 2
