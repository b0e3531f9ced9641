"""Read parallel files line by line: source texts, and targets or labels in the others."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from weft.errors import UserError
from weft.text.example import TAG_COLUMN, Example, SkipCounter, WordAnnotations
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.formats.jsonl import add_references
from weft.text.formats.recognise import is_matrix_file
from weft.text.line_source import (
    COMPRESSION_ENDINGS,
    EMPTY_TEXT,
    SKIP_HINT,
    BadRowPolicy,
    BadRows,
    LineSource,
    decode_line,
    file_not_found,
    strip_compression,
)
from weft.text.location import is_table

SLOT_FILES = ("seq.in", "seq.out", "label")  # words, slot tags and intents, line by line
SecondFile = Literal["label", "tags", "other"]  # contents of the second comma-joined file


def resolve_files(
    path: str | os.PathLike[str], target: str = "", references: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the files of a path: source, target and further references.

    Names joined by commas are parallel files, unless a file of that name exists. So are seq.in,
    seq.out and label of a folder, as ATIS and SNIPS come for joint models. Otherwise `target` and
    `references` are endings of sibling files.
    """
    name = os.fspath(path)
    if is_table(name):
        return (name,)
    files = _slot_files(name) or _split_names(name)
    if len(files) == 1:
        return (
            name,
            *(sibling_file(name, ending) for ending in ((target, *references) if target else ())),
        )
    if target:
        raise UserError(
            f"{name}: the comma already names the target file. Drop --target {target}, or pass the "
            "first file alone."
        )
    return files


def _slot_files(name: str) -> tuple[str, ...]:
    """Return the files of a folder with words, slot tags and intents, or ()."""
    if not os.path.isdir(name):
        return ()
    files = tuple(os.path.join(name, file) for file in SLOT_FILES)
    return files if all(map(os.path.isfile, files)) else ()


def _split_names(name: str) -> tuple[str, ...]:
    """Split a path at commas, except those inside names of existing files."""
    if "," not in name or os.path.exists(name):
        return (name,)
    names, pending = [], ""
    for part in name.split(","):
        pending = f"{pending},{part}" if pending else part
        if os.path.isfile(pending.strip()):
            names.append(pending.strip())
            pending = ""
    # If one is missing, split at every comma: which belong to its name is unknown.
    if pending or len(names) < 2:
        names = [part.strip() for part in name.split(",")]
    if not all(names):
        raise UserError(f"{name}: a name is missing next to a comma. Write SOURCE,TARGET.")
    return tuple(names)


def target_ending(path: str | os.PathLike[str]) -> str:
    """Return the `target` ending equivalent to two comma-joined files, or ""."""
    first, *others = resolve_files(path)
    if len(others) != 1:
        return ""
    suffix = Path(strip_compression(others[0])[0]).suffix
    source_suffix = Path(strip_compression(first)[0]).suffix
    alike = suffix and source_suffix and suffix != source_suffix
    return suffix[1:] if alike and sibling_file(first, suffix) == others[0] else ""


def sibling_file(path: str | os.PathLike[str], ending: str) -> str:
    """Return the sibling file with another ending: train.de for train.en and "de".

    Compression stays (train.en.gz has train.de.gz), unless only a file with another one exists.
    """
    name = os.fspath(path)
    bare = name[: len(strip_compression(name)[0])]
    packing = name[len(bare) :]
    if not Path(bare).suffix:
        raise UserError(
            f"{name}: the name has no ending to replace by '{ending}'. Name the two files alike, "
            f"such as train.en and train.{ending}."
        )
    plain = str(Path(bare).with_suffix(f".{ending.lstrip('.')}"))
    if plain + packing == name:
        raise UserError(
            f"{name}: source and target are the same file. Pass the ending of the other."
        )
    ways = (plain + other for other in (packing, "", *COMPRESSION_ENDINGS))
    return next(filter(os.path.exists, ways), plain + packing)


def sibling_endings(path: str | os.PathLike[str]) -> list[str]:
    """Return the endings of files that differ only in their ending: "de" for train.en."""
    location = Path(path)
    name = Path(strip_compression(location.name)[0])
    near = (
        Path(strip_compression(file.name)[0])
        for file in location.parent.glob("*")
        if file.is_file()
    )
    return sorted(
        {n.suffix[1:] for n in near if n.stem == name.stem and n.suffix[1:]} - {name.suffix[1:]}
    )


