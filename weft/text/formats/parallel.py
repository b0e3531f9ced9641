"""Files line by line: a text and, in the others, what it should become."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from weft.errors import UserError
from weft.text.example import TAG_COLUMN, Example, Tally, WordAnnotations
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.formats.jsonl import add_references
from weft.text.formats.recognise import is_matrix_file
from weft.text.line_source import (
    EMPTY_TEXT,
    SKIP_HINT,
    BadRowPolicy,
    BadRows,
    LineSource,
    decode_line,
    file_not_found,
    strip_compression,
)

COMPRESSION_ENDINGS = ("", ".gz", ".xz")
SecondFile = Literal["label", "tags", "other"]  # what the second of files joined by a comma holds


def resolve_files(
    path: str | os.PathLike[str], target: str = "", references: Sequence[str] = ()
) -> tuple[str, ...]:
    """The files that a path means: itself, what its lines should become, further references.

    Names with commas between them are files that belong together; a file whose own name has a
    comma is one. Otherwise `target` and `references` are endings of the files beside it.
    """
    name = os.fspath(path)
    found = _split_names(name)
    if len(found) == 1:
        return (
            name,
            *(sibling_file(name, one) for one in ((target, *references) if target else ())),
        )
    if target:
        raise UserError(
            f"{name}: the comma already says which files belong together. Leave out --target "
            f"{target}, or give the first file alone."
        )
    return found


def _split_names(name: str) -> tuple[str, ...]:
    """The names that commas separate; those inside the name of a file separate nothing."""
    if "," not in name or os.path.exists(name):
        return (name,)
    found, waiting = [], ""
    for part in name.split(","):
        waiting = f"{waiting},{part}" if waiting else part
        if os.path.isfile(waiting.strip()):
            found.append(waiting.strip())
            waiting = ""
    # Where one is missing, it is named: nobody knows which commas are its own.
    if waiting or len(found) < 2:
        found = [part.strip() for part in name.split(",")]
    if not all(found):
        raise UserError(f"{name}: there is no name beside a comma. Write SOURCE,TARGET.")
    return tuple(found)


def target_ending(path: str | os.PathLike[str]) -> str:
    """Of two files joined by a comma, the `target` that would say the same; or nothing."""
    first, *others = resolve_files(path)
    if len(others) != 1:
        return ""
    suffix = Path(strip_compression(others[0])[0]).suffix
    own = Path(strip_compression(first)[0]).suffix
    alike = suffix and own and suffix != own
    return suffix[1:] if alike and sibling_file(first, suffix) == others[0] else ""


def sibling_file(path: str | os.PathLike[str], ending: str) -> str:
    """The file with the other side: of train.en, with the ending "de", train.de.

    What it is packed with stays, train.en.gz has train.de.gz beside it, unless only a file that is
    packed otherwise is there.
    """
    name = os.fspath(path)
    bare = name[: len(strip_compression(name)[0])]
    packing = name[len(bare) :]
    if not Path(bare).suffix:
        raise UserError(
            f"{name}: its name has no ending to put '{ending}' in place of. Name the two files "
            f"alike, such as train.en and train.{ending}."
        )
    plain = str(Path(bare).with_suffix(f".{ending.lstrip('.')}"))
    if plain + packing == name:
        raise UserError(f"{name}: source and target are one file. Give the ending of the other.")
    ways = (plain + other for other in (packing, *COMPRESSION_ENDINGS))
    return next(filter(os.path.exists, ways), plain + packing)


def sibling_endings(path: str | os.PathLike[str]) -> list[str]:
    """Endings of the files that differ from this one in nothing else: of train.en, perhaps "de"."""
    place = Path(path)
    own = Path(strip_compression(place.name)[0])
    near = (
        Path(strip_compression(file.name)[0]) for file in place.parent.glob("*") if file.is_file()
    )
    return sorted(
        {n.suffix[1:] for n in near if n.stem == own.stem and n.suffix[1:]} - {own.suffix[1:]}
    )


def look_like_labels(lines: Sequence[str]) -> bool:
    """Return whether lines are classes or numbers: one word each, or few different ones."""
    return all(len(line.split()) == 1 for line in lines) or len(set(lines)) * 4 <= len(lines)


def read_parallel(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    on_bad_row: BadRowPolicy = "error",
    skipped: Tally | None = None,
    second: SecondFile = "label",
) -> Iterator[Example]:
    """An Example for each pair of lines; `second` says what the second file holds.

    "label": the label, or the text that a line should become; with `more` files a label is a tuple
    of all that are no empty line. "tags": a tag for each word. "other": the second text of a pair,
    whose label is in the third file. A line of the first two files may not be empty.
    Files of different length are an error even where problems are skipped: from some line on they
    do not belong together, and nobody knows from which.
    """
    for path in (source, target, *more):
        if not os.path.exists(path):
            raise file_not_found(os.fspath(path))
    sides = [LineSource(path) for path in (source, target, *more)]
    watches = [BadRows(side.name, on_bad_row, skipped) for side in sides]
    streams = [side.raw() for side in sides]
    if is_matrix_file(source):
        from weft.text.formats.features import list_matrices

        streams[0] = (one.text.encode() for one in list_matrices(source))
    number = 0
    for number, raws in enumerate(zip_longest(*streams), 1):
        if None in raws:
            short, long = (
                next(side.name for side, raw in zip(sides, raws, strict=True) if (raw is None) == e)
                for e in (True, False)
            )
            if is_matrix_file(source):
                raise _unequal_error(
                    os.fspath(source), os.fspath(target), number - 1, raws[0] is None
                )
            longest = next(s for s, raw in zip(streams, raws, strict=True) if raw is not None)
            total = number + sum(1 for _ in longest)
            raise UserError(
                f"{short} ends after line {number - 1}, but {long} goes on to line {total}. Look "
                "for a line that one of them lacks or that is broken in two."
            )
        lines = [decode_line(raw, number, w) for raw, w in zip(raws, watches, strict=True)]
        for side, watch in zip(lines[:2], watches, strict=False):
            if side is not None and not side.strip():
                told = "an empty line. Fill it, or remove it from both files"
                watch.found(EMPTY_TEXT, number, f"{told}, or {SKIP_HINT}.")
                break
        else:
            text, said, *others = lines
            if text is None or said is None:
                continue
            example = Example(text, said, "", sides[0].name, number)
            if second == "tags":
                tagged = _tag_words(example, watches[1])
                if tagged is not None:
                    yield tagged
            elif second == "other":
                yield replace(example, label=others[0] or None if others else None, other=said)
            elif others:
                yield replace(example, label=add_references(said, [one or "" for one in others]))
            else:
                yield example
    if not number:
        raise UserError(f"{sides[0].name}: the file is empty. Give it at least one text.")


def _tag_words(example: Example, problems: BadRows) -> Example | None:
    """The words of a line with the tags of the other; a different number of them is a problem."""
    words, tags = tuple(example.text.split()), tuple(str(example.label).split())
    if len(words) != len(tags):
        told = f"{len(tags)} tags for the {len(words)} words of {example.where}"
        fix = f"Write one tag for each word, with spaces between, or {SKIP_HINT}"
        problems.found("tags that do not match the words", example.line, f"{told}. {fix}.")
        return None
    label = WordAnnotations({TAG_COLUMN: tags}, TAG_COLUMN)
    return replace(
        example, text=" ".join(words), label=label, words=words, places=locate_spaced_words(words)
    )


def _unequal_error(matrices: str, lines: str, count: int, short: bool) -> UserError:
    """What to say where there are not as many matrices as lines that say what they become."""
    some = f"{count} {'matrix' if count == 1 else 'matrices'}"
    if not short:
        return UserError(
            f"{lines} ends after line {count}, but {matrices} has more matrices. Give each a line."
        )
    one = "; an array of two axes is one matrix, so stack them: (matrices, vectors, numbers)"
    hint = one if count == 1 and matrices.endswith(".npy") else ""
    return UserError(
        f"{matrices} has {some}, but {lines} goes on after line {count}{hint}. Give each line one."
    )
