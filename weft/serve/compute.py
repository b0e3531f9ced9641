"""The compute thread: whenever it is free, it takes what is waiting, batched by length.

There is no timer. What the event loop has read in one turn is handed over together, and while one
batch is computed the next requests arrive, so batches grow with the load. Batches start alternately
at the oldest and at the shortest request: neither the many short ones nor the few long ones can
starve the others.
"""

import asyncio
import ctypes
import select
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

from weft.errors import UserError, is_out_of_memory
from weft.serve.http_error import Disconnected, Expired, HttpError, Overloaded

MAX_TOGETHER = 64  # requests of one turn of the event loop that the thread gets together
MAX_STREAMS = 16  # generated at the same time; others wait
SMOOTHING = 0.2  # weight of a slower batch in the seconds per token
WAKE = "wake"
CLOSED_EVENTS = getattr(select, "POLLRDHUP", 0)  # errors and hang-ups are always among them
MAX_BATCH_SECONDS = 0.25  # a batch that takes longer makes others wait for little gain
SAFETY = 0.8  # of the time to the deadline, for the estimated waiting time
REST_SECONDS = 1.0  # without work, until freed memory is given back
FIRST_ESTIMATE = 1e-5  # seconds per token before anything was measured


class Operation(Hashable, Protocol):
    """Something to compute; the inputs of equal operations are computed together."""

    @property
    def batchable(self) -> bool: ...
    @property
    def cost_key(self) -> Hashable:
        """Operations with the same key take about the same time per token."""

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return a result for each input."""


@dataclass(eq=False, slots=True)
class Job:
    """The inputs of one request, and the future of their results."""

    operation: Operation
    inputs: Sequence[Any]
    tokens: Sequence[int]  # of each input, estimated
    deadline: float  # by time.monotonic
    done: "asyncio.Future[list[Any]]"
    seconds: float = 0.0  # the computing time that it was admitted with
    missing: int = 0  # inputs without a result
    results: list[Any] = field(default_factory=list)
    failed: bool = False  # set by the compute thread
    delivered: bool = False  # set by the event loop
    descriptor: int = -1  # of the client's socket, if there is one


@dataclass(eq=False, slots=True)
class Stream:
    """A generation: items are put as they come, then None, or an error."""

    start: Callable[[], Iterator[Any]]
    put: Callable[[Any], None]  # called in the event loop
    deadline: float  # of its first item
    cancelled: bool = False
    items: Iterator[Any] | None = None


@dataclass(eq=False, slots=True)
class Slice:
    """Inputs of a job that are computed in one batch."""

    job: Job
    number: int  # in order of arrival
    rows: Sequence[int]
    longest: int  # tokens


class Observer(Protocol):
    """Counts what the compute thread does."""

    def observe_batch(self, texts: int, seconds: float) -> None: ...
    def count_drop(self, reason: str) -> None: ...
    def report_failure(self, error: BaseException) -> None: ...


class Compute:
    """A thread that computes jobs and streams for an event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        observer: Observer,
        *,
        batch_tokens: int,
        max_queue: int,
        idle: Callable[[], bool] = lambda: False,
    ):
        self._loop, self._observer, self._idle = loop, observer, idle
        self._batch_tokens, self._max_queue = batch_tokens, max_queue
        self._inbox: SimpleQueue[list[Job | Stream] | str | None] = SimpleQueue()
        # Of the event loop:
        self._read: list[Job | Stream] = []  # in this turn of the loop, for the thread
        self.depth = 0  # requests that wait or are computed
        self.waiting_seconds = 0.0  # that they will take, estimated
        # Of the thread:
        self._groups: dict[Operation, list[Slice]] = {}
        self._streams: deque[Stream] = deque()
        self._arrivals = 0
        self._takes_oldest = True
        self._seconds_per_token: dict[Hashable, float] = {}
        self._closing = self._has_computed = False
        self._thread = Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def submit(
        self, operation: Operation, inputs: Sequence[Any], tokens: Sequence[int], deadline: float
    ) -> Job:
        """Queue a job, or raise Overloaded. Called in the event loop."""
        self.check_capacity()
        rate = self._seconds_per_token.get(operation.cost_key, FIRST_ESTIMATE)
        seconds = rate * sum(tokens)
        now = time.monotonic()
        if self.depth and self.waiting_seconds + seconds > SAFETY * (deadline - now):
            raise Overloaded(
                "The server cannot answer before the deadline. Try again later.",
                self.waiting_seconds,
            )
        job = Job(operation, inputs, tokens, deadline, self._loop.create_future(), seconds)
        job.missing = len(inputs)
        job.results = [None] * len(inputs)
        self.depth += 1
        self.waiting_seconds += seconds
        self._pass_on(job)
        return job

    def stream(
        self, start: Callable[[], Iterator[Any]], put: Callable[[Any], None], deadline: float
    ) -> Stream:
        """Queue a generation, or raise Overloaded. Called in the event loop."""
        self.check_capacity()
        stream = Stream(start, put, deadline)
        self.depth += 1
        self._pass_on(stream)
        return stream

    def check_capacity(self) -> None:
        """Raise Overloaded if the queue is full."""
        if self.depth >= self._max_queue:
            raise Overloaded("The queue is full. Try again later.", self.waiting_seconds)

    def _pass_on(self, one: Job | Stream) -> None:
        """Hand over to the thread at the end of this turn of the loop, with what else it reads.

        One by one, the thread would take the interpreter lock from the loop for a batch of one.
        """
        if not self._read:
            self._loop.call_soon(self._hand_over)
        self._read.append(one)
        if len(self._read) >= MAX_TOGETHER:  # a crowd: the thread need not wait for the last one
            self._hand_over()

    def _hand_over(self) -> None:
        if self._read:
            self._inbox.put(self._read)
            self._read = []

    def wake(self) -> None:
        """Let the thread look for idle work."""
        if not self.depth:
            self._inbox.put(WAKE)

    def close(self) -> None:
        """End the thread after what it is computing."""
        self._hand_over()
        self._inbox.put(None)

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            try:
                self._receive()
                if self._closing:
                    return
                self._drop_dead()
                if self._groups and (batch := self._drop_gone(self._choose_batch())):
                    self._compute_batch(batch)
                if self._streams:
                    self._step_streams()
            except Exception as error:  # a bug; the thread must outlive it
                self._observer.report_failure(error)

    def _receive(self) -> None:
        """Take what has arrived; with nothing to do, wait for it."""
        if not self._groups and not self._streams:
            while self._inbox.empty() and self._idle():
                pass
            self._accept(self._wait())
        while not self._inbox.empty():
            self._accept(self._inbox.get())

    def _wait(self) -> list[Job | Stream] | str | None:
        """Return what arrives next. After a moment without work, freed memory is given back."""
        if self._has_computed:
            with suppress(Empty):
                return self._inbox.get(timeout=REST_SECONDS)
            self._has_computed = False
            release_memory()
        return self._inbox.get()

    def _accept(self, given: list[Job | Stream] | str | None) -> None:
        if given is None:
            self._closing = True
        elif isinstance(given, str):
            pass  # WAKE
        else:
            for one in given:
                if isinstance(one, Stream):
                    self._streams.append(one)
                else:
                    self._arrivals += 1
                    pieces = split_job(one, self._arrivals, self._batch_tokens)
                    self._groups.setdefault(one.operation, []).extend(pieces)

    def _drop_dead(self) -> None:
        """Drop requests whose client has gone or that cannot be computed by their deadline."""
        now = time.monotonic()
        outcomes: dict[Job, Exception] = {}
        # A request that waits alone is computed however long it may take: the estimate is learned.
        alone = len(self._groups) == 1 and len(next(iter(self._groups.values()))) == 1
        for operation, pieces in list(self._groups.items()):
            rate = 0.0 if alone else self._seconds_per_token.get(operation.cost_key, 0.0)
            waiting = sum(piece.longest * len(piece.rows) for piece in pieces)
            batch_seconds = min(MAX_BATCH_SECONDS, rate * waiting)
            kept = []
            for piece in pieces:
                job = piece.job
                seconds = max(batch_seconds, rate * piece.longest * len(piece.rows))
                if job.done.cancelled():
                    outcomes[job] = Disconnected()
                elif job.failed:
                    continue
                elif now + seconds > job.deadline:
                    job.failed = True
                    outcomes[job] = Expired("The deadline passed before it was computed.")
                else:
                    kept.append(piece)
            if kept:
                self._groups[operation] = kept
            else:
                del self._groups[operation]
        for error in outcomes.values():
            gone = isinstance(error, Disconnected)
            self._observer.count_drop("disconnected" if gone else "expired")
        if outcomes:
            self._send(list(outcomes.items()))

    def _choose_batch(self) -> list[Slice]:
        """Return the slices to compute next, and remove them from those waiting."""
        oldest = self._takes_oldest
        self._takes_oldest = not oldest
        anchor = min(
            (piece for pieces in self._groups.values() for piece in pieces),
            key=lambda one: (0 if oldest else one.longest, one.number),
        )
        operation = anchor.job.operation
        pieces = self._groups.pop(operation)
        rate = self._seconds_per_token.get(operation.cost_key, FIRST_ESTIMATE)
        budget = min(self._batch_tokens, int(MAX_BATCH_SECONDS / max(rate, 1e-9)))
        batch, rest = fill_batch(anchor, pieces, budget)
        if rest:
            self._groups[operation] = rest
        return batch

    def _drop_gone(self, batch: list[Slice]) -> list[Slice]:
        """Drop the requests whose client has gone, as the system knows before the event loop.

        Under load the loop may be many connections behind.
        """
        open_jobs = {one.job.descriptor: one.job for one in batch if one.job.descriptor >= 0}
        if not open_jobs or not hasattr(select, "poll"):
            return batch
        poller = select.poll()
        for descriptor in open_jobs:
            poller.register(descriptor, CLOSED_EVENTS)
        gone = {open_jobs[descriptor] for descriptor, _ in poller.poll(0)}
        for job in gone:
            job.failed = True
            self._observer.count_drop("disconnected")
        if gone:
            self._send([(job, Disconnected()) for job in gone])
        return [one for one in batch if one.job not in gone]

    def _compute_batch(self, batch: list[Slice]) -> None:
        self._has_computed = True
        operation = batch[0].job.operation
        inputs = [piece.job.inputs[row] for piece in batch for row in piece.rows]
        began = time.perf_counter()
        try:
            results: Sequence[Any] = operation.run(inputs)
        except Exception as error:
            if len(batch) > 1:  # one bad request must not fail its neighbours
                for piece in batch:
                    self._compute_batch([piece])
                return
            batch[0].job.failed = True
            self._send([(batch[0].job, self._explain_failure(error))])
            return
        seconds = time.perf_counter() - began
        tokens = sum(piece.job.tokens[row] for piece in batch for row in piece.rows)
        self._learn_rate(operation.cost_key, seconds / max(tokens, 1))
        self._observer.observe_batch(len(inputs), seconds)
        complete: list[tuple[Job, list[Any] | Exception]] = []
        at = 0
        for piece in batch:
            job = piece.job
            for row in piece.rows:
                job.results[row] = results[at]
                at += 1
            job.missing -= len(piece.rows)
            if not job.missing:
                complete.append((job, job.results))
        if complete:
            self._send(complete)

    def _learn_rate(self, key: Hashable, seconds: float) -> None:
        usual = self._seconds_per_token.get(key, seconds)
        weight = SMOOTHING if seconds > usual else 0.5  # one slow batch proves little
        self._seconds_per_token[key] = usual + weight * (seconds - usual)

    def _explain_failure(self, error: Exception) -> Exception:
        """Return the error that the client gets; a bug is reported here and hidden there."""
        if isinstance(error, HttpError):
            return error
        if isinstance(error, UserError):
            return HttpError(422, str(error))
        self._observer.report_failure(error)
        if is_out_of_memory(error):
            return HttpError(503, "Out of memory for this request. Send fewer or shorter texts.")
        return HttpError(500, "Internal error.")

    def _step_streams(self) -> None:
        """Generate one item of each active stream."""
        self._has_computed = True
        events: list[tuple[Stream, Any]] = []
        for stream in list(self._streams)[:MAX_STREAMS]:
            event = self._step(stream)
            events.append((stream, event))
            if event is None or isinstance(event, Exception):
                self._streams.remove(stream)
        self._call(self._put_items, events)

    def _step(self, stream: Stream) -> Any:
        """Return the next item; None at the end, or an error."""
        try:
            if stream.cancelled:
                if stream.items is None:
                    self._observer.count_drop("disconnected")
                return None
            if stream.items is None:
                if time.monotonic() > stream.deadline:
                    self._observer.count_drop("expired")
                    return Expired("The deadline passed before it was computed.")
                stream.items = stream.start()
            return next(stream.items, None)
        except Exception as error:
            return self._explain_failure(error)

    def _send(self, outcomes: Sequence[tuple[Job, list[Any] | Exception]]) -> None:
        self._call(self._deliver, outcomes)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _deliver(self, outcomes: Sequence[tuple[Job, list[Any] | Exception]]) -> None:
        for job, outcome in outcomes:
            if not job.delivered:
                job.delivered = True
                self.depth -= 1
                self.waiting_seconds = max(0.0, self.waiting_seconds - job.seconds)
            if job.done.done():
                continue
            if isinstance(outcome, Exception):
                job.done.set_exception(outcome)
            else:
                job.done.set_result(outcome)

    def _put_items(self, events: Sequence[tuple[Stream, Any]]) -> None:
        for stream, item in events:
            if item is None or isinstance(item, Exception):
                self.depth -= 1
            stream.put(item)


