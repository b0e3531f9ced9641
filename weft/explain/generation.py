"""Trace generation: token probabilities, attention to the source, and the beam search.

T tokens of the answer   S tokens of the source   V words   L layers   N heads   B texts
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.attend.transformer_block import TransformerBlock
from weft.batch import Padded
from weft.decode.decoders.transformer import TransformerDecoder
from weft.decode.heads.ctc.head import CTCHead, CTCOutput
from weft.decode.heads.ctc.search import align
from weft.decode.heads.lm import LanguageModelHead
from weft.decode.heads.seq2seq import Seq2SeqHead, Seq2SeqOutput
from weft.decode.search.beam import BeamState
from weft.decode.search.hypotheses import Hypothesis
from weft.decode.search.search import search
from weft.decode.search.state import device_of
from weft.explain.beams import BeamNode, build_search_tree
from weft.inference.lm_scoring import lm_head
from weft.notebook import HtmlRepr
from weft.predict.ensemble import EnsembleEngine
from weft.predict.joint_decoding import MAX_SOURCES, encode_jointly
from weft.predict.neural import NeuralEngine
from weft.predict.predictor import Predictor
from weft.protocols import Decoder, Seq2SeqDecoder, State
from weft.tasks.annotation import Decoded
from weft.tasks.target_vocabulary import TargetVocabulary
from weft.text.example import Example
from weft.text.images import Patches
from weft.tokens.vocabulary import SPECIALS, UNK

DecoderStep = Callable[[Tensor, State], tuple[Tensor, State]]

MAX_ALTERNATIVES = 5  # of each token
NOT_SOURCE = "·"  # displayed for what is read beside the source
END_SIGN = "⏎"  # displayed for the token that ends a text
UNKNOWN_ID = SPECIALS.index(UNK)
HIDDEN_SPECIALS = frozenset(SPECIALS) - {
    UNK
}  # that stand in no text; the end has a sign of its own


@dataclass(frozen=True)
class TokenTrace:
    """One token, how probable it was where it stands, and what else was."""

    text: str
    prob: float
    others: tuple[tuple[str, float], ...] = ()  # the most probable ones, falling; itself too
    place: tuple[int, int] = (0, 0)  # in the text, where that is given


@dataclass(frozen=True, repr=False)
class GenerationTrace(HtmlRepr):
    """The trace of one generated or scored text."""

    tokens: tuple[TokenTrace, ...]  # (T,) of the answer; of a language model those of the text
    source: tuple[str, ...] = ()  # (S,) what was read
    attention: np.ndarray | None = None  # (L, N, T, S) each row sums to 1
    nodes: tuple[BeamNode, ...] = ()  # every hypothesis of a beam search
    found: tuple[tuple[str, float], ...] = ()  # the best texts with their scores
    image: np.ndarray | None = None  # (H, W, C) what was read, if it is one
    patches: Patches | None = None  # the source of an image
    scored: bool = False  # a text scored by a language model: tokens attend to those before them

    def __repr__(self) -> str:
        return f"GenerationTrace({len(self.tokens)} tokens from {len(self.source)})"

    def to_json(self) -> dict[str, object]:
        """Return tokens with probabilities, other hypotheses, and the mean attention."""
        tokens = [[t.text, t.prob, [list(other) for other in t.others]] for t in self.tokens]
        out: dict[str, object] = {"tokens": tokens}
        if self.found:
            out["found"] = [list(one) for one in self.found]
        if self.attention is not None:
            mean = self.attention.mean((0, 1)).round(4).tolist()
            out |= {"source": list(self.source), "attention": mean}
        return out


def trace_generation(predictor: Predictor, source_text: str | Example) -> GenerationTrace:
    """Trace how a model generates its answer to a text or a feature matrix."""
    if isinstance(predictor.engine, EnsembleEngine):
        return _trace_jointly(predictor, predictor.engine, source_text)
    engine = _neural(predictor)
    vectors = engine.input_kind == "vectors"
    example = Example(source_text) if isinstance(source_text, str) else source_text
    text = example.text if vectors else as_input(predictor, example).text
    rows, source = next(engine.batches([example if vectors else text]))
    with torch.inference_mode():
        output = engine.model.run(source)
        if isinstance(output.scores, CTCOutput):
            return _trace_ctc(predictor, output.scores)
        head = _seq2seq_head(engine)
        steps: list[BeamState] = []
        hypotheses, chosen = _run_search(output.scores, head, steps)
        ids = [*chosen.ids, *([head.eos] if chosen.ended else [])]
        logps = _next_token_log_probs(
            head.decoder.step, output.scores.start(), head.bos, ids
        )  # (T, V)
        looks = _cross_attention(head, output.states, ids)
    name = token_namer(_vocabulary(predictor), head.eos, rows[0].words)
    spans = rows[0].spans
    frontend = engine.model.traits.frontend
    patches = frontend if isinstance(frontend, Patches) else None
    if vectors:
        read = name_vectors(engine, len(rows[0].ids))
    else:
        assert spans is not None
        read = [text[start:end] for start, end in spans.tolist()]
    if looks is not None:
        read = [NOT_SOURCE] * (looks.shape[3] - len(read)) + read  # a [CLS] in front
    return GenerationTrace(
        tokens=_trace_tokens(ids, np.exp(chosen.logps), logps, name),
        source=tuple(read),
        attention=looks,
        nodes=build_search_tree(steps, chosen, head.eos, name),
        found=tuple(
            (_hypothesis_text(predictor, one, rows[0].words), one.score) for one in hypotheses
        ),
        image=None if patches is None else patches.join(rows[0].ids),
        patches=patches,
    )


def name_vectors(engine: NeuralEngine, count: int) -> list[str]:
    """Name vectors by their numbers, and patches of an image by row and column."""
    frontend = engine.model.traits.frontend
    if isinstance(frontend, Patches):
        return frontend.names()
    return [str(k) for k in range(1, count + 1)]


def _trace_ctc(predictor: Predictor, output: CTCOutput) -> GenerationTrace:
    """Trace a transcription: its tokens, and the steps that each is aligned with."""
    ((table, probs),), (row,) = output.decode(), output.rows()
    ids = table[:, 0].tolist()
    looks = np.zeros((1, 1, len(ids), len(row)), np.float32)
    spans = align(row, ids) if ids else []
    for k, (first, last) in enumerate(spans):
        looks[0, 0, k, first : last + 1] = 1 / (last + 1 - first)
    name = token_namer(_vocabulary(predictor), _vocabulary(predictor).size[2])
    peaks = [first + int(row[first : last + 1, i].argmax())
             for i, (first, last) in zip(ids, spans, strict=True)]  # fmt: skip
    return GenerationTrace(
        tokens=_trace_tokens(ids, probs[: len(ids), 0], row[peaks], name),
        source=tuple(str(k) for k in range(1, len(row) + 1)),
        attention=looks if ids else None,
    )


def _trace_jointly(
    predictor: Predictor, engine: EnsembleEngine, source_text: str | Example
) -> GenerationTrace:
    """Trace the answer of an ensemble: its tokens, with alternatives under the mean."""
    example = Example(source_text) if isinstance(source_text, str) else source_text
    given = example if engine.input_kind == "vectors" else as_input(predictor, example).text
    ids, head = answer_ids(predictor, given), _seq2seq_head(engine.neural_engines[0])
    job = encode_jointly(engine.neural_engines, engine.weights, [given], head.search)
    with torch.inference_mode():
        logps = _next_token_log_probs(job.step, job.state, head.bos, ids)  # (T, V)
    name = token_namer(_vocabulary(predictor), head.eos, job.rows[0][0].words)
    probs = np.exp(logps[np.arange(len(ids)), ids]) if ids else np.zeros(0)
    return GenerationTrace(tokens=_trace_tokens(ids, probs, logps, name))


def trace_scoring(predictor: Predictor, text: str) -> GenerationTrace:
    """Trace how a language model scores each token of a text, with its alternatives."""
    engine = predictor.engine
    (scored,) = engine.likelihoods([text])
    ids, probs = scored.table[:, 0].tolist(), scored.probs[:, 0]
    logps, looks = None, None
    if isinstance(engine, NeuralEngine) and not lm_head(engine.model).is_bidirectional:
        with torch.inference_mode():
            logps, looks = _score_text(lm_head(engine.model), ids, engine.runtime.device)
    vocabulary = _vocabulary(predictor)
    name = token_namer(vocabulary, vocabulary.size[2])
    tokens = _trace_tokens(ids, probs, logps, name, scored.places)
    return GenerationTrace(tokens, attention=looks, scored=True)


def score_answer(predictor: Predictor, texts: Sequence[str], answer: Sequence[int]) -> np.ndarray:
    """(B,) the mean log-probability a token of one answer, for each of some sources as read."""
    if isinstance(predictor.engine, EnsembleEngine):
        return _score_jointly(predictor.engine, texts, answer)
    engine = _neural(predictor)
    head = _seq2seq_head(engine)
    out = np.full(len(texts), np.nan)
    for rows, source in engine.batches(texts):
        with torch.inference_mode():
            scores = engine.model.run(source).scores
            sums = sequence_log_prob(head.decoder.step, scores.start(), head.bos, answer, len(rows))
        for row, value in zip(rows, sums.tolist(), strict=True):
            if np.isnan(out[row.text]):  # of a long text, the first window
                out[row.text] = value / max(len(answer), 1)
    return out


def _score_jointly(
    engine: EnsembleEngine, texts: Sequence[str], answer: Sequence[int]
) -> np.ndarray:
    """(B,) the same under the mean of the members' next-token probabilities."""
    head, out = _seq2seq_head(engine.neural_engines[0]), []
    for at in range(0, len(texts), MAX_SOURCES):
        some = texts[at : at + MAX_SOURCES]
        job = encode_jointly(engine.neural_engines, engine.weights, some, head.search)
        with torch.inference_mode():
            sums = sequence_log_prob(job.step, job.state, head.bos, answer, len(some))
        out += (sums / max(len(answer), 1)).tolist()
    return np.array(out)


