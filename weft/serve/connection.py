"""A connection with limits: on its headers, on the time a request takes to arrive, on slow readers.

uvicorn has none of them, so that a few clients that send or read a byte a minute could hold all
connections and the memory of their answers.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

MAX_HEADER_BYTES = 32 << 10
MAX_HEADERS = 100
REQUEST_SECONDS = 20.0  # for a request to arrive, headers and body
WRITE_SECONDS = 20.0  # for a client to read enough of an answer that more can be sent
SURPLUS_FACTOR = 8  # connections beyond the limit get a 503; beyond this multiple, nothing
SURPLUS_SECONDS = 2.0  # for a request on one of them to arrive
CONNECTION_KEY = "weft.connection"  # of an ASGI scope
ARRIVED_KEY = "weft.arrived"  # of an ASGI scope: when the request was there, by time.monotonic
CYCLE_KEY = "weft.cycle"  # of an ASGI scope: the request and its answer, as uvicorn has them


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's HTTP connection with limits; `on_lost` is called when the client goes away."""

    max_connections = 1024
    request_seconds = REQUEST_SECONDS
    write_seconds = WRITE_SECONDS

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.on_lost: Callable[[], object] | None = None  # of the request that is being answered
        self._descriptor = -1
        self._head_bytes = self._header_count = 0
        self._reads_head = self._arrives = True
        self._has_too_many_headers = self._is_surplus = False
        self._arrival_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        self._descriptor = -1 if sock is None else int(sock.fileno())
        self._is_surplus = len(self.connections) > self.max_connections
        if len(self.connections) > SURPLUS_FACTOR * self.max_connections:
            transport.abort()
            return
        self._arm(SURPLUS_SECONDS if self._is_surplus else None)

    @property
    def descriptor(self) -> int:
        """The file descriptor of the socket; -1 once it is closed."""
        return -1 if self.transport.is_closing() else self._descriptor

    def answer(
        self,
        cycle: RequestResponseCycle,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
    ) -> bool:
        """Write a whole answer with one system call; False if it has to go uvicorn's way.

        uvicorn writes head and body apart: two calls, and two wake-ups of the client.
        """
        if (
            cycle.response_started
            or not cycle.keep_alive
            or cycle.waiting_for_100_continue
            or self.flow.write_paused
            or status not in STATUS_LINE
        ):
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.disconnected:
            parts = [STATUS_LINE[status]]
            for name, value in (*cycle.default_headers, *headers):
                parts += (name, b": ", value, b"\r\n")
            parts += (b"\r\n", body)
            self.transport.write(b"".join(parts))
            cycle.on_response()
        return True

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_surplus:  # answered once its request is here: a reset would hide the answer
            self._refuse(503, "Too many connections. Try again later.", "retry-after: 1\r\n")
            return
        if self._reads_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._reads_head and self._head_bytes > MAX_HEADER_BYTES:
            self._refuse(431, f"The headers have more than {MAX_HEADER_BYTES:,} bytes.")
        elif self._has_too_many_headers:
            self._refuse(431, f"There are more than {MAX_HEADERS} headers.")
        elif self._arrives:
            self._arm()
        else:
            self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_count = 0
        self._reads_head = self._arrives = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            self._has_too_many_headers = True  # refused in data_received
        else:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._reads_head, self._head_bytes = False, 0
        if self._has_too_many_headers:
            return
        super().on_headers_complete()
        scope = cast(dict[str, Any], self.scope)
        scope[CONNECTION_KEY], scope[CYCLE_KEY] = self, self.cycle

    def on_body(self, body: bytes) -> None:
        if not self._has_too_many_headers:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._arrives = False
        if not self._has_too_many_headers:
            cast(dict[str, Any], self.scope)[ARRIVED_KEY] = time.monotonic()
            super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort() if self.transport.get_write_buffer_size() else (
                self.transport.close()
            )

    def _arm(self, seconds: float | None = None) -> None:
        """Start the clock of a request that has not arrived completely."""
        if self._arrival_timer is None:
            limit = self.request_seconds if seconds is None else seconds
            self._arrival_timer = self.loop.call_later(limit, self._time_out)

    def _disarm(self) -> None:
        if self._arrival_timer is not None:
            self._arrival_timer.cancel()
            self._arrival_timer = None

    def _time_out(self) -> None:
        self._arrival_timer = None
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
        else:
            self._refuse(408, f"The request took more than {self.request_seconds:g} s to arrive.")

    def _refuse(self, status: int, message: str, headers: str = "") -> None:
        """Answer without the app, and close."""
        kind = "overloaded" if status == 503 else "invalid_request"
        body = f'{{"error":{{"message":"{message}","type":"{kind}","code":{status}}}}}'
        head = (
            f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n{headers}"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write((head + body).encode())
        self.transport.close()


def connection_of(scope: Any) -> LimitedConnection | None:
    """Return the connection of a request; None where it was not made by our server."""
    return cast("LimitedConnection | None", scope.get(CONNECTION_KEY))
