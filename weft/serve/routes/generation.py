"""Routes that generate: /generate, and /v1/completions as OpenAI's clients call it."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.serve.connection import connection_of
from weft.serve.http_error import Disconnected, HttpError, InvalidRequest
from weft.serve.inputs import estimate_request, read_inputs
from weft.serve.operations import Write
from weft.serve.requests import CompletionsRequest, GenerateRequest
from weft.serve.responses import RouteTable, json_response, read_request
from weft.serve.routes.answers import compute, deadline_of
from weft.serve.service import ServedModel, Service

if TYPE_CHECKING:
    from weft.predict.generate import Generator, Token

COMPLETION_TOKENS = 16  # without max_tokens, as OpenAI has it
SETTINGS = (
    "method", "num_beams", "length_penalty", "temperature", "top_k", "top_p", "seed", "max_length",
    "min_length", "no_repeat_ngram_size", "repetition_penalty",
)  # fmt: skip
UNSUPPORTED = ("suffix", "logprobs", "best_of", "presence_penalty", "frequency_penalty")


class TokenStream:
    """The tokens of one generation as they come; cancelled when the client goes away."""

    def __init__(
        self, request: Request, service: Service, generator: "Generator", prompt: Any,
        settings: SearchSettings, prefix: str = "",
    ):  # fmt: skip
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._connection = connection_of(request.scope)
        self._stream = service.compute.stream(
            lambda: generator.stream(prompt, settings, prefix=prefix),
            self._queue.put_nowait,
            deadline_of(service, time.monotonic()),
        )
        if self._connection is not None:
            self._connection.on_lost = self._lose

    def _lose(self) -> None:
        self.cancel()
        self._queue.put_nowait(Disconnected())

    def cancel(self) -> None:
        """Stop generating."""
        self._stream.cancelled = True
        if self._connection is not None:
            self._connection.on_lost = None

    async def __aiter__(self) -> "AsyncGenerator[Token, None]":
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.cancel()


class EventStream(Response):
    """Server-sent events; an error after the first event is an event, too."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]):
        super().__init__()
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            with suppress(Disconnected):
                async for event in self._events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await self._events.aclose()  # also when sending was cancelled


async def stream_events(events: AsyncGenerator[bytes, None]) -> EventStream:
    """Return a response once the first event is there, so that errors before it have a status."""
    first = await anext(events)

    async def all_events() -> AsyncGenerator[bytes, None]:
        async with aclosing(events):
            yield first
            try:
                async for event in events:
                    yield event
            except HttpError as error:
                about = {"message": error.message, "type": error.kind, "code": error.status}
                yield _event({"error": about})

    return EventStream(all_events())


