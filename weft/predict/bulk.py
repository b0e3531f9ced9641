"""Predict large tables in parts that several processes or machines share.

Every input file is cut into blocks of rows, and every block becomes one file: it appears whole or
not at all, and one that is there is not computed again. What a block holds does not depend on who
computes it, so a job that was killed ends with the same bytes.
"""

import glob
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from weft.errors import UserError
from weft.jobs import Job, Place, Resources, spread, stop
from weft.predict.predictor import Predictor
from weft.progress import ProgressLines, Stage, duration, open_bar, print_line
from weft.storage import atomic_write
from weft.tasks.task import Answer
from weft.text.blocks import Block, estimate_rows, read_blocks, save_block, table_ending
from weft.text.columns import Columns
from weft.text.example import Example
from weft.text.line_source import file_not_found, strip_compression

BLOCK_ROWS = 10_000
COUNTED_ROWS = 100  # between two updates of the progress
EMBED_ROWS = 1000  # texts that are embedded at once
POLL_SECONDS = 0.2  # between looks at the parts on a cluster
Embeddings = Literal["", "column", "npy"]


@dataclass(frozen=True)
class BulkResult:
    """Counts of a bulk prediction."""

    rows: int  # predicted now
    files: int  # written now
    skipped: int  # files that were there
    seconds: float

    def __str__(self) -> str:
        speed = f", {self.rows / self.seconds:,.0f} rows/s" if self.rows else ""
        kept = f"; {self.skipped:,} files were there" if self.skipped else ""
        return f"{self.rows:,} rows in {duration(self.seconds)}{speed}, {self.files:,} files{kept}"


def predict_files(
    predictor: Predictor,
    patterns: Sequence[str],
    output: str | Path,
    *,
    columns: Columns = Columns(label="", requires_pair=False),  # noqa: B008 (frozen)
    part: tuple[int, int] = (1, 1),
    embeddings: Embeddings = "",
    block_rows: int = BLOCK_ROWS,
    quiet: bool = False,
) -> BulkResult:
    """Predict every row of the tables that match the patterns, into files of `output`.

    A file holds the rows of one block, in order and with all of their columns, and `prediction` and
    `score`; with `embeddings`, `vector` instead, or only the vectors as npy. Of `part` (i, n), only
    every n-th block is computed.
    """
    paths = expand_patterns(patterns)
    if embeddings == "column":
        for path in paths:
            if table_ending(path) in (".csv", ".tsv"):
                raise UserError(f"{path}: a cell holds no vector. Write vectors as npy.")
    number, parts = part
    if not 1 <= number <= parts:
        raise UserError(f"Part {number} of {parts}: give a number from 1 to {parts}.")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    added = () if embeddings == "npy" else ("vector",) if embeddings else ("prediction", "score")
    began, rows, files, skipped = time.perf_counter(), 0, 0, 0
    total = sum(map(estimate_rows, paths)) / parts
    with _progress(total, quiet) as count:
        for place, path in enumerate(paths):
            stem, ending = _output_name(path, embeddings)
            blocks = read_blocks(path, columns, block_rows, added)
            for index, block in enumerate(blocks):
                if (place + index) % parts != number - 1:
                    continue
                target = folder / f"{stem}-{index:06d}{ending}"
                if target.exists():
                    skipped += 1
                    count(len(block.texts), False)
                    continue
                if embeddings:
                    vectors = _embed(predictor, block, count)
                    _save_vectors(block, vectors, target, embeddings)
                else:
                    save_block(block, target, _predict(predictor, block, path, count))
                rows, files = rows + len(block.texts), files + 1
    return BulkResult(rows, files, skipped, time.perf_counter() - began)


def spread_parts(
    words: Sequence[str],
    where: Place,
    needs: Resources,
    on_part: Callable[[str], None] = print_line,
) -> None:
    """Run `weft WORDS --part i/n` for every part at a place, as many parts as fit at once.

    A part whose machine is lost starts again, and skips the files that are there.
    """
    threads = max(1, int(needs.cpus or 1))
    gpus = float(where.gpus > 0) if needs.gpus is None else needs.gpus
    needs = replace(needs, cpus=needs.cpus or 1, gpus=gpus)
    words = words if gpus or not where.is_remote else [*words, "--device", "cpu"]
    parts = where.count_slots(needs)
    jobs = [
        Job(f"part {i}/{parts}", "weft", (*words, "--part", f"{i}/{parts}"), "", threads, needs)
        for i in range(1, parts + 1)
    ]
    waiting = dict(zip(jobs, spread(jobs, where), strict=True))
    losses = dict.fromkeys(jobs, 0)
    try:
        while waiting:
            for job, running in list(waiting.items()):
                code = running.poll()
                if running.losses > losses[job]:
                    losses[job] = running.losses
                    on_part(f"{job.name}: its machine was lost, starting again")
                if code is None:
                    continue
                del waiting[job]
                if code:
                    reason = running.last_line().removeprefix("error: ")
                    raise UserError(reason or f"{job.name} ended with status {code}.")
                on_part(f"{job.name}: {running.last_line()}")
            time.sleep(POLL_SECONDS)
    finally:
        stop(list(waiting.values()))


