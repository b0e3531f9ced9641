"""weft vectors neighbours, analogy, odd, expand, convert"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from weft.cli import options

if TYPE_CHECKING:
    from weft.vectors.store import ScoredWords, Vectors

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Word vectors in any known format, or a model folder."),
]
Count = Annotated[int, typer.Option("-k", min=1, help="Number of results.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per query.")]
Duplicates = Annotated[
    str, typer.Option(help="On a repeated word: error stops, first keeps the first vector.")
]


def neighbours(
    file: File,
    words: Annotated[list[str], typer.Argument(metavar="WORD…", help="Query words.")],
    texts: Annotated[
        str, typer.Option(help="Search the texts of this file with a model's sentence vectors.")
    ] = "",
    text: options.Text = "",
    on_bad_row: options.OnBadRow = "error",
    k: Count = 10,
    as_json: Json = False,
    approximate: Annotated[
        bool, typer.Option(help="Approximate search with usearch; its index is kept next to FILE.")
    ] = False,
    metric: Annotated[
        str, typer.Option(help="cosine, or euclidean for the distance of the vectors as they are.")
    ] = "cosine",
    duplicates: Duplicates = "error",
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Print the nearest words; for several words, a table with a column per query.

    FILE may be a model: its embedding table is searched. With --texts the results are texts, by
    the model's sentence vectors: `neighbours RUN "A dog runs." --texts corpus.txt`.
    """
    from weft.errors import UserError
    from weft.vectors.neighbours import METRICS

    chosen = options.choose(metric, METRICS, "metric")
    if chosen != "cosine" and (texts or approximate):
        other = "--texts" if texts else "--approximate"
        raise UserError(f"{other} searches by cosine. Remove --metric {metric}.")
    if texts:
        _among_texts(file, words, (texts, text, on_bad_row), k, as_json)
        return
    vectors = open_vectors(file, duplicates, trust)
    if approximate:
        _graph(vectors, file)
        found = [vectors.neighbours(word, k, approximate=True) for word in words]
    else:
        found = vectors.neighbour_lists(words, k, chosen)
    if as_json:
        for word, near in zip(words, found, strict=True):
            _say(_object({"word": word}, "neighbours", near))
    elif len(words) == 1:
        _score_texts(found[0])
    else:
        _table(vectors, words, found)


