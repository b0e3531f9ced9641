"""The compute thread: what it batches, drops, refuses, and in which order it works."""

import asyncio
import socket
import threading
import time
from dataclasses import dataclass

import pytest

from weft.errors import UserError
from weft.serve import compute as module
from weft.serve.compute import Compute, Job, Slice, fill_batch, split_job
from weft.serve.http_error import Disconnected, Expired, HttpError, Overloaded


@pytest.fixture(autouse=True)
def only_timed_operations_are_slow(monkeypatch):
    """How long the others take on a busy machine must not change their batches."""
    learn_rate = Compute._learn_rate

    def learn(compute, key, seconds):
        if key == "timed":
            learn_rate(compute, key, seconds)

    monkeypatch.setattr(Compute, "_learn_rate", learn)


class Observer:
    def __init__(self):
        self.batches, self.drops, self.failures = [], [], []

    def observe_batch(self, texts, seconds):
        self.batches.append(texts)

    def count_drop(self, reason):
        self.drops.append(reason)

    def report_failure(self, error):
        self.failures.append(error)


@dataclass(eq=False)
class Recorder:
    """Doubles numbers; remembers every batch, and waits for `gate` if there is one."""

    batchable: bool = True
    gate: threading.Event | None = None
    cost_key: str = "untimed"

    def __post_init__(self):
        self.batches = []
        self.entered = threading.Event()

    def run(self, inputs):
        self.entered.set()
        if self.gate is not None:
            self.gate.wait(10)
        self.batches.append(list(inputs))
        if 13 in inputs:
            raise UserError("13 is not read.")
        if 666 in inputs:
            raise ZeroDivisionError("a bug")
        return [2 * one for one in inputs]


def run(scenario, *, batch_tokens=100, max_queue=50, idle=lambda: False):
    """Run a scenario with a compute thread, and return its observer."""
    observer = Observer()

    async def main():
        compute = Compute(
            asyncio.get_running_loop(), observer, batch_tokens=batch_tokens, max_queue=max_queue,
            idle=idle,
        )  # fmt: skip
        try:
            await scenario(compute)
            assert compute.depth == 0
            assert compute.is_alive
        finally:
            compute.close()
            compute.join(5)
        assert not compute.is_alive

    asyncio.run(main())
    return observer


def submit(compute, operation, numbers, seconds=10.0):
    return compute.submit(operation, numbers, list(numbers), time.monotonic() + seconds)


async def held(compute, operation):
    """Occupy the thread, so that what follows waits together."""
    operation.gate = threading.Event()
    first = submit(compute, operation, [1])
    while not operation.entered.is_set():
        await asyncio.sleep(0.001)
    return first


def test_what_waits_is_computed_together_and_answered_apart():
    operation = Recorder()

    async def scenario(compute):
        first = await held(compute, operation)
        jobs = [submit(compute, operation, [n, n + 1]) for n in (3, 5, 7)]
        operation.gate.set()
        assert await first.done == [2]
        assert [await job.done for job in jobs] == [[6, 8], [10, 12], [14, 16]]

    observer = run(scenario)
    assert operation.batches == [[1], [3, 4, 5, 6, 7, 8]]
    assert observer.batches == [1, 6]


def test_what_arrives_in_one_turn_of_the_loop_is_one_batch():
    operation = Recorder()

    async def scenario(compute):
        for _ in range(5):
            jobs = []
            for n in (3, 4, 5):
                jobs.append(submit(compute, operation, [n]))
                time.sleep(0.002)  # the thread could take it
            await asyncio.gather(*(job.done for job in jobs))

    run(scenario)
    assert operation.batches == [[3, 4, 5]] * 5


def test_a_crowd_in_one_turn_is_computed_while_it_arrives():
    operation = Recorder()

    async def scenario(compute):
        jobs = []
        for n in range(100, 100 + 3 * module.MAX_TOGETHER):
            jobs.append(submit(compute, operation, [n]))
        assert operation.entered.wait(5)  # the loop has not had another turn
        await asyncio.gather(*(job.done for job in jobs))

    run(scenario, max_queue=1000)