def _event(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


async def generate(request: Request, service: Service) -> Response:
    """Continue a prompt, or answer a source; `stream` sends each token as it is generated."""
    service.compute.check_capacity()
    body = await read_request(request, GenerateRequest, service.settings.max_bytes)
    model, generator = _find_generator(service, body.model)
    inputs = read_inputs(model.predictor, [body.prompt], service.settings)
    changes = {name: value for name in SETTINGS if (value := getattr(body, name)) is not None}
    settings = _search_settings(service, generator, changes, body.num_return)
    if not body.stream:
        estimate_request(inputs, service.settings)
        operation = Write(generator, model.name, model.version, settings, body.prefix)
        (found,) = await compute(request, service, model, operation, inputs)
        return json_response({"model": model.name, "texts": [one.to_json() for one in found]})
    if settings.method == "beam" or body.num_return > 1:
        raise InvalidRequest("Only one text by method greedy or sample can be streamed.")
    _note(request, model, inputs)
    tokens = TokenStream(request, service, generator, inputs[0], settings, body.prefix)
    return await stream_events(_token_events(tokens))


async def _token_events(tokens: TokenStream) -> AsyncGenerator[bytes, None]:
    async with aclosing(aiter(tokens)) as items:
        async for token in items:
            yield _event(token.to_json())
    yield DONE


def _find_generator(service: Service, name: str) -> "tuple[ServedModel, Generator]":
    model = service.find_model(name)
    if model.generator is None:
        raise InvalidRequest(f"'{model.name}' does not generate texts: use /predict.")
    return model, model.generator


def _search_settings(
    service: Service, generator: "Generator", changes: dict[str, Any], count: int
) -> SearchSettings:
    """Return the model's settings with these changes, within the limits of the server."""
    limit = service.settings.max_new_tokens
    if changes.get("max_length", 0) > limit:
        raise InvalidRequest(
            f"max_length is {changes['max_length']:,}; at most {limit:,} tokens are generated "
            "(--max-new-tokens)."
        )
    try:
        settings = generator.search_settings(changes)
        if settings.max_length > limit:
            settings = replace(settings, max_length=limit)
        if count > 1 and settings.method == "greedy":
            raise InvalidRequest("A greedy search finds one text. Use method beam or sample.")
        if settings.method == "sample":
            return replace(settings, num_samples=count)
        if settings.method == "beam":
            return replace(settings, num_return=count, num_beams=max(count, settings.num_beams))
        return settings
    except UserError as error:
        raise InvalidRequest(str(error).replace("generate.", "")) from None


def _note(request: Request, model: ServedModel, inputs: list[Any]) -> None:
    request.scope["weft.notes"] |= {"model": model.name, "texts": len(inputs)}


@dataclass(frozen=True)
class CompletionPlan:
    """The checked request of /v1/completions."""

    model: ServedModel
    generator: "Generator"
    prompts: list[str]
    settings: SearchSettings
    stops: tuple[str, ...]
    count: int
    echo: bool

    @property
    def size(self) -> int:
        """The number of choices."""
        return len(self.prompts) * self.count

    def settings_of(self, k: int) -> SearchSettings:
        """Return the settings of the k-th text of a prompt."""
        return replace(self.settings, seed=self.settings.seed + k)


async def completions(request: Request, service: Service) -> Response:
    """Continue prompts as OpenAI's API does."""
    service.compute.check_capacity()
    body = await read_request(request, CompletionsRequest, service.settings.max_bytes)
    plan = _read_completion(service, body)
    _note(request, plan.model, plan.prompts)
    about = {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": plan.model.name,
    }
    service.metrics.texts.labels(plan.model.name).inc(len(plan.prompts))
    pieces = _generate_pieces(request, service, plan)
    if body.stream:
        options = body.stream_options or {}
        events = _completion_events(pieces, plan, about, bool(options.get("include_usage")))
        return await stream_events(events)
    texts, reasons = [""] * plan.size, [""] * plan.size
    generated = 0
    async with aclosing(pieces):
        async for piece in pieces:
            texts[piece.index] += piece.text
            reasons[piece.index] = piece.reason
            generated += piece.tokens
    choices = [
        {"text": text, "index": i, "logprobs": None, "finish_reason": reason}
        for i, (text, reason) in enumerate(zip(texts, reasons, strict=True))
    ]
    return json_response({**about, "choices": choices, "usage": _usage(plan, generated)})


def _read_completion(service: Service, body: CompletionsRequest) -> CompletionPlan:
    """Check the body of /v1/completions."""
    model, generator = _find_generator(service, body.model)
    for name in UNSUPPORTED:
        if getattr(body, name) not in (None, 0, 1 if name == "best_of" else 0):
            raise InvalidRequest(f"'{name}' is not supported. Leave it out.")
    prompts = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    if not all(isinstance(prompt, str) for prompt in prompts) or not prompts:
        raise InvalidRequest("prompt should be a text or a list of texts; token ids are not read.")
    estimate_request(read_inputs(model.predictor, prompts, service.settings), service.settings)
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    changes: dict[str, Any] = {"max_length": body.max_tokens or COMPLETION_TOKENS}
    changes["min_length"] = 0
    changes["seed"] = secrets.randbelow(2**31) if body.seed is None else body.seed
    if body.temperature == 0:
        changes["method"] = "greedy"
    else:
        changes |= {"method": "sample", "temperature": body.temperature or 1.0}
        changes["top_p"] = body.top_p or 1.0
    settings = _search_settings(service, generator, changes, 1)
    return CompletionPlan(
        model, generator, prompts, settings, tuple(filter(None, stops)), body.n or 1,
        bool(body.echo),
    )  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Some text of a choice, how many tokens it took, and why the choice ends if it does."""

    index: int
    text: str
    tokens: int
    reason: str = ""


async def _generate_pieces(
    request: Request, service: Service, plan: CompletionPlan
) -> AsyncGenerator[Piece, None]:
    """Yield the text of all choices, one after the other."""
    for i in range(plan.size):
        prompt, k = plan.prompts[i // plan.count], i % plan.count
        tokens = TokenStream(request, service, plan.generator, prompt, plan.settings_of(k))
        if plan.echo:
            yield Piece(i, prompt, 0)
        async with aclosing(aiter(tokens)) as items, aclosing(_cut(items, i, plan)) as pieces:
            async for piece in pieces:
                yield piece


async def _cut(
    tokens: "AsyncIterator[Token]", index: int, plan: CompletionPlan
) -> AsyncGenerator[Piece, None]:
    """Yield the text of a choice up to a stop sequence, which is left out."""
    held = ""  # text that may be the beginning of a stop sequence
    count, reason = 0, "length"
    async for token in tokens:
        count += 1
        held += token.text
        if token.id == plan.generator.eos:
            reason = "stop"
        if (at := _find_stop(held, plan.stops)) >= 0:
            yield Piece(index, held[:at], count, "stop")
            return
        keep = _overlap(held, plan.stops)
        if len(held) > keep:
            yield Piece(index, held[: len(held) - keep], count)
            held, count = held[len(held) - keep :], 0
    yield Piece(index, held, count, reason)


def _find_stop(text: str, stops: tuple[str, ...]) -> int:
    """Return where the first stop sequence begins; -1 without one."""
    return min((at for stop in stops if (at := text.find(stop)) >= 0), default=-1)


def _overlap(text: str, stops: tuple[str, ...]) -> int:
    """Return how many characters at the end may begin a stop sequence."""
    return max(
        (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0
    )


async def _completion_events(
    pieces: AsyncGenerator[Piece, None], plan: CompletionPlan, about: dict[str, Any], usage: bool
) -> AsyncGenerator[bytes, None]:
    generated = 0
    async with aclosing(pieces):
        async for piece in pieces:
            generated += piece.tokens
            choice = {
                "text": piece.text, "index": piece.index, "logprobs": None,
                "finish_reason": piece.reason or None,
            }  # fmt: skip
            yield _event({**about, "choices": [choice]})
    if usage:
        yield _event({**about, "choices": [], "usage": _usage(plan, generated)})
    yield DONE


def _usage(plan: CompletionPlan, generated: int) -> dict[str, int]:
    read = sum(plan.model.predictor.engine.count_tokens(plan.prompts))
    return {
        "prompt_tokens": read,
        "completion_tokens": generated,
        "total_tokens": read + generated,
    }


ROUTES: RouteTable = [
    ("POST", "/generate", generate),
    ("POST", "/v1/completions", completions),
]
