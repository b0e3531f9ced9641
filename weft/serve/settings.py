"""Settings of a server: address, limits, queue and deadlines."""

import ipaddress
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from weft.errors import UserError

LOOPBACK_NAMES = ("localhost",)


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a server; the defaults are those of `weft serve`."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    key_file: Path | None = None
    no_auth: bool = False  # allow another host than this machine's without keys
    max_queue: int = 1024  # requests waiting
    deadline_ms: int = 10_000  # of a request, from its arrival
    batch_tokens: int = 2048  # estimated, padding included
    max_bytes: int = 4 << 20  # of a request body
    max_texts: int = 2048  # of a request
    max_tokens: int = 200_000  # of a request, estimated
    max_new_tokens: int = 1024  # that a request may generate
    max_connections: int = 1024
    drain_seconds: float = 30.0  # from SIGTERM to the end, at most
    shadow: str = ""  # FOLDER, or NAME=FOLDER: answers the texts of a model in idle time
    shadow_log: Path | None = None  # file of its disagreements
    access_log: bool = True
    log_texts: bool = False
    device: str = "auto"
    weights: str = "float32"
    trust: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "port" and type(value) is int and value < 1:
                raise UserError(f"{option_name(field.name)} should be 1 or more, got {value}.")
        if not 0 <= self.port <= 65535:
            raise UserError(f"--port should be 0 to 65535, got {self.port}.")
        if self.drain_seconds < 0:
            raise UserError(f"--drain-seconds should be 0 or more, got {self.drain_seconds:g}.")

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        return is_loopback(self.host)


def option_name(setting: str) -> str:
    """Return the command-line option of a setting."""
    return f"--{setting.replace('_', '-')}"


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return True for a name or address of this machine only."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