def look_like_labels(lines: Sequence[str]) -> bool:
    """Return whether lines are classes or numbers: one word each, or few distinct ones."""
    return all(len(line.split()) == 1 for line in lines) or len(set(lines)) * 4 <= len(lines)


def read_parallel(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
    second: SecondFile = "label",
) -> Iterator[Example]:
    """Yield an Example for each pair of lines; `second` names the contents of the second file.

    "label": the label or target text; with `more` files, a tuple of all non-empty references.
    "tags": a tag for each word, and in a third file the label of each sentence. "other": the second
    text of a pair, whose label is in the third file. Lines of the first two files must not be
    empty. Files of different length are an error even if bad rows are skipped: they are misaligned
    from an unknown line on.
    """
    for path in (source, target, *more):
        if not os.path.exists(path):
            raise file_not_found(os.fspath(path))
    sources = [LineSource(path) for path in (source, target, *more)]
    bad_rows = [BadRows(line.name, on_bad_row, skipped) for line in sources]
    streams = [line.raw() for line in sources]
    if is_matrix_file(source):
        from weft.text.formats.features import list_matrices

        streams[0] = (one.text.encode() for one in list_matrices(source))
    number = 0
    for number, raws in enumerate(zip_longest(*streams), 1):
        if None in raws:
            short, long = (
                next(
                    line.name for line, raw in zip(sources, raws, strict=True) if (raw is None) == e
                )
                for e in (True, False)
            )
            if is_matrix_file(source):
                raise _unequal_error(
                    os.fspath(source), os.fspath(target), number - 1, raws[0] is None
                )
            longest = next(s for s, raw in zip(streams, raws, strict=True) if raw is not None)
            total = number + sum(1 for _ in longest)
            raise UserError(
                f"{short} ends after line {number - 1}, but {long} continues to line {total}. Look "
                "for a missing or split line."
            )
        lines = [decode_line(raw, number, w) for raw, w in zip(raws, bad_rows, strict=True)]
        for line, bad_row_policy in zip(lines[:2], bad_rows, strict=False):
            if line is not None and not line.strip():
                reason = "empty line. Fill it in, or remove it from both files"
                bad_row_policy.report(EMPTY_TEXT, number, f"{reason}, or {SKIP_HINT}.")
                break
        else:
            text, target_line, *others = lines
            if text is None or target_line is None:
                continue
            example = Example(text, target_line, "", sources[0].name, number)
            if second == "tags":
                tagged = _tag_words(example, bad_rows[1], others[0] or "" if others else "")
                if tagged is not None:
                    yield tagged
            elif second == "other":
                yield replace(
                    example, label=others[0] or None if others else None, other=target_line
                )
            elif others:
                yield replace(
                    example, label=add_references(target_line, [one or "" for one in others])
                )
            else:
                yield example
    if not number:
        raise UserError(f"{sources[0].name}: the file is empty. Add at least one text.")


def _tag_words(example: Example, bad_rows: BadRows, sentence_label: str) -> Example | None:
    """Pair the words of a line with the tags of the other; unequal counts are a bad row."""
    words, tags = tuple(example.text.split()), tuple(str(example.label).split())
    if len(words) != len(tags):
        mismatch = f"{len(tags)} tags for {len(words)} words of {example.where}"
        fix = f"Write one tag per word, separated by spaces, or {SKIP_HINT}"
        bad_rows.report("tags that do not match the words", example.line, f"{mismatch}. {fix}.")
        return None
    label = WordAnnotations({TAG_COLUMN: tags}, TAG_COLUMN, sentence_label.strip())
    return replace(
        example, text=" ".join(words), label=label, words=words, places=locate_spaced_words(words)
    )


def _unequal_error(matrices: str, lines: str, count: int, short: bool) -> UserError:
    """Return the error for unequal numbers of matrices and target lines."""
    counted = f"{count} {'matrix' if count == 1 else 'matrices'}"
    if not short:
        return UserError(
            f"{lines} ends after line {count}, but {matrices} has more matrices. Add lines."
        )
    stacking = "; a two-axis array is one matrix, so stack them: (matrices, vectors, numbers)"
    hint = stacking if count == 1 and matrices.endswith(".npy") else ""
    return UserError(
        f"{matrices} has {counted}, but {lines} continues after line {count}{hint}. Save one per "
        "line."
    )
