"""The OpenAPI document: request schemas from their types, answer schemas from the models' tasks."""

from typing import Any

import msgspec

from weft import __version__
from weft.serve.requests import (
    CompletionsRequest,
    EmbeddingsRequest,
    ExplainRequest,
    GenerateRequest,
    PredictRequest,
    ReloadRequest,
)
from weft.serve.service import ServedModel, Service

NUMBER, TEXT = {"type": "number"}, {"type": "string"}
OFFSETS = {
    "type": "array",
    "description": "Of each word: start, end, probability.",
    "items": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}, NUMBER]},
}
ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": TEXT, "type": TEXT, "code": {"type": "integer"}},
        }
    },
}
# Method, path, what it does, the type of its body.
PATHS: list[tuple[str, str, str, type[msgspec.Struct] | None]] = [
    ("post", "/predict", "Answer one or many texts.", PredictRequest),
    ("post", "/explain", "The words that an answer rests on.", ExplainRequest),
    ("post", "/generate", "Continue a prompt, or answer a source.", GenerateRequest),
    ("post", "/v1/completions", "Continue prompts, as in OpenAI's API.", CompletionsRequest),
    ("post", "/v1/embeddings", "Sentence vectors, as in OpenAI's API.", EmbeddingsRequest),
    ("post", "/admin/reload", "Load models again; for the key called admin.", ReloadRequest),
    ("get", "/v1/models", "The models.", None),
    ("get", "/health", "The process works.", None),
    ("get", "/ready", "The models are loaded and verified.", None),
    ("get", "/drift", "Live texts compared with those of training.", None),
    ("get", "/metrics", "Metrics in Prometheus' format.", None),
]


def describe_api(service: Service) -> dict[str, Any]:
    """Return the OpenAPI document for the models of a service."""
    kinds = [kind for *_, kind in PATHS if kind is not None]
    _, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    answers = {f"Answer.{name}": answer_schema(one) for name, one in service.models.items()}
    schemas = {**components, **answers, "Error": ERROR}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "weft serve", "version": __version__},
        "paths": {},
        "components": {"schemas": schemas},
    }
    if service.keys:
        bearer = {"type": "http", "scheme": "bearer"}
        document["components"]["securitySchemes"] = {"bearer": bearer}
        document["security"] = [{"bearer": []}]
    for method, path, summary, kind in PATHS:
        operation = {"summary": summary, "responses": _responses(path, list(answers))}
        if kind is not None:
            content = {"application/json": {"schema": _reference(kind.__name__)}}
            operation["requestBody"] = {"required": True, "content": content}
        document["paths"].setdefault(path, {})[method] = operation
    return document


def _responses(path: str, answers: list[str]) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if path == "/predict" and answers:
        rows = {"type": "array", "items": {"anyOf": [_reference(name) for name in answers]}}
        body = {"type": "object", "properties": {"model": TEXT, "answers": rows}}
        content = {"application/json": {"schema": body}}
    failed = {
        "description": "An error.",
        "content": {"application/json": {"schema": _reference("Error")}},
    }
    return {"200": {"description": "Done.", "content": content}, "default": failed}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def answer_schema(model: ServedModel) -> dict[str, Any]:
    """Return the schema of a model's answers."""
    predictor = model.predictor
    properties: dict[str, Any] = {
        "value": _value_schema(model),
        "score": {"type": "number", "description": "The probability of the value, if it has one."},
        "coverage": {
            "type": "number",
            "description": "Below 1: not all of the text was read, or told apart.",
        },
        "probabilities": {"type": "object", "additionalProperties": NUMBER},
        "parts": OFFSETS,
    }
    if predictor.is_structured:
        properties["words"] = {"type": "array", "items": TEXT}
        properties["tree"] = TEXT
    return {
        "type": "object",
        "description": f"Answers of a model of the task {model.task}.",
        "properties": properties,
        "required": ["value", "score", "coverage"],
    }


def _value_schema(model: ServedModel) -> dict[str, Any]:
    """Return the schema of the values of a model's answers."""
    labels = list(model.predictor.class_labels)
    one = {**TEXT, "enum": labels} if labels else {}
    if model.predictor.task.multi_label:
        return {"type": "array", "items": one}
    return one
