"""weft vectors senses"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.cli.vectors.query import open_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.vectors.senses import ContextReader, WordSenses
    from weft.vectors.store import ScoredWords, Vectors


def senses(
    files: Annotated[
        list[str],
        typer.Argument(metavar="TEXT…", help="Text files, one sentence per line; - is stdin."),
    ],
    vectors: Annotated[
        Path, typer.Option("--vectors", help="Word vectors of the words around; or a model folder.")
    ],
    words: Annotated[str, typer.Option(help="Words to split, comma-separated, or @FILE.")] = "",
    top: Annotated[
        int, typer.Option(min=0, help="Split the most frequent content words, this many.")
    ] = 0,
    count: Annotated[
        str, typer.Option("--senses", help="Senses per word, or auto: by the silhouette.")
    ] = "auto",
    max_senses: Annotated[int, typer.Option(min=2, help="Most senses that auto chooses.")] = 5,
    window: Annotated[int, typer.Option(min=1, help="Context words per side.")] = 10,
    weighting: Annotated[
        str, typer.Option(help="Weight of a context word: idf, or uniform.")
    ] = "idf",
    min_occurrences: Annotated[
        int, typer.Option(min=1, help="Fewest occurrences of a word to split.")
    ] = 20,
    max_occurrences: Annotated[
        int, typer.Option(min=0, help="Occurrences to cluster, drawn at random; 0 for all.")
    ] = 10_000,
    k: Annotated[int, typer.Option("-k", min=0, help="Neighbours shown per sense.")] = 8,
    examples: Annotated[int, typer.Option(min=0, help="Contexts shown per sense.")] = 2,
    output: Annotated[
        str, typer.Option("-o", "--output", help="File for the vectors with senses: bank#1 …")
    ] = "",
    tagged: Annotated[
        str, typer.Option(help="File for the text with each word's sense; train vectors on it.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    lowercase: Annotated[bool, typer.Option(help="Convert the text to lower case.")] = True,
    tokenizer: Annotated[
        str, typer.Option(help="words splits off punctuation; whitespace splits at spaces only.")
    ] = "words",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per word.")
    ] = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Split words into senses by clustering their contexts, and give each sense a vector."""
    from weft.cli.vectors.evaluate import listed_words
    from weft.errors import UserError
    from weft.progress import counting
    from weft.vectors.corpus import TOKENIZERS, corpus
    from weft.vectors.senses import WEIGHTINGS, ContextReader, find_senses, frequent_words

    weigh = options.choose(weighting, WEIGHTINGS, "weighting")
    splitter = options.choose(tokenizer, TOKENIZERS, "tokenizer")
    number = _number(count)
    chosen = listed_words(words)
    if bool(chosen) == bool(top):
        raise UserError("Pass either --words bank,plant or --top N.")
    _check_outputs(output, tagged, overwrite)
    known = open_vectors(vectors)
    with counting("words read") as watch:
        text = corpus(files, min_count=1, lowercase=lowercase, tokenizer=splitter, watch=watch)
    reader = ContextReader(text, known, window, weigh)
    with counting("words split") as watch:
        found = find_senses(
            reader, chosen or frequent_words(text, known, top), number,
            max_senses=max_senses, min_occurrences=min_occurrences,
            max_occurrences=max_occurrences, examples=examples, seed=seed, watch=watch,
        )  # fmt: skip
    _write(found, reader, known, output, tagged)
    _show(found, reader.sense_neighbours(found, k), as_json)


def _number(count: str) -> int:
    from weft.errors import UserError

    if count == "auto":
        return 0
    if not count.isascii() or not count.isdigit() or int(count) < 1:
        raise UserError(f"--senses {count}: give a number from 1 on, or auto.")
    return int(count)


def _check_outputs(output: str, tagged: str, overwrite: bool) -> None:
    """Refuse files that cannot be written, before the work."""
    from weft.errors import UserError
    from weft.vectors.files import writable

    if output:
        writable(output)
    for path in filter(None, (output, tagged)):
        if Path(path).exists() and not overwrite:
            raise UserError(f"{path} exists. Pass --overwrite to replace it.")
        if not Path(path).parent.is_dir():
            raise UserError(f"{path}: the folder {Path(path).parent} does not exist.")


def _write(
    found: list[WordSenses], reader: ContextReader, vectors: Vectors, output: str, tagged: str
) -> None:
    from weft.storage import atomic_write
    from weft.vectors.senses import add_senses, tagged_sentences

    if output:
        add_senses(vectors, found).save(output)
        typer.echo(f"{output}: {sum(len(one.senses) for one in found):,} senses", err=True)
    if tagged:
        with atomic_write(tagged) as part, open(part, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in tagged_sentences(reader.corpus, found))
        typer.echo(f"{tagged}: {len(reader.corpus.ends):,} sentences", err=True)


def _show(found: list[WordSenses], near: Mapping[str, ScoredWords], as_json: bool) -> None:
    """Print the senses of each word: size, neighbours and typical contexts."""
    for one in found:
        if as_json:
            typer.echo(json.dumps(_as_json(one, near), ensure_ascii=False))
            continue
        total = len(one.positions)
        typer.echo(f"{one.word}: {total:,} occurrences, silhouette {one.silhouette:.3f}")
        for sense in one.senses:
            words = ", ".join(word for word, _ in near[sense.name])
            typer.echo(f"  {sense.name}  {100 * sense.size / total:.0f} %  {words}")
            for context in sense.contexts:
                typer.echo(f"      {context}")


def _as_json(one: WordSenses, near: Mapping[str, ScoredWords]) -> dict[str, object]:
    senses = [
        {
            "name": sense.name,
            "size": sense.size,
            "neighbours": [
                {"word": word, "score": round(score, 6)} for word, score in near[sense.name]
            ],
            "contexts": list(sense.contexts),
        }
        for sense in one.senses
    ]
    return {
        "word": one.word,
        "occurrences": len(one.positions),
        "silhouette": round(one.silhouette, 6),
        "senses": senses,
    }
