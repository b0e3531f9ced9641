"""Does bucketing pay? `Predictor` against batches of 32 in arrival order, padded to the longest.

    python bench/predict.py --data DATA --recipes lstm,bilstm,cnn,transformer --repeats 5

The texts are 10,000 sentences of IMDB's test reviews (DATA/classification/imdb), or without --data
as many sentences of Python's documentation. The peer is what most code does: the same tokenizer,
model and inference mode, with torch's pad_sequence. Answers must be the same and in input order.
"""

import lzma
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Record, interleaved, options, ratios, spread
from torch.nn.utils.rnn import pad_sequence

import weft
from weft.batch import Padded, inference_batches
from weft.predict.neural import NeuralEngine
from weft.runtime import use_threads
from weft.tasks.task import Answer
from weft.text.example import Example

BAR = 1.8
SENTENCES, TRAINED, ROWS = 10_000, 2_000, 32
END = re.compile(r"(?<=[.!?])\s+")


def imdb(data: Path, part: str) -> Iterator[Example]:
    """The sentences of one half of IMDB, each with the label of its review."""
    with lzma.open(data / f"classification/imdb/{part}.tsv.xz", "rt", encoding="utf-8") as file:
        for line in file:
            cells = line.rstrip("\n").split("\t")
            for sentence in END.split(cells[3].replace("<br />", " ")):
                if sentence.strip():
                    yield Example(sentence.strip(), cells[0])


def documentation() -> Iterator[Example]:
    """Sentences of Python's documentation over and over, with labels of no meaning."""
    split = [s for text in weft.corpus("python-docs") for s in END.split(text) if s.strip()]
    return (Example(text, "odd" if len(text) % 2 else "even") for text in cycle(split))


def trained(recipe: str, examples: Sequence[Example], folder: str) -> weft.Predictor:
    """A recipe after one short epoch: its answers do not matter here, only its size."""
    config = weft.recipe(recipe).with_values({"train.epochs": 1}, "bench")
    parts = weft.Splits(lambda: iter(examples), lambda: iter(examples[::20]), None)
    weft.train(config, folder, splits=parts, quiet=True, device="cpu")
    return weft.load(folder, device="cpu")


def fixed(engine: NeuralEngine, texts: Sequence[str]) -> tuple[np.ndarray, int]:
    """Probabilities in plain torch, 32 texts at a time as they come; and the steps computed."""
    tokenizer, model = engine.indexer.tokenizer, engine.model.eval()
    found, steps = [], 0
    with torch.inference_mode():
        for start in range(0, len(texts), ROWS):
            ids = tokenizer.encode_ids(texts[start : start + ROWS])
            # As the Predictor does, a text without a single word is read as one unknown word.
            rows = [torch.from_numpy(row).long() if len(row) else torch.tensor([1]) for row in ids]
            data = pad_sequence(rows, batch_first=True)  # (B, T)
            scores = model(Padded(data, torch.tensor([len(row) for row in rows])))
            found.append(torch.softmax(scores, dim=1))
            steps += data.numel()
    return torch.cat(found).numpy(), steps


def padding(engine: NeuralEngine, texts: Sequence[str], steps: int) -> dict[str, float]:
    """The share of all computed steps that is padding, either way."""
    from weft.inference.forward import MAX_ROWS as most
    from weft.inference.forward import MAX_TOKENS
    from weft.predict.predictor import CHUNK_TEXTS

    real = bucketed = 0
    for start in range(0, len(texts), CHUNK_TEXTS):
        store = engine._index(texts[start : start + CHUNK_TEXTS])
        real += int(store.lengths.sum())
        bucketed += sum(
            b.source.data.numel() for b in inference_batches(store, rows=most, budget=MAX_TOKENS)
        )
    return {"bucketed": round(1 - real / bucketed, 4), "fixed": round(1 - real / steps, 4)}


def same(answers: Sequence[Answer], chances: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    """How far two sets of answers are apart, row by row."""
    ours = np.array([answer.scores for answer in answers])
    gap = float(np.abs(ours - chances).max())
    # Two labels that are equally probable to the last digits may come out either way.
    clear = np.abs(np.diff(np.sort(chances, axis=1)[:, -2:], axis=1)[:, 0]) > 1e-5
    value = np.array([answer.value for answer in answers])
    differ = int(((value != np.array(labels)[chances.argmax(1)]) & clear).sum())
    assert not differ, f"{differ} answers differ"
    assert gap < 1e-5, f"scores differ by up to {gap}"
    return {"answers_that_differ": differ, "largest_score_gap": float(f"{gap:.2g}")}


def measure(predictor: weft.Predictor, texts: list[str], repeats: int) -> dict[str, Any]:
    """Both ways over the same texts, and what each did."""
    engine = predictor.engine
    assert isinstance(engine, NeuralEngine)
    kept: dict[str, Any] = {}

    def by_predictor() -> float:
        started = time.perf_counter()
        kept["answers"] = predictor(texts)
        return time.perf_counter() - started

    def by_hand() -> float:
        started = time.perf_counter()
        kept["chances"], kept["steps"] = fixed(engine, texts)
        return time.perf_counter() - started

    seconds = interleaved({"bucketed": by_predictor, "fixed": by_hand}, repeats)
    return {
        "speedup": ratios(seconds["fixed"], seconds["bucketed"]),
        "sentences_per_second": {
            name: spread([len(texts) / s for s in values], 0) for name, values in seconds.items()
        },
        "padding": padding(engine, texts, kept["steps"]),
        **same(kept["answers"], kept["chances"], predictor.labels),
    }


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--data", help="folder with classification/imdb; else python-docs")
    parser.add_argument("--recipes", default="lstm,bilstm,cnn,transformer")
    parser.add_argument("--threads", default="2")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    if arguments.data:
        source = "IMDB test reviews"
        everything = list(imdb(Path(arguments.data), "train"))
        train = everything[:: len(everything) // TRAINED]  # the file is sorted by class
        texts = [e.text for e in islice(imdb(Path(arguments.data), "test"), SENTENCES)]
    else:
        source = "Python's documentation"
        train = list(islice(documentation(), TRAINED))
        texts = [e.text for e in islice(documentation(), SENTENCES)]
    for recipe in arguments.recipes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            predictor = trained(recipe, train, f"{folder}/run")
        for count in map(int, arguments.threads.split(",")):
            with use_threads(count):
                found = measure(predictor, texts, arguments.repeats)
            record.line(
                "predict",
                recipe=recipe,
                threads=count,
                sentences=len(texts),
                source=source,
                bar=BAR,
                **found,
            )


if __name__ == "__main__":
    main()
