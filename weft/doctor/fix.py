"""Write a cleaned copy of every file and a log of the changes."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from weft.doctor import fix_lines
from weft.doctor.annotations import NOUNS
from weft.doctor.checks.duplicates import NO_ROW, DuplicateIndex
from weft.doctor.checks.encoding import clean_text
from weft.doctor.checks.label_variants import CERTAIN_KINDS, find_variants
from weft.doctor.checks.labels import count_labels, find_slips
from weft.doctor.formats import column_files
from weft.doctor.formats.files import Files, tagged_rows
from weft.doctor.formats.structured import STRUCTURED_FORMATS, find_faults, tagging_schemes
from weft.doctor.survey import NO_LABEL, Split, Survey
from weft.errors import UserError
from weft.storage import atomic_jsonl
from weft.text.example import Example, Label, WordAnnotations
from weft.text.formats.recognise import FORMAT_BY_ENDING
from weft.text.formats.squad import write_squad
from weft.text.line_source import strip_compression
from weft.text.rewrite import COLUMN_FORMATS, extra_columns, rewrite
from weft.text.write import write
from weft.untrusted import parse_integer

CHANGES = "changes.jsonl"
SQUAD = "squad"
_WRITABLE = ("csv", "tsv", "jsonl", "fasttext", "lines", "parquet")
_ONE_LINE = ("tsv", "fasttext", "lines")  # formats without line breaks in texts

Note = Callable[[Example, str, object, object], None]


@dataclass(frozen=True)
class FixResult:
    """The written files, counts of changes, and what the copies could not keep."""

    files: dict[str, Path]
    changes: Path
    counts: Counter[str]
    lost: tuple[str, ...]  # one sentence each


def fix(files: Files, survey: Survey, duplicates: DuplicateIndex, out: str) -> FixResult:
    """Write cleaned copies to a folder, or one file to a file; never overwrite."""
    targets, changes = _resolve_targets(files, out)
    kinds = {name: _target_format(files, name, target) for name, target in targets.items()}
    lost = tuple(_lost_columns(files, targets, kinds))
    corrections = _label_corrections(survey)
    drops = _rows_to_drop(survey, duplicates, corrections)
    disputed = {int(row) for rows in duplicates.conflicts() for row in rows}
    counts: Counter[str] = Counter()
    changes.parent.mkdir(parents=True, exist_ok=True)
    with atomic_jsonl(changes) as log:
        assert log is not None

        def note(example: Example, what: str, before: object, after: object) -> None:
            counts[what.partition(":")[0]] += 1
            row: dict[str, object] = {"file": example.file, "line": example.line}
            row |= {"sentence": example.id} if example.id else {}
            row["what"] = what
            row |= {"before": before, "after": after}
            log.write(
                json.dumps(row, ensure_ascii=False, default=asdict)
            )  # answers are a dataclass
            log.write("\n")

        for split in survey.splits:
            kind, file_format = kinds[split.name], files.formats[split.name]
            if file_format in STRUCTURED_FORMATS:
                _fix_structured(files, split, survey, drops, disputed, targets[split.name], note)
                continue
            rows = _clean_rows(split, drops, corrections, disputed, note, kind in _ONE_LINE)
            path, target = files.paths[split.name], targets[split.name]
            if kind == file_format and kind in COLUMN_FORMATS:
                rewrite(rows, path, str(target), kind, files.columns[split.name])
            elif kind == SQUAD:
                write_squad(rows, target)
            else:
                write(rows, target, format=kind)
            for what, places in files.tallies[split.name].places.items():
                for where in places:
                    note(_example_at(where), f"left out: {what}", "", None)
    return FixResult(targets, changes, counts, lost)


def _example_at(where: str) -> Example:
    """Return an empty Example at a 'file:line' place, for the log."""
    file, _, line = where.rpartition(":")
    return Example("", None, "", file or where, parse_integer(line) or 0)


def _fix_structured(
    files: Files,
    split: Split,
    survey: Survey,
    drops: dict[int, str],
    disputed: set[int],
    target: Path,
    note: Note,
) -> None:
    """Write the copy of an annotated file: fix lines, or drop whole sentences."""
    name, kind = split.name, files.formats[split.name]
    path, columns = files.paths[name], files.columns[name]
    dropped = {
        row - split.start: why for row, why in drops.items() if survey.split_of(row) is split
    }
    corrections = {
        layer: {t.label: t.meant for t in find_slips(survey, layer) if t.kind in CERTAIN_KINDS}
        for layer in NOUNS
    }
    first = next(iter(tagging_schemes(files.paths, files.formats, files.columns).values()), "")
    edits = list(
        fix_lines.line_edits(
            path, kind, columns, dropped, corrections, "" if first == "IO" else first
        )
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == "standoff":
        fix_lines.copy_brat(path, target, edits)
    else:
        fix_lines.copy_with_edits(path, str(target), edits)
    for edit in edits:
        note(Example("", None, edit.id, edit.file, edit.line), edit.what, edit.before, edit.after)
    for fault in find_faults(path, kind, columns):
        if fault.kind not in fix_lines.FIXABLE_FAULTS:
            note(_example_at(fault.where), f"left: {fault.kind}", fault.detail, fault.detail)
    for what, places in files.tallies[name].places.items():
        for where in places:
            note(_example_at(where), f"left: {what}", "", "")
    for row, example in enumerate(split.source(), split.start):
        if row in disputed and row not in drops:
            reason = "left: the same sentence is annotated differently elsewhere"
            note(example, reason, example.text, example.text)


def _resolve_targets(files: Files, out: str) -> tuple[dict[str, Path], Path]:
    path_out = Path(out)
    folders = "standoff" in files.formats.values()  # BRAT has two files per text
    single = (
        len(files.paths) == 1 and bool(path_out.suffix) and not path_out.is_dir() and not folders
    )
    if path_out.is_file() and not single:
        raise UserError(f"{out}: a file, but --fix writes several. Pass a folder.")
    targets: dict[str, Path] = {}
    for name, path in files.paths.items():
        source = Path(path)
        file = source.name
        if files.formats[name] == "standoff" and source.is_file():
            file = source.stem  # a folder
        if files.formats[name] not in (*_WRITABLE, *STRUCTURED_FORMATS, SQUAD):
            file = f"{Path(strip_compression(source.name)[0]).stem}.jsonl"
        if files.formats[name] == "shards":
            file = f"{name}.jsonl"
        if any(other.name == file for other in targets.values()):
            file = f"{name}-{file}"
        targets[name] = path_out if single else path_out / file
    folder = path_out.parent if single else path_out
    changes = folder / CHANGES
    for target in (*targets.values(), changes):
        if os.path.lexists(target):
            raise UserError(f"{target} already exists. Pass another path to --fix.")
    return targets, changes


def _target_format(files: Files, name: str, target: Path) -> str:
    """Return the format of a copy: that of the file, unless the target ending differs."""
    source_ending, target_ending = (
        Path(strip_compression(str(path))[0]).suffix for path in (files.paths[name], target)
    )
    other = FORMAT_BY_ENDING.get(target_ending)
    if files.formats[name] in (*STRUCTURED_FORMATS, SQUAD):
        if target_ending != source_ending and other and other != files.formats[name]:
            raise UserError(
                f"{target}: {other} cannot hold the annotation of {files.paths[name]}. Keep its "
                f"format: name the copy like {Path(files.paths[name]).name}."
            )
        return files.formats[name]
    if target_ending != source_ending and other in _WRITABLE:
        return other
    return files.formats[name] if files.formats[name] in _WRITABLE else "jsonl"


def _lost_columns(files: Files, targets: dict[str, Path], kinds: dict[str, str]) -> Iterator[str]:
    for name, path in files.paths.items():
        file_format, kind = files.formats[name], kinds[name]
        if file_format != kind and file_format in COLUMN_FORMATS:
            others = extra_columns(path, files.columns[name], file_format)
            if others:
                names = ", ".join(others)
                yield (
                    f"{targets[name]} holds only texts and labels; other columns of {path} are "
                    f"dropped: {names}. Write {file_format} to keep them."
                )


def _label_corrections(survey: Survey) -> dict[str, str]:
    if survey.scale:
        return {}
    return {
        variant.label: variant.meant
        for variant in find_variants(count_labels(survey))
        if variant.clear
    }


def _correct_label(label: Label, corrections: dict[str, str]) -> Label:
    if isinstance(label, tuple):
        return tuple(corrections.get(name, name) for name in label)
    return corrections.get(label, label) if isinstance(label, str) else label


def _rows_to_drop(
    survey: Survey, duplicates: DuplicateIndex, corrections: dict[str, str]
) -> dict[int, str]:
    """Return the rows to drop, with reasons."""
    drops: dict[int, str] = {}
    for split in survey.splits:
        for row in _repeated_rows(survey, duplicates, split, corrections):
            drops[int(row)] = "dropped: same text and label as an earlier row"
    # Test texts are removed from the training data, not the other way round.
    train_groups = duplicates.group[: survey.splits[0].rows]
    for number, split in enumerate(survey.splits[1:], 1):
        leaked = duplicates.find_leaks(number)
        for row in np.flatnonzero(np.isin(train_groups, list(leaked))).tolist():
            likeness = "same" if leaked[int(train_groups[row])] else "nearly the same"
            drops.setdefault(row, f"dropped: {likeness} text is in {split.name}")
    return drops


def _repeated_rows(
    survey: Survey, duplicates: DuplicateIndex, split: Split, corrections: dict[str, str]
) -> np.ndarray:
    numbers: dict[Label, int] = {}
    corrected = [_correct_label(label, corrections) for label in survey.label_names()]
    by_number = np.array(
        [numbers.setdefault(label, len(numbers)) for label in corrected] + [NO_LABEL], np.int64
    )
    rows = np.arange(split.start, split.start + split.rows)
    rows = rows[(duplicates.group[rows] != NO_ROW) & duplicates.is_significant[rows]]
    keys = duplicates.group[rows] * (len(numbers) + 1) + by_number[survey.label[rows]] + 1
    _, first = np.unique(keys, return_index=True)
    again = np.ones(len(rows), bool)
    again[first] = False
    repeated: np.ndarray = rows[again]
    return repeated


def _repair_tags(label: WordAnnotations, scheme: str) -> WordAnnotations:
    """Return the tags of a row of tokens as conlleval reads them, if they mark spans."""
    tags = fix_lines.correct_tags(list(label.columns[label.main]), scheme, scheme, {})
    return replace(label, columns={**label.columns, label.main: tuple(tags)})


def _clean_rows(
    split: Split,
    drops: dict[int, str],
    corrections: dict[str, str],
    disputed: set[int],
    note: Note,
    one_line: bool,
) -> Iterator[Example]:
    scheme = column_files.scheme_of(tagged_rows(split.source))
    for number, example in enumerate(split.source(), split.start):
        text = clean_text(example.text) if not example.words else example.text
        if one_line:
            text = " ".join(text.split())
        reason = "dropped: empty text" if not text else drops.get(number)
        if reason:
            note(example, reason, example.text, None)
            continue
        if text != example.text:
            note(example, "text cleaned", example.text, text)
        label = _correct_label(example.label, corrections)
        if isinstance(label, WordAnnotations):
            repaired = _repair_tags(label, scheme)
            if repaired != label:
                before, after = (one.columns[one.main] for one in (label, repaired))
                note(example, "tags repaired", before, after)
            label = repaired
        elif label != example.label:
            note(example, "label corrected", example.label, label)
        if number in disputed:
            note(example, "left: the same text has another label elsewhere", label, label)
        yield replace(example, text=text, label=label)
