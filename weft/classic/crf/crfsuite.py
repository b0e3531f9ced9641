"""The weights of a linear-chain CRF, learned by CRFsuite and read out of its model file.

The file is read once, right after the library wrote it, and never kept: a loader in C that trusts
the offsets in a file has no place in a model folder that came from somewhere else.
A features   C labels
"""

import re
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.classic.progress import FitProgress, ProgressCallback, no_callback
from weft.errors import UserError

HEADER = struct.Struct("<4sI4s9I")
STATE, PAIR = 0, 1  # kinds of a weight: of a feature with a label, of two labels in a row
ITERATION = re.compile(r"\*+ Iteration #(\d+)")
LOSS = re.compile(r"Loss: (\S+)")
RECORD = np.dtype([("kind", "<u4"), ("source", "<u4"), ("label", "<u4"), ("weight", "<f8")])


@dataclass(frozen=True)
class Learned:
    """Weights by kind; the numbers in them count through the names."""

    features: list[str]  # (A,)
    labels: list[str]  # (C,)
    states: np.ndarray  # (n, 3) of float64: feature, label, weight
    pairs: np.ndarray  # (m, 3) of float64: label, following label, weight


def learn(
    sentences: Iterable[Sequence[Sequence[str]]],
    tags: Iterable[Sequence[str]],
    l1: float,
    l2: float,
    minimum: int,
    iterations: int,
    watch: ProgressCallback = no_callback,
) -> Learned:
    """Maximum likelihood by L-BFGS with a penalty on the weights."""
    trainer = _trainer(iterations, watch)
    trainer.select("lbfgs")
    settings = {"c1": l1, "c2": l2, "max_iterations": iterations}
    # Labels that never follow each other get a (negative) weight too; they occur 0 times, so the
    # least count must let them pass.
    least = minimum if minimum > 1 else 0
    trainer.set_params({**settings, "feature.minfreq": least, "feature.possible_transitions": True})
    for sentence, right in zip(sentences, tags, strict=True):
        trainer.append([list(word) for word in sentence], list(right))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        trainer.train(str(path))
        return read(path.read_bytes())


def _trainer(iterations: int, watch: ProgressCallback) -> Any:
    """Return a trainer that reports each iteration."""
    try:
        import pycrfsuite
    except ImportError:
        raise UserError(
            "classic 'crf' needs the library python-crfsuite to train. "
            "Install it: pip install 'weft[crf]' (or pip install python-crfsuite)."
        ) from None

    class ReportingTrainer(pycrfsuite.Trainer):
        done = 0

        def message(self, message: str) -> None:
            # The library's own parser of its log loses iterations.
            if started := ITERATION.match(message):
                self.done = int(started[1])
            elif found := LOSS.match(message):
                share = self.done / iterations
                note = FitProgress(share, f"iteration {self.done}", self.done, float(found[1]))
                if not watch(note):
                    raise UserError(
                        f"classic 'crf' was stopped at iteration {self.done} of at most "
                        f"{iterations}, and leaves no model. Give it more time, or lower "
                        "classic.iterations."
                    )

    return ReportingTrainer(verbose=False)


def read(data: bytes) -> Learned:
    """The weights in a model file of CRFsuite (format 'lCRF', version 100)."""
    magic, _, kind, version, *rest = HEADER.unpack_from(data)
    assert (magic, kind, version) == (b"lCRF", b"FOMC", 100), (magic, kind, version)
    at_records, at_labels, at_features = rest[3:6]
    magic, _, count = struct.unpack_from("<4s2I", data, at_records)
    assert magic == b"FEAT", magic
    records = np.frombuffer(data, RECORD, count, at_records + 12)
    by_kind = [
        np.stack([some["source"], some["label"], some["weight"]], axis=1)
        for some in (records[records["kind"] == k] for k in (STATE, PAIR))
    ]
    return Learned(_names(data, at_features), _names(data, at_labels), *by_kind)


def _names(data: bytes, start: int) -> list[str]:
    """The strings of a 'constant quark database', in the order of their numbers."""
    magic, _, _, _, count, at = struct.unpack_from("<4s5I", data, start)
    assert magic == b"CQDB", magic
    out = []
    for place in np.frombuffer(data, "<u4", count, start + at).tolist():
        _, size = struct.unpack_from("<II", data, start + place)
        first = start + place + 8
        out.append(data[first : first + size - 1].decode("utf-8"))  # the last byte is NUL
    return out
