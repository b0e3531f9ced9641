"""Targets: every reader of data files, on files that our own code wrote."""

import contextlib
import gzip
import io
import json
import lzma
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from tests.fuzz.harness import TARGETS, Files, Target, register
from weft import config
from weft.doctor.diagnose import diagnose
from weft.doctor.formats.files import open_files
from weft.doctor.survey import survey_sources
from weft.embed.vector_files.text import read_table
from weft.errors import UserError
from weft.text.annotation import constituents, trees
from weft.text.annotation.trees import Tree
from weft.text.columns import Columns
from weft.text.example import CharSpans, Example, GoldAnswers, Label, SkipCounter, WordAnnotations
from weft.text.formats import brackets
from weft.text.formats.documents import read_documents
from weft.text.formats.features import is_matrix_reference, load_matrix
from weft.text.formats.raw import read_raw_lines
from weft.text.formats.squad import write_squad
from weft.text.formats.standoff import write_spans
from weft.text.read import read, resolve_columns
from weft.text.synthetic.reviews import generate_reviews
from weft.text.synthetic.treebank import generate_treebank
from weft.text.write import write
from weft.vectors import benchmarks
from weft.vectors.files import write_vectors
from weft.vectors.store import Vectors

Run = Callable[[Path], None]
ROWS = 23
_OTHERS = frozenset(TARGETS)  # of files that were imported before


def _written(name: str, put: Callable[[str], None]) -> Files:
    """The file that a writer writes under this name."""
    with tempfile.TemporaryDirectory() as folder:
        put(os.path.join(folder, name))
        return {one: (Path(folder) / one).read_bytes() for one in os.listdir(folder)}


def _rows() -> list[Example]:
    return generate_reviews(size=60)["train"][:ROWS]


def _tables(name: str) -> Callable[[], list[Files]]:
    def seeds() -> list[Files]:
        rows = _rows()
        several = [Example(row.text, (str(row.label), "x"), f"r{i}") for i, row in enumerate(rows)]
        numbers = [Example(row.text, i / 7) for i, row in enumerate(rows)]
        return [_written(name, lambda path, r=some: write(r, path)) for some in (rows, several)] + (
            [_written(name, lambda path: write(numbers, path))] if "fasttext" not in name else []
        )

    return seeds


def _quoted() -> list[Files]:
    """Tables as other programs write them: quotes, semicolons, line breaks, no header."""
    first = 'id;text;label\n1;"a ""good"" film";pos\n2;"two\nlines";neg\n3;plain;pos\n'
    pair = "premise,hypothesis,label\r\nA man eats.,He eats.,yes\r\nA dog runs.,It sleeps.,no\r\n"
    bare = "".join(f'"{row.label}","{row.text}"\n' for row in _rows())
    return [{"data.csv": text.encode()} for text in (first, pair, bare)]


def _treebank(kind: str) -> list[str]:
    return [one.format_as(kind) for one in generate_treebank(size=30)["train"][:11]]


def _one(name: str, kind: str) -> Callable[[], list[Files]]:
    return lambda: [{name: "".join(_treebank(kind)).encode()}]


def _many_lines(tree: Tree, depth: int = 0) -> str:
    """A tree as the Penn Treebank writes it, over many lines."""
    if not tree.children:
        return f"({tree.label} {tree.word})"
    pad = "\n" + "  " * (depth + 1)
    return f"({tree.label}{pad}{pad.join(_many_lines(c, depth + 1) for c in tree.children)})"


def _penn() -> list[Files]:
    made = [constituents.add_root(trees.parse(line)) for line in _treebank("ptb")]
    return [
        {"data.mrg": "\n\n".join(map(_many_lines, made)).encode()},
        {"data.txt": "\n".join(f"( {_many_lines(t.children[0])})" for t in made).encode()},
    ]


def _columns() -> list[Files]:
    plain = "".join(_treebank("conll"))
    bare = "".join(line for line in plain.splitlines(True) if line[0] != "#")
    four = "-DOCSTART- -X- -X- O\n\n" + bare.replace("\t", " NN I-NP ")
    header = "word\tpos\ttag\n" + plain.replace("\t", "\tNN\t")
    return [
        {"data.conll": plain.encode()}, {"data.conll": four.encode()},
        {"data.conll": header.encode()},
    ]  # fmt: skip


def _parse_bits() -> list[Files]:
    rows = []
    for line in _treebank("ptb"):
        tree = trees.parse(line)
        cells = zip(
            tree.words, constituents.pos_tags(tree), brackets.to_parse_bits(tree), strict=True
        )
        rows += [f"d 0 {i} {w} {t} {b} - - - * -" for i, (w, t, b) in enumerate(cells)]
        rows.append("")
    return [{"data.conll": "\n".join(rows).encode()}]


