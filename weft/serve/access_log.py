"""The access log: one JSON object a line on standard error, without texts."""

import sys
import time
import traceback
from datetime import datetime, timezone
from typing import Any, TextIO

import msgspec

FLUSH_SECONDS = 0.2


class AccessLog:
    """Writes a line a request; lines are kept back for a moment and written together."""

    def __init__(self, enabled: bool = True, stream: TextIO | None = None):
        self.enabled = enabled
        self._stream = stream
        self._lines: list[bytes] = []
        self._flushed_at = 0.0

    def write(self, **fields: Any) -> None:
        """Add a line; it is written at the latest by the next `flush`."""
        if not self.enabled:
            return
        self._lines.append(msgspec.json.encode({"time": _now(), **fields}))
        if time.monotonic() - self._flushed_at > FLUSH_SECONDS:
            self.flush()

    def write_event(self, event: str, **fields: Any) -> None:
        """Write an event of the server at once, also without an access log."""
        self._lines.append(msgspec.json.encode({"time": _now(), "event": event, **fields}))
        self.flush()

    def write_failure(self, error: BaseException) -> None:
        """Write an unexpected error with its traceback."""
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        self.write_event("error", error=type(error).__name__, traceback="".join(lines))

    def flush(self) -> None:
        """Write the lines that are waiting."""
        self._flushed_at = time.monotonic()
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        stream = self._stream or sys.stderr
        try:
            stream.write(b"\n".join(lines).decode() + "\n")
            stream.flush()
        except (OSError, ValueError):
            self.enabled = False  # the reader of our log went away; answers go on


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