def release_memory() -> None:
    """Give freed memory back to the system, where the C library would keep it."""
    with suppress(OSError, AttributeError, TypeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def split_job(job: Job, number: int, budget: int) -> list[Slice]:
    """Return the job as slices of similar length, each within the token budget."""
    tokens = job.tokens
    longest = max(tokens, default=0)
    if longest * len(tokens) <= budget:
        return [Slice(job, number, range(len(tokens)), longest)]
    slices: list[Slice] = []
    rows: list[int] = []
    for row in sorted(range(len(tokens)), key=lambda row: tokens[row]):
        if rows and tokens[row] * (len(rows) + 1) > budget:
            slices.append(Slice(job, number, rows, tokens[rows[-1]]))
            rows = []
        rows.append(row)
    slices.append(Slice(job, number, rows, tokens[rows[-1]]))
    return slices


def fill_batch(
    anchor: Slice, waiting: Sequence[Slice], budget: int
) -> tuple[list[Slice], list[Slice]]:
    """Return a batch around the anchor, of similar lengths first, and the slices left over."""
    if not anchor.job.operation.batchable:
        return [anchor], [one for one in waiting if one is not anchor]
    rows = sum(len(one.rows) for one in waiting)
    if rows * max(one.longest for one in waiting) <= budget:
        return list(waiting), []
    by_distance = sorted(waiting, key=lambda one: abs(one.longest - anchor.longest))
    by_distance.remove(anchor)
    batch, count, longest = [anchor], len(anchor.rows), anchor.longest
    for one in by_distance:
        widest = max(longest, one.longest)
        if widest * (count + len(one.rows)) > budget:
            break
        batch.append(one)
        count, longest = count + len(one.rows), widest
    chosen = set(map(id, batch))
    return batch, [one for one in waiting if id(one) not in chosen]