def answer_ids(predictor: Predictor, text: str | Example) -> list[int]:
    """The tokens of the answer to a text or matrix as read, with the one that ended it."""
    (answer,) = predictor.engine.predict([text]).scores
    assert isinstance(answer, Decoded)
    ended = len(answer.probs) > len(answer.table)
    ended &= not isinstance(getattr(predictor.engine.model, "head", None), CTCHead)
    eos = _vocabulary(predictor).size[2]
    return [*answer.table[:, 0].tolist(), *([eos] if ended else [])]


def has_cross_attention(predictor: Predictor) -> bool:
    """Return True if the decoder attends to the source."""
    if isinstance(_neural(predictor).model.head, CTCHead):
        return False
    decoder: Decoder = _neural(predictor).model.head.decoder
    base = decoder.base_decoder
    return isinstance(base, Seq2SeqDecoder) and base.attends


def as_input(predictor: Predictor, example: Example) -> Example:
    """An example with the text that the model reads: of a record, its slots and values as one."""
    one = predictor.task.model_input(example, predictor.space, "the text")
    return example if isinstance(one, str) else one


def _vocabulary(predictor: Predictor) -> TargetVocabulary:
    assert isinstance(predictor.space, TargetVocabulary)
    return predictor.space


def _neural(predictor: Predictor) -> NeuralEngine:
    assert isinstance(predictor.engine, NeuralEngine)
    return predictor.engine


