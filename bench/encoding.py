"""How fast is a small BERT on a processor? Sentence vectors, and fine-tuning, against its peers.

    pip install -r bench/requirements.txt
    python bench/encoding.py --checkpoint MINILM --data DATA --threads 2 --record encoding_cpu

Vectors: sentences of 5 to 60 words of English Wikipedia, in no order of length, from texts to
normalised vectors. sentence-transformers sorts them itself; CTranslate2 has no such verb, so it is
given the ids of `tokenizers`, sorted, in batches of 32 (16 and 64 are no faster), and its states
are averaged. Fine-tuning: sentences of SST-2 in batches of 32, for one epoch; transformers' model
in a plain loop that shuffles, pads to the longest of a batch, clips gradients, and steps a fused
AdamW. Weft does the same in batches of like length. All is tokenised beforehand. The ways take
turns; ratios are taken within each turn.
"""

import gzip
import math
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Record, interleaved, options, ratios, spread
from torch import Tensor

import weft
from weft import registry
from weft.batch import BatchLoader, TokenStore
from weft.batch.indexer import Indexer
from weft.config import with_pretrained
from weft.convert.checkpoint import Checkpoint
from weft.model import Model, build_model
from weft.run.convert import convert
from weft.run.pretrained import load_pretrained
from weft.run.train import resolve_config
from weft.runtime import seed_everything, select_runtime
from weft.text.example import Example
from weft.text.read import read
from weft.train.loop import fit
from weft.train.settings import Settings
from weft.train.state import TrainState

SHORTEST, LONGEST = 5, 60  # words of a sentence
PIECE = 32  # sentences of a batch
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
POLARITY = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}


def sentences(root: Path, count: int, seed: int = 3) -> list[str]:
    """Sentences of Wikipedia, of any length between the bounds."""
    with gzip.open(root / "lm/wiki_en/valid.txt.gz", "rt", encoding="utf-8") as file:
        found = [one.strip() for line in file for one in SENTENCE.split(line)]
    kept = [one for one in found if SHORTEST <= len(one.split()) <= LONGEST]
    random.Random(seed).shuffle(kept)
    return kept[:count]


class CTranslate2:
    """The compiled library of OpenNMT, with the tokenizer and the pooling it does not have."""

    def __init__(self, checkpoint: Path, folder: Path, threads: int, kind: str):
        import ctranslate2
        from ctranslate2.converters import TransformersConverter
        from tokenizers import Tokenizer

        if not (folder / "model.bin").exists():
            TransformersConverter(str(checkpoint)).convert(str(folder), force=True)
        self.tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.encoder = ctranslate2.Encoder(
            str(folder), "cpu", compute_type=kind, inter_threads=1, intra_threads=threads
        )

    def __call__(self, texts: list[str]) -> np.ndarray:
        ids = [one.ids for one in self.tokenizer.encode_batch_fast(texts)]
        order = np.argsort([len(row) for row in ids])
        out = []
        for begun in range(0, len(order), PIECE):
            rows = [ids[i] for i in order[begun : begun + PIECE]]
            states = np.array(self.encoder.forward_batch(rows).last_hidden_state)
            lengths = np.array([len(row) for row in rows])[:, None]
            real = np.arange(states.shape[1]) < lengths
            out.append((states * real[..., None]).sum(1) / lengths)
        vectors = np.empty((len(order), out[0].shape[1]), np.float32)
        vectors[order] = np.concatenate(out)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def encoders(checkpoint: Path, folder: Path, threads: int) -> dict[str, Callable]:
    """Every way from texts to vectors that can be had here."""
    convert(str(checkpoint), folder / "weft")
    ways: dict[str, Callable] = {
        "weft": weft.load(folder / "weft", device="cpu").embed,
        "weft int8": weft.load(folder / "weft", device="cpu", weights="int8").embed,
    }
    if find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        theirs = SentenceTransformer(str(checkpoint), device="cpu")
        ways["sentence-transformers"] = partial(
            theirs.encode, batch_size=PIECE, show_progress_bar=False
        )
    if find_spec("ctranslate2"):
        for name, kind in (("ctranslate2", "float32"), ("ctranslate2 int8", "int8")):
            ways[name] = CTranslate2(checkpoint, folder / "ctranslate2", threads, kind)
    return ways


def encode(record: Record, ways: dict[str, Callable], texts: list[str], given: Any) -> None:
    """Speeds of all, how much faster ours are, and how near the vectors are to the exact ones."""
    found = {name: np.asarray(way(texts)) for name, way in ways.items()}
    # With nothing prepared, blocks read as they are written: what all the others should find.
    exact = found.get("sentence-transformers", found["weft"])
    times = interleaved({name: partial(_timed, way, texts) for name, way in ways.items()},
                        given.repeats)  # fmt: skip
    shape = {"threads": given.threads, "sentences": len(texts)}
    for name, values in times.items():
        rate = spread([len(texts) / value for value in values], 1)
        cosine = (found[name] * exact).sum(1)
        near = {"least": round(float(cosine.min()), 5), "mean": round(float(cosine.mean()), 5)}
        record.line(f"encoding: {name}", **shape, sentences_per_second=rate, cosine=near)
    for ours in ("weft", "weft int8"):
        for name in times:
            if name != ours:
                ratio = ratios(times[name], times[ours])
                record.line(f"encoding: {ours}, times {name}", **shape, ratio=ratio)


