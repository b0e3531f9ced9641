"""weft vectors train: learn word vectors from text files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

COUNT = "counting"  # what GloVe does before its first pass


def train(
    files: Annotated[
        list[str], typer.Argument(metavar="CORPUS…", help="Text, a sentence a line; - is stdin.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the vectors go; the ending says how.")
    ],
    method: Annotated[str, typer.Option(help="skipgram, cbow, fasttext or glove.")] = "skipgram",
    dim: Annotated[int, typer.Option(min=1, help="Numbers of a vector.")] = 100,
    window: Annotated[
        int | None, typer.Option(min=1, help="Words to each side, at most; 5, or 10 for glove.")
    ] = None,
    negative: Annotated[int, typer.Option(min=1, help="Words drawn against each word.")] = 5,
    min_count: Annotated[int, typer.Option(min=1, help="Leave out words seen less often.")] = 5,
    size: Annotated[int, typer.Option(min=0, help="Most words kept; 0 keeps all.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Times through the corpus; 1, or 15 for glove.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="0.025 for skipgram, else 0.05.")] = None,
    sample: Annotated[
        float, typer.Option(min=0, help="Words above this share are thinned.")
    ] = 1e-3,
    loss: Annotated[str, typer.Option(help="negative or hierarchical.")] = "negative",
    shortest: Annotated[int, typer.Option(min=1, help="Letters of the shortest sub-word.")] = 3,
    longest: Annotated[int, typer.Option(min=1, help="Letters of the longest sub-word.")] = 6,
    buckets: Annotated[int, typer.Option(min=1, help="Rows that sub-words share.")] = 2_000_000,
    threads: Annotated[int, typer.Option(min=0, help="0 takes all processors.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of all random numbers.")] = 1,
    deterministic: Annotated[
        bool, typer.Option(help="The same bytes from the same seed and threads; slower.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N; not for glove.")] = "cpu",
    lowercase: Annotated[bool, typer.Option(help="Fold case.")] = True,
    words: Annotated[
        str, typer.Option(help="words cuts off punctuation; whitespace takes the text as it is.")
    ] = "words",
    phrases: Annotated[int, typer.Option(min=0, help="Passes that join phrases, new_york.")] = 0,
    threshold: Annotated[
        float, typer.Option(min=0, help="Score from which pairs are phrases.")
    ] = 100.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record of the run.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
) -> None:
    """Learn word vectors from text of any size and write them to a file."""
    from weft.cli.progress import counting
    from weft.errors import UserError, unknown_name
    from weft.vectors.corpus import corpus
    from weft.vectors.files import writable
    from weft.vectors.word2vec import METHODS, RATES, Settings, accelerator, train_vectors

    writable(output)  # not after hours of training
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists. Pass --overwrite to replace it.")
    if rate is not None and rate <= 0:
        raise UserError(f"--rate should be above 0, got {rate:g}.")
    if method not in (*METHODS, "glove"):
        raise unknown_name("method", method, (*METHODS, "glove"))
    if words not in ("words", "whitespace"):
        raise unknown_name("way to cut words", words, ("words", "whitespace"))
    if method == "glove" and device != "cpu":
        raise UserError("GloVe is trained on the processor. Leave --device out.")
    counted = method == "glove"  # its epochs go over the pairs, not the text
    options: dict[str, Any] = {
        "width": dim, "window": window or (10 if counted else 5),
        "epochs": epochs or (15 if counted else 1), "threads": threads, "seed": seed,
    }  # fmt: skip
    if method != "glove":
        options |= {
            "negative": negative, "rate": rate or RATES[method], "sample": sample, "loss": loss,
            "deterministic": deterministic, "shortest": shortest, "longest": longest,
            "buckets": buckets, "device": device,
        }  # fmt: skip
        # Wrong ones fail before the text is read.
        accelerator(Settings(method=method, **options))  # type: ignore[arg-type]
    with counting("words read") as watch:
        read = corpus(
            files, minimum=1 if phrases else min_count, size=0 if phrases else size,
            lowercase=lowercase, words=words, watch=watch,  # type: ignore[arg-type]
        )  # fmt: skip
    if phrases:
        from weft.vectors.phrases import phrases as joined

        read = joined(read, minimum=min_count, threshold=threshold, passes=phrases, size=size)
    if method == "glove":
        from weft.vectors.glove import glove

        if rate:
            options["rate"] = rate
        with counting("passes over the pairs") as watch:
            vectors = glove(
                read, **options, watch=lambda what, share: watch(int(share >= 1 and what != COUNT))
            )
    else:
        with counting("words learnt") as watch:
            vectors = train_vectors(read, method, **options, watch=watch)  # type: ignore[arg-type]
    vectors.save(output)
    _print_summary(output, vectors.record, len(vectors), vectors.width, as_json)


def _print_summary(
    output: Path, record: dict[str, object], size: int, width: int, as_json: bool
) -> None:
    if as_json:
        typer.echo(json.dumps({"file": str(output), **record}, ensure_ascii=False))
        return
    speed = record.get("words_per_second")
    speed_note = f"; {speed:,} words a second" if isinstance(speed, int) else ""
    typer.echo(f"{output}: {size:,} words of {width} numbers each{speed_note}", err=True)