def analogy(
    file: File,
    a: Annotated[str, typer.Argument(metavar="A", help="A is to B …")],
    b: Annotated[str, typer.Argument(metavar="B")],
    c: Annotated[str, typer.Argument(metavar="C", help="… as C is to what?")],
    k: Count = 5,
    method: Annotated[str, typer.Option(help="add (3CosAdd) or multiply (3CosMul).")] = "add",
    as_json: Json = False,
    duplicates: Duplicates = "error",
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Print the words that are to C what B is to A: `analogy FILE man king woman`."""
    from weft.vectors.neighbours import ANALOGY_METHODS

    chosen = options.choose(method, ANALOGY_METHODS, "analogy method")
    found = open_vectors(file, duplicates, trust).analogy(a, b, c, k, chosen)
    if as_json:
        _say(_object({"a": a, "b": b, "c": c, "method": method}, "answers", found))
    else:
        _score_texts(found)


def odd(
    file: File,
    words: Annotated[list[str], typer.Argument(metavar="WORD…", help="Three words or more.")],
    as_json: Json = False,
    duplicates: Duplicates = "error",
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Print the odd one out first: the words by their cosine to the mean of all, lowest first."""
    ranked = open_vectors(file, duplicates, trust).rank_by_centrality(words)[::-1]
    if as_json:
        _say(_object({"odd": ranked[0][0]}, "words", ranked))
    else:
        _score_texts(ranked)


def expand(
    file: File,
    words: Annotated[list[str], typer.Argument(metavar="WORD…", help="Words of the query.")],
    k: Count = 10,
    as_json: Json = False,
    duplicates: Duplicates = "error",
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Print a search query with the words nearest to its mean, each with its weight."""
    found = open_vectors(file, duplicates, trust).expand(words, k)
    if as_json:
        _say(_object({"query": " ".join(words)}, "terms", found))
    else:
        _score_texts(found)


def convert(
    file: File,
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="Output file; the extension sets the format.")
    ],
    format: Annotated[
        str,
        typer.Option(help="If the extension is ambiguous: glove, fasttext, word2vec-binary, …"),
    ] = "",
    duplicates: Duplicates = "error",
    overwrite: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Write word vectors in another format: .txt .vec .glove.txt .bin .npz .npy .safetensors.

    Of a model folder, the embedding table is written.
    """
    from weft.errors import UserError
    from weft.vectors.files import writable

    writable(output, format)
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists. Pass --overwrite to replace it.")
    vectors = open_vectors(file, duplicates, trust)
    vectors.save(output, format)
    typer.echo(f"{output}: {len(vectors):,} words, {vectors.width} dimensions", err=True)


def _among_texts(
    model: Path, queries: list[str], source: tuple[str, str, str], k: int, as_json: bool
) -> None:
    """The texts of a file that are nearest to each query, by a model's sentence vectors.

    `source` is the file, the column of its texts, and what to do with bad rows.
    """
    from weft.loading import load
    from weft.predict.semantic_search import nearest
    from weft.progress import counting
    from weft.text.read import Columns, read
    from weft.vectors.autoencode import Autoencoder

    file, text, on_bad_row = source

    def written(count: Callable[[int], None]) -> Iterator[str]:
        columns = Columns(text=options.column(text) if text else None, label="")
        chosen = options.bad_row_policy(on_bad_row)
        for example in read(file, columns=columns, on_bad_row=chosen, keep_empty=True):
            count(1)
            if example.text.strip():  # blank lines stand between the paragraphs of any text
                yield example.text

    with counting("texts") as count:
        embedder = Autoencoder.load(model) if Autoencoder.is_folder(model) else load(model)
        found = nearest(embedder, queries, written(count), k)
    for number, (query, near) in enumerate(zip(queries, found, strict=True)):
        if as_json:
            pairs = [{"text": text, "score": round(score, 6)} for text, score in near]
            typer.echo(json.dumps({"text": query, "neighbours": pairs}, ensure_ascii=False))
            continue
        if len(queries) > 1:
            typer.echo(f"{'' if not number else chr(10)}{query}")
        for text, score in near:
            typer.echo(f"{score:.4f}  {' '.join(text.split())}")


def open_vectors(file: Path, duplicates: str = "error", trust: Sequence[str] = ()) -> Vectors:
    """Open a file of word vectors, or the embedding table of a model."""
    choices: tuple[Literal["error", "first"], ...] = ("error", "first")
    chosen = options.choose(duplicates, choices, "choice", "--duplicates")
    if file.is_file():  # without the libraries that a model needs
        from weft.vectors.store import Vectors

        return Vectors.load(file, duplicates=chosen)
    from weft.loading import load_vectors

    return load_vectors(file, duplicates=chosen, trust=tuple(trust))


def _graph(vectors: Vectors, file: Path) -> None:
    """Open the graph beside the file; make it where there is none, or an older one."""
    from weft.vectors.neighbours import Approximate

    place = file.with_name(file.name + ".usearch")
    if place.is_file() and place.stat().st_mtime >= file.stat().st_mtime:
        vectors.graph = Approximate.open(str(place), len(vectors), vectors.width)
        return
    typer.echo(f"Building {place} from {len(vectors):,} words (once) …", err=True)
    vectors.graph.save(str(place))


def _object(query: dict[str, str], name: str, found: Sequence[tuple[str, float]]) -> str:
    pairs = [{"word": word, "score": round(score, 6)} for word, score in found]
    return json.dumps({**query, name: pairs}, ensure_ascii=False)


def _score_texts(found: Sequence[tuple[str, float]]) -> None:
    for word, score in found:
        _say(f"{score:.4f}  {word}")


def _table(vectors: Vectors, words: list[str], found: list[ScoredWords]) -> None:
    """Collobert et al. (2011), table 7: queries and their index above their neighbours."""
    from rich.cells import cell_len

    ranks = [f" {vectors.index[word] + 1}" if word in vectors.index else "" for word in words]
    columns = [
        [word.upper() + rank, *(near for near, _ in lists)]
        for word, rank, lists in zip(words, ranks, found, strict=True)
    ]
    columns = [[_shown(cell) for cell in column] for column in columns]
    widths = [max(map(cell_len, column)) for column in columns]
    height = max(map(len, columns))
    for line in range(height):
        cells = [column[line] if line < len(column) else "" for column in columns]
        padded = [c + " " * (w - cell_len(c)) for c, w in zip(cells, widths, strict=True)]
        _say("  ".join(padded).rstrip())


def _say(line: str) -> None:
    typer.echo(_shown(line))


def _shown(text: str) -> str:
    """Bytes of a word that are no UTF-8 cannot be printed."""
    from weft.embed.subwords import word_bytes

    return word_bytes(text).decode("utf-8", "replace")
