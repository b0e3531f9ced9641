"""How answers are written to a connection."""

import asyncio
import time

import pytest
import uvicorn
from uvicorn.server import ServerState

from weft.serve.app import build_app
from weft.serve.connection import ARRIVED_KEY, LimitedConnection
from weft.serve.service import Service
from weft.serve.settings import ServeSettings

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n"


class Transport(asyncio.Transport):
    """Remembers what is written."""

    def __init__(self):
        super().__init__()
        self.writes, self.closing = [], False

    def write(self, data):
        self.writes.append(bytes(data))

    def is_closing(self):
        return self.closing

    def close(self):
        self.closing = True

    abort = close

    def pause_reading(self):
        pass

    resume_reading = pause_reading


def talk(*pieces, before=lambda connection, service: None):
    """Return what a connection that receives some bytes writes, and whether it is closed."""
    service = Service([], ServeSettings(access_log=False))
    config = uvicorn.Config(build_app(service), log_config=None)

    async def main():
        loop = asyncio.get_running_loop()
        connection = LimitedConnection(config, ServerState(), {}, loop)
        transport = Transport()
        connection.connection_made(transport)
        before(connection, service)
        for piece in pieces:
            connection.data_received(piece)
            for _ in range(20):
                await asyncio.sleep(0)
        found = list(transport.writes), transport.closing
        connection.connection_lost(None)
        await asyncio.gather(*connection.tasks)
        return found

    return asyncio.run(main())


def test_an_answer_is_written_at_once():
    (written,), _ = talk(GET + b"\r\n")
    head, _, body = written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\ncontent-length: %d\r\n" % len(body) in head
    assert b"\r\nx-request-id: " in head
    assert body.startswith(b"<!doctype html>")


def test_the_next_request_after_an_error_is_answered():
    writes, _ = talk(b"POST /predict HTTP/1.1\r\nhost: evil.example\r\n\r\n", GET + b"\r\n")
    refused, page = b"".join(writes[:-1]), writes[-1]
    assert refused.startswith(b"HTTP/1.1 403 ")
    assert page.startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_answered_in_order():
    second = b"GET /openapi.json/x HTTP/1.1\r\nhost: localhost\r\n\r\n"
    writes, is_closed = talk(GET + b"\r\n" + second + GET + b"\r\n")
    answers = b"".join(writes).split(b"HTTP/1.1 ")[1:]
    assert [int(one[:3]) for one in answers] == [200, 404, 200]
    assert not is_closed


@pytest.mark.parametrize("head", [
    GET + b"connection: close\r\n", b"GET / HTTP/1.0\r\nhost: localhost\r\n",
])  # fmt: skip
def test_a_connection_that_should_close_is_closed(head):
    writes, is_closed = talk(head + b"\r\n")
    written = b"".join(writes)
    assert written.count(b"connection: close") == 1
    assert b"</html>" in written[-20:]
    assert is_closed


def test_a_draining_server_closes_connections():
    def drain(connection, service):
        service.draining = True

    writes, is_closed = talk(GET + b"\r\n", before=drain)
    assert b"".join(writes).count(b"connection: close") == 1
    assert is_closed


def test_a_slow_reader_gets_nothing_more_until_it_reads():
    def pause(connection, service):
        connection.pause_writing()

    assert talk(GET + b"\r\n", before=pause) == ([], False)


def test_head_has_no_body():
    writes, _ = talk(GET.replace(b"GET", b"HEAD") + b"\r\n")
    written = b"".join(writes)
    assert written.startswith(b"HTTP/1.1 200 ")
    assert written.endswith(b"\r\n\r\n")


def test_it_is_noted_when_a_request_was_there():
    """Deadlines count from then, not from when the event loop comes to it."""
    seen = []

    async def app(scope, receive, send):
        before = ARRIVED_KEY in scope
        while (await receive())["more_body"]:
            pass
        seen.append((before, scope[ARRIVED_KEY]))

    def replace(connection, service):
        connection.app = app

    began = time.monotonic()
    talk(GET + b"content-length: 2\r\n\r\n", b"{", b"}", before=replace)
    ((before, arrived),) = seen
    assert not before
    assert began < arrived < time.monotonic()