def _timed(way: Callable, texts: list[str]) -> float:
    begun = time.perf_counter()
    way(texts)
    return time.perf_counter() - begun


class Tuning:
    """MiniLM to be fine-tuned for an epoch, by Weft's loop and by a plain one."""

    def __init__(self, checkpoint: Path, examples: list[Example]):
        base = with_pretrained(weft.recipe("bert"), str(checkpoint))
        full = resolve_config(
            base.with_values({"train.epochs": 1, "train.batch_size": PIECE}, "bench")
        )
        self.checkpoint, self.settings = checkpoint, Settings(**full["train"])
        self.task: Any = registry.build("task", full["task"])
        self.space = self.task.space(examples)
        tokenizer = Checkpoint(checkpoint).tokenizer
        self.full, self.words = full, len(tokenizer)
        self.store = TokenStore()
        indexer = Indexer(tokenizer, frame=self._model().frame)
        for row in indexer.rows([e.text for e in examples]):
            self.store.append(row.ids, self.task.target(examples[row.text], self.space))
        self.store.close()
        self.losses: dict[str, float] = {}

    def _model(self) -> Model:
        seed_everything(self.settings.seed)
        return build_model(self.full, vocabulary_size=self.words, outputs=self.space.size)

    def ours(self) -> float:
        model, chosen = self._model(), self.settings
        load_pretrained(model, "classify")
        trainee = TrainState.fresh(model, chosen)
        batches = BatchLoader(
            self.store, rows=chosen.batch_size, budget=chosen.max_tokens, seed=chosen.seed, epochs=1
        )
        total, begun = 0.0, time.perf_counter()
        for progress in fit(trainee, self.task, batches, chosen, select_runtime("cpu")):
            total += float(progress.total)
        return self._ended("weft", begun, total)

    def theirs(self) -> float:
        from transformers import AutoModelForSequenceClassification

        seed_everything(self.settings.seed)
        model = AutoModelForSequenceClassification.from_pretrained(
            self.checkpoint, num_labels=len(self.space.entries)
        ).train()
        chosen = self.settings
        optimiser = torch.optim.AdamW(
            model.parameters(), chosen.learning_rate, weight_decay=chosen.weight_decay, fused=True
        )
        total, begun = 0.0, time.perf_counter()
        count = math.ceil(len(self.store) / chosen.batch_size)
        for step, (ids, mask, target) in enumerate(self._shuffled()):
            done = step / count
            rising = min(1.0, done / chosen.warmup)
            for group in optimiser.param_groups:
                group["lr"] = chosen.learning_rate * min(rising, (1 - done) / (1 - chosen.warmup))
            loss = model(input_ids=ids, attention_mask=mask, labels=target).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), chosen.clip_norm)
            optimiser.step()
            optimiser.zero_grad()
            total += float(loss.detach()) * len(target)
        return self._ended("transformers", begun, total)

    def _shuffled(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches as transformers' own collator pads them."""
        order = torch.randperm(len(self.store)).tolist()
        for begun in range(0, len(order), self.settings.batch_size):
            chosen = order[begun : begun + self.settings.batch_size]
            rows = [torch.from_numpy(self.store.row(i).astype(np.int64)) for i in chosen]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            lengths = torch.tensor([len(row) for row in rows])
            mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
            yield ids, mask, torch.from_numpy(self.store.targets[chosen])

    def _ended(self, name: str, begun: float, total: float) -> float:
        self.losses[name] = round(total / len(self.store), 4)
        return time.perf_counter() - begun


def tune(record: Record, tuning: Tuning, given: Any) -> None:
    """Sentences a second of an epoch, and the mean loss along it."""
    ways = {"weft": tuning.ours, "transformers": tuning.theirs}
    times = interleaved(ways, given.repeats)
    shape = {"threads": given.threads, "sentences": len(tuning.store), "batch": PIECE}
    for name, values in times.items():
        rate = spread([len(tuning.store) / value for value in values], 1)
        loss = tuning.losses[name]
        record.line(f"fine-tuning: {name}", **shape, sentences_per_second=rate, loss=loss)
    ratio = ratios(times["transformers"], times["weft"])
    record.line("fine-tuning: weft, times transformers", **shape, ratio=ratio)


def main() -> None:
    parser = options(__doc__, repeats=7)
    parser.add_argument("--checkpoint", type=Path, required=True, help="MiniLM's folder")
    parser.add_argument("--data", type=Path, default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=1000, help="to be encoded")
    parser.add_argument("--examples", type=int, default=960, help="to learn from")
    parser.add_argument("--only", choices=("encode", "tune"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    record, root = Record(given.record), Path(given.data)
    if given.only != "tune":
        with tempfile.TemporaryDirectory() as folder:
            ways = encoders(given.checkpoint, Path(folder), given.threads)
            encode(record, ways, sentences(root, given.sentences), given)
    if given.only != "encode":
        found = [e for e in read(root / "classification/sst/train.txt") if e.label in POLARITY]
        chosen = [Example(e.text, POLARITY[str(e.label)]) for e in found[: given.examples]]
        tune(record, Tuning(given.checkpoint, chosen), given)


if __name__ == "__main__":
    main()
