"""Routes to sentence vectors and models, as OpenAI's clients call them."""

import base64
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from weft.serve.http_error import HttpError, InvalidRequest
from weft.serve.inputs import read_inputs
from weft.serve.operations import Embed
from weft.serve.requests import EmbeddingsRequest
from weft.serve.responses import RouteTable, json_response, read_request
from weft.serve.routes.answers import compute
from weft.serve.service import ServedModel, Service

ENCODINGS = ("float", "base64")


async def embeddings(request: Request, service: Service) -> Response:
    """Return sentence vectors."""
    service.compute.check_capacity()
    body = await read_request(request, EmbeddingsRequest, service.settings.max_bytes)
    model = service.find_model(body.model)
    if not model.embeds:
        raise InvalidRequest(f"'{model.name}' has no vector for a whole text.")
    if body.encoding_format not in ENCODINGS:
        raise InvalidRequest(
            f"encoding_format should be float or base64, got '{body.encoding_format:.40}'."
        )
    given = body.input if isinstance(body.input, list) else [body.input]
    inputs = read_inputs(model.predictor, given, service.settings)
    operation = Embed(model.predictor, model.name, model.version)
    results = await compute(request, service, model, operation, inputs)
    total = sum(tokens for _, tokens in results)
    data = [
        {"object": "embedding", "index": i, "embedding": _encode(vector, body)}
        for i, (vector, _) in enumerate(results)
    ]
    usage = {"prompt_tokens": total, "total_tokens": total}
    return json_response({"object": "list", "data": data, "model": model.name, "usage": usage})


def _encode(vector: np.ndarray, body: EmbeddingsRequest) -> str | list[float]:
    """Return a vector in the requested format; shortened ones have length 1 again."""
    values = vector.astype("<f4")
    if body.dimensions is not None:
        if body.dimensions > len(values):
            raise InvalidRequest(
                f"dimensions should be at most {len(values)}, got {body.dimensions}."
            )
        if body.dimensions < len(values):
            values = values[: body.dimensions]
            values = values / max(float(np.linalg.norm(values)), 1e-12)
            values = values.astype("<f4")
    if body.encoding_format == "base64":
        return base64.b64encode(values.tobytes()).decode("ascii")
    out: list[float] = values.tolist()
    return out


async def list_models(request: Request, service: Service) -> Response:
    """List the models."""
    return json_response({"object": "list", "data": list(map(describe, service.models.values()))})


async def show_model(request: Request, service: Service) -> Response:
    """Describe one model."""
    name = request.path_params["model"]
    if name not in service.models:
        raise HttpError(404, f"Unknown model '{name:.60}'. See /v1/models.")
    return json_response(describe(service.models[name]))


def describe(model: ServedModel) -> dict[str, Any]:
    """Return a model as /v1/models shows it: OpenAI's fields, then ours."""
    predictor = model.predictor
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "weft",
        "task": model.task,
        "labels": list(predictor.class_labels),
        "pairs": predictor.pairs,
        "input": predictor.engine.input_kind,
        "structured": predictor.is_structured,
        "parameters": predictor.parameters,
        "answers": model.answers,
        "embeds": model.embeds,
        "generates": model.generator is not None,
    }


ROUTES: RouteTable = [
    ("POST", "/v1/embeddings", embeddings),
    ("GET", "/v1/models", list_models),
    ("GET", "/v1/models/{model:path}", show_model),
]
