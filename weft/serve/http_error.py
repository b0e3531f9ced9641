"""Errors that a client gets: a status, one sentence, and no traceback."""

import math


class HttpError(Exception):
    """A response with a 4xx or 5xx status and a message."""

    kind = "invalid_request"

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


class InvalidRequest(HttpError):
    """422: the body is readable, but cannot be answered."""

    def __init__(self, message: str):
        super().__init__(422, message)


class Overloaded(HttpError):
    """503: too much is waiting; `seconds` is when to try again."""

    kind = "overloaded"

    def __init__(self, message: str, seconds: float = 1.0):
        super().__init__(503, message, {"retry-after": str(max(1, math.ceil(seconds)))})


class Expired(Overloaded):
    """503: the deadline passed before the answer was computed."""

    kind = "deadline"


class Disconnected(Exception):
    """The client went away; there is no one to answer."""
