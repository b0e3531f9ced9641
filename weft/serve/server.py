"""One process of a server: loads the models, answers requests, and ends without losing any."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import uvicorn

from weft.errors import UserError
from weft.serve.app import build_app
from weft.serve.connection import LimitedConnection
from weft.serve.service import Service, name_models
from weft.serve.settings import ServeSettings

KEEP_ALIVE_SECONDS = 30
NOTICE_SECONDS = 0.5  # between "not ready" and the end, at least: connections close on an answer
BACKLOG = 2048
# libuv accepts one connection of a socket in a turn of the loop, in which it reads all the others:
# under load a new client would wait for as many turns as there are new clients before it.
ACCEPTS = 64  # in a turn
# The event loop gives up the interpreter lock at every write; with the usual 5 ms it waits that
# long for a classic model to give it back.
SWITCH_SECONDS = 0.0002
DRIFT_TICKS = 50  # of 0.1 s, between two updates of the drift metrics


class Server(uvicorn.Server):
    """uvicorn's server with our signals, and an end in order: not ready, drain, close."""

    def __init__(self, service: Service, sock: socket.socket, on_ready: Callable[[], None]):
        self.service, self.sock, self._on_ready = service, sock, on_ready
        self.loop: asyncio.AbstractEventLoop | None = None
        self.error: UserError | None = None  # why the models could not be loaded
        self._tasks: set[asyncio.Task[Any]] = set()
        connections = type(
            "Connection",
            (LimitedConnection,),
            {"max_connections": service.settings.max_connections},
        )
        super().__init__(
            uvicorn.Config(
                build_app(service),
                http=connections,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, round(service.settings.drain_seconds)),
            )
        )
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

    def run_until_stopped(self) -> None:
        """Serve until a signal or `stop`; raise a UserError if the models cannot be loaded."""
        sys.setswitchinterval(SWITCH_SECONDS)
        self.run(sockets=listen_often(self.sock))
        if self.error is not None:
            raise self.error

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.service.start()
        await super().startup(sockets)
        self._spawn(self._load())

    async def _load(self) -> None:
        try:
            if not self.service.is_loaded:
                await self.service.load()
        except UserError as error:
            self.error = error
            self.should_exit = True
        except Exception as error:
            self.service.metrics.report_failure(error)
            self.error = UserError(f"Cannot load the models ({type(error).__name__}).")
            self.should_exit = True
        else:
            self._on_ready()

    def stop(self) -> None:
        """End in order. Called in the event loop."""
        if not self.service.draining:
            self.service.draining = True
            self._spawn(self._end())

    async def _end(self) -> None:
        """Stop being ready, answer what is on the way, close."""
        limit = self.service.settings.drain_seconds
        self.service.log.write_event("draining", requests=self.service.compute.depth)
        await asyncio.sleep(min(NOTICE_SECONDS, limit))
        await self.service.drain(max(0.0, limit - NOTICE_SECONDS))
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.service.compute.close()
        self.service.log.flush()

    async def on_tick(self, counter: int) -> bool:
        self.service.log.flush()
        self.service.update_queue()
        if counter % DRIFT_TICKS == 0:
            self.service.update_drift()
        return await super().on_tick(counter)

    def _reload(self) -> None:
        self._spawn(self._reload_all())

    async def _reload_all(self) -> None:
        try:
            await self.service.reload()
        except UserError as error:
            self.service.log.write_event("reload refused", reason=str(error))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals in the event loop: SIGTERM and Ctrl-C drain, SIGHUP reloads."""
        loop = asyncio.get_running_loop()
        handlers = {"SIGTERM": self.stop, "SIGINT": self._interrupt, "SIGHUP": self._reload}
        added = []
        for name, handler in handlers.items():
            number = getattr(signal, name, None)
            # Not in a thread, and not on Windows.
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError, TypeError):
                loop.add_signal_handler(number, handler)  # type: ignore[arg-type]
                added.append(number)
        try:
            yield
        finally:
            for number in added:
                with contextlib.suppress(ValueError, RuntimeError):
                    loop.remove_signal_handler(number)  # type: ignore[arg-type]

    def _interrupt(self) -> None:
        """Drain on the first Ctrl-C, end at once on the second."""
        if self.service.draining:
            self.should_exit = self.force_exit = True
        self.stop()


def open_socket(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a bound socket; with `shared`, other processes can bind it, too."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host}: no such address ({error}).") from None
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise UserError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}. Choose another --port."
        ) from None
    sock.setblocking(False)
    return sock


def listen_often(sock: socket.socket) -> list[socket.socket]:
    """Return the socket and duplicates: each of them accepts a connection in a turn of the loop."""
    return [sock, *(sock.dup() for _ in range(ACCEPTS - 1))]


def server_url(sock: socket.socket, host: str) -> str:
    """Return the address of the page."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{sock.getsockname()[1]}/"


@contextlib.contextmanager
def serving(*models: str | os.PathLike[str], **settings: Any) -> Iterator[str]:
    """Serve models in a thread while the block runs; yield the address of the server.

    Models are folders or NAME=FOLDER, settings those of ServeSettings; the port is a free one.
    """
    chosen = ServeSettings(**{"port": 0, "access_log": False, **settings})
    service = Service(name_models([os.fspath(one) for one in models]), chosen)
    sock = open_socket(chosen.host, chosen.port)
    ready = threading.Event()
    server = Server(service, sock, ready.set)

    def run() -> None:
        server.run(sockets=listen_often(sock))
        ready.set()

    thread = threading.Thread(target=run, name="server", daemon=True)
    thread.start()
    ready.wait()
    try:
        if server.error is not None:
            raise server.error
        yield server_url(sock, chosen.host)
    finally:
        if server.loop is not None and thread.is_alive():
            server.loop.call_soon_threadsafe(server.stop)
        thread.join()
