"""Routes to answers and their explanations: /predict, /explain."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.predict.evaluate import prediction_json
from weft.serve.compute import Operation
from weft.serve.connection import ARRIVED_KEY, connection_of
from weft.serve.http_error import Disconnected, InvalidRequest
from weft.serve.inputs import estimate_request, read_inputs
from weft.serve.operations import Explain, Predict
from weft.serve.requests import ExplainRequest, PredictRequest
from weft.serve.responses import RouteTable, json_response, read_request
from weft.serve.service import ServedModel, Service


async def predict(request: Request, service: Service) -> Response:
    """Answer one or many texts."""
    service.compute.check_capacity()  # before the body is read
    body = await read_request(request, PredictRequest, service.settings.max_bytes)
    model = service.find_model(body.model)
    if (body.text is None) == (body.texts is None):
        raise InvalidRequest("Send `text` with one text, or `texts` with several.")
    given = [body.text] if body.texts is None else body.texts
    predictor = model.predictor
    if not model.answers:
        raise InvalidRequest(f"'{model.name}' gives vectors, not answers: use /v1/embeddings.")
    inputs = read_inputs(predictor, given, service.settings)
    labels = _labels_shown(model, body)
    operation = Predict(
        predictor, model.name, model.version, body.weights or (body.all and not labels),
        body.abstain_at, body.label_sets,
    )  # fmt: skip
    answers = await compute(request, service, model, operation, inputs)
    if model.traffic is not None:
        model.traffic.watch(inputs, answers)
    if service.shadow is not None and service.shadow.model == model.name and inputs:
        service.shadow.offer(inputs, answers)
        service.compute.wake()
    rows = [prediction_json(answer, labels) for answer in answers]
    if body.draw:
        drawings = await asyncio.to_thread(lambda: [one._repr_html_() for one in answers])
        for row, drawing in zip(rows, drawings, strict=True):
            row["html"] = drawing
    return json_response({"model": model.name, "answers": rows})


async def explain(request: Request, service: Service) -> Response:
    """Show which words the answer to one text rests on."""
    service.compute.check_capacity()
    body = await read_request(request, ExplainRequest, service.settings.max_bytes)
    model = service.find_model(body.model)
    inputs = read_inputs(model.predictor, [body.text], service.settings)
    operation = Explain(
        model.predictor, model.name, body.method, body.target, body.word, body.column
    )
    (found,) = await compute(request, service, model, operation, inputs)
    reply = {"model": model.name, "explanations": found.to_json()}
    if body.draw:
        drawings = (one[0]._repr_html_() for one in found.explanations.values())
        reply["html"] = await asyncio.to_thread("".join, drawings)
    return json_response(reply)


def _labels_shown(model: ServedModel, body: PredictRequest) -> Sequence[str]:
    """Return the labels whose probabilities are listed."""
    labels = model.predictor.class_labels if body.all else ()
    if body.all and not labels and not model.predictor.task.has_boundaries:
        raise InvalidRequest(
            f"`all` lists the probability of every label, but '{model.name}' has no labels."
        )
    return labels


async def compute(
    request: Request,
    service: Service,
    model: ServedModel,
    operation: Operation,
    inputs: Sequence[Any],
) -> list[Any]:
    """Return the results of an operation; Disconnected if the client goes away meanwhile."""
    notes = request.scope["weft.notes"]
    notes |= {"model": model.name, "texts": len(inputs)}
    if service.settings.log_texts:
        notes["inputs"] = [repr(one) for one in inputs]
    if not inputs:
        return []
    tokens = estimate_request(inputs, service.settings)
    arrived = request.scope.get(ARRIVED_KEY, 0.0) or time.monotonic()
    job = service.compute.submit(operation, inputs, tokens, deadline_of(service, arrived))
    connection = connection_of(request.scope)
    if connection is not None:
        connection.on_lost = job.done.cancel
        job.descriptor = connection.descriptor
    try:
        results = await job.done
    except asyncio.CancelledError:
        if job.done.cancelled():
            raise Disconnected from None
        job.done.cancel()
        raise
    finally:
        if connection is not None:
            connection.on_lost = None
    service.metrics.texts.labels(model.name).inc(len(inputs))
    return results


def deadline_of(service: Service, arrived: float) -> float:
    """Return when what arrived then has to be answered, by time.monotonic."""
    return arrived + service.settings.deadline_ms / 1000


ROUTES: RouteTable = [("POST", "/predict", predict), ("POST", "/explain", explain)]
