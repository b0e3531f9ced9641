"""weft vectors train"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from weft.cli import options

GLOVE: Literal["glove"] = "glove"


def train(
    files: Annotated[
        list[str],
        typer.Argument(metavar="CORPUS…", help="Text files, one sentence per line; - is stdin."),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="File for the vectors; the extension sets the format."),
    ],
    method: Annotated[str, typer.Option(help="skipgram, cbow, fasttext or glove.")] = "skipgram",
    dim: Annotated[int, typer.Option(min=1, help="Dimensions of a vector.")] = 100,
    window: Annotated[
        int | None, typer.Option(min=1, help="Maximum context words per side; 5, or 10 for glove.")
    ] = None,
    negative: Annotated[int, typer.Option(min=1, help="Negative samples per word.")] = 5,
    min_count: Annotated[int, typer.Option(min=1, help="Drop words seen less often.")] = 5,
    vocab_size: Annotated[int, typer.Option(min=0, help="Maximum vocabulary; 0 for all.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the corpus; 1, or 15 for glove.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Initial learning rate; 0.025 for skipgram, else 0.05.")
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option(
            min=0, help="Subsample words above this frequency; 0 for none. 1e-3, or 0 for glove."
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="negative (sampling) or hierarchical (softmax).")
    ] = "negative",
    min_n: Annotated[int, typer.Option(min=1, help="Shortest character n-gram (fasttext).")] = 3,
    max_n: Annotated[int, typer.Option(min=1, help="Longest character n-gram (fasttext).")] = 6,
    buckets: Annotated[
        int, typer.Option(min=1, help="Hash buckets for character n-grams (fasttext).")
    ] = 2_000_000,
    x_max: Annotated[
        float | None,
        typer.Option(help="Count from which on pairs weigh the same (glove); by corpus size."),
    ] = None,
    power: Annotated[float, typer.Option(help="α of the weight (x / x_max)^α (glove).")] = 0.75,
    symmetric: Annotated[
        bool, typer.Option(help="Contexts on both sides, or only to the left (glove).")
    ] = True,
    distance: Annotated[
        str, typer.Option(help="inverse: a pair counts 1/distance; none: it counts 1 (glove).")
    ] = "inverse",
    combine: Annotated[
        str, typer.Option(help="sum of word and context vectors, or word alone (glove).")
    ] = "sum",
    bias: Annotated[bool, typer.Option(help="Bias of each word and context (glove).")] = True,
    negative_weight: Annotated[
        float,
        typer.Option(
            min=0, help="Weight of random pairs (glove); try 0.2 below 100 million words."
        ),
    ] = 0.0,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 for all cores.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    deterministic: Annotated[
        bool, typer.Option(help="Same result for the same seed and threads; slower.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N; glove is CPU-only.")] = "cpu",
    lowercase: Annotated[bool, typer.Option(help="Convert the text to lower case.")] = True,
    tokenizer: Annotated[
        str, typer.Option(help="words splits off punctuation; whitespace splits at spaces only.")
    ] = "words",
    phrases: Annotated[
        int, typer.Option(min=0, help="Passes that join frequent phrases, such as new_york.")
    ] = 0,
    phrase_threshold: Annotated[
        float, typer.Option(min=0, help="Minimum score of a phrase.")
    ] = 100.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the training record.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
) -> None:
    """Train word vectors on text of any size and write them to a file."""
    from weft.errors import UserError
    from weft.vectors.cooccurrence import DISTANCES
    from weft.vectors.corpus import TOKENIZERS, corpus
    from weft.vectors.files import writable
    from weft.vectors.glove import COMBINES
    from weft.vectors.word2vec import (
        LOSSES,
        METHODS,
        RATES,
        Word2VecSettings,
        accelerator,
        train_vectors,
    )

    writable(output)  # not after hours of training
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists. Pass --overwrite to replace it.")
    if learning_rate is not None and learning_rate <= 0:
        raise UserError(f"--learning-rate should be above 0, got {learning_rate:g}.")
    chosen = options.choose(method, (*METHODS, GLOVE), "method")
    splitter = options.choose(tokenizer, TOKENIZERS, "tokenizer")
    objective = options.choose(loss, LOSSES, "loss")
    weighting = options.choose(distance, DISTANCES, "distance weighting", "--distance")
    output_vectors = options.choose(combine, COMBINES, "combination", "--combine")
    kept_above = 1e-3 if sample is None else sample
    for name, value in (("--x-max", x_max), ("--power", power)):
        if value is not None and value <= 0:
            raise UserError(f"{name} should be above 0, got {value:g}.")
    if chosen == GLOVE and device != "cpu":
        raise UserError("GloVe is trained on the CPU. Remove --device.")
    if chosen != GLOVE:  # bad settings fail before the text is read
        settings = Word2VecSettings(
            chosen,
            dim,
            window or 5,
            negative,
            epochs or 1,
            learning_rate or RATES[chosen],
            kept_above,
            threads,
            seed,
            deterministic,
            objective,
            min_n,
            max_n,
            buckets,
            device,
        )  # fmt: skip
        accelerator(settings)
    text = corpus(
        files, min_count=1 if phrases else min_count, vocab_size=0 if phrases else vocab_size,
        lowercase=lowercase, tokenizer=splitter,
    )  # fmt: skip
    if phrases:
        from weft.vectors.phrases import phrases as join_phrases

        text = join_phrases(
            text, min_count=min_count, threshold=phrase_threshold, passes=phrases,
            vocab_size=vocab_size,
        )  # fmt: skip
    if chosen == GLOVE:
        from weft.vectors.glove import glove

        vectors = glove(
            text, dim, window or 10, epochs or 15, learning_rate or 0.05, power, x_max,
            threads=threads, seed=seed, symmetric=symmetric, distance=weighting,
            combine=output_vectors, bias=bias, sample=sample or 0.0,
            negative_weight=negative_weight,
        )  # fmt: skip
    else:
        vectors = train_vectors(
            text, chosen, width=dim, window=window or 5, negative=negative, epochs=epochs or 1,
            learning_rate=learning_rate or RATES[chosen], sample=kept_above, threads=threads,
            seed=seed, deterministic=deterministic, loss=objective, min_n=min_n, max_n=max_n,
            buckets=buckets, device=device,
        )  # fmt: skip
    vectors.save(output)
    _print_summary(output, vectors.record, len(vectors), vectors.width, as_json)


def _print_summary(
    output: Path, record: Mapping[str, object], size: int, width: int, as_json: bool
) -> None:
    if as_json:
        typer.echo(json.dumps({"file": str(output), **record}, ensure_ascii=False))
        return
    speed = record.get("words_per_second")
    speed_note = f"; {speed:,} words per second" if isinstance(speed, int) else ""
    typer.echo(f"{output}: {size:,} words, {width} dimensions{speed_note}", err=True)
