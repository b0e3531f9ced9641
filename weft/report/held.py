"""The test part that was cut from a training file, as a file of the same format."""

import os
from collections.abc import Iterator
from pathlib import Path

from weft.run.data import Data, Source
from weft.text import conll, conllu, trees
from weft.text.example import Example, Marks
from weft.text.formats import recognise
from weft.text.spans import Marked
from weft.text.standoff import write_spans
from weft.text.write import opened, replacing
from weft.text.write import write as write_examples

ENDINGS = {"conllu": ".conllu", "conll": ".conll", "trees": ".ptb"}


def write_test(data: Data, test: Source, folder: Path) -> str:
    """Write the test part so that anybody can measure on it; its path."""
    kind = data.format or recognise(data.train)
    path = folder / f"test{ENDINGS.get(kind, '.jsonl')}"
    path.unlink(missing_ok=True)
    if kind in ("spans", "standoff"):
        write_spans(_marked(test), path)
        return str(path)
    if kind not in ENDINGS:
        write_examples(test(), path)
        return str(path)
    with replacing(os.fspath(path)) as part, opened(part, "") as out:
        for piece in _pieces(data, kind, list(test())):
            out.write(piece)
    return str(path)


def _pieces(data: Data, kind: str, chosen: list[Example]) -> list[str]:
    """The chosen sentences as they stand in the file."""
    lines = {example.line for example in chosen}
    if kind == "conllu":
        sentences = conllu.read_conllu(data.train, problems=data.problems)
        return [conllu.format(sentence) for sentence in sentences if sentence.line in lines]
    if kind == "conll":
        words, tags = (None if c == "" else c for c in (data.text, data.label))
        rows = conll.read_columns(data.train, words=words, tags=tags, problems=data.problems)
        return [conll.format(sentence) for sentence in rows if sentence.line in lines]
    return [f"{trees.format(example.tree)}\n" for example in chosen if example.tree]


def _marked(test: Source) -> Iterator[Marked]:
    for example in test():
        assert isinstance(example.label, Marks)
        yield Marked(example.text, example.label.spans, example.id)
