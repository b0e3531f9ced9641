"""Responses in JSON, and the bodies of requests."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from weft.serve.http_error import HttpError
from weft.serve.requests import decode

if TYPE_CHECKING:
    from weft.serve.service import Service

Body = TypeVar("Body", bound=Struct)
Handler: TypeAlias = "Callable[[Request, Service], Awaitable[Response]]"
RouteTable: TypeAlias = list[tuple[str, str, Handler]]  # method, path, handler
JSON = "application/json"


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as a JSON response."""
    return Response(msgspec.json.encode(value), status, headers, JSON)


def error_response(error: HttpError) -> Response:
    """Return an error in the form that OpenAI's clients read."""
    about = {"message": error.message, "type": error.kind, "code": error.status}
    return json_response({"error": about}, error.status, error.headers)


async def read_request(request: Request, kind: type[Body], max_bytes: int) -> Body:
    """Return the body of a request; 413, 415, 400 or 422 if it is none."""
    headers = dict(reversed(request.scope["headers"]))  # of two with a name, the first
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != JSON.encode():
        raise HttpError(415, "Send JSON, with the header Content-Type: application/json.")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise HttpError(415, "Send the body as it is: compressed bodies are not read.")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and (len(length) > 18 or int(length) > max_bytes):
        raise _too_large(max_bytes)
    chunks, size = [], 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            break
    return decode(b"".join(chunks), kind)


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(
        413, f"The body has more than {max_bytes:,} bytes (--max-bytes). Send fewer texts."
    )
