"""Routes about the service itself: health, readiness, metrics, the OpenAPI document."""

import os
import signal

from starlette.requests import Request
from starlette.responses import Response

from weft.errors import UserError
from weft.serve.http_error import HttpError, Overloaded
from weft.serve.keys import ADMIN
from weft.serve.metrics import CONTENT_TYPE
from weft.serve.openapi import describe_api
from weft.serve.requests import ReloadRequest
from weft.serve.responses import RouteTable, json_response, read_request
from weft.serve.service import Service


async def health(request: Request, service: Service) -> Response:
    """Say that the process works; Kubernetes restarts it otherwise."""
    if not service.compute.is_alive:
        raise HttpError(500, "The compute thread has ended.")
    return json_response({"status": "ok"})


async def ready(request: Request, service: Service) -> Response:
    """Say that the models are loaded and verified, and requests welcome."""
    if not service.is_ready:
        raise Overloaded("Draining." if service.draining else "Loading the models.")
    return json_response({"status": "ready", "models": list(service.models)})


async def metrics(request: Request, service: Service) -> Response:
    """Return the metrics in Prometheus' format."""
    service.update_queue()
    service.update_drift()
    return Response(service.metrics.render(), headers={"content-type": CONTENT_TYPE})


async def openapi(request: Request, service: Service) -> Response:
    """Return the OpenAPI document of these models."""
    return json_response(describe_api(service))


async def reload(request: Request, service: Service) -> Response:
    """Load models again, for the key called admin; refused if their golden answers drift."""
    if request.scope.get("weft.key") != ADMIN:
        raise HttpError(403, f"Only the key called '{ADMIN}' of the key file may reload models.")
    body = await read_request(request, ReloadRequest, service.settings.max_bytes)
    if service.shared:  # the supervisor passes it on to every worker
        os.kill(os.getppid(), signal.SIGHUP)
        return json_response({"reloading": "all workers"}, 202)
    try:
        return json_response({"reloaded": await service.reload(body.model)})
    except UserError as error:
        raise HttpError(409, f"The models stay as they are: {error}") from None


async def drift(request: Request, service: Service) -> Response:
    """Compare the last texts of each model with its training texts."""
    rows = {}
    for name, model in service.models.items():
        if model.traffic is not None:
            found = model.traffic.drift(fresh=True)
            rows[name] = {
                "texts": found.texts, "p": found.p, "distance": found.distance,
                "traits": {one.name: one.to_json() for one in found.traits},
            }  # fmt: skip
    return json_response({"models": rows})


ROUTES: RouteTable = [
    ("GET", "/health", health),
    ("GET", "/ready", ready),
    ("GET", "/metrics", metrics),
    ("GET", "/drift", drift),
    ("GET", "/openapi.json", openapi),
    ("POST", "/admin/reload", reload),
]
