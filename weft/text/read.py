"""Read a file of any known format as a stream of Examples, in constant memory."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

from weft.errors import UserError
from weft.registry import check_types
from weft.text.annotation import trees
from weft.text.columns import NO_LABEL, TableLayout, layout_from_rows
from weft.text.columns import Columns as Columns
from weft.text.example import Example, Label, SkipCounter, parse_weight
from weft.text.formats.brackets import read_brackets
from weft.text.formats.csv import (
    NumberedRows,
    decode_head,
    is_unquoted,
    read_csv_rows,
    read_tab_rows,
    split_header,
)
from weft.text.formats.jsonl import (
    Keys,
    add_references,
    find_surrogate_fault,
    invalid_json_message,
    locate_answers,
    parse_row,
    to_cell,
)
from weft.text.formats.jsonl import no_text_message as no_text_message
from weft.text.formats.parallel import read_parallel, resolve_files
from weft.text.formats.recognise import (
    FORMATS,
    LABEL_PREFIX,
    STRUCTURED_FORMATS,
    check_format,
    detect_delimiter,
    is_matrix_file,
    recognise_source,
    recognise_structure,
)
from weft.text.formats.recognise import recognise as recognise
from weft.text.formats.rows import Row, RowFault, examples_from_rows, layout_of_rows
from weft.text.formats.squad import fault_kind
from weft.text.line_source import (
    BAD_WEIGHT,
    EMPTY_TEXT,
    EMPTY_TEXT_MESSAGE,
    MAX_HEAD_LINES,
    SKIP_HINT,
    BadRowPolicy,
    BadRows,
    LineSource,
    UniqueIds,
    file_not_found,
)
from weft.text.location import SPOOL_ENDING
from weft.text.shards import list_shards, source_exists
from weft.text.tables.spool import parse_spooled
from weft.text.tables.table import PathOrTable, Table, find_table
from weft.untrusted import has_surrogate

GUESSED_HEADER = "first line taken for a header"


@check_types
def read(
    path: PathOrTable,
    *,
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    format: str | None = None,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
    phrases: bool = False,
    separator: str | None = None,
    keep_empty: bool = False,
) -> Iterator[Example]:
    """Yield the examples of a file, folder, pair of files, standard input ('-') or table.

    A pattern, or a folder that holds tables alone, is read file by file.

    A table is data in memory: rows, columns, a data frame, an Arrow table, a dataset; or the name
    of a dataset, "hf:NAME". Missing files and unknown columns raise at once; bad rows when they are
    reached. Of files joined by a comma, only the first is read if no label is requested.
    """
    if format is not None:
        check_format(format)
    if (found := find_table(path)) is not None:
        table_name, table = found
        bad_rows = BadRows(table_name, on_bad_row, skipped, keep_empty)
        return _require_examples(_read_table(table, columns, bad_rows, separator), table_name)
    name = os.fspath(path)
    if shards := list_shards(name):
        columns = resolve_columns(shards[0], columns, format)
        read_shard = partial(
            read, columns=columns, format=format, on_bad_row=on_bad_row, skipped=skipped,
            phrases=phrases, separator=separator, keep_empty=keep_empty,
        )  # fmt: skip
        return chain(read_shard(shards[0]), chain.from_iterable(map(read_shard, shards[1:])))
    files = resolve_files(name)
    for file in files:
        if not source_exists(file):
            raise file_not_found(file)
    if len(files) > 1 and columns.label != NO_LABEL:
        return read_parallel(*files, on_bad_row=on_bad_row, skipped=skipped)
    name = files[0]
    if name != "-" and os.path.isdir(name):
        if format == "standoff" or recognise(name) == "standoff":
            return _read_structured(name, "standoff", columns, on_bad_row, skipped)
        return _require_examples(_read_folder(name, on_bad_row, skipped), name)
    if is_matrix_file(name):
        from weft.text.formats.features import list_matrices

        return list_matrices(name)
    if format == "folder":
        raise UserError(f"{name}: a file, not a folder with a sub-folder per class.")
    source = LineSource(name)
    bad_rows = BadRows(source.name, on_bad_row, skipped, keep_empty)
    kind = format or recognise_structure(source)
    if kind == "spans" and columns.label is not None:
        kind = "jsonl"  # another label than the spans is requested
    if kind == "squad":
        from weft.text.formats.squad import read_squad

        source.close()
        rows = read_squad(name, on_bad_row=on_bad_row, skipped=skipped, keep_empty=keep_empty)
        return _require_examples(rows, name)
    if kind in STRUCTURED_FORMATS:
        source.close()
        return _read_structured(name, kind, columns, on_bad_row, skipped)
    if kind not in FORMATS:
        kind = recognise_source(source)
    if (
        kind == "lines"
        and (columns.requires_pair or columns.text_pair is not None)
        and _has_tab(source)
    ):
        kind = "tsv"  # standard input, otherwise read as lines
    if kind == "parquet":
        source.close()
        from weft.text.formats.parquet import read_parquet

        return _require_examples(read_parquet(name, columns, bad_rows), name)
    if not source.head(1):
        raise UserError(f"{source.name}: the file is empty. Add at least one text.")
    return _require_examples(
        _READERS[kind](source, _ReadOptions(columns, bad_rows, phrases, separator)), source.name
    )


def resolve_columns(path: PathOrTable, columns: Columns, format: str | None = None) -> Columns:
    """Return the columns that `read` would detect, to read a sibling file (dev, test) alike."""
    layout = table_layout(path, columns, format)
    return columns if layout is None else layout.columns


def table_layout(
    path: PathOrTable, columns: Columns, format: str | None = None
) -> TableLayout | None:
    """Return the layout that `read` would detect in a table or JSON lines; None for others."""
    if (found := find_table(path)) is not None:
        return detect_table_layout(found[1], columns, found[0])
    name = next(iter(list_shards(path)), os.fspath(path))
    if name == "-" or os.path.isdir(name):
        return None
    if not source_exists(name):
        raise file_not_found(name)
    with contextlib.closing(LineSource(name)) as source:
        structure = "" if columns.label is not None else recognise_structure(source)
        kind = format or structure or recognise_source(source)
        if kind == "parquet":
            from weft.text.formats.parquet import parquet_layout

            return parquet_layout(name, columns)
        if kind not in ("csv", "tsv", "jsonl") or not source.head(1):
            return None
        options = _ReadOptions(columns, BadRows(source.name, "skip", None), False, None)
        _READERS[kind](source, options)  # detects the columns before reading the first row
        return options.found


def detect_table_layout(table: Table, columns: Columns, file: str) -> TableLayout:
    """Return the layout of a table in memory."""
    sample = [row for row in islice(table.rows(), MAX_HEAD_LINES) if isinstance(row, dict)]
    names = table.columns

    def more() -> Iterator[list[str]]:
        rows = (row for row in table.rows() if isinstance(row, dict))
        return ([to_cell(row.get(name)) for name in names] for row in rows)

    return layout_of_rows(names, sample, columns, file, more)


def _read_table(
    table: Table, columns: Columns, bad_rows: BadRows, separator: str | None
) -> Iterator[Example]:
    keys = Keys.from_layout(detect_table_layout(table, columns, bad_rows.file))
    examples = examples_from_rows(
        _check_surrogates(table.rows(keys.used), keys), keys, bad_rows.file, columns, bad_rows
    )
    if separator is None:
        return examples
    return (_split_label(example, separator) for example in examples)


def _check_surrogates(rows: Iterator[Row], keys: Keys) -> Iterator[tuple[int, Row]]:
    for number, row in enumerate(rows, 1):
        if type(row) is dict and not all(map(_is_ascii, row.values())):
            fault = find_surrogate_fault(row, keys)
            row = row if fault is None else RowFault(*fault)
        yield number, row


def _is_ascii(value: object) -> bool:
    return type(value) is str and value.isascii()


def _split_label(example: Example, separator: str) -> Example:
    """Return the example with the labels of its cell, as in a table of texts."""
    label = example.label
    if label is not None and not isinstance(label, str):
        return example
    return replace(example, label=tuple(label.split(separator)) if label else ())


def _has_tab(source: LineSource) -> bool:
    first = source.head(1)
    return bool(first) and b"\t" in first[0]


class _ReadOptions:
    """The options of a `read` call."""

    found: TableLayout | None = None  # the layout a reader detected

    def __init__(
        self, columns: Columns, bad_rows: BadRows, phrases: bool, separator: str | None
    ) -> None:
        self.columns = columns
        self.bad_rows = bad_rows
        self.phrases = phrases
        self.separator = separator


def _require_examples(examples: Iterator[Example], name: str) -> Iterator[Example]:
    """Yield from a stream; raise a UserError if it is empty."""
    try:
        first = next(examples, None)
        if first is None:
            raise UserError(f"{name}: no usable row. Check the first rows and the skip counts.")
        yield first
        yield from examples
    except MemoryError:
        raise UserError(
            f"{name}: not enough memory to read it. Pass shorter texts, or fewer at a time."
        ) from None


def _read_structured(
    name: str, kind: str, columns: Columns, on_bad_row: BadRowPolicy, skipped: SkipCounter | None
) -> Iterator[Example]:
    from weft.text.formats.dialogue.views import read_dialogue_examples
    from weft.text.formats.semantics.coreference import read_coreference
    from weft.text.formats.semantics.extractions import read_extractions
    from weft.text.formats.semantics.roles import read_roles
    from weft.text.formats.structured import (
        read_column_examples,
        read_conllu_examples,
        read_paragraphs,
        read_span_examples,
    )

    if kind == "conllu":
        label = "" if columns.label is None else str(columns.label)
        return read_conllu_examples(name, label=label, on_bad_row=on_bad_row, skipped=skipped)
    if kind == "paragraphs":
        return read_paragraphs(name, on_bad_row=on_bad_row, skipped=skipped)
    if kind == "dialogue":
        return read_dialogue_examples(name, "response", on_bad_row=on_bad_row, skipped=skipped)
    if kind == "roles":
        return read_roles(name, on_bad_row=on_bad_row, skipped=skipped)
    if kind == "coreference":
        return read_coreference(name, on_bad_row=on_bad_row, skipped=skipped)
    if kind == "extractions":
        return read_extractions(name, on_bad_row=on_bad_row, skipped=skipped)
    if kind in ("spans", "standoff"):
        return read_span_examples(
            name, brat=kind == "standoff", on_bad_row=on_bad_row, skipped=skipped
        )
    return read_column_examples(
        name, text=columns.text, label=columns.label, on_bad_row=on_bad_row, skipped=skipped
    )


def _read_lines(source: LineSource, options: _ReadOptions) -> Iterator[Example]:
    for number, text in source.lines(options.bad_rows):
        if options.bad_rows.rejects_empty(text, number):
            continue
        yield Example(text, None, "", source.name, number)


def _read_fasttext(source: LineSource, options: _ReadOptions) -> Iterator[Example]:
    for number, line in source.lines(options.bad_rows):
        if not line.strip():
            continue
        labels, text = _split_labels(line)
        if options.bad_rows.rejects_empty(text, number):
            continue
        label: Label = labels[0] if len(labels) == 1 else tuple(labels) or None
        yield Example(text, label, "", source.name, number)


def _split_labels(line: str) -> tuple[list[str], str]:
    labels = []
    while LABEL_PREFIX in line:
        bare = line.lstrip(" \t")
        if not bare.startswith(LABEL_PREFIX):
            break
        end = min((i for i in (bare.find(" "), bare.find("\t")) if i >= 0), default=len(bare))
        labels.append(bare[len(LABEL_PREFIX) : end])
        line = bare[end + 1 :]
    if LABEL_PREFIX in line:
        # fastText accepts labels anywhere; left in the text, one would leak the answer.
        tokens = line.split()
        labels += [token[len(LABEL_PREFIX) :] for token in tokens if token.startswith(LABEL_PREFIX)]
        line = " ".join(token for token in tokens if not token.startswith(LABEL_PREFIX))
    return labels, line


def _read_trees(source: LineSource, options: _ReadOptions) -> Iterator[Example]:
    policy: BadRowPolicy = "skip" if options.bad_rows.skip else "error"
    for located in read_brackets(source, on_bad_row=policy, skipped=options.bad_rows.skipped):
        tree = located.tree
        if options.phrases:
            for label, text in trees.iter_phrases(tree):
                yield Example(text, label, "", source.name, located.line)
        else:
            yield Example(tree.text, tree.label or None, "", source.name, located.line, tree=tree)


def _read_jsonl(source: LineSource, options: _ReadOptions) -> Iterator[Example]:
    # Standard input may be slow: one line must do.
    head = source.head(1 if source.path == "-" else 100)
    return _read_json_rows(source, options, _detect_keys(head, source.name, options))


def _read_json_rows(source: LineSource, options: _ReadOptions, keys: Keys) -> Iterator[Example]:
    rows = _parse_json_lines(source, options, keys)
    return examples_from_rows(rows, keys, source.name, options.columns, options.bad_rows)


def _parse_json_lines(
    source: LineSource, options: _ReadOptions, keys: Keys
) -> Iterator[tuple[int, Row]]:
    for number, line in source.lines(options.bad_rows):
        if not line or line.isspace():
            continue
        try:
            row = parse_row(line)
        except (ValueError, RecursionError) as error:
            yield number, RowFault("invalid JSON", invalid_json_message(line, error))
            continue
        if source.path.endswith(SPOOL_ENDING):
            row = parse_spooled(row)
        if "\\u" in line and "\\ud" in line.lower() and type(row) is dict:
            fault = find_surrogate_fault(row, keys)
            row = row if fault is None else RowFault(*fault)
        yield number, row


def _detect_keys(head: list[bytes], file: str, options: _ReadOptions) -> Keys:
    rows = []
    for raw in head:
        try:
            row = parse_row(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    if not rows:
        return Keys()  # the first bad row reports the problem
    names = tuple(dict.fromkeys(key for row in rows for key in row))
    if not names:
        raise UserError(f"{file}:1: no 'text' field; found []. Give each row a \"text\".")
    layout = layout_of_rows(names, rows, options.columns, file)
    options.found = layout
    return Keys.from_layout(layout)


def _read_csv(source: LineSource, options: _ReadOptions) -> Iterator[Example]:
    delimiter = detect_delimiter(decode_head(source)[0])
    silent = BadRows(source.name, "skip", None)
    rows_sample = [
        row for _, row in read_csv_rows(iter(source.head()), silent, delimiter, whole=False)
    ]

    def more() -> Iterator[Sequence[str]]:
        again = LineSource(source.path)
        return (row for _, row in read_csv_rows(again.raw(), silent, delimiter, whole=False))

    layout = _detect_table(rows_sample, source, options, more)
    rows = read_csv_rows(source.raw(), options.bad_rows, delimiter)
    return _table_examples(rows, layout, source.name, options)


def _read_tsv(source: LineSource, options: _ReadOptions) -> Iterator[Example]:
    if not is_unquoted(source):
        return _read_csv(source, options)
    lines = [line.rstrip("\r\n") for line in decode_head(source)]

    def more() -> Iterator[Sequence[str]]:
        silent = BadRows(source.name, "skip", None)
        return (line.split("\t") for _, line in LineSource(source.path).lines(silent))

    layout = _detect_table([line.split("\t") for line in lines if line], source, options, more)
    return _table_examples(read_tab_rows(source, options.bad_rows), layout, source.name, options)


def _detect_table(
    sample: list[list[str]],
    source: LineSource,
    options: _ReadOptions,
    more: Callable[[], Iterator[Sequence[str]]],
) -> TableLayout:
    if not sample:
        sample = [["text"]]  # nothing usable yet; the rows report why
    more_rows = more if source.can_reopen else None
    layout = layout_from_rows(sample, options.columns, source.name, more_rows)
    options.found = layout
    return layout


def _table_examples(
    rows: NumberedRows, layout: TableLayout, file: str, options: _ReadOptions
) -> Iterator[Example]:
    bad_rows, separator, ids = (
        options.bad_rows,
        options.separator,
        UniqueIds(options.columns.id is not None, options.bad_rows),
    )
    width, text_at, label_at, id_at = layout.width, layout.text, layout.label, layout.id
    header, rows = split_header(rows, layout)
    if layout.guessed and header is not None:
        bad_rows.skipped.add(GUESSED_HEADER, f"{file}:1")
    for number, cells in rows:
        if len(cells) != width:
            bad_rows.report("ragged row", number, _ragged_message(len(cells), layout))
            continue
        text = cells[text_at]
        if layout.fields:
            filled = {layout.names[i]: cells[i] for i in layout.fields if cells[i].strip()}
            text = json.dumps(filled, ensure_ascii=False) if filled else ""
        if bad_rows.rejects_empty(text, number):
            continue
        label: Label = None
        if label_at is not None:
            label = cells[label_at] or None
            if separator is not None:
                label = tuple(label.split(separator)) if label else ()
        if layout.extra_labels:
            others = [cells[i] for i in layout.extra_labels]
            label = add_references(label, others, layout.joined)
        weight = 1.0
        if layout.weight is not None:
            try:
                weight = parse_weight(cells[layout.weight].strip())
            except UserError as error:
                bad_rows.report(BAD_WEIGHT, number, str(error))
                continue
            if weight == 0:
                continue
        name = cells[id_at] if id_at is not None else ""
        if ids.is_repeated(name, number):
            continue
        other = None if layout.other is None else cells[layout.other]
        if layout.answer_start is not None or layout.answers_in_text:
            start = None if layout.answer_start is None else cells[layout.answer_start]
            try:
                label = locate_answers(label, other, start, layout.answers_in_text)
            except UserError as error:
                bad_rows.report(fault_kind(error), number, str(error))
                continue
        yield Example(text, label, name, file, number, other=other, weight=weight)


def _ragged_message(count: int, layout: TableLayout) -> str:
    whose = "the header has" if layout.header else "most rows have"
    plural = "column" if count == 1 else "columns"
    return (
        f"{count} {plural}, but {whose} {layout.width}. Quote cells that contain the separator "
        f"(and name the file .csv), or {SKIP_HINT}."
    )


def _read_folder(
    name: str, on_bad_row: BadRowPolicy, skipped: SkipCounter | None
) -> Iterator[Example]:
    classes = [p for p in sorted(Path(name).iterdir()) if p.is_dir() and p.name[0] != "."]
    if not classes:
        raise UserError(
            f"{name}: no class folders. Put the texts of each class into a sub-folder named after "
            "it, or pass a file. Only `weft train` with a language model or a pre-training recipe "
            f"reads a folder of raw text; otherwise `cat {name}/* > FILE`."
        )
    if skipped is not None:
        for stray in sorted(p for p in Path(name).iterdir() if p.is_file() and p.name[0] != "."):
            skipped.add("file outside a class folder", str(stray))
    for folder in classes:
        if has_surrogate(folder.name):
            raise UserError(f"{folder}: the class name is not UTF-8. Rename the folder.")
    return _read_class_folders(classes, on_bad_row, skipped)


def _read_class_folders(
    classes: list[Path], on_bad_row: BadRowPolicy, skipped: SkipCounter | None
) -> Iterator[Example]:
    for folder in classes:
        for path in sorted(p for p in folder.iterdir() if p.is_file() and p.name[0] != "."):
            bad = SkipCounter()
            bad_rows = BadRows(str(path), on_bad_row, bad)
            text = "\n".join(line for _, line in LineSource(path).lines(bad_rows))
            if not bad and not text.strip():
                bad_rows.report(EMPTY_TEXT, 1, EMPTY_TEXT_MESSAGE)
            if bad:  # one bad line drops the whole text
                if skipped is not None:
                    kind, places = next(iter(bad.places.items()))
                    skipped.add(kind, places[0])
                continue
            yield Example(text, folder.name, f"{folder.name}/{path.name}", str(path), 1)


_READERS: dict[str, Callable[[LineSource, _ReadOptions], Iterator[Example]]] = {
    "csv": _read_csv,
    "tsv": _read_tsv,
    "jsonl": _read_jsonl,
    "fasttext": _read_fasttext,
    "trees": _read_trees,
    "lines": _read_lines,
}