def _seq2seq_head(engine: NeuralEngine) -> Seq2SeqHead:
    assert isinstance(engine.model.head, Seq2SeqHead)
    return engine.model.head


def _run_search(
    scores: Seq2SeqOutput, head: Seq2SeqHead, steps: list[BeamState]
) -> tuple[list[Hypothesis], Hypothesis]:
    """Return the hypotheses, best first, and the best; `steps` gets every beam step."""

    def record_steps(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def step(run: Any) -> Any:
            run = body(run)
            if isinstance(run, BeamState):
                steps.append(run)
            return run

        return step

    settings = head.search
    if settings.method == "beam":
        settings = replace(settings, num_return=settings.num_beams)
    state = scores.start()
    hypotheses = search(
        head.decoder.step, state.per_prompt(), settings, batch=1,
        bos=head.bos, eos=head.eos, constraints=head.constraints, wrap_step=record_steps,
    )[0]  # fmt: skip
    return hypotheses, hypotheses[0]


def _next_token_log_probs(
    step: DecoderStep, state: State, first: int, ids: Sequence[int]
) -> np.ndarray:
    """Return the log-probabilities (T, V) of all words at the position of each token."""
    rows, token = [], first
    for following in ids:
        logits, state = step(torch.tensor([token], device=device_of(state)), state)
        rows.append(logits[0].float().log_softmax(-1))
        token = following
    return torch.stack(rows).cpu().numpy() if rows else np.zeros((0, 0), np.float32)


def sequence_log_prob(
    step: DecoderStep, state: State, first: int, ids: Sequence[int], batch: int
) -> Tensor:
    """Return the log-probability (B,) of one sequence after each source."""
    device = device_of(state)
    token = torch.full((batch,), first, device=device)
    total = torch.zeros(batch, device=device)
    for following in ids:
        logits, state = step(token, state)
        total = total + logits.float().log_softmax(-1)[:, following]
        token = torch.full((batch,), following, device=device)
    return total


def _cross_attention(head: Seq2SeqHead, memory: Padded, ids: Sequence[int]) -> np.ndarray | None:
    """Return the cross-attention (L, N, T, S) of each token of the answer."""
    decoder = head.decoder.base_decoder
    size = decoder.words.size
    inputs = [head.bos, *ids[:-1]] if ids else []
    ids_in_vocabulary = [i if i < size else UNKNOWN_ID for i in inputs]
    targets = Padded.from_rows([ids_in_vocabulary]).to(memory.data.device)
    if not isinstance(decoder, TransformerDecoder):
        assert isinstance(decoder, Seq2SeqDecoder)
        weights = decoder.read(targets, memory).weights  # (1, T, S)
        return None if weights is None else weights[None].float().cpu().numpy()
    caught: list[Tensor] = []
    hooks = [
        block.register_forward_hook(lambda _, __, made: caught.append(made[2]))
        for block in decoder.blocks
    ]
    try:
        decoder.read(targets, memory, weights=True)  # type: ignore[operator]
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack([shares[0] for shares in caught]).float().cpu().numpy()


def _score_text(
    head: LanguageModelHead, ids: Sequence[int], device: torch.device
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return log-probabilities (T, V) before each token, and a Transformer's attention."""
    seen = list(ids)[: head.row_steps]
    source = Padded.from_rows([[head.bos, *seen[:-1]] if seen else []]).to(device)
    features, caught = catch_attention(head, source)
    logps = head.decoder.words.logits(features)[0].float().log_softmax(-1).cpu().numpy()
    return logps, torch.stack(caught).float().cpu().numpy() if caught else None


def catch_attention(head: LanguageModelHead, source: Padded) -> tuple[Tensor, list[Tensor]]:
    """Return features (1, T, F) of a text, and the attention (N, T, T) of each layer."""
    decoder = head.decoder
    caught: list[Tensor] = []

    def catch(block: TransformerBlock, inputs: tuple[Tensor, ...]) -> None:
        steps = block.attention_norm(inputs[0]) if block.norm_first else inputs[0]
        caught.append(block.attention(steps, causal=True, return_weights=True)[1][0])  # (N, T, T)

    blocks = decoder.blocks if isinstance(decoder, TransformerDecoder) else ()
    hooks = [block.register_forward_pre_hook(catch) for block in blocks]
    try:
        return decoder.features(source), caught
    finally:
        for hook in hooks:
            hook.remove()


def token_namer(
    space: TargetVocabulary, last: int, copied: Sequence[str] = ()
) -> Callable[[int], str]:
    """Return a function that formats a token for display."""
    return lambda token: (
        END_SIGN if token == last else space.token_text(token, copied) or f"#{token}"
    )


def _trace_tokens(
    ids: Sequence[int],
    probs: Sequence[float] | np.ndarray,
    logps: np.ndarray | None,
    name: Callable[[int], str],
    offsets: Sequence[tuple[int, int]] = (),
) -> tuple[TokenTrace, ...]:
    out = []
    for t, (token, prob) in enumerate(zip(ids, probs, strict=True)):
        others: tuple[tuple[str, float], ...] = ()
        if logps is not None and t < len(logps):
            best = np.argsort(-logps[t], kind="stable")[
                : MAX_ALTERNATIVES + len(HIDDEN_SPECIALS)
            ].tolist()
            chosen = [i for i in best if name(i) not in HIDDEN_SPECIALS][:MAX_ALTERNATIVES]
            others = tuple((name(i), float(np.exp(logps[t, i]))) for i in chosen)
        span = tuple(offsets[t]) if offsets else (0, 0)
        out.append(TokenTrace(name(token), float(prob), others, (int(span[0]), int(span[1]))))
    return tuple(out)


def _hypothesis_text(predictor: Predictor, one: Hypothesis, copied: Sequence[str]) -> str:
    return _vocabulary(predictor).text(np.array(one.ids, np.int64), copied)
