"""What makes training on a GPU faster: compiled blocks, and whole updates as graphs."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import BatchLoader, LabelledBatch, Padded
from weft.batch.lm_windows import LMLoader
from weft.batch.mlm_collator import MLMLoader
from weft.decode.cuda_graphs.decode_step import DecodeGraphs
from weft.decode.search.state import copy_into, map_tensors
from weft.kernels.compile import compile_blocks, is_compiler_error, uncompile_blocks
from weft.runtime import Runtime, pin, without_autocast_cache
from weft.train.settings import Settings

MIN_UPDATES_TO_COMPILE = 2000  # updates that make up for half a minute of compiling
MIN_MINUTES_TO_COMPILE = 5  # of a time limit, below which half a minute is too much
LENGTH_MULTIPLE = (
    16  # steps that batches of texts are filled up to a multiple of, so that shapes come again
)
WARMUP_UPDATES = 3  # updates of a shape before one is captured, which costs about as many
MIN_UPDATES_TO_CAPTURE = 100  # updates that no graph is worth while for

Update = Callable[
    [list[LabelledBatch], int], tuple[Tensor, Tensor]
]  # -> loss and length of gradient


def enable_cuda_graphs(model: nn.Module, runtime: Runtime) -> None:
    """Let a model that writes texts do so by graphs, where there is a GPU."""
    head: Any = getattr(model, "head", None)
    decoder = getattr(head, "decoder", None)
    if runtime.has_cuda_graphs and hasattr(
        decoder, "words"
    ):  # one that copies has other words every time
        head.graphs = DecodeGraphs(decoder, runtime.capture_graph)


def maybe_compile(model: Any, settings: Settings, runtime: Runtime, batches: BatchLoader) -> int:
    """Compile the blocks of a model where the settings say so; how many.

    `auto`: on a GPU, if all batches have one shape (pieces of running text) and enough updates lie
    ahead. The compiler would begin again for every other shape.
    """
    return compile_blocks(model) if _should_compile(model, settings, runtime, batches) else 0


def _should_compile(model: Any, settings: Settings, runtime: Runtime, batches: BatchLoader) -> bool:
    if settings.compile != "auto":
        return settings.compile
    hurried = 0 < settings.minutes < MIN_MINUTES_TO_COMPILE
    many = updates_ahead(batches, settings) >= MIN_UPDATES_TO_COMPILE
    return runtime.has_cuda_graphs and _has_fixed_shapes(model, batches) and many and not hurried


def setup_work(model: Any, settings: Settings, runtime: Runtime, batches: BatchLoader) -> str:
    """Return what the first updates do besides learning, in words; nothing where they do not."""
    work = ["compiling"] if _should_compile(model, settings, runtime, batches) else []
    if _should_capture(model, settings, runtime, batches):
        work.append("capturing CUDA graphs")
    return " and ".join(work)


def give_up_compiling(model: nn.Module, error: BaseException) -> bool:
    """After an error of the compiler: go on without it, if it was there."""
    return is_compiler_error(error) and uncompile_blocks(model) > 0


def make_train_step(
    update: Update, trainee: Any, settings: Settings, runtime: Runtime, batches: BatchLoader
) -> Update:
    """The function that does one update, with the fastest attention and by graphs where that pays.

    On a GPU, if batches are pieces of running text, or texts for a network such as BERT; by graphs,
    if one batch makes an update and no step of the optimiser looks at the host. Beside a dozen
    others on an H200, MiniLM learned TREC in 36 s for 95, STS-B in 34 s for 66.
    """
    steady = _has_fixed_shapes(trainee.model, batches)
    if not _shapes_repeat(trainee.model, runtime, batches):
        return update

    def swift(group: list[LabelledBatch], count: int) -> tuple[Tensor, Tensor]:
        with runtime.attention_kernels():
            return update(group, count)

    once = swift if steady else update
    if not _should_capture(trainee.model, settings, runtime, batches):
        return once
    capture = partial(runtime.capture_graph, pool=runtime.graph_pool())
    return CapturedTrainStep(
        once, trainee, capture, runtime.side_stream, 1 if steady else LENGTH_MULTIPLE
    )


def _shapes_repeat(model: Any, runtime: Runtime, batches: BatchLoader) -> bool:
    return runtime.has_cuda_graphs and (
        _has_fixed_shapes(model, batches) or _has_recurring_shapes(model, batches)
    )


def _should_capture(model: Any, settings: Settings, runtime: Runtime, batches: BatchLoader) -> bool:
    return (
        _shapes_repeat(model, runtime, batches)
        and settings.cuda_graphs
        and settings.accumulate == 1
        and settings.optimiser in ("sgd", "adam", "adamw")
        and not settings.unfreeze_epochs
        and updates_ahead(batches, settings) >= MIN_UPDATES_TO_CAPTURE
    )


class CapturedTrainStep:
    """Updates as graphs: one for each shape of batch that keeps coming.

    The whole of an update is captured: forward, backward, clipping, the optimiser, and the state
    that the next batch goes on from. Learning rates are numbers on the device. Batches are filled
    up to a multiple of `wide` steps.
    """

    def __init__(
        self,
        update: Update,
        trainee: Any,
        capture: Callable[[Callable[[], None]], Callable[[], None]],
        side_stream: Callable[[], contextlib.AbstractContextManager],
        multiple: int = 1,
    ):
        self.update, self.trainee = update, trainee
        self.capture, self.side_stream, self.multiple = capture, side_stream, multiple
        self.seen: dict[Any, int] = {}
        self.graphs: dict[Any, _StepGraph] = {}

    def __call__(self, group: list[LabelledBatch], count: int) -> tuple[Tensor, Tensor]:
        batch, trainee = group[0], self.trainee
        begins = getattr(trainee.model.head, "is_stateful", False) and trainee.carried is None
        if trainee.pieces > 1 and self.graphs:
            self.graphs.clear()  # their memory is wanted
            trainee.trouble = trainee.trouble or "memory does not suffice for updates as graphs"
        with without_autocast_cache():
            if len(group) > 1 or trainee.pieces > 1 or begins or trainee.trouble:
                return self.update(group, count)
            return self._run_captured(
                _pad_to_multiple(batch, self.multiple, trainee.model.limit), count
            )

    def _run_captured(self, batch: LabelledBatch, count: int) -> tuple[Tensor, Tensor]:
        key = (batch.source.data.shape, batch.target.shape, count, batch.source.full)
        if key not in self.graphs:
            self.seen[key] = self.seen.get(key, 0) + 1
            if self.seen[key] <= WARMUP_UPDATES:
                # Not where the others run: what is set up there may not be part of a graph.
                with self.side_stream():
                    return self.update([batch], count)
            if not self._try_capture(key, batch, count):
                return self.update([batch], count)
        return self.graphs[key].replay(batch, self.trainee)

    def _try_capture(self, key: Any, batch: LabelledBatch, count: int) -> bool:
        before = self.trainee.carried
        slot = _StepGraph(self.trainee, batch, self.update, count)
        try:
            with slot.on_the_device():
                slot.again = self.capture(slot.once)
        except RuntimeError as error:
            first = "".join(str(error).strip().splitlines()[:1])
            self.trainee.trouble = f"updates could not be captured: {type(error).__name__}: {first}"
            for optimiser in self.trainee.optimisers:
                optimiser.zero_grad(set_to_none=True)
            return False
        finally:
            self.trainee.carried = before
        self.graphs[key] = slot
        return True


class _StepGraph:
    """Memory of one shape of batch, and the graph over it."""

    def __init__(self, trainee: Any, batch: LabelledBatch, update: Update, count: int):
        self.trainee, self.update, self.count = trainee, update, count
        device = next(trainee.model.parameters()).device
        here = batch.to(device)
        self.source, self.target = _static_copy(here.source), here.target.clone()
        self.batch = replace(here, source=self.source, target=self.target)
        self.carried = map_tensors(torch.clone, trainee.carried, torch.clone)
        self.total, self.norm = (torch.zeros((), device=device) for _ in range(2))
        self.groups = [group for one in trainee.optimisers for group in one.param_groups]
        self.learned = [p for group in self.groups for p in group["params"]]
        self.rates = [torch.zeros((), device=device) for _ in self.groups]
        self.again: Callable[[], None] = self.once

    def once(self) -> None:
        """One update in place."""
        self.trainee.carried = self.carried
        total, norm = self.update([self.batch], self.count)
        self.total.copy_(total)
        self.norm.copy_(norm)
        if self.carried is not None:
            copy_into(self.carried, self.trainee.carried)

    def replay(self, batch: LabelledBatch, trainee: Any) -> tuple[Tensor, Tensor]:
        """The update of a batch, from the state that the one before has left."""
        _copy_source(self.source, batch.source)
        _copy_tensor(self.target, batch.target)
        for number, group in zip(self.rates, self.groups, strict=True):
            number.fill_(group["lr"])
        if trainee.carried is not self.carried:
            copy_into(self.carried, trainee.carried)
        self.again()
        # What was laid out of the weights must be again; a graph does not say that they changed.
        torch.autograd.graph.increment_version(self.learned)
        trainee.carried = self.carried
        return self.total.clone(), self.norm.clone()

    @contextlib.contextmanager
    def on_the_device(self) -> Iterator[None]:
        """Let optimisers read their rates from the device for a while."""
        before = [(group["lr"], group.get("capturable")) for group in self.groups]
        for number, group in zip(self.rates, self.groups, strict=True):
            group["lr"] = number
            if "capturable" in group:
                group["capturable"] = True
        try:
            yield
        finally:
            for (number, able), group in zip(before, self.groups, strict=True):
                group["lr"] = number
                if "capturable" in group:
                    group["capturable"] = able


def _pad_to_multiple(batch: LabelledBatch, multiple: int, limit: int | None) -> LabelledBatch:
    """The same batch with steps added that nobody reads, but not beyond the limit."""
    source = batch.source
    T = source.data.shape[1]
    more = min(-(-T // multiple) * multiple, limit or T + multiple) - T
    if more <= 0:
        return batch
    return replace(batch, source=replace(source, data=F.pad(source.data, (0, more))))


def _static_copy(source: Padded) -> Padded:
    """A source in memory of its own; where its rows end, if that differs, is there as well."""
    data, device = source.data.clone(), source.data.device
    if source.full and source.second is None:
        return replace(source, data=data)
    second = None if source.second is None else source.second.to(device).clone()
    out = replace(source, data=data, lengths=source.lengths.to(device).clone(), second=second)
    out.__dict__["full"] = source.full  # or it would be asked of the device
    return out


def _copy_source(kept: Padded, source: Padded) -> None:
    """Put another batch of the same shape in the place of the one before."""
    _copy_tensor(kept.data, source.data)
    if not kept.full or kept.second is not None:
        _copy_tensor(kept.lengths, source.lengths)
    if kept.second is not None:
        assert source.second is not None
        _copy_tensor(kept.second, source.second)


def _copy_tensor(kept: Tensor, fresh: Tensor) -> None:
    kept.copy_(pin(fresh, kept.device), non_blocking=True)


def _has_fixed_shapes(model: Any, batches: BatchLoader) -> bool:
    """Whether all batches have one shape, and the model never looks at the host."""
    if isinstance(batches, MLMLoader):
        parts = model.parts
        return not isinstance(parts["embedder"], list) and (
            (parts["embedder"]["kind"], parts["encoder"]["kind"]) == ("bert", "none")
        )
    decoder = getattr(getattr(model, "head", None), "decoder", None)
    return isinstance(batches, LMLoader) and getattr(decoder, "sync_free", False)


def _has_recurring_shapes(model: Any, batches: BatchLoader) -> bool:
    """Whether only the steps of batches differ, and the model never looks at the host.

    So it is with texts, one or two in a row, that a network such as BERT answers as a whole.
    """
    parts = getattr(model, "parts", {})
    embedder, pair = parts.get("embedder"), parts.get("pair", {"kind": "joint"})
    return (
        type(batches) is BatchLoader
        and isinstance(embedder, dict)
        and (embedder["kind"], parts["encoder"]["kind"], pair["kind"]) == ("bert", "none", "joint")
        and not embedder["frozen"]
        and parts.get("pool", {}).get("kind") in ("cls", "first", "mean", "max")
        and parts.get("head", {}).get("kind") in ("linear", "mlp")
    )


def updates_ahead(batches: BatchLoader, settings: Settings) -> float:
    """Return the number of updates from here to the end of the training, as planned."""
    left = 1 - batches.fraction_done(batches.position)
    return left * batches.per_epoch * batches.epochs / settings.accumulate
