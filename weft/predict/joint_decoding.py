"""Decode with several models at once: the mean of their next-token probabilities at every step.

B rows   V words
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.batch.indexer import Row
from weft.decode.decoders.packed import pack_step
from weft.decode.decoders.prompt_continuation import PromptContinuation
from weft.decode.heads.seq2seq import Seq2SeqHead, Seq2SeqOutput
from weft.decode.search.search import search
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import Step
from weft.errors import UserError
from weft.predict.neural import NeuralEngine
from weft.predict.output import EngineInput, EngineOutput, word_weights
from weft.protocols import State
from weft.tasks.annotation import Decoded
from weft.tasks.tag import join_parts
from weft.text.example import Example

MAX_SOURCES = 64  # sources that are decoded together


def average_step(steps: Sequence[Step], weights: np.ndarray) -> Step:
    """Return a step whose next-token probabilities are p̄ = Σ w_m p_m; its state has all states."""
    log_weights = [float(np.log(weight)) for weight in weights]

    def step(ids: Tensor, states: State) -> tuple[Tensor, State]:
        logps: list[Tensor] = []
        after: list[State] = []
        for one, state, log_weight in zip(steps, states, log_weights, strict=True):
            logits, new = one(ids, state)
            logps.append(logits.float().log_softmax(-1) + log_weight)  # (B, V)
            after.append(new)
        if len({each.shape for each in logps}) > 1:
            sizes = " and ".join(str(each.shape[1]) for each in logps)
            raise UserError(f"The members of this ensemble predict {sizes} tokens, not the same.")
        return torch.stack(logps).logsumexp(0), tuple(after)

    return step


class JointContinuation:
    """Steps of several language models from the end of the same prompt."""

    step: Step
    limit: int | None

    def __init__(
        self, models: "Sequence[PromptContinuation | JointContinuation]", weights: np.ndarray
    ):
        self.models = models
        self.step = average_step([model.step for model in models], weights)
        limits = [model.limit for model in models if model.limit is not None]
        self.limit = min(limits, default=None)

    def start(self, ids: Tensor) -> State:
        """Return the states after a prompt (B, T)."""
        return tuple(model.start(ids) for model in self.models)


@dataclass(frozen=True)
class JointSources:
    """Sources encoded by every model, and the joint step from them."""

    rows: list[Sequence[Row]]  # of each model, in the order of the sources
    step: Step
    state: State
    extended_ids: int  # ids of words that are copied from the sources


@torch.no_grad()
def encode_jointly(
    engines: Sequence[NeuralEngine],
    weights: np.ndarray,
    inputs: Sequence[EngineInput],
    settings: SearchSettings,
) -> JointSources:
    """Encode the inputs with every model, in one batch, ready for the first step."""
    rows, steps, states, extended = [], [], [], 0
    for engine in engines:
        own = engine.index(inputs)
        if len(own) != len(inputs):
            raise UserError(
                "A source is longer than a member of this ensemble reads at once. Shorten it, or "
                "train with data.truncate='head'."
            )
        source = own.padded(np.arange(len(own))).to(engine.runtime.device)
        with engine.runtime.autocast():
            output = engine.model.run(source).scores
        assert isinstance(output, Seq2SeqOutput)
        start = output.start()
        extended = max(extended, start.num_extended_ids)
        step, state = pack_step(output.head.decoder, start, settings.weight_dtype)
        rows.append(own.rows)
        steps.append(step)
        states.append(state.per_prompt())
    return JointSources(rows, average_step(steps, weights), tuple(states), extended)


def decode_jointly(
    engines: Sequence[NeuralEngine], weights: np.ndarray, inputs: Sequence[EngineInput]
) -> EngineOutput:
    """Return the text that the models generate together for each input."""
    head = engines[0].model.head
    assert isinstance(head, Seq2SeqHead)
    decoded: list[list[Decoded]] = [[] for _ in inputs]
    coverage, read = np.zeros(len(inputs)), np.zeros(len(inputs))
    for numbers in _by_length(inputs):
        job = encode_jointly(engines, weights, [inputs[i] for i in numbers], head.search)
        results = search(
            job.step, job.state, head.search, batch=len(numbers), bos=head.bos, eos=head.eos,
            constraints=head.constraints,
        )  # fmt: skip
        for k, (i, hypotheses) in enumerate(zip(numbers, results, strict=True)):
            row, best = job.rows[0][k], hypotheses[0]
            coverage[i] = min(own[k].coverage for own in job.rows)
            read[i] = min(own[k].read_fraction for own in job.rows)
            if not row.read_fraction:
                continue  # an empty text has no answer
            table = np.array(best.ids, np.int64)[:, None]
            probs = np.exp(np.array(best.logps, np.float64))[:, None]
            decoded[i].append(Decoded(table, probs, row.words, (), None, _fields(inputs[i])))
    whole = [join_parts(parts) for parts in decoded]
    return EngineOutput(whole, coverage, [word_weights(one) for one in whole], read)


def _by_length(inputs: Sequence[EngineInput]) -> Iterator[list[int]]:
    """Yield the numbers of inputs of similar length, at most MAX_SOURCES at a time."""
    texts = [one if isinstance(one, str) else one.text for one in inputs]
    order = sorted(range(len(inputs)), key=lambda i: len(texts[i]))
    for at in range(0, len(order), MAX_SOURCES):
        yield order[at : at + MAX_SOURCES]


def _fields(one: EngineInput) -> tuple[Any, ...]:
    return one.fields if isinstance(one, Example) else ()
