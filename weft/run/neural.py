"""The neural half of a run: tokenizer, stores, model, then the loop with its evaluations."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save

from weft import registry
from weft.batch import Batches, Store
from weft.batch.index import Indexer
from weft.config import Config
from weft.errors import UserError
from weft.model import Model, fill
from weft.predict.neural import Neural, indexer
from weft.run.data import Data, Source, counted
from weft.run.split import Splits
from weft.tasks.task import Space, Task
from weft.text.example import Example, Tally
from weft.tokens.tokenizer import Tokenizer
from weft.train import checkpoint
from weft.train.evaluate import averaged, scores
from weft.train.loop import NotFinite, Progress, Trainee, check, fit
from weft.train.runtime import Runtime, seed_everything, threads
from weft.train.settings import Settings
from weft.train.watch import Watch, forget_after

CHUNK = 10_000  # texts tokenised together
MINUTE = 60  # seconds between checkpoints when nothing else is said


def sections(config: Config) -> dict[str, Any]:
    """The model's sections with every default written in."""
    missing = [s for s in ("tokenizer", "embedder", "encoder", "pool", "head") if s not in config]
    if missing:
        raise UserError(
            f"The configuration has no [{'], ['.join(missing)}]. Start from a recipe: "
            "`weft list recipes`, then --recipe NAME."
        )
    tokenizer = dict(config["tokenizer"])
    path = tokenizer.pop("path", "")
    filled = registry.fill("tokenizer", tokenizer)
    return {"tokenizer": {**filled, "path": path} if path else filled, **fill(config.sections)}


@dataclass
class Run:
    """One neural training with everything it needs."""

    parts: dict[str, Any]  # the model's filled sections
    data: Data
    settings: Settings
    task: Task
    space: Space
    splits: Splits
    folder: Path
    watch: Watch
    tally: Tally
    runtime: Runtime

    def fit(self, resume: bool) -> Neural:
        """Train to the end and give back the best model as an engine."""
        with threads(self.settings.threads):
            seed_everything(self.settings.seed)
            tokenizer = self._tokenizer(resume)
            model = Model(self.parts, vocabulary_size=len(tokenizer), outputs=self.space.size)
            self._initialise(model, tokenizer)
            index = indexer(model, tokenizer, self.data.limit, self.data.truncate)
            train = self._store(self.splits.train, index, model, "train")
            if not len(train):
                raise UserError("There are no training examples left.")
            dev = None
            if self.splits.dev is not None:
                dev = self._store(self.splits.dev, index, model, "dev")
            model.to(self.runtime.device)
            Loop(self, model, train, dev if dev is not None and len(dev) else None).run(resume)
            return Neural(model, index, self.runtime)

    def _tokenizer(self, resume: bool) -> Tokenizer:
        saved = self.folder / "checkpoints" / "tokenizer.json"
        if resume and saved.is_file():
            return Tokenizer.load(saved)
        section = dict(self.parts["tokenizer"])
        if path := section.pop("path", ""):
            tokenizer = Tokenizer.load(Path(path))
        else:
            kind = registry.build("tokenizer", section)
            examples = self.watch.reading(self.splits.train(), "learning the vocabulary")
            tokenizer = kind.train(example.text for example in examples)
        saved.parent.mkdir(exist_ok=True)
        tokenizer.save(saved)
        return tokenizer

    def _initialise(self, model: Model, tokenizer: Tokenizer) -> None:
        """Let embedders that start from given vectors read them."""
        for embedder in model.embedders:
            initialise: Any = getattr(embedder, "initialise", None)
            if initialise is not None:
                found = initialise(tokenizer.vocabulary)
                if found:
                    size = len(tokenizer)
                    self.watch.say(
                        f"vectors found for {found} of {size} words ({found / size:.0%})"
                    )

    def _store(self, examples: Source, index: Indexer, model: Model, name: str) -> Store:
        """Tokenise a split once; what is cut or left out goes into the tally."""
        store = Store(len(index.pieces), self.folder)
        self.tally.open = True
        rows = self.watch.reading(counted(examples, self.data, self.tally), f"tokenising {name}")
        kept = self._with_targets(rows)
        while chunk := list(islice(kept, CHUNK)):
            texts = [example.text for example, _ in chunk]
            for row in index.rows(texts, where=lambda i, chunk=chunk: chunk[i][0].where):  # type: ignore[misc]
                example, target = chunk[row.text]
                if row.coverage < 1:
                    what = f"{name} texts read only in part"
                    self.tally.add(what, f"{example.where} ({row.coverage:.0%})")
                if row.clipped:
                    self.tally.add(f"{name} texts with words too long to spell out", example.where)
                store.append(row.ids, target, example.line, row.pieces)
        self.tally.open = False
        return store.close()

    def _with_targets(self, examples: Iterator[Example]) -> Iterator[tuple[Example, Any]]:
        for example in examples:
            try:
                yield example, self.task.target(example, self.space)
            except UserError:
                if self.data.problems == "error":
                    raise
                self.tally.add("unknown labels skipped", example.where)