def test_other_operations_and_versions_are_not_mixed():
    one, other = Recorder(), Recorder()

    async def scenario(compute):
        first = await held(compute, one)
        jobs = [submit(compute, op, [n]) for n, op in ((3, one), (4, other), (5, one), (6, other))]
        one.gate.set()
        await first.done
        assert [(await job.done)[0] for job in jobs] == [6, 8, 10, 12]

    run(scenario)
    assert one.batches == [[1], [3, 5]]
    assert other.batches == [[4, 6]]


def test_batches_stay_within_the_budget_with_padding():
    operation = Recorder()

    async def scenario(compute):
        first = await held(compute, operation)
        jobs = [submit(compute, operation, [n]) for n in (40, 7, 41, 8, 42, 9, 10)]
        operation.gate.set()
        for job in (first, *jobs):
            await job.done

    run(scenario)
    for batch in operation.batches:
        assert max(batch) * len(batch) <= 100
    assert sorted(n for batch in operation.batches for n in batch) == [1, 7, 8, 9, 10, 40, 41, 42]
    assert [7, 8, 9, 10] in [sorted(batch) for batch in operation.batches]  # not padded to 42


def test_long_and_short_requests_take_turns():
    operation = Recorder()

    async def scenario(compute):
        first = await held(compute, operation)
        long = [submit(compute, operation, [60 + i]) for i in range(6)]
        short = [submit(compute, operation, [2]) for _ in range(3)]
        operation.gate.set()
        for job in (first, *long, *short):
            await job.done

    run(scenario)
    order = [max(batch) for batch in operation.batches[1:]]
    assert order.index(2) <= 1  # the short ones do not wait for six long ones
    late = [one for one in order if one >= 60]
    assert late == sorted(late)  # nor is any long one overtaken for ever


def test_a_large_request_is_computed_in_slices_of_similar_length():
    operation = Recorder()

    async def scenario(compute):
        numbers = [50, 3, 49, 2, 4, 48, 90]
        job = submit(compute, operation, numbers)
        assert await job.done == [2 * n for n in numbers]

    run(scenario)
    assert [sorted(batch) for batch in operation.batches] == [[2, 3, 4], [48, 49], [50], [90]]


def test_slices_cover_the_job():
    job = Job(Recorder(), range(9), [9, 1, 30, 200, 4, 5, 80, 7, 2], 0.0, None)
    slices = split_job(job, 1, 100)
    assert sorted(row for one in slices for row in one.rows) == list(range(9))
    for one in slices:
        assert one.longest * len(one.rows) <= 100 or len(one.rows) == 1


def test_operations_that_cannot_be_batched_run_alone():
    job = Job(Recorder(batchable=False), [1], [1], 0.0, None)
    slices = [Slice(job, i, [0], 1) for i in range(3)]
    assert fill_batch(slices[1], slices, 100) == ([slices[1]], [slices[0], slices[2]])


def test_a_bad_request_does_not_fail_its_neighbours():
    operation = Recorder()

    async def scenario(compute):
        first = await held(compute, operation)
        jobs = [submit(compute, operation, [n]) for n in (3, 13, 5, 666)]
        operation.gate.set()
        await first.done
        assert await jobs[0].done == [6]
        assert await jobs[2].done == [10]
        with pytest.raises(HttpError, match="13 is not read") as caught:
            await jobs[1].done
        assert caught.value.status == 422
        with pytest.raises(HttpError) as caught:
            await jobs[3].done
        assert (caught.value.status, caught.value.message) == (500, "Internal error.")

    observer = run(scenario, batch_tokens=10_000)
    assert [type(error) for error in observer.failures] == [ZeroDivisionError]


def test_dead_requests_are_never_computed():
    operation = Recorder()

    async def scenario(compute):
        first = await held(compute, operation)
        gone = [submit(compute, operation, [n]) for n in (20, 21, 22)]
        late = submit(compute, operation, [30], seconds=0.02)
        alive = submit(compute, operation, [5])
        for job in gone:
            job.done.cancel()
        await asyncio.sleep(0.03)
        operation.gate.set()
        await first.done
        assert await alive.done == [10]
        with pytest.raises(Expired) as caught:
            await late.done
        assert caught.value.status == 503

    observer = run(scenario)
    assert operation.batches == [[1], [5]]
    assert sorted(observer.drops) == ["disconnected"] * 3 + ["expired"]


