"""The trainer: evaluations, checkpoints and early stopping around the training loop."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from weft.batch import BatchLoader, LabelledBatch, Position, TokenStore, labelled_batch
from weft.batch.documents import Documents
from weft.batch.lm_windows import LMLoader, TokenStream
from weft.batch.mlm_collator import MLMLoader
from weft.errors import UserError, is_out_of_memory
from weft.inference.forward import collect_outputs, decode_batches
from weft.machine import available_cpus
from weft.metrics.value import lower_is_better
from weft.model import EncoderModel, Model
from weft.progress import Stage, duration
from weft.run import lm_data, mlm_data
from weft.run.context import RunContext, TrainingResult
from weft.run.tokenise import DevReference, predictions_and_references
from weft.runtime import Runtime, seed_everything
from weft.storage import write_text
from weft.train import checkpoint
from weft.train.cuda_graphs import WARMUP_UPDATES, setup_work, updates_ahead
from weft.train.ema import ema_weights
from weft.train.feature_cache import cache_features
from weft.train.finite_check import NonFiniteLoss, check_finite
from weft.train.gradients.labelled import examine, sample_batch
from weft.train.gradients.non_finite import find_non_finite
from weft.train.gradients.predictions import (
    MAX_ROWS,
    MAX_STEPS,
    MAX_TOKENS,
    examine_predictions,
    memory_cell,
)
from weft.train.gradients.verdict import Curve, GradientHealth
from weft.train.logger import ResumeError, truncate_metrics
from weft.train.loop import fit, rehearse_update
from weft.train.parallel import Parallel, gather_tensor
from weft.train.progress_checks import DevCurve, LossTracker
from weft.train.state import Progress, TrainState
from weft.train.threads import ThreadChoice, thread_counts
from weft.train.time_budget import TimeBudget

CHECKPOINT_SECONDS = 60  # between checkpoints, by default
MAX_CACHING_FRACTION = 0.5  # of the time limit, for caching frozen features
AGREEMENT_INTERVAL = 16  # updates after which processes agree whether a checkpoint is due
TIMED_BATCHES = 4  # used to time threads
MAX_REPLAYED_UPDATES = 1000  # to locate a non-finite value

TrainingData = TokenStore | TokenStream | Documents  # what is learned from


class Trainer:
    """Runs `fit` with evaluations, checkpoints and early stopping.

    `initial_weights` returns the weights with which the run began, to replay it.
    """

    def __init__(
        self,
        context: RunContext,
        runtime: Runtime,
        model: Model,
        train: TrainingData,
        dev: TokenStore | Documents | None,
        dev_references: Sequence[DevReference],
        initial_weights: Callable[[], Mapping[str, Tensor]],
    ):
        self.context, self.runtime, self.model = context, runtime, model
        self.train, self.dev, self.dev_references = train, dev, dev_references
        self.initial_weights = initial_weights
        self.task, self.space = context.task, context.space
        self.settings, self.logger = context.settings, context.logger
        self.folder = context.folder / "checkpoints"
        self.folder.mkdir(exist_ok=True)
        self.world = runtime.world
        self.parallel: Parallel | None = None
        if self.world.size > 1:
            self.parallel = Parallel(model, context.task, runtime, self.settings.shard)
        self.is_sharded = self.parallel is not None and self.parallel.is_sharded
        self.state = TrainState.fresh(model, self.settings, self.parallel)
        self.batches = _make_batches(context, train, model)
        self.metric = self.settings.metric or self.task.metric
        self.best: float | None = None
        self.dev_curve = DevCurve(self.metric)
        self.stale = 0
        self.saved = time.perf_counter()
        self.budget = TimeBudget(context.started, self.settings.minutes)
        self.stop_reason, self.completed = "", 1.0  # see TrainingResult
        self.threads: list[tuple[int, int]] = []
        self.loss_sum: Tensor | float = 0.0  # since the last evaluation
        self.loss_count: float = 0
        self.loss_tracker = LossTracker()
        self.weights_before: dict[str, Tensor] | None = None  # the weights before an update
        self.first_curves: dict[str, Curve] = {}  # gradient by distance before the first update
        self.loop_start = (0, 0.0)  # update and time at which the loop began
        self.long_windows = False  # to long windows, where BERT reads short ones first
        alone = self.world.size == 1
        counts = thread_counts(self.settings.threads, runtime.device.type == "cpu" and alone)
        self.thread_choice = ThreadChoice(counts, again=self.settings.compile is not True)

    def run(self, resume: bool) -> TrainingResult:
        """Train, load the best weights into the model, and return how training went."""
        self.thread_choice.start()
        if resume and (self.folder / "last.safetensors").is_file():
            self._restore()
        else:
            truncate_metrics(self.logger.folder / "metrics.jsonl", -1)
        self._choose_threads()
        self.threads.append((self.state.step, torch.get_num_threads()))
        self._cache_frozen_features()
        self._copy_weights()
        self._diagnose_start()
        unit = "tokens" if self.model.traits.is_lm else "examples"
        try:
            with self.logger.during("training", unit, announce=False) as stage:
                self._train(stage)
        except NonFiniteLoss as error:
            raise self._explain(error) from None
        seconds = self.budget.seconds
        self._load_best()
        undertrained = ""
        if self.dev is not None:
            undertrained = self.dev_curve.undertraining_note(self.settings.epochs, len(self.dev))
        if self.state.speedup_failure:
            self.logger.info(f"note: {self.state.speedup_failure}; training continued without")
        verdict = ""
        if health := self._diagnose():
            verdict = f"{health.level}: {health.verdict}"
            path = self.logger.folder / "health.json"
            write_text(path, json.dumps(health.to_json(), ensure_ascii=False) + "\n")
        return TrainingResult(
            self.stop_reason,
            self.completed,
            undertrained,
            self.loss_tracker.first_and_lowest,
            self.state.step,
            seconds,
            tuple(self.threads),
            verdict,
        )

    def _train(self, stage: Stage) -> None:
        self.loop_start = (self.state.step, time.perf_counter())
        for progress in self._updates():
            self.logger.update(progress, stage, self.settings.epochs, self.budget.seconds_left)
            self._count_loss(progress)
            late = self._is_time_over()
            if late or self._is_evaluation_due(progress):
                began = time.perf_counter()
                self._evaluate(progress)
                self.budget.count_evaluation(time.perf_counter() - began)
            self._save_when_due(progress)
            if late and progress.fraction < 1:
                self._report_time_limit(progress)
                break
            self._choose_threads()
            self._copy_weights()

    def _has_frozen_features(self) -> bool:
        return self.settings.epochs > 1 and bool(self.model.frozen_embedders)

    def _cache_frozen_features(self) -> None:
        """Cache the outputs of frozen embedders before the first epoch."""
        if not self._has_frozen_features() or self._is_out_of_patience():
            return
        began = time.perf_counter()
        for name, rows in (("train", self.train), ("dev", self.dev)):
            if isinstance(rows, TokenStore):
                what = f"caching the frozen features of {name}"

                def on_progress(fraction: float, what: str = what) -> bool:
                    self.logger.progress(fraction, what)
                    return self.budget.fraction_used < MAX_CACHING_FRACTION

                with self.logger.during(what):
                    kept = cache_features(
                        self.model, rows, self.runtime, self.context.folder, on_progress
                    )
                if not kept:
                    self.logger.info(
                        f"note: the frozen features of {name} are computed in every epoch: there "
                        "is too little disk space or time to cache them"
                    )
        self.budget.training_started += time.perf_counter() - began  # it counts the epochs

    def _choose_threads(self) -> None:
        """Time one thread against all if due; use and log the faster count."""
        batches = self._comparable_batches()
        if not self.thread_choice.is_due(batches, self._batch_seconds()):
            if not self.state.step and len(self.thread_choice.counts) > 1:
                self.logger.info("threads: 1 (few updates; train.threads sets another number)")
            return
        before = torch.get_num_threads()
        state, settings = self.state, self.settings
        works = [
            partial(rehearse_update, state, self.task, batch, settings, self.runtime)
            for batch, _ in islice(iter(self.batches), TIMED_BATCHES)
        ]
        if not works:
            return
        timing = self.thread_choice.choose(works, batches)
        now, step = torch.get_num_threads(), state.step
        if now != before or not step:
            self.logger.info(f"threads: {now} (a batch takes {timing})")
        if step and now != before:
            self.threads.append((step, now))
        seconds = {str(count): took for count, took in timing.seconds.items()}
        self.logger.event("threads", step=step, threads=now, batch_seconds=seconds)

    def _batch_seconds(self) -> float:
        """Return the mean seconds of a batch so far; 0 until a few were trained on."""
        first_step, began = self.loop_start
        batches = (self.state.step - first_step) * self.settings.accumulate
        return (time.perf_counter() - began) / batches if batches >= TIMED_BATCHES else 0.0

    def _comparable_batches(self) -> float:
        """Return how many batches are ahead that take as long as the ones now timed."""
        updates = min(updates_ahead(self.batches, self.settings), self.budget.updates_that_fit())
        ahead = updates * self.settings.accumulate
        if not self.state.step and self._has_frozen_features():
            return min(ahead, self.batches.per_epoch)  # the frozen encoder reads each row once
        return ahead

    def _is_evaluation_due(self, progress: Progress) -> bool:
        """Return True if an evaluation is due; the end of the run always has one."""
        every = self.settings.evaluate_every
        due = progress.step % every == 0 if every else progress.ends_epoch
        return due or (progress.ends_epoch and progress.fraction >= 1)

    def _updates(self) -> Iterator[Progress]:
        if self._is_out_of_patience():
            return
        began = time.perf_counter()
        if work := setup_work(self.model, self.settings, self.runtime, self.batches):
            self.logger.info(f"{work} …")
        for number, progress in enumerate(
            fit(
                self.state, self.task, self.batches, self.settings, self.runtime,
                updates_that_fit=self._updates_that_fit,
            ),
            1,
        ):  # fmt: skip
            if work and number == WARMUP_UPDATES + 1:
                self.logger.info(f"{work}: done in {duration(time.perf_counter() - began)}")
            self.budget.count_update()
            yield progress
            if self._is_out_of_patience():
                self.logger.info(
                    f"stopped early: {self.metric} no better for {self.stale} evaluations"
                )
                return

    def _report_time_limit(self, progress: Progress) -> None:
        done, all_ = progress.fraction * self.settings.epochs, self.settings.epochs
        self.completed = progress.fraction
        self.stop_reason = f"stopped by the clock after {done:.1f} of {all_} epochs"
        if isinstance(self.batches, MLMLoader) and self.batches.long_is_ahead(progress.fraction):
            self.stop_reason += (
                f"; long windows were never read: positions beyond {self.batches.masking.window} "
                "are untrained (task.long_fraction=0, or fewer epochs)"
            )
        self.logger.info(f"{self.stop_reason} (train.minutes)")

    def _is_out_of_patience(self) -> bool:
        return bool(self.settings.patience) and self.stale >= self.settings.patience

    def _count_loss(self, progress: Progress) -> None:
        self.loss_sum = self.loss_sum + progress.total  # stays on the device
        self.loss_count += progress.count
        self.loss_tracker.add(progress)

    def _evaluate(self, progress: Progress) -> None:
        check_finite(self.state)
        loss = float(self.loss_sum) / max(self.loss_count, 1)
        self.loss_sum, self.loss_count = 0.0, 0
        where = {"step": progress.step, "epoch": progress.position.epoch}
        values = {"loss": loss, "rate": progress.rate, "gradient": float(progress.norm)}
        words = f"epoch {progress.fraction * self.settings.epochs:.1f}  update {progress.step}"
        words += f"  loss {loss:.4f}"
        better, metrics = True, {}
        with ema_weights(self.state):
            if self.dev is not None:
                with self.logger.during("measuring dev", announce=False):
                    metrics = self._evaluate_on_one(self.dev)
                values |= {f"dev_{name}": value for name, value in metrics.items()}
                if self.metric not in metrics:
                    known = ", ".join(metrics)
                    raise UserError(f"train.metric is '{self.metric}'; this task has {known}.")
                now = metrics[self.metric]
                self.dev_curve.add(progress.fraction, now)
                self._switch_to_long_windows(progress)
                better = self._is_better(now)
                words += f"  dev {self.metric} {now:.4f}{'  best' if better else ''}"
            if better:
                self._write_best()
        self.stale = 0 if better else self.stale + 1
        self.logger.event("evaluation", **where, **values, best=better)
        self.logger.info(words)
        if self.settings.diagnose and (health := self._diagnose(self.weights_before)):
            self.logger.event("health", **health.to_json())
        self._save(progress)
        if self.context.on_evaluate is not None and metrics:
            self.context.on_evaluate(progress.step, metrics)

    def _evaluate_on_one(self, store: TokenStore | Documents) -> dict[str, float]:
        """Evaluate dev on rank 0, and wait for it on the others."""
        if self.is_sharded:  # all hold the weights together
            assert self.parallel is not None
            with self.parallel.gathered():
                return self.world.agree(self._evaluate_dev(store))
        return self.world.agree(self._evaluate_dev(store) if self.world.rank == 0 else {})

    def _is_time_over(self) -> bool:
        has_limit = bool(self.settings.minutes)
        return self.world.agree(self.budget.is_over) if has_limit else False

    def _updates_that_fit(self) -> float:
        has_limit = bool(self.settings.minutes)
        return self.world.agree(self.budget.updates_that_fit()) if has_limit else math.inf

    def _copy_weights(self) -> None:
        """Copy the weights to measure the next update."""
        if self.settings.diagnose:
            now = {name: p.detach() for name, p in self.model.named_parameters()}
            self.weights_before = self.weights_before or {
                name: p.clone() for name, p in now.items()
            }
            for name, copy in self.weights_before.items():
                copy.copy_(now[name])

    def _diagnose_start(self) -> None:
        """Measure how far a recurrent memory reaches before training, where learning begins."""
        wanted = self.settings.diagnose or bool(memory_cell(self.model))
        if self.state.step or not wanted:
            return
        health = self._diagnose() if self.settings.diagnose else self._examine()
        if health is not None:
            self.first_curves = health.distances
            if self.settings.diagnose:
                self.logger.event("health", **health.to_json())

    def _diagnose(self, before: dict[str, Tensor] | None = None) -> GradientHealth | None:
        """Diagnose the gradients and log the verdict; return None if that is impossible."""
        health = self._examine(before)
        if health is not None:
            self.logger.info(f"gradients {health.level}: {health.verdict}")
        return health

    def _examine(self, before: dict[str, Tensor] | None = None) -> GradientHealth | None:
        step, clip, start = self.state.step, self.settings.clip_norm, self.first_curves
        rest = (self.runtime, step, before, clip, start)
        if self.is_sharded:
            return None
        try:
            if not isinstance(self.train, TokenStore):
                return examine_predictions(self.model, self.task, self._sample_windows(), *rest)
            if isinstance(self.model, EncoderModel):
                return examine(self.model, self.task, sample_batch(self.train), *rest)
            self.logger.info("gradients: not diagnosed for this kind of model")
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self.logger.info("note: not enough memory to diagnose the gradients")
        return None

    def _sample_windows(self) -> LabelledBatch:
        """Return windows of running text, or of masked documents, always the same ones."""
        if isinstance(self.batches, LMLoader):
            return self.batches.sample(MAX_ROWS, MAX_STEPS)
        assert isinstance(self.batches, MLMLoader)
        window = self.batches.masking.window
        return self.batches.sample(max(1, min(MAX_ROWS, MAX_TOKENS // window)))

    def _evaluate_dev(self, store: TokenStore | Documents) -> dict[str, float]:
        task, space, runtime = self.task, self.space, self.runtime
        measure = task.build_metric(space)
        if isinstance(store, Documents):
            measure = mlm_data.evaluate(self.model, store, task, space, runtime)
        elif self.model.traits.is_lm:
            measure = lm_data.evaluate(self.model, store, task, space, runtime)
        elif self.model.traits.is_structured:
            with self.model.head.greedy_decoding():
                decoding = decode_batches(self.model, store, runtime)
            rows, right = predictions_and_references(decoding, self.dev_references, store)
            tuned = task.tune(rows, right, space) if task.has_threshold else space
            measure.add(task.predict_targets(rows, tuned), right)
        else:
            scores = collect_outputs(self.model, store, runtime)
            answers = task.predict_targets(scores, task.tune(scores, store.targets, space))
            measure.add(answers, store.targets)
        return {name: figure.value for name, figure in measure.compute(resamples=0).items()}

    @property
    def _batch_order(self) -> dict[str, int | str]:
        """The settings that determine the order of rows within an epoch."""
        settings = self.settings
        order: dict[str, int | str] = {
            "batch_size": settings.batch_size,
            "max_tokens": settings.max_tokens,
            "seed": settings.seed,
        }
        if settings.balance == "sampling":
            order["balance"] = settings.balance
        return order

    def _switch_to_long_windows(self, progress: Progress) -> None:
        """Reset the best score once long windows are read: dev has short ones."""
        is_long = isinstance(self.batches, MLMLoader) and self.batches.is_long(progress.fraction)
        if is_long and not self.long_windows:
            self.long_windows, self.best = True, None

    def _is_better(self, now: float) -> bool:
        if not np.isfinite(now):
            return False
        lower = lower_is_better(self.metric)
        better = self.best is None or (now < self.best if lower else now > self.best)
        if better:
            self.best = now
        return better

    def _write_best(self) -> None:
        weights = {
            n: gather_tensor(t.detach()).cpu().contiguous()
            for n, t in self.model.state_dict().items()
        }
        if self.world.rank == 0:
            checkpoint.replace(self.folder / "best.safetensors", save(weights))

    def _save_when_due(self, progress: Progress) -> None:
        every = self.settings.save_every
        if not every:
            if self.world.size > 1 and progress.step % AGREEMENT_INTERVAL:
                return
            due = self.world.agree(time.perf_counter() - self.saved > CHECKPOINT_SECONDS)
        else:
            due = progress.step % every == 0
        if due:
            self._save(progress)

    def _save(self, progress: Progress) -> None:
        check_finite(self.state)  # never save non-finite weights
        extra = {
            "best": self.best,
            "stale": self.stale,
            "loss": [float(self.loss_sum), self.loss_count],
            "seconds": self.budget.seconds,
            "turned": self.long_windows,
            "course": self.dev_curve.points,
            "order": self._batch_order,
            "decay_left": self.state.decay_left,
            "threads": torch.get_num_threads(),
            "first_curves": self.first_curves,
        }
        path = self.folder / "last.safetensors"
        checkpoint.write(path, self.state, progress.position, self.runtime, extra)
        self.saved = time.perf_counter()

    def _restore(self) -> None:
        path = self.folder / "last.safetensors"
        position, extra = checkpoint.read(path, self.state, self.runtime)
        if position.batch and extra.get("order", self._batch_order) != self._batch_order:
            raise ResumeError(
                f"{path} was saved in the middle of an epoch with "
                f"{_format_order(extra['order'])} and cannot resume with "
                f"{_format_order(self._batch_order)}. Restore those settings, or train into "
                "another folder."
            )
        self.batches.position = position
        self.best, self.stale = extra["best"], extra["stale"]
        self.loss_sum, self.loss_count = extra["loss"]
        self.long_windows = extra.get("turned", False)
        self.dev_curve.points = [(fraction, value) for fraction, value in extra.get("course", [])]
        self.state.decay_left = extra.get("decay_left")
        self.first_curves = {
            name: [(int(k), float(value)) for k, value in curve]
            for name, curve in extra.get("first_curves", {}).items()
        }
        before = extra.get("seconds", 0.0)
        self.budget = TimeBudget(self.context.started, self.settings.minutes, before)
        truncate_metrics(self.logger.folder / "metrics.jsonl", self.state.step)
        self._restore_threads(extra.get("threads", 0))

    def _restore_threads(self, before: int) -> None:
        """Restore the thread count: with another one, sums differ in their last bits."""
        fixed, resumed = self.settings.threads, f"resumed after update {self.state.step}"
        if before and not fixed:
            torch.set_num_threads(before)
            self.thread_choice.wait()
        now = torch.get_num_threads()
        self.logger.info(f"{resumed}, with {now} thread{'s' if now > 1 else ''}")
        if before and fixed and fixed != before:
            self.logger.info(
                f"note: it had {before} before; the weights will differ in their last bits from "
                "those of an uninterrupted run"
            )
        elif now > (there := available_cpus()):
            self.logger.info(
                f"note: it resumes with {now} threads on {there} core{'s' if there > 1 else ''}, "
                f"which is slow; with train.threads={there} the weights will differ in their last "
                "bits"
            )

    def _load_best(self) -> None:
        best = self.folder / "best.safetensors"
        self.world.wait()
        if best.is_file():
            checkpoint.load_weights(self.model, load_file(best))

    def _explain(self, error: NonFiniteLoss) -> UserError:
        lines = sorted({self.train.line(row) for row in error.update.rows})
        shown = ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")
        kept = self.folder / "last.safetensors"
        state = f"The last good state is in {kept}" if kept.is_file() else "Nothing was saved yet"
        first = self._find_non_finite(error.update)
        where = f"The first non-finite value is {first}. " if first else ""
        return UserError(
            f"{error} {where}The batch has lines {shown} of the training file. {state}. Lower "
            "train.learning_rate, set train.clip_norm=1, or check those lines; then --resume."
        )

    def _find_non_finite(self, update: Progress) -> str | None:
        """Replay training up to a failed update and return the first non-finite part."""
        if self.world.size > 1:
            return None
        last = self.folder / "last.safetensors"
        if last.is_file():
            self.batches.position, _ = checkpoint.read(last, self.state, self.runtime)
        else:
            seed_everything(self.settings.seed)
            self.model.load_state_dict(self.initial_weights())
            self.state = TrainState.fresh(self.model, self.settings)
            self.batches.position = Position()
        missing = update.step - 1 - self.state.step
        if missing > MAX_REPLAYED_UPDATES:
            return None
        self.state.unchecked, self.state.pending = [], None
        again = fit(self.state, self.task, self.batches, self.settings, self.runtime)
        try:
            for _ in islice(again, missing):
                pass
        except NonFiniteLoss:
            return None
        if not isinstance(self.train, TokenStore):
            batch, _ = next(iter(self.batches))
            batch = replace(batch, carried=self.state.carried)
        else:
            batch = labelled_batch(self.train, np.array(update.rows))
        return find_non_finite(self.model, self.task, batch, self.runtime)


def _make_batches(context: RunContext, train: TrainingData, model: Model) -> BatchLoader:
    settings = context.settings
    if isinstance(train, TokenStream):
        return lm_data.make_batches(train, model, settings)
    if isinstance(train, Documents):
        return mlm_data.make_batches(train, model, context.task, context.space, settings)
    return BatchLoader(
        train,
        rows=settings.batch_size,
        budget=settings.max_tokens,
        seed=settings.seed,
        epochs=settings.epochs,
    )


def _format_order(order: dict[str, int | str]) -> str:
    return ", ".join(f"train.{name}={value}" for name, value in order.items())
