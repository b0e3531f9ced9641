"""The supervisor of workers, here of processes that only wait; bench/serve.py runs real ones."""

import multiprocessing
import os
import signal
import sys
import threading
import time

import pytest

from weft.errors import UserError
from weft.serve.keys import read_keys
from weft.serve.server import open_socket
from weft.serve.settings import ServeSettings
from weft.serve.workers import METRICS_FOLDER, Supervisor, Worker, reserve_port

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SO_REUSEPORT, signals")


def wait_for_signals(messages, first):
    """The body of a worker: say the first message, count SIGHUPs, end at SIGTERM."""
    counts = {"hup": 0}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, lambda *_: counts.update(hup=counts["hup"] + 1))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(40 + counts["hup"]))
    if first == "die":
        os._exit(3)
    messages.send(first)
    while True:
        time.sleep(0.05)


class Sleeper(Worker):
    """A worker without a server."""

    def __init__(self, first=None):
        context = multiprocessing.get_context("fork")
        self.messages, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=wait_for_signals, args=(theirs, first))
        self.process.start()
        self.is_ready = False


class Sleepers(Supervisor):
    """A supervisor of such workers; `actions` are taken in a thread while it runs."""

    def __init__(self, actions, first=None, workers=2):
        self.ready = threading.Event()
        settings = ServeSettings(workers=workers, drain_seconds=0.0)
        super().__init__([], settings, 0, self.ready.set)
        self.actions, self.first, self.started, self.ended = actions, first, [], False

    def _start(self):
        self.started.append(Sleeper(self.first))
        return self.started[-1]

    def run(self):
        before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        env = dict(os.environ)
        thread = threading.Thread(target=self._act)
        thread.start()
        try:
            super().run()
        finally:
            self.ended = True
            self.ready.set()
            thread.join()
            for number, handler in before.items():
                signal.signal(number, handler)
            os.environ.clear()
            os.environ.update(env)

    def _act(self):
        self.ready.wait(10)
        if not self.ended:
            self.folder = os.environ[METRICS_FOLDER]
            self.actions(self)
            os.kill(os.getpid(), signal.SIGTERM)

    def wait_for(self, condition):
        end = time.monotonic() + 10
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)


def test_a_killed_worker_is_replaced_and_the_others_stay():
    def kill_one(running):
        os.kill(running.started[0].process.pid, signal.SIGKILL)
        running.wait_for(lambda: len(running.started) == 3 and running.started[2].is_ready)

    running = Sleepers(kill_one)
    running.run()
    codes = [worker.process.exitcode for worker in running.started]
    assert codes == [-signal.SIGKILL, 40, 40]
    assert not os.path.exists(running.folder)


def test_a_reload_reaches_every_worker():
    def reload(running):
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.6)

    running = Sleepers(reload, workers=3)
    running.run()
    assert [worker.process.exitcode for worker in running.started] == [41, 41, 41]


def test_workers_that_cannot_start_are_an_error():
    with pytest.raises(UserError, match="no such model"):
        Sleepers(lambda running: None, first="x: no such model folder.").run()
    with pytest.raises(UserError, match="3 workers in a row"):
        Sleepers(lambda running: None, first="die").run()


def test_a_port_is_shared_by_workers_only():
    reserved = reserve_port("127.0.0.1", 0)
    port = reserved.getsockname()[1]
    first, second = (open_socket("127.0.0.1", port, shared=True) for _ in range(2))
    first.listen()
    second.listen()
    with pytest.raises(UserError, match="Choose another --port"):
        reserve_port("127.0.0.1", port)
    for sock in (reserved, first, second):
        sock.close()


def test_workers_share_the_rate_of_a_key(tmp_path):
    (tmp_path / "keys").write_text(f"ann {'k' * 20} 8\n", "utf-8")
    key = read_keys(tmp_path / "keys", workers=4).authenticate(f"Bearer {'k' * 20}")
    assert key is not None
    assert [key.take(key.refilled_at) > 0 for _ in range(3)] == [False, False, True]
