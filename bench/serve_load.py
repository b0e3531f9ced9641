"""The load generator of bench/serve.py: a process of its own with connections that stay open.

It prints one JSON object: how many requests ended with each status, answers per second, and the
percentiles of the time to answer. Every run ends by itself.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections import Counter
from pathlib import Path

MAX_OPEN = 800  # requests on the way in an open loop


class Client(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self):
        self.buffer = bytearray()
        self.reply: asyncio.Future | None = None
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end]).lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return
        status, body = int(head[9:12]), bytes(self.buffer[end + 4 : end + 4 + length])
        self.buffer.clear()
        if b"connection: close" in head:
            self.transport.close()
        if self.reply is not None and not self.reply.done():
            self.reply.set_result((status, body))

    def connection_lost(self, error):
        if self.reply is not None and not self.reply.done():
            self.reply.set_result((0, b""))

    async def send(self, request: bytes) -> tuple[int, bytes]:
        self.reply = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.reply

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()


class Load:
    """Requests to one server, and how they ended."""

    def __init__(self, port: int, requests: list[bytes]):
        self.port, self.requests, self.sent = port, requests, 0
        self.statuses: Counter = Counter()
        self.seconds: list[tuple[float, float, int]] = []  # when it began, how long, status
        self.idle: list[Client] = []
        self.bodies: Counter = Counter()
        self.keeps_bodies = False
        self.unsent = 0
        self.cpu = time.process_time()

    async def connect(self) -> Client:
        while self.idle:
            client = self.idle.pop()
            if client.is_open:
                return client
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Client, "127.0.0.1", self.port)
        return client

    async def ask(self) -> int:
        request = self.requests[self.sent % len(self.requests)]
        self.sent += 1
        began = time.perf_counter()
        try:
            client = await self.connect()
            status, body = await client.send(request)
        except OSError:
            status = 0
        else:
            if client.is_open:
                self.idle.append(client)
            if self.keeps_bodies:
                self.bodies[body] += 1
        self.statuses[status] += 1
        self.seconds.append((began, time.perf_counter() - began, status))
        return status

    async def closed(self, clients: int, seconds: float, most: int) -> None:
        """Clients that ask again as soon as they have their answer."""
        end = time.perf_counter() + seconds

        async def client() -> None:
            while time.perf_counter() < end and self.sent < most:
                if await self.ask() == 0:
                    await asyncio.sleep(0.01)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def open(self, rate: float, seconds: float) -> None:
        """Requests at a fixed rate, whatever becomes of those before; at most 800 at a time."""
        loop, tasks = asyncio.get_running_loop(), set()
        began = time.perf_counter()
        sent = 0
        while (now := time.perf_counter() - began) < seconds:
            while sent < now * rate:
                if len(tasks) >= MAX_OPEN:
                    self.unsent += int(now * rate) - sent
                    sent = int(now * rate) + 1
                    break
                task = loop.create_task(self.ask())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                sent += 1
            await asyncio.sleep(0.002)
        if tasks:
            await asyncio.wait(tasks, timeout=30)

    async def leave(self, clients: int) -> None:
        """Send requests and close the connections without waiting for an answer."""
        opened = [await self.connect() for _ in range(clients)]
        for client, request in zip(opened, self.requests * clients, strict=False):
            client.transport.write(request)
        await asyncio.sleep(0.005)
        for client in opened:
            client.transport.abort()
        self.statuses[0] = clients

    def summary(self, seconds: float) -> dict:
        good = sorted(spent for _, spent, status in self.seconds if status == 200)
        out = {
            "requests": self.sent,
            "statuses": {str(k): v for k, v in sorted(self.statuses.items())},
            "unsent": self.unsent,
            "per_second": self.statuses[200] / seconds,
            "client_ms": 1000 * (time.process_time() - self.cpu) / max(self.sent, 1),
        }
        if good:
            for name, fraction in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                out[f"{name}_ms"] = 1000 * good[min(len(good) - 1, int(fraction * len(good)))]
            out["max_ms"] = 1000 * good[-1]
            out["mean_ms"] = 1000 * statistics.mean(good)
        if self.keeps_bodies:
            out["bodies"] = len(self.bodies)
        return out


def read_requests(path: Path, route: str, headers: str) -> list[bytes]:
    """Return the requests of a file with one JSON body a line."""
    bodies = path.read_bytes().splitlines()
    head = (
        f"POST {route} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{headers}"
    )
    return [f"{head}content-length: {len(b)}\r\n\r\n".encode() + b for b in bodies]


async def run(arguments: argparse.Namespace) -> dict:
    load = Load(arguments.port, read_requests(arguments.bodies, arguments.route, ""))
    load.keeps_bodies = arguments.keep
    if arguments.leave:
        await load.leave(arguments.leave)
        return load.summary(1.0)
    began = time.perf_counter()
    if arguments.rate:
        await load.open(arguments.rate, arguments.seconds)
    else:
        await load.closed(arguments.clients, arguments.seconds, arguments.requests)
    return load.summary(min(time.perf_counter() - began, arguments.seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("route")
    parser.add_argument("bodies", type=Path)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--requests", type=int, default=10**9, help="stop after this many")
    parser.add_argument("--rate", type=float, default=0.0, help="open loop: requests per second")
    parser.add_argument("--leave", type=int, default=0, help="clients that go without an answer")
    parser.add_argument("--keep", action="store_true", help="count distinct answers")
    try:
        import uvloop

        uvloop.install()
    except ImportError:
        pass
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