def _spans() -> list[Files]:
    marked = [one.span_text for one in generate_treebank(size=30)["train"][:11]]
    plain = _written("data.jsonl", lambda path: write_spans(marked, path))
    lists = [
        json.dumps({"text": m.text, "label": [[s.start, s.end, s.label] for s in m.spans]})
        for m in marked
    ]
    return [plain, {"data.jsonl": "\n".join(lists).encode()}]


def _brat() -> list[Files]:
    files: dict[str, bytes] = {}
    for one in generate_treebank(size=30)["train"][:3]:
        rows = [
            f"T{i}\t{s.label} {s.start} {s.end}\t{one.text[s.start : s.end]}"
            for i, s in enumerate(one.span_text.spans, 1)
        ]
        files[f"{one.id}.txt"] = one.text.encode()
        files[f"{one.id}.ann"] = "\n".join([*rows, "R1\tof Arg1:T1 Arg2:T2", ""]).encode()
    return [files]


def _squad() -> list[Files]:
    rows = [
        Example(
            f"What is {i}?", GoldAnswers(("gold",), (3,)), f"q{i}", other=f"In gold we trust {i}."
        )
        for i in range(5)
    ]
    rows.append(Example("None?", GoldAnswers(), "q9", other="No answer here."))
    return [_written("data.json", lambda path: write_squad(rows, path))]


def _parallel() -> list[Files]:
    english = "".join(f"{row.text}\n" for row in _rows()).encode()
    return [{"data.en": english, "data.de": english.swapcase()}]


def _matrices() -> list[Files]:
    draw = np.random.default_rng(0)
    one, packed, stacked = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(one, draw.normal(size=(5, 3)).astype(np.float32))
    np.save(stacked, np.asfortranarray(draw.normal(size=(2, 5, 3))))
    some = {"a": draw.normal(size=(3, 3)), "b": draw.integers(0, 9, (7, 3))}
    np.savez_compressed(packed, **some)  # type: ignore[arg-type]
    plain = io.BytesIO()
    np.savez(plain, **some)  # type: ignore[arg-type]
    names = ("one.npy", "stacked.npy:1", "packed.npz:a", "plain.npz:b", "[[1, 2, 3]]")
    rows = "".join(json.dumps({"text": name, "target": "a b"}) + "\n" for name in names)
    return [
        {
            "one.npy": one.getvalue(), "stacked.npy": stacked.getvalue(),
            "packed.npz": packed.getvalue(), "plain.npz": plain.getvalue(),
            "data.jsonl": rows.encode(),
        }
    ]  # fmt: skip


def _vectors(name: str, format: str = "") -> Callable[[], list[Files]]:
    def seeds() -> list[Files]:
        matrix = np.random.default_rng(0).normal(size=(11, 5)).astype(np.float32)
        made = Vectors([f"word{i}" for i in range(11)], matrix)
        return [_written(name, lambda path: write_vectors(made, path, format))]

    return seeds


def _recipes(name: str) -> Callable[[], list[Files]]:
    def seeds() -> list[Files]:
        some = [config.recipe(one) for one in ("cnn", "tfidf", "bilstm", "transformer")]
        if name.endswith(".json"):
            return [{name: json.dumps(one.sections).encode()} for one in some]
        return [{name: config.dumps(one.sections).encode()} for one in some]

    return seeds


def _all(read_one: Callable[[], Iterable[Example]]) -> None:
    """Go through examples, and see that whatever comes next can use them."""
    for example in read_one():
        texts = [example.text, example.id, example.other or "", *example.words]
        texts += _texts(example.label)
        "".join(texts).encode()  # labels.json and predictions are UTF-8
        if is_matrix_reference(example.text):
            with contextlib.suppress(UserError):
                load_matrix(example)


def _texts(label: Label) -> list[str]:
    if isinstance(label, WordAnnotations):
        return [cell for column in label.columns.values() for cell in column]
    if isinstance(label, CharSpans):
        return [span.label for span in label.spans]
    if isinstance(label, GoldAnswers):
        return list(label.texts)
    return list(label) if isinstance(label, tuple) else [str(label)]


def _refused(done: Sequence[Callable[[], object]]) -> None:
    """Do all of these; where one is refused, so is the file."""
    refused: UserError | None = None
    for one in done:
        try:
            one()
        except UserError as error:
            refused = error
    if refused is not None:
        raise refused


def _training(name: str, **asked: object) -> Run:
    """What `weft train` reads of a file, stopping at problems and leaving them out."""

    def run(folder: Path) -> None:
        path = ",".join(str(folder / one) for one in name.split(","))

        def strict() -> None:
            tally = SkipCounter()
            _all(lambda: read(path, skipped=tally, **asked))  # type: ignore[arg-type]
            tally.lines()

        def lenient() -> None:
            tally = SkipCounter()
            _all(lambda: read(path, on_bad_row="skip", skipped=tally, **asked))  # type: ignore[arg-type]
            tally.lines()

        sister = [] if "," in name else [lambda: resolve_columns(path, Columns())]
        _refused([strict, lenient, *sister])

    return run


