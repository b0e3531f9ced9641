"""A file of any known format -> a stream of Examples, in constant memory."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from weft.errors import UserError
from weft.registry import typed
from weft.text.annotation import trees
from weft.text.columns import NO_LABEL, Columns, Layout, layout, table_layout
from weft.text.example import Example, Label, Tally, label_of
from weft.text.formats.brackets import read_brackets
from weft.text.formats.csv import Rows, csv_rows, head_lines, is_plain, split_header, tab_rows
from weft.text.formats.jsonl import (
    Keys,
    cell_of,
    half_fault,
    invalid_json,
    json_fault,
    parse_row,
    placed,
    second,
    several,
)
from weft.text.formats.jsonl import no_text as no_text
from weft.text.formats.parallel import read_parallel, sides
from weft.text.formats.recognise import (
    FORMATS,
    PREFIX,
    STRUCTURES,
    check_format,
    delimiter_of,
    is_matrices,
    recognise_source,
    structure_of,
)
from weft.text.formats.recognise import recognise as recognise
from weft.text.formats.squad import kind_of
from weft.text.line_source import (
    EMPTY,
    EMPTY_ADVICE,
    SKIP,
    Handling,
    Ids,
    Problems,
    Source,
    missing,
)
from weft.untrusted import has_surrogate

HEADER = "first line taken for a header"


@typed
def read(
    path: str | os.PathLike[str],
    *,
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    format: str | None = None,
    problems: Handling = "error",
    tally: Tally | None = None,
    phrases: bool = False,
    separator: str | None = None,
    keep_empty: bool = False,
) -> Iterator[Example]:
    """The examples of a file, folder, pair of files or standard input ('-'), one at a time.

    Missing files and unknown columns are reported here; bad rows when their turn comes. Of files
    joined by a comma only the first is read where no label is asked for.
    """
    name = os.fspath(path)
    if format is not None:
        check_format(format)
    files = sides(name)
    for file in files:
        if file != "-" and not os.path.exists(file):
            raise missing(file)
    if len(files) > 1 and columns.label != NO_LABEL:
        return read_parallel(*files, problems=problems, tally=tally)
    name = files[0]
    if name != "-" and os.path.isdir(name):
        if format == "standoff" or recognise(name) == "standoff":
            return _sentences(name, "standoff", columns, problems, tally)
        return _some(_folder(name, problems, tally), name)
    if is_matrices(name):
        from weft.text.formats.features import listed

        return listed(name)
    if format == "folder":
        raise UserError(f"{name}: a file, not a folder with one sub-folder a class.")
    source = Source(name)
    faults = Problems(source.name, problems, tally, keep_empty)
    kind = format or structure_of(source)
    if kind == "spans" and columns.label is not None:
        kind = "jsonl"  # what is asked for is another label than the spans
    if kind == "squad":
        from weft.text.formats.squad import squad_examples

        source.close()
        rows = squad_examples(name, problems=problems, tally=tally, keep_empty=keep_empty)
        return _some(rows, name)
    if kind in STRUCTURES:
        source.close()
        return _sentences(name, kind, columns, problems, tally)
    if kind not in FORMATS:
        kind = recognise_source(source)
    if kind == "lines" and (columns.two or columns.other is not None) and _tabbed(source):
        kind = "tsv"  # of standard input, which is taken for lines otherwise
    if kind == "parquet":
        source.close()
        from weft.text.formats.parquet import read_parquet

        return _some(read_parquet(name, columns, faults), name)
    if not source.head(1):
        raise UserError(f"{source.name}: the file is empty. Give it at least one text.")
    return _some(_READERS[kind](source, _Wish(columns, faults, phrases, separator)), source.name)


def settled(path: str | os.PathLike[str], columns: Columns, format: str | None = None) -> Columns:
    """The columns that `read` would find, for reading a sister file (a dev, a test) alike."""
    found = laid_out(path, columns, format)
    return columns if found is None else found.columns


def laid_out(
    path: str | os.PathLike[str], columns: Columns, format: str | None = None
) -> Layout | None:
    """Where `read` would find text, label and id in the rows of a table or of JSON lines."""
    name = os.fspath(path)
    if name == "-" or os.path.isdir(name):
        return None
    if not os.path.exists(name):
        raise missing(name)
    with contextlib.closing(Source(name)) as source:
        structure = "" if columns.label is not None else structure_of(source)
        kind = format or structure or recognise_source(source)
        if kind == "parquet":
            from weft.text.formats.parquet import parquet_layout

            return parquet_layout(name, columns)
        if kind not in ("csv", "tsv", "jsonl") or not source.head(1):
            return None
        wish = _Wish(columns, Problems(source.name, "skip", None), False, None)
        _READERS[kind](source, wish)  # finds the columns before it reads the first row
        return wish.found


def _tabbed(source: Source) -> bool:
    first = source.head(1)
    return bool(first) and b"\t" in first[0]


class _Wish:
    """What the caller of `read` asked for, in one piece."""

    found: Layout | None = None  # what a reader settled on

    def __init__(
        self, columns: Columns, problems: Problems, phrases: bool, separator: str | None
    ) -> None:
        self.columns = columns
        self.problems = problems
        self.phrases = phrases
        self.separator = separator


def _some(examples: Iterator[Example], name: str) -> Iterator[Example]:
    """The same stream, or an error when there is nothing in it."""
    try:
        first = next(examples, None)
        if first is None:
            raise UserError(f"{name}: no row can be used. Look at the first rows, or at the tally.")
        yield first
        yield from examples
    except MemoryError:
        raise UserError(
            f"{name}: not enough memory to read it. Give shorter texts, or fewer at a time."
        ) from None


def _sentences(
    name: str, kind: str, columns: Columns, problems: Handling, tally: Tally | None
) -> Iterator[Example]:
    from weft.text.formats.structured import column_examples, conllu_examples, marked_examples

    if kind == "conllu":
        label = "" if columns.label is None else str(columns.label)
        return conllu_examples(name, label=label, problems=problems, tally=tally)
    if kind in ("spans", "standoff"):
        return marked_examples(name, brat=kind == "standoff", problems=problems, tally=tally)
    return column_examples(
        name, text=columns.text, label=columns.label, problems=problems, tally=tally
    )


def _lines(source: Source, wish: _Wish) -> Iterator[Example]:
    for number, text in source.lines(wish.problems):
        if wish.problems.empty(text, number):
            continue
        yield Example(text, None, "", source.name, number)


def _fasttext(source: Source, wish: _Wish) -> Iterator[Example]:
    for number, line in source.lines(wish.problems):
        if not line.strip():
            continue
        labels, text = _split_labels(line)
        if wish.problems.empty(text, number):
            continue
        label: Label = labels[0] if len(labels) == 1 else tuple(labels) or None
        yield Example(text, label, "", source.name, number)


def _split_labels(line: str) -> tuple[list[str], str]:
    labels = []
    while PREFIX in line:
        bare = line.lstrip(" \t")
        if not bare.startswith(PREFIX):
            break
        end = min((i for i in (bare.find(" "), bare.find("\t")) if i >= 0), default=len(bare))
        labels.append(bare[len(PREFIX) : end])
        line = bare[end + 1 :]
    if PREFIX in line:
        # fastText takes a label wherever it stands; left in the text it would give the answer away.
        tokens = line.split()
        labels += [token[len(PREFIX) :] for token in tokens if token.startswith(PREFIX)]
        line = " ".join(token for token in tokens if not token.startswith(PREFIX))
    return labels, line


def _trees(source: Source, wish: _Wish) -> Iterator[Example]:
    handling: Handling = "skip" if wish.problems.skip else "error"
    for one in read_brackets(source, problems=handling, tally=wish.problems.tally):
        tree = one.tree
        if wish.phrases:
            for label, text in trees.phrases(tree):
                yield Example(text, label, "", source.name, one.line)
        else:
            yield Example(tree.text, tree.label or None, "", source.name, one.line, tree=tree)


def _jsonl(source: Source, wish: _Wish) -> Iterator[Example]:
    # Standard input may be slow to give its second line; the first must do.
    head = source.head(1 if source.path == "-" else 100)
    return _json_rows(source, wish, _fields(head, source.name, wish))


def _json_rows(source: Source, wish: _Wish, keys: Keys) -> Iterator[Example]:
    problems, file = wish.problems, source.name
    known = Ids(wish.columns.id is not None, wish.problems)
    text_key, label_key, id_key = keys.text, keys.label, keys.id
    for number, line in source.lines(problems):
        if not line or line.isspace():
            continue
        try:
            row = parse_row(line)
        except (ValueError, RecursionError) as error:
            problems.found("invalid JSON", number, invalid_json(line, error))
            continue
        if type(row) is dict:
            keys.gather(row)
        fault = json_fault(row, text_key, line, problems.keep_empty)
        if not fault and second(row, keys.other) is not None:
            fault = json_fault(row, keys.other or "", line, keep_empty=True)
        fault = fault or half_fault(row, keys, line)
        if fault:
            problems.found(fault[0], number, fault[1])
            continue
        label = row.get(label_key) if label_key is not None else None
        other = second(row, keys.other)
        if type(label) is not str or other is not None or keys.more:
            try:
                label = label_of(label)
                if keys.more:
                    label = several(label, [cell_of(row.get(key)) for key in keys.more])
                label = placed(label, other, row.get(keys.start), keys.within)
            except UserError as error:
                problems.found(kind_of(error), number, str(error))
                continue
        identity = row.get(id_key) if id_key is not None else None
        name = "" if identity is None else str(identity)
        if known.repeats(name, number):
            continue
        yield Example(row[text_key], label, name, file, number, other=other)


def _fields(head: list[bytes], file: str, wish: _Wish) -> Keys:
    rows = []
    for raw in head:
        try:
            row = parse_row(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    if not rows:
        return Keys()  # the first bad row will say what is wrong
    names = tuple(dict.fromkeys(key for row in rows for key in row))
    if not names:
        raise UserError(f"{file}:1: no 'text' field; found []. Give each row a \"text\".")
    cells = [[cell_of(row.get(name)) for name in names] for row in rows]
    found = layout(names, cells, wish.columns, file)
    wish.found = found
    return Keys.of(found)


def _csv(source: Source, wish: _Wish) -> Iterator[Example]:
    delimiter = delimiter_of(head_lines(source)[0])
    silent = Problems(source.name, "skip", None)
    sample = [row for _, row in csv_rows(iter(source.head()), silent, delimiter, whole=False)]

    def more() -> Iterator[Sequence[str]]:
        again = Source(source.path)
        return (row for _, row in csv_rows(again.raw(), silent, delimiter, whole=False))

    found = _table(sample, source, wish, more)
    rows = csv_rows(source.raw(), wish.problems, delimiter)
    return _examples(rows, found, source.name, wish)


def _tsv(source: Source, wish: _Wish) -> Iterator[Example]:
    if not is_plain(source):
        return _csv(source, wish)
    lines = [line.rstrip("\r\n") for line in head_lines(source)]

    def more() -> Iterator[Sequence[str]]:
        silent = Problems(source.name, "skip", None)
        return (line.split("\t") for _, line in Source(source.path).lines(silent))

    found = _table([line.split("\t") for line in lines if line], source, wish, more)
    return _examples(tab_rows(source, wish.problems), found, source.name, wish)


def _table(
    sample: list[list[str]],
    source: Source,
    wish: _Wish,
    more: Callable[[], Iterator[Sequence[str]]],
) -> Layout:
    if not sample:
        sample = [["text"]]  # nothing usable in sight; the rows will say why
    more_rows = more if source.can_reopen else None
    found = table_layout(sample, wish.columns, source.name, more_rows)
    wish.found = found
    return found


def _examples(rows: Rows, found: Layout, file: str, wish: _Wish) -> Iterator[Example]:
    problems, separator, known = (
        wish.problems,
        wish.separator,
        Ids(wish.columns.id is not None, wish.problems),
    )
    width, text_at, label_at, id_at = found.width, found.text, found.label, found.id
    header, rows = split_header(rows, found)
    if found.guessed and header is not None:
        problems.tally.add(HEADER, f"{file}:1")
    for number, cells in rows:
        if len(cells) != width:
            problems.found("ragged row", number, _ragged(len(cells), found))
            continue
        text = cells[text_at]
        if found.fields:
            filled = {found.names[i]: cells[i] for i in found.fields if cells[i].strip()}
            text = json.dumps(filled, ensure_ascii=False) if filled else ""
        if problems.empty(text, number):
            continue
        label: Label = None
        if label_at is not None:
            label = cells[label_at] or None
            if separator is not None:
                label = tuple(label.split(separator)) if label else ()
        if found.more:
            label = several(label, [cells[i] for i in found.more])
        name = cells[id_at] if id_at is not None else ""
        if known.repeats(name, number):
            continue
        other = None if found.other is None else cells[found.other]
        if found.start is not None or found.within:
            start = None if found.start is None else cells[found.start]
            try:
                label = placed(label, other, start, found.within)
            except UserError as error:
                problems.found(kind_of(error), number, str(error))
                continue
        yield Example(text, label, name, file, number, other=other)


def _ragged(count: int, found: Layout) -> str:
    whose = "the header has" if found.header else "most rows have"
    plural = "column" if count == 1 else "columns"
    return (
        f"{count} {plural} where {whose} {found.width}. Quote cells that hold the separator "
        f"(and call the file .csv), or {SKIP}."
    )


def _folder(name: str, handling: Handling, tally: Tally | None) -> Iterator[Example]:
    classes = [p for p in sorted(Path(name).iterdir()) if p.is_dir() and p.name[0] != "."]
    if not classes:
        raise UserError(
            f"{name}: a folder without class folders. Put the texts of each class into a "
            "sub-folder named after it, or pass a file. Raw text in a folder is for `weft train` "
            f"with a language model or a recipe that pre-trains; else `cat {name}/* > FILE`."
        )
    if tally is not None:
        for stray in sorted(p for p in Path(name).iterdir() if p.is_file() and p.name[0] != "."):
            tally.add("file outside a class folder", str(stray))
    for folder in classes:
        if has_surrogate(folder.name):
            raise UserError(f"{folder}: the name of this class is not UTF-8. Rename the folder.")
    return _folder_texts(classes, handling, tally)


def _folder_texts(
    classes: list[Path], handling: Handling, tally: Tally | None
) -> Iterator[Example]:
    for folder in classes:
        for path in sorted(p for p in folder.iterdir() if p.is_file() and p.name[0] != "."):
            bad = Tally()
            problems = Problems(str(path), handling, bad)
            text = "\n".join(line for _, line in Source(path).lines(problems))
            if not bad and not text.strip():
                problems.found(EMPTY, 1, EMPTY_ADVICE)
            if bad:  # one bad line spoils the whole text
                if tally is not None:
                    kind, places = next(iter(bad.places.items()))
                    tally.add(kind, places[0])
                continue
            yield Example(text, folder.name, f"{folder.name}/{path.name}", str(path), 1)


_READERS: dict[str, Callable[[Source, _Wish], Iterator[Example]]] = {
    "csv": _csv,
    "tsv": _tsv,
    "jsonl": _jsonl,
    "fasttext": _fasttext,
    "trees": _trees,
    "lines": _lines,
}