def test_a_full_queue_refuses():
    operation = Recorder()

    async def scenario(compute):
        first = await held(compute, operation)
        jobs = [submit(compute, operation, [n]) for n in range(2, 6)]
        with pytest.raises(Overloaded, match="full") as caught:
            submit(compute, operation, [7])
        assert caught.value.status == 503
        assert int(caught.value.headers["retry-after"]) >= 1
        operation.gate.set()
        for job in (first, *jobs):
            await job.done
        assert await submit(compute, operation, [7]).done == [14]

    run(scenario, max_queue=5)


def test_what_cannot_meet_its_deadline_is_refused_at_once():
    operation = Recorder(cost_key="timed")

    async def scenario(compute):
        compute._seconds_per_token[operation.cost_key] = 1.0
        first = await held(compute, operation)
        with pytest.raises(Overloaded, match="deadline") as caught:
            submit(compute, operation, [90], seconds=20)
        assert int(caught.value.headers["retry-after"]) >= 1
        operation.gate.set()
        assert await first.done == [2]
        compute._seconds_per_token[operation.cost_key] = 1.0
        # Alone it is tried, whatever the estimate says, and the estimate learns from it.
        assert await submit(compute, operation, [90], seconds=20).done == [180]
        assert compute._seconds_per_token[operation.cost_key] < 1.0

    run(scenario)


def test_streams_and_batches_take_turns():
    operation = Recorder()
    items: dict[str, list] = {"a": [], "b": [], "bad": []}

    def count(limit):
        for i in range(limit):
            time.sleep(0.001)
            yield i

    def fail():
        yield 0
        raise UserError("cannot go on")

    async def scenario(compute):
        deadline = time.monotonic() + 10
        starts = {"a": lambda: count(400), "b": lambda: count(10**9), "bad": fail}
        streams = {
            name: compute.stream(start, items[name].append, deadline)
            for name, start in starts.items()
        }
        for n in range(2, 5):
            assert await submit(compute, operation, [n]).done == [2 * n]
        assert len(items["a"]) < 400  # answered meanwhile
        while items["a"][-1:] != [None]:
            await asyncio.sleep(0.001)
        streams["b"].cancelled = True
        while items["b"][-1] is not None:
            await asyncio.sleep(0.001)

    run(scenario)
    assert items["a"] == [*range(400), None]
    assert items["b"][:-1] == list(range(len(items["b"]) - 1))
    assert items["bad"][0] == 0
    assert items["bad"][1].status == 422


def test_idle_work_waits_for_requests():
    operation, idle = Recorder(), []

    def work():
        idle.append(1)
        time.sleep(0.001)
        return len(idle) < 5

    async def scenario(compute):
        assert await submit(compute, operation, [2]).done == [4]
        await asyncio.sleep(0.05)
        assert await submit(compute, operation, [3]).done == [6]

    run(scenario, idle=work)
    assert 5 <= len(idle) <= 7


def test_memory_is_given_back_after_a_moment_without_work(monkeypatch):
    given_back = []
    monkeypatch.setattr(module, "REST_SECONDS", 0.05)
    monkeypatch.setattr(module, "release_memory", lambda: given_back.append(time.monotonic()))
    operation = Recorder()

    async def scenario(compute):
        for count in (1, 2):
            assert await submit(compute, operation, [3]).done == [6]
            end = time.monotonic() + 5
            while len(given_back) < count and time.monotonic() < end:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.15)
            assert len(given_back) == count  # once, however long the rest

    run(scenario)


def test_clients_that_the_event_loop_has_not_noticed_are_not_computed():
    operation = Recorder()
    pairs = [socket.socketpair() for _ in range(3)]

    async def scenario(compute):
        first = await held(compute, operation)
        jobs = [submit(compute, operation, [n]) for n in (3, 5, 7)]
        for job, (ours, _) in zip(jobs, pairs, strict=True):
            job.descriptor = ours.fileno()
        pairs[0][1].close()
        pairs[2][1].shutdown(socket.SHUT_WR)
        operation.gate.set()
        await first.done
        assert await jobs[1].done == [10]
        for job in (jobs[0], jobs[2]):
            with pytest.raises(Disconnected):
                await job.done

    observer = run(scenario)
    assert operation.batches == [[1], [5]]
    assert observer.drops == ["disconnected"] * 2
    for pair in pairs:
        for sock in pair:
            sock.close()