def _examined(name: str) -> Run:
    """What `weft check` does."""

    def run(folder: Path) -> None:
        path = ",".join(str(folder / one) for one in name.split(","))
        found = open_files([path], Columns())
        result, _ = diagnose(
            survey_sources(found.sources), found.paths, 512, True, found.tallies, found.findings
        )
        json.dumps(result.to_json(), ensure_ascii=False).encode()

    return run


def _both(name: str, **asked: object) -> Run:
    training, examined = _training(name, **asked), _examined(name)
    return lambda folder: _refused([lambda: training(folder), lambda: examined(folder)])


def _raw(folder: Path) -> None:
    """Running text and documents, as language models read them."""
    path = folder / "data.txt"
    done = [lambda: _all(lambda: read_raw_lines(path)), lambda: _all(lambda: read_documents(path))]
    _refused([*done, lambda: _all(lambda: read_documents(path, on_bad_row="skip"))])


def _trees(name: str) -> Run:
    both = _both(name)

    def phrases(folder: Path) -> None:
        _all(lambda: read(folder / name, phrases=True, on_bad_row="skip", format="trees"))

    return lambda folder: _refused([lambda: both(folder), lambda: phrases(folder)])


def _penn_run(folder: Path) -> None:
    name = next(path.name for path in folder.iterdir() if path.name.startswith("data."))
    _trees(name)(folder)


def _bits(folder: Path) -> None:
    path = folder / "data.conll"
    both = _both("data.conll")
    _refused([lambda: both(folder), lambda: list(brackets.read_parse_bits(path))])


def _word_lists(folder: Path) -> None:
    path = folder / "data.txt"
    with contextlib.suppress(UserError):  # the same lines are no dictionary
        benchmarks.dictionary(path)
    _refused([lambda: benchmarks.read(path), lambda: benchmarks.words(path)])


def _packed(name: str, pack: Callable[[bytes], bytes]) -> Callable[[], list[Files]]:
    def seeds() -> list[Files]:
        return [
            {f"{one}{'.gz' if pack is gzip.compress else '.xz'}": pack(data)}
            for files in _tables(name)()
            for one, data in files.items()
        ]

    return seeds


PAIRS = b"# pairs\ntiger\tcat\t7.35\nbook\tpaper\t7.46\ncomputer\tkeyboard\t7.62\n"
ANALOGIES = b": capitals\nAthens Greece Oslo Norway\nParis France Rome Italy\n"

for _name in ("csv", "tsv", "jsonl", "parquet", "fasttext"):
    register(Target(_name, _tables(f"data.{_name}"), _both(f"data.{_name}"), weight=3))
register(Target("csv-foreign", _quoted, _both("data.csv"), weight=3))
register(Target("json", _tables("data.json"), _both("data.json")))
register(
    Target("lines", lambda: [{"data.txt": "".join(_treebank("txt")).encode()}], _both("data.txt"))
)
register(Target("gz", _packed("data.jsonl", gzip.compress), _both("data.jsonl.gz")))
register(Target("xz", _packed("data.csv", lzma.compress), _both("data.csv.xz")))
register(Target("raw", _one("data.txt", "txt"), _raw))
register(Target("conllu", _one("data.conllu", "conllu"), _both("data.conllu"), weight=3))
register(Target("conll", _columns, _both("data.conll"), weight=3))
register(Target("parse-bits", _parse_bits, _bits))
register(Target("sst", _one("data.trees", "trees"), _trees("data.trees"), weight=2))
register(Target("penn", _penn, _penn_run, weight=3))
register(Target("squad", _squad, _both("data.json"), weight=2))
register(Target("spans", _spans, _both("data.jsonl"), weight=2))
register(Target("brat", _brat, _both("."), weight=2))
register(Target("parallel", _parallel, _both("data.en,data.de")))
register(Target("matrices", _matrices, _both("data.jsonl"), weight=4))
register(Target("npz", _matrices, _both("packed.npz"), damage=("packed.npz",), weight=2))
for _name, _format in (
    *(("vec", ""), ("glove", ""), ("w2v.bin", "word2vec-binary"), ("bin", ""), ("npz", "")),
    *(("npy", ""), ("safetensors", "")),
):
    register(
        Target(
            f"vectors-{_name}",
            _vectors(f"data.{_name}", _format),
            lambda folder, name=f"data.{_name}": read_table(folder / name),  # type: ignore[misc]
            damage=(),
        )
    )
register(Target("word-lists", lambda: [{"data.txt": PAIRS}, {"data.txt": ANALOGIES}], _word_lists))
register(Target("toml", _recipes("data.toml"), lambda f: config.load(f / "data.toml")))  # type: ignore[arg-type, return-value]
register(Target("json-config", _recipes("data.json"), lambda f: config.load(f / "data.json")))  # type: ignore[arg-type, return-value]
NAMES = [name for name in TARGETS if name not in _OTHERS]  # those of this file