def expand_patterns(patterns: Sequence[str]) -> list[str]:
    """Return the files that patterns such as in/*.parquet match, each pattern's in order."""
    paths: list[str] = []
    for pattern in patterns:
        found = [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern, recursive=True))
        if not found:
            raise file_not_found(pattern)
        paths += [path for path in found if path not in paths]
    names = Counter(_output_name(path, "npy")[0] for path in paths)
    for path in paths:
        if names[_output_name(path, "npy")[0]] > 1:
            raise UserError(
                f"{path}: another input has the same name, and their outputs would, too. Predict "
                "them into two folders."
            )
    return paths


def _output_name(path: str, embeddings: Embeddings) -> tuple[str, str]:
    """Return the stem and the ending of the files of an input."""
    ending, name = table_ending(path), Path(path).name
    stem = name[: len(name) - len(ending) - len(strip_compression(path)[1])]
    return stem, ".npy" if embeddings == "npy" else ending


def _predict(
    predictor: Predictor, block: Block, path: str, count: "Count"
) -> Mapping[str, Sequence[Any]]:
    values, scores = [], []
    for answer in predictor.stream(_inputs(predictor, block, path)):
        values.append(_value(answer))
        scores.append(answer.score)
        if len(values) % COUNTED_ROWS == 0:
            count(COUNTED_ROWS, True)
    count(len(values) % COUNTED_ROWS, True)
    return {"prediction": values, "score": scores}


def _inputs(predictor: Predictor, block: Block, path: str) -> Sequence[str | Example]:
    if not predictor.pairs:
        return block.texts
    if block.others is None:
        raise UserError(
            f"{path}: this model needs a text pair. Name both columns: --text, --text-pair."
        )
    return [Example(a, other=b) for a, b in zip(block.texts, block.others, strict=True)]


def _value(answer: Answer) -> Any:
    """Return an answer as a cell; what labels words, as JSON."""
    if answer.structure is not None and answer.structure.kind != "answer":
        return json.dumps(answer.structure.to_json(), ensure_ascii=False)
    return answer.value


def _embed(predictor: Predictor, block: Block, count: "Count") -> np.ndarray:
    chunks = []
    for start in range(0, len(block.texts), EMBED_ROWS):
        texts = block.texts[start : start + EMBED_ROWS]
        chunks.append(np.asarray(predictor.embed(texts), np.float32))
        count(len(texts), True)
    return np.concatenate(chunks)


def _save_vectors(block: Block, vectors: np.ndarray, target: Path, embeddings: Embeddings) -> None:
    if embeddings == "column":
        save_block(block, target, {"vector": vectors})
        return
    with atomic_write(target) as part, part.open("wb") as file:
        np.save(file, vectors)


class Count:
    """Counts rows: computed now, or found done."""

    def __init__(self, stage: Stage, total: float, bar: Any):
        self.stage, self.total, self.bar = stage, total, bar
        self.before = 0

    def __call__(self, rows: int, computed: bool) -> None:
        if computed:
            self.stage.done += rows
        else:
            self.before += rows
        if self.total:
            done = min((self.before + self.stage.done) / self.total, 1.0)
            self.stage.share = (min(self.before / self.total, 1.0), done)
        if self.bar is not None:
            self.bar.advance(rows)


@contextmanager
def _progress(total: float, quiet: bool) -> Iterator[Count]:
    """Yield a counter that shows rows, rows a second and the time left."""
    bar = None if quiet else open_bar("rows", total or None)
    lines = ProgressLines(lambda text: None if quiet else print_line(text))
    with closing(lines), lines.during("predicting", "rows", announce=False) as stage:
        try:
            yield Count(stage, total, bar)
        finally:
            if bar is not None:
                bar.close()
