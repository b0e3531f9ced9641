"""Request bodies: their types are the schema, of validation and of the OpenAPI document."""

from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from weft.jsonio import MAX_DEPTH
from weft.serve.http_error import HttpError, InvalidRequest

Body = TypeVar("Body", bound=Struct)
MAX_RETURNED = 64  # texts for one prompt, and beams
Fraction = Annotated[float, Meta(gt=0, lt=1)]


class PredictRequest(Struct, forbid_unknown_fields=True):
    """Texts to answer: one `text`, or several `texts`."""

    text: Annotated[
        Any,
        Meta(
            description="A text. For a model of pairs [text, other] or {text, other}; for a "
            "tagger also {words}; of records an object; of vectors a matrix."
        ),
    ] = None
    texts: Annotated[list[Any] | None, Meta(description="Several of the same.")] = None
    model: Annotated[str, Meta(description="A name of /v1/models; default: the first.")] = ""
    all: Annotated[bool, Meta(description="The probability of every label.")] = False
    weights: Annotated[bool, Meta(description="The attention weight of each token.")] = False
    abstain_at: Annotated[Fraction | None, Meta(description="Answer only above this accuracy.")] = (
        None
    )
    label_sets: Annotated[
        Fraction | None, Meta(description="Probability that a set holds the right label.")
    ] = None
    draw: Annotated[bool, Meta(description="Also each answer as a piece of HTML.")] = False


class ExplainRequest(Struct, forbid_unknown_fields=True):
    """One text whose answer is explained."""

    text: Annotated[Any, Meta(description="As in /predict.")]
    model: str = ""
    method: Annotated[str, Meta(description="Default: the best one for the model.")] = ""
    target: Annotated[str, Meta(description="The label to explain; default: the answer.")] = ""
    word: Annotated[str, Meta(description="The word to explain, by number or itself.")] = ""
    column: Annotated[str, Meta(description="The column of tags, if there are several.")] = ""
    draw: bool = False


class GenerateRequest(Struct, forbid_unknown_fields=True):
    """A prompt to continue, or a source to translate or answer."""

    prompt: Annotated[Any, Meta(description="A text; of records an object, of vectors a matrix.")]
    model: str = ""
    stream: Annotated[bool, Meta(description="Server-sent events, one a token.")] = False
    prefix: Annotated[str, Meta(description="The text begins with it.")] = ""
    num_return: Annotated[int, Meta(ge=1, le=MAX_RETURNED)] = 1
    # As in [generate] of a configuration; the model's own are the default.
    method: Literal["greedy", "beam", "sample"] | None = None
    num_beams: Annotated[int, Meta(ge=1, le=MAX_RETURNED)] | None = None
    length_penalty: float | None = None
    temperature: Annotated[float, Meta(gt=0)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    max_length: Annotated[int, Meta(ge=1)] | None = None
    min_length: Annotated[int, Meta(ge=0)] | None = None
    no_repeat_ngram_size: Annotated[int, Meta(ge=0)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=1)] | None = None


class EmbeddingsRequest(Struct):
    """Texts to embed, as OpenAI's API has it."""

    input: Annotated[Any, Meta(description="A text or a list of texts.")]
    model: str = ""
    encoding_format: Annotated[str, Meta(description="float or base64.")] = "float"
    dimensions: Annotated[int, Meta(ge=1)] | None = None


class CompletionsRequest(Struct):
    """A prompt to continue, as OpenAI's API has it."""

    prompt: Annotated[Any, Meta(description="A text or a list of texts.")] = ""
    model: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_RETURNED)] | None = 1
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    echo: bool | None = False
    # Not supported: refused rather than ignored.
    suffix: str | None = None
    logprobs: int | None = None
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class ReloadRequest(Struct, forbid_unknown_fields=True):
    """The models to load again; all without a name."""

    model: str = ""


def decode(body: bytes, kind: type[Body]) -> Body:
    """Return the body as a request, or raise a 400 or 422 that says what is wrong with it."""
    _check_depth(body)
    try:
        decoded: Body = _decoder(kind).decode(body)
        return decoded
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise HttpError(400, f"The body is not readable as JSON: {reason}.") from None


@cache
def _decoder(kind: type[Body]) -> "msgspec.json.Decoder[Body]":
    return msgspec.json.Decoder(kind)


def _check_depth(body: bytes) -> None:
    """Refuse deep nesting before anything recurses into it."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    in_string = escaped = False
    for byte in body:
        if escaped:
            escaped = False
        elif in_string:
            escaped, in_string = byte == 0x5C, byte != 0x22
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise HttpError(400, f"The body is nested more than {MAX_DEPTH} levels deep.")
        elif byte in b"]}":
            depth -= 1