class Loop:
    """`fit` with evaluations, checkpoints and early stopping around it."""

    def __init__(self, run: Run, model: Model, train: Store, dev: Store | None):
        self.run_, self.model, self.dev, self.train = run, model, dev, train
        self.settings, self.watch = run.settings, run.watch
        self.folder = run.folder / "checkpoints"
        self.folder.mkdir(exist_ok=True)
        self.trainee = Trainee.fresh(model, self.settings)
        self.batches = Batches(
            train,
            rows=self.settings.batch,
            budget=self.settings.budget,
            seed=self.settings.seed,
            epochs=self.settings.epochs,
        )
        self.metric = self.settings.metric or run.task.metric
        self.best: float | None = None
        self.stale = 0
        self.saved = time.perf_counter()
        self.losses: list[Any] = [0.0, 0]  # sum and count since the last evaluation

    def run(self, resume: bool) -> None:
        """Train, and leave the best weights in the model."""
        if resume and (self.folder / "last.safetensors").is_file():
            self._restore()
        else:
            forget_after(self.run_.folder / "metrics.jsonl", -1)
        try:
            for progress in self._updates():
                self.watch.update(progress)
                self._count(progress)
                every = self.settings.evaluate_every
                if progress.ends_epoch or (every and progress.step % every == 0):
                    self._evaluate(progress)
                self._save_when_due(progress)
        except NotFinite as error:
            raise self._explained(error) from None
        self._load_best()

    def _updates(self) -> Iterator[Progress]:
        if self._stopped():
            return
        for progress in fit(
            self.trainee, self.run_.task, self.batches, self.settings, self.run_.runtime
        ):
            yield progress
            if self._stopped():
                self.watch.say(
                    f"stopped early: {self.metric} no better for {self.stale} evaluations"
                )
                return

    def _stopped(self) -> bool:
        return bool(self.settings.patience) and self.stale >= self.settings.patience

    def _count(self, progress: Progress) -> None:
        self.losses[0] = self.losses[0] + progress.total  # stays on the device
        self.losses[1] += progress.count

    def _evaluate(self, progress: Progress) -> None:
        check(self.trainee)
        loss = float(self.losses[0]) / max(self.losses[1], 1)
        self.losses = [0.0, 0]
        where = {"step": progress.step, "epoch": progress.position.epoch}
        values = {"loss": loss, "rate": progress.rate, "gradient": float(progress.norm)}
        words = f"epoch {progress.share * self.settings.epochs:.1f}  update {progress.step}"
        words += f"  loss {loss:.4f}"
        better = True
        with averaged(self.trainee):
            if self.dev is not None:
                found = self._measure(self.dev)
                values |= {f"dev_{name}": value for name, value in found.items()}
                if self.metric not in found:
                    known = ", ".join(found)
                    raise UserError(f"train.metric is '{self.metric}'; this task has {known}.")
                now = found[self.metric]
                better = self._better(now)
                words += f"  dev {self.metric} {now:.4f}{'  best' if better else ''}"
            if better:
                self._write_best()
        self.stale = 0 if better else self.stale + 1
        self.watch.event("evaluation", **where, **values, best=better)
        self.watch.say(words)
        self._save(progress)

    def _measure(self, store: Store) -> dict[str, float]:
        task, space = self.run_.task, self.run_.space
        measure = task.measure(space)
        found = scores(self.model, store, self.run_.runtime)
        measure.add(task.predicted(found, task.tune(found, store.targets, space)), store.targets)
        return {name: figure.value for name, figure in measure.figures(resamples=0).items()}

    def _better(self, now: float) -> bool:
        if not np.isfinite(now):
            return False
        lower = self.metric == "mse"
        better = self.best is None or (now < self.best if lower else now > self.best)
        if better:
            self.best = now
        return better

    def _write_best(self) -> None:
        weights = {n: t.detach().cpu().contiguous() for n, t in self.model.state_dict().items()}
        checkpoint.replace(self.folder / "best.safetensors", save(weights))

    def _save_when_due(self, progress: Progress) -> None:
        every = self.settings.save_every
        old = time.perf_counter() - self.saved > MINUTE
        if progress.step % every == 0 if every else old:
            self._save(progress)

    def _save(self, progress: Progress) -> None:
        check(self.trainee)  # what is kept is known to be good
        extra = {
            "best": self.best,
            "stale": self.stale,
            "loss": [float(self.losses[0]), self.losses[1]],
        }
        path = self.folder / "last.safetensors"
        checkpoint.write(path, self.trainee, progress.position, self.run_.runtime, extra)
        self.saved = time.perf_counter()

    def _restore(self) -> None:
        path = self.folder / "last.safetensors"
        position, extra = checkpoint.read(path, self.trainee, self.run_.runtime)
        self.batches.position = position
        self.best, self.stale = extra["best"], extra["stale"]
        self.losses = list(extra["loss"])
        forget_after(self.run_.folder / "metrics.jsonl", self.trainee.step)
        self.watch.say(f"resumed after update {self.trainee.step}")

    def _load_best(self) -> None:
        best = self.folder / "best.safetensors"
        if best.is_file():
            self.model.load_state_dict(load_file(best), strict=True)

    def _explained(self, error: NotFinite) -> UserError:
        lines = sorted({int(self.train.lines[row]) for row in error.update.rows})
        shown = ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")
        kept = self.folder / "last.safetensors"
        state = f"The last good state is in {kept}" if kept.is_file() else "Nothing was saved yet"
        return UserError(
            f"{error} The batch holds lines {shown} of the training file. {state}. Lower "
            "train.learning_rate, set train.clip=1, or look at those lines; then --resume."
        )
