"""Several worker processes behind one port, and the supervisor that replaces those that die.

Every worker is a whole server with its models; SO_REUSEPORT lets the kernel spread connections.
Workers are forked from a process that has imported what they need and runs nothing, so that one
that died is replaced in the time that its models take to load.
"""

import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from weft.errors import UserError
from weft.machine import available_cpus
from weft.serve.access_log import AccessLog
from weft.serve.server import Server, open_socket
from weft.serve.service import ModelSource, Service, is_network
from weft.serve.settings import ServeSettings

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus_client when it is imported
MAX_FAILED_STARTS = 3  # workers in a row that died before they were ready
POLL_SECONDS = 0.2
KILL_SECONDS = 5.0  # beyond the time to drain
LOST_STATUS = 255  # of a worker that outlived the process that forked it: nobody waits for it


class Worker:
    """A worker process as its supervisor sees it."""

    def __init__(self, sources: Sequence[ModelSource], settings: ServeSettings, port: int):
        context = multiprocessing.get_context("forkserver")
        self.messages, theirs = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(
            target=run_worker, args=(tuple(sources), settings, port, theirs), daemon=True
        )
        self.process.start()
        theirs.close()
        self.is_ready = False

    def receive(self) -> str | None:
        """Return the error that kept the worker from starting; note when it is ready."""
        with suppress(EOFError, OSError):
            while self.messages.poll():
                message = self.messages.recv()
                if message is not None:
                    return str(message)
                self.is_ready = True
        return None

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process still lives."""
        if self.process.pid is not None and self.process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def stop_lost(self) -> None:
        """Stop a process that this one can no longer wait for."""
        if self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)


def modules_to_import(sources: Sequence[ModelSource]) -> list[str]:
    """Return the modules that the models need; torch only for neural networks."""
    modules = ["weft.serve.server", "weft.predict.classic"]
    if any(is_network(source) for source in sources):
        modules.append("weft.predict.neural")
    return modules


class Supervisor:
    """Starts the workers, replaces those that die, and passes signals on."""

    def __init__(
        self,
        sources: Sequence[ModelSource],
        settings: ServeSettings,
        port: int,
        on_ready: Callable[[], None],
    ):
        self._sources, self._settings, self._port = sources, settings, port
        self._on_ready, self._announced = on_ready, False
        self._log = AccessLog()
        self._stopping = self._reloads = False
        self._failed_starts = 0
        self.workers: list[Worker] = []

    def run(self) -> None:
        """Run until SIGTERM or Ctrl-C; raise a UserError if the workers cannot start."""
        folder = tempfile.mkdtemp(prefix="weft-metrics-")
        os.environ[METRICS_FOLDER] = folder
        threads = max(1, available_cpus() // self._settings.workers)
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(modules_to_import(self._sources))
        for number, handler in self._handlers().items():
            signal.signal(number, handler)
        try:
            self.workers = [self._start() for _ in range(self._settings.workers)]
            while not self._stopping:
                self._watch()
        finally:
            self._end()
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self) -> Worker:
        return Worker(self._sources, self._settings, self._port)

    def _handlers(self) -> dict[int, Callable[..., None]]:
        def stop(number: int, frame: object) -> None:
            self._stopping = True

        def reload(number: int, frame: object) -> None:
            self._reloads = True

        return {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}

    def _watch(self) -> None:
        """Wait a moment, and take care of what has happened."""
        wait([worker.process.sentinel for worker in self.workers], POLL_SECONDS)
        if self._reloads:
            self._reloads = False
            for worker in self.workers:
                worker.send_signal(signal.SIGHUP)
        for i, worker in enumerate(self.workers):
            if error := worker.receive():
                raise UserError(error)
            if not worker.process.is_alive() and not self._stopping:
                self.workers[i] = self._replace(worker)
        if not self._announced and all(worker.is_ready for worker in self.workers):
            self._announced = True
            self._on_ready()

    def _replace(self, worker: Worker) -> Worker:
        """Start a worker in place of one that died."""
        pid, status = worker.process.pid, worker.process.exitcode
        self._log.write_event("worker died", pid=pid, status=status)
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
        if status == LOST_STATUS:
            worker.stop_lost()
        self._failed_starts = 0 if worker.is_ready else self._failed_starts + 1
        if self._failed_starts >= MAX_FAILED_STARTS:
            raise UserError(
                f"{MAX_FAILED_STARTS} workers in a row died while they loaded the models (status "
                f"{status}). If memory is short, use fewer --workers."
            )
        return self._start()

    def _end(self) -> None:
        """Let all workers drain; kill those that take too long."""
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        end = time.monotonic() + self._settings.drain_seconds + KILL_SECONDS
        for worker in self.workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()


def run_worker(
    sources: Sequence[ModelSource], settings: ServeSettings, port: int, messages: Connection
) -> None:
    """Load the models, then listen and serve; the body of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the supervisor, too
    try:
        service = Service(sources, settings, shared=True)
        asyncio.run(service.load())  # before it listens: the kernel must not choose it yet
        sock = open_socket(settings.host, port, shared=True)
    except UserError as error:
        messages.send(str(error))
        return
    server = Server(service, sock, lambda: messages.send(None))
    threading.Thread(target=_follow_supervisor, args=(server,), daemon=True).start()
    server.run_until_stopped()


def _follow_supervisor(server: Server) -> None:
    """Stop the worker when its supervisor is gone, however it ended."""
    parent: Any = multiprocessing.parent_process()
    parent.join()
    if server.loop is not None:
        server.loop.call_soon_threadsafe(server.stop)


def reserve_port(host: str, port: int) -> socket.socket:
    """Return a bound socket that holds a port for the workers and is never listened to."""
    open_socket(host, port).close()  # refused if another server is there
    return open_socket(host, port, shared=True)
