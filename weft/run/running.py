"""The parts of a run that are a language model's own: a stream to learn from, texts to judge."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.batch import Store
from weft.batch.stream import Pieces, Stream
from weft.errors import UserError
from weft.model import Model
from weft.run.data import Source
from weft.tasks.language import UNKNOWN, cost
from weft.text.example import Example
from weft.train.likelihoods import likelihoods
from weft.train.runtime import Runtime
from weft.train.settings import Settings

if TYPE_CHECKING:
    from weft.run.neural import Run

CHUNK = 10_000  # texts tokenised together


def stream(run: "Run", model: Model) -> Stream:
    """The training texts, one after the other."""
    head: Any = model.head
    out = Stream(head.first, run.folder)
    place = ""
    for example, ids in _tokenised(run, run.splits.train, "train"):
        out.append(ids, example.line)
        place = example.file or place
    if len(out) < head.window:
        raise UserError(
            f"{place or 'The training text'}: {len(out)} tokens, fewer than the {head.window} of a "
            f"window. Give more text, or set task.window to at most {max(len(out), 2)}."
        )
    return out.close()


def texts(run: "Run") -> Store | None:
    """The dev texts, where there are any, each with its length in words and characters."""
    if run.splits.dev is None:
        return None
    out = Store(folder=run.folder)
    for example, ids in _tokenised(run, run.splits.dev, "dev"):
        out.append(ids, run.task.target(example, run.space), example.line)
    return out.close()


def _tokenised(run: "Run", source: Source, name: str) -> Iterator[tuple[Example, np.ndarray]]:
    """Each text with its ids; those without a known token are counted."""
    space: Any = run.space
    run.tally.open = True
    rows = run.watch.reading(source(), f"tokenising {name}")
    while chunk := list(islice(rows, CHUNK)):
        for example, ids in zip(chunk, space.ids([one.text for one in chunk]), strict=True):
            words = ids[: len(ids) - space.lines]
            if len(words) and (words == UNKNOWN).all():
                run.tally.add(f"{name} texts of unknown words only", example.where)
            yield example, ids
    run.tally.open = False


def pieces(found: Stream, model: Model, settings: Settings) -> Pieces:
    """The batches of a stream: in order for a model that carries its state, otherwise shuffled."""
    head: Any = model.head
    rows = max(1, min(settings.batch, settings.budget // head.window, len(found)))
    return Pieces(
        found, rows=rows, window=head.window, seed=settings.seed, epochs=settings.epochs,
        in_order=head.carries, both=head.both,
    )  # fmt: skip


def measured(model: Model, store: Store, task: Any, space: Any, runtime: Runtime) -> Any:
    """The measure of texts that follow each other."""
    measure = task.measure(space)
    last = space.size[2] if space.lines else -1
    rows = (store.row(i).astype(np.int64) for i in range(len(store)))
    for i, logps in enumerate(likelihoods(model, rows, runtime, running=True)):
        measure.add([cost(store.row(i), logps, last)], [store.targets[i].tolist()])
    return measure
