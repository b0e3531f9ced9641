"""Write the test split of a training file in the same format."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from weft.doctor.checks.target_stats import target_text
from weft.run.data import Data, Source
from weft.storage import atomic_write
from weft.text.annotation import trees
from weft.text.annotation.spans import SpanText
from weft.text.example import CharSpans, Example, GoldAnswers, WordAnnotations
from weft.text.formats import conll, conllu
from weft.text.formats.features import names_recording, recording_path
from weft.text.formats.parallel import resolve_files, sibling_file
from weft.text.formats.recognise import recognise
from weft.text.formats.semantics.coreference import format_document
from weft.text.formats.semantics.extractions import format_tuples
from weft.text.formats.semantics.roles import format_example
from weft.text.formats.squad import write_squad
from weft.text.formats.standoff import write_spans
from weft.text.formats.structured import group_paragraphs, mark_paragraph
from weft.text.line_source import strip_compression
from weft.text.write import open_text
from weft.text.write import write as write_examples

ENDINGS = {
    "conllu": ".conllu",
    "paragraphs": ".conllu",
    "conll": ".conll",
    "trees": ".ptb",
    "roles": ".conll",
    "coreference": ".conll",
    "extractions": ".tsv",
}


def write_test_split(data: Data, test: Source, folder: Path) -> str:
    """Write the test split for later evaluation, and return its path."""
    files = resolve_files(data.train, data.target, data.references)
    if len(files) > 1:
        return _write_parallel(data, files, test, folder)
    if any(isinstance(example.label, GoldAnswers) for example in test()):
        write_squad(test(), folder / "test.json")
        return str(folder / "test.json")
    kind = data.format or recognise(data.train)
    if kind == "lines" and not any("\n" in e.text.rstrip("\n") for e in test()):
        return _write_lines(test, folder)
    path = folder / f"test{ENDINGS.get(kind, '.jsonl')}"
    path.unlink(missing_ok=True)
    if kind in ("spans", "standoff"):
        write_spans(_span_documents(test), path)
        return str(path)
    if kind not in ENDINGS:
        _copy_recordings(test, folder)
        write_examples(test(), path)
        return str(path)
    with atomic_write(path) as part, open_text(part, "") as out:
        for block in _format_sentences(data, kind, list(test())):
            out.write(block)
    return str(path)


def _copy_recordings(test: Source, folder: Path) -> None:
    """Copy the recordings that the test texts name, so that their file can name them as before."""
    for example in test():
        if example.vectors is None and names_recording(example.text):
            target = folder / example.text.strip()
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(target) as part:
                shutil.copyfile(recording_path(example), part)


def _write_parallel(data: Data, files: tuple[str, ...], test: Source, folder: Path) -> str:
    """Write parallel files, as the training files are."""
    paths = _output_paths(data, files, folder)
    rows = [(example.text, *_target_columns(example)) for example in test()]
    for column, path in enumerate(paths):
        Path(path).unlink(missing_ok=True)
        with atomic_write(path) as part, open_text(part, "") as out:
            out.writelines(f"{row[column] if column < len(row) else ''}\n" for row in rows)
    return paths[0] if data.target else ",".join(paths)


def _output_paths(data: Data, files: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """Return the path of each side, with the suffixes of the training files or a number."""
    endings = [Path(file[: len(strip_compression(file)[0])]).suffix for file in files]
    if data.target:
        first = str(folder / f"test{endings[0]}")
        return (first, *(sibling_file(first, ending) for ending in (data.target, *data.references)))
    differ = len(set(endings)) == len(endings)
    names = (f"test{end}" if differ else f"test-{i}{end}" for i, end in enumerate(endings, 1))
    return tuple(str(folder / name) for name in names)


def _target_columns(example: Example) -> tuple[str, ...]:
    """Return the other columns: tags, the second text and its label, or the references."""
    if isinstance(example.label, WordAnnotations):
        tags = " ".join(example.label.columns[example.label.main])
        return (tags, example.label.label) if example.label.label else (tags,)
    if example.other is not None:
        return (example.other, *(() if example.label is None else (str(example.label),)))
    return _references(example)


def _references(example: Example) -> tuple[str, ...]:
    return example.label if isinstance(example.label, tuple) else (target_text(example.label),)


def _write_lines(test: Source, folder: Path) -> str:
    """Write texts without labels, one per line."""
    path = folder / "test.txt"
    path.unlink(missing_ok=True)
    with atomic_write(path) as part, open_text(part, "") as out:
        for example in test():
            out.write(example.text if example.text.endswith("\n") else f"{example.text}\n")
    return str(path)


def _format_sentences(data: Data, kind: str, chosen: list[Example]) -> list[str]:
    """Return the chosen sentences in the format of the file."""
    lines = {example.line for example in chosen}
    if kind == "conllu":
        sentences = conllu.read_conllu(data.train, on_bad_row=data.on_bad_row)
        return [conllu.format(sentence) for sentence in sentences if sentence.line in lines]
    if kind == "paragraphs":
        sentences = conllu.read_conllu(data.train, on_bad_row=data.on_bad_row)
        groups = (group for group in group_paragraphs(sentences) if group[0].line in lines)
        return [conllu.format(mark_paragraph(one, not k)) for group in groups
                for k, one in enumerate(group)]  # fmt: skip
    if kind == "conll":
        words, tags = (None if c == "" else c for c in (data.text, data.label))
        rows = conll.read_columns(data.train, words=words, tags=tags, on_bad_row=data.on_bad_row)
        return [conll.format(sentence) for sentence in rows if sentence.line in lines]
    if kind == "roles":
        return [format_example(example) for example in chosen]
    if kind == "coreference":
        return [format_document(example) for example in chosen]
    if kind == "extractions":
        return [line for example in chosen for line in format_tuples(example)]
    return [f"{trees.format(example.tree)}\n" for example in chosen if example.tree]


def _span_documents(test: Source) -> Iterator[SpanText]:
    for example in test():
        assert isinstance(example.label, CharSpans)
        yield SpanText(example.text, example.label.spans, example.id)
