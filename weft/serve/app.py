"""The HTTP application: routes, authentication, request ids and errors."""

import itertools
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.serve.connection import CYCLE_KEY, connection_of
from weft.serve.http_error import Disconnected, HttpError
from weft.serve.keys import check_rate
from weft.serve.responses import Handler, RouteTable, error_response
from weft.serve.routes import answers, embeddings, generation, health, page
from weft.serve.service import Service
from weft.serve.settings import is_loopback

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

OPEN_ROUTES = {"/", "/health", "/ready"}  # without a key
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


def build_app(service: Service) -> ASGIApp:
    """Return the ASGI application of a service."""
    handlers: RouteTable = [
        *answers.ROUTES,
        *generation.ROUTES,
        *embeddings.ROUTES,
        *health.ROUTES,
        *page.ROUTES,
    ]
    routes = [
        Route(path, _bind(handler, service), methods=[method], name=path)
        for method, path, handler in handlers
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _answer_http_exception},
    )
    app.router.redirect_slashes = False
    endpoints = {
        (method, path): _bind(handler, service)
        for method, path, handler in handlers
        if "{" not in path
    }
    return Gate(app, service, endpoints)


def _bind(handler: Handler, service: Service) -> Endpoint:
    """Return an endpoint that turns our errors into responses."""

    async def endpoint(request: Request) -> Response:
        try:
            return await handler(request, service)
        except HttpError as error:
            return error_response(error)
        except (Disconnected, ClientDisconnect):
            return Response(status_code=499)  # nobody reads it; it is counted
        except Exception as error:
            service.metrics.report_failure(error)
            return error_response(HttpError(500, "Internal error."))

    return endpoint


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:80]
    message = {
        404: f"There is no '{path}' here. See /openapi.json.",
        405: f"{request.method} is not allowed for {path}.",
    }.get(error.status_code, HTTPStatus(error.status_code).phrase)
    return error_response(HttpError(error.status_code, message, dict(error.headers or {})))


class Gate:
    """In front of the routes: request ids, keys, the access log and metrics.

    The usual requests go straight to their endpoints. What else there is goes to the app: paths
    with parameters, HEAD and errors.
    """

    def __init__(self, app: ASGIApp, service: Service, endpoints: dict[tuple[str, str], Endpoint]):
        self._app, self._service, self._endpoints = app, service, endpoints
        self._routes = frozenset(path for _, path in endpoints)
        self._process_id, self._numbers = secrets.token_hex(6).encode(), itertools.count(1)

    def _next_id(self) -> bytes:
        """Return a request id: random for the process, then counted.

        A system call for each would give up the interpreter lock to the compute thread.
        """
        return b"%s-%x" % (self._process_id, next(self._numbers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        service = self._service
        headers = _first_headers(scope)
        given_id = headers.get(b"x-request-id", b"")
        request_id = given_id if _REQUEST_ID.fullmatch(given_id) else self._next_id()
        status = 499
        extra = [(b"x-request-id", request_id), *SECURITY_HEADERS]
        if service.draining:
            extra.append((b"connection", b"close"))

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        notes: dict[str, Any] = {}
        scope["weft.notes"] = notes
        try:
            self._admit(scope, headers, notes)
            endpoint = self._endpoints.get((scope["method"], scope["path"]))
            if endpoint is None:
                await self._app(scope, receive, send_with_headers)
            else:
                response = await endpoint(Request(scope, receive, send_with_headers))
                whole = [*response.raw_headers, *extra]
                if _answer_at_once(scope, response, whole):
                    status = response.status_code
                else:
                    await response(scope, receive, send_with_headers)
        except HttpError as error:
            await error_response(error)(scope, receive, send_with_headers)
        finally:
            seconds = time.perf_counter() - began
            path = scope["path"]
            route = path if path in self._routes else "other"
            service.metrics.count_request(route, status, seconds)
            service.log.write(
                id=request_id.decode(), method=scope["method"], path=path[:200], status=status,
                ms=round(1000 * seconds, 2), **notes,
            )  # fmt: skip

    def _admit(self, scope: Scope, headers: dict[bytes, bytes], notes: dict[str, Any]) -> None:
        """Check the key, or without keys that a browser's page elsewhere is not behind it."""
        service = self._service
        if not service.keys:
            if service.settings.is_loopback:
                _check_host(headers.get(b"host", b""))
            return
        if scope["path"] in OPEN_ROUTES:
            return
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        key = service.keys.authenticate(authorization)
        if key is None:
            message = "Send a key of this server: Authorization: Bearer KEY."
            raise HttpError(401, message, {"www-authenticate": "Bearer"})
        notes["key"] = key.name
        scope["weft.key"] = key.name
        check_rate(key)


def _answer_at_once(scope: Scope, response: Response, headers: list[tuple[bytes, bytes]]) -> bool:
    """Write a response whose body is complete; False if it has to be sent in steps."""
    connection = connection_of(scope)
    return (
        connection is not None
        and type(response) is Response  # no stream
        and (b"connection", b"close") not in headers
        and connection.answer(scope[CYCLE_KEY], response.status_code, headers, bytes(response.body))
    )


def _first_headers(scope: Scope) -> dict[bytes, bytes]:
    wanted = (b"x-request-id", b"authorization", b"host")
    out: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in wanted:
            out.setdefault(name, value)
    return out


def _check_host(host: bytes) -> None:
    """Refuse names that a page on the internet could have bound to this machine."""
    name = re.sub(r":\d+$", "", host.decode("latin-1"))
    if name and not is_loopback(name):
        raise HttpError(
            403,
            f"This server answers on this machine only, not as '{name:.60}'. Start it with --host "
            "and --key-file to be reached by another name.",
        )
