"""One word of a sentence as a neural model meets it: the scores of what it may say of that word.

B rows   T steps   W words among them   E embedding width   C choices   M ways to hide words
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.batch.indexer import Row
from weft.decode.heads.biaffine import IGNORED
from weft.decode.heads.crf import CRF
from weft.decode.heads.crf_dp import accumulation_dtype
from weft.decode.heads.intent_slots import IntentSlotOutput
from weft.decode.heads.parse import ConstituencyOutput, DependencyOutput, RecursiveOutput
from weft.decode.heads.roles import RoleOutput
from weft.decode.heads.semantics.coreference import CoreferenceOutput
from weft.decode.heads.semantics.tuple_grid import GridOutput
from weft.decode.heads.tag import TagOutput
from weft.decode.heads.tree_nodes import TreeNodeOutput
from weft.decode.heads.word_numbers import NumberOutput
from weft.errors import UserError
from weft.explain.attention import has_embedder_attention, only_network, rollout, word_rollout
from weft.explain.explanation import Target
from weft.explain.gradients import (
    MAX_BATCH_STEPS,
    integrate_gradients,
    mask_with_unknown,
    override_embedding,
    repeat_rows,
    word_table,
)
from weft.explain.targets.bracket import FORBIDDEN_SCORE, bracket_logits
from weft.explain.targets.link import link_logits
from weft.explain.targets.role import predicate_logits, role_logits, sense_logits
from weft.model import EncoderModel
from weft.predict.neural import NeuralEngine
from weft.text.example import Example

WordOutput = (  # of a head that labels words or spans of them
    TagOutput
    | NumberOutput
    | DependencyOutput
    | TreeNodeOutput
    | ConstituencyOutput
    | RecursiveOutput
    | RoleOutput
    | CoreferenceOutput
    | GridOutput
    | IntentSlotOutput
)


@dataclass(frozen=True)
class TargetSpec:
    """The explained choice: a tag of one column, a head, a relation, a label of a node or span.

    An intent is of the whole sentence, so it is the same at every step.

    A number has no choice: the number itself is explained, and stands where probabilities do.
    """

    what: Literal[
        "tag", "number", "head", "relation", "label", "bracket", "role", "sense", "predicate",
        "intent", "link",
    ]  # fmt: skip
    column: int = 0  # of tags
    heads: tuple[int, ...] = ()  # of relations: the head of each word, 0 the root
    # Of a bracket, argument, predicate or mention: words from and up to.
    span: tuple[int, int] = (0, 0)
    predicate: int = 0  # of a role or a sense: the word of its predicate; of a link: the head
    candidates: tuple[int, ...] = ()  # of a link: the words that may be the antecedent

    @property
    def has_span(self) -> bool:
        """True if `span` says what is explained, and not the step."""
        return self.what in ("bracket", "role", "sense", "link")


@dataclass(frozen=True)
class WordTarget:
    """One step of one row, and which choices the model has there.

    A hidden word is read as an unknown one without letters, or as one unknown piece where words
    are read by their pieces: unlike a removed one it leaves every word in its place. All of them
    hidden is where integrated gradients start.
    """

    model: EncoderModel
    source: Padded  # (1, T)
    row: Row
    step: int  # in the row
    wanted: TargetSpec
    choices: tuple[int, ...]  # (C,) the numbers of the choices, without what is forbidden here
    piece: int = 0  # what a hidden word is read as where pieces are read, counted from 1

    @property
    def first(self) -> int:
        """The first word of the sentence that is read."""
        return self.row.start

    @cached_property
    def words(self) -> np.ndarray:
        """(W,) the steps that are words: all of them, or the leaves of a tree."""
        size = self.source.data.shape[1]
        if self.source.parents is None:
            return np.arange(size)
        return np.setdiff1d(np.arange(size), self.source.parents.numpy())

    def scores(self, hidden: np.ndarray) -> np.ndarray:
        """(M, C) the scores of the choices while words (M, W) are hidden."""
        together = max(1, MAX_BATCH_STEPS // max(1, self.source.data.shape[1]))
        out = []
        with torch.inference_mode():
            for start in range(0, len(hidden), together):
                embedded = self.model.embed(self._mask_words(hidden[start : start + together]))
                out.append(self._choice_scores(self.model, embedded).double().cpu().numpy())
        return np.concatenate(out)

    def probs(self, hidden: np.ndarray) -> np.ndarray:
        """(M, C) the probabilities of the choices while words (M, W) are hidden."""
        logits = self.scores(hidden)
        if self.wanted.what == "number":
            return logits
        logits = np.exp(logits - logits.max(1, keepdims=True))
        return logits / logits.sum(1, keepdims=True)

    def gradients(self, target: Target, steps: int) -> np.ndarray:
        """(W,) the share of each word by integrated gradients; 0 steps is gradient × input."""
        if self.model.traits.subwords and (table := word_table(self.model)) is not None:
            return self._subtoken_gradients(table, target, steps)
        with torch.no_grad():
            embedded = self.model.embed(self.source)  # (1, T, E)
            none = self._mask_words(np.ones((1, len(self.words)), bool))
            nothing = self.model.embed(none).data if steps else None
        directions = torch.from_numpy(target.direction).to(embedded.data)[None]  # (1, C)
        weights = integrate_gradients(
            self.model, embedded, directions, steps, nothing, self._choice_scores
        )
        return weights[0].double().cpu().numpy()[self.words]

    def _subtoken_gradients(self, table: nn.Embedding, target: Target, steps: int) -> np.ndarray:
        """(W,) the same from the pieces on that a pre-trained network reads, summed over words."""
        network = only_network(self.model)
        (inputs,) = self.model.embedder_inputs(self.source)
        read, owners = network.step_ids(inputs), network.word_indices(inputs)  # (1, S)
        with torch.no_grad():
            embedded = read.with_data(table(read.data))  # (1, S, E)
            nothing = table(read.data.masked_fill(owners >= 0, self.piece - 1))

        def score(model: EncoderModel, points: Padded) -> Tensor:
            times = len(points)
            pieces = tuple(piece.repeat(times, 1, 1) for piece in self.source.subtokens)
            again = replace(repeat_rows(self.source, times), subtokens=pieces)
            with override_embedding(table, points.data):
                return self._choice_scores(model, model.embed(again))

        directions = torch.from_numpy(target.direction).to(embedded.data)[None]  # (1, C)
        base = nothing if steps else None
        (gradients,) = integrate_gradients(
            self.model, embedded, directions, steps, base, score
        )  # (S,)
        inside = owners[0] >= 0
        sums = gradients.new_zeros(self.source.data.shape[1])
        return sums.index_add(0, owners[0][inside], gradients[inside]).double().cpu().numpy()

    def attention(self) -> np.ndarray:
        """(W,) how much of the step's state came from each word, by attention rollout.

        Of a bracket or an argument, the mean over its words; of an intent, over all.
        """
        model, encoder = self.model, self.model.encoder
        weights = torch.zeros(self.source.data.shape[1], device=self.source.data.device)
        start, end = self.wanted.span if self.wanted.has_span else (self.step, self.step + 1)
        if self.wanted.what == "intent":
            start, end = 0, len(weights)
        weights[start:end] = 1 / (end - start)
        with torch.inference_mode():
            if encoder.has_attention:
                layers = encoder.attention_weights(model.embed(self.source))  # (1, N, T, T) each
                flow = rollout(layers, torch.ones_like(layers[0][:, 0, 0]))[0]  # (T, T)
                front = encoder.leading
                weights = weights @ flow[front:, front:]
            if has_embedder_attention(model):
                (inputs,) = model.embedder_inputs(self.source)
                weights = weights @ word_rollout(only_network(model), inputs)[0]
        return weights.double().cpu().numpy()

    def _mask_words(self, hidden: np.ndarray) -> Padded:
        """(M, T) rows with these words unknown and without pieces."""
        steps = np.zeros((len(hidden), self.source.data.shape[1]), bool)
        steps[:, self.words] = hidden
        gone = torch.from_numpy(steps).to(self.source.data.device)
        nothing = mask_with_unknown(self.source)
        if self.model.traits.subwords:
            nothing.subtokens[0][:, :, 0] = self.piece
        pieces = zip(self.source.subtokens, nothing.subtokens, strict=True)
        rows = repeat_rows(self.source, len(hidden))
        if rows.marks is not None:
            marks = self.model.head.hide_marks(rows.marks, torch.from_numpy(steps))
            rows = replace(rows, marks=marks)
        return replace(
            rows,
            data=torch.where(gone, nothing.data, self.source.data),
            subtokens=tuple(torch.where(gone[:, :, None], none, own) for own, none in pieces),
        )

    def _choice_scores(self, model: EncoderModel, embedded: Padded) -> Tensor:
        states, _ = model.pool(model.encoder(embedded))
        logits = choice_logits(model.head(states), self.step, self.wanted)
        return logits[:, list(self.choices)]


def make_word_target(
    engine: NeuralEngine, example: Example, step: int, wanted: TargetSpec
) -> WordTarget:
    """The spot of one word of an example, in the row that holds it; step -1 is a tree's root."""
    row, source = _find_row(engine, example, max(step, 0))
    here = source.data.shape[1] - 1 if step < 0 else step - row.start
    with torch.inference_mode():
        scores = choice_logits(engine.model(source), here, wanted)[0].double()
    possible = (scores > scores.max() + FORBIDDEN_SCORE / 2).nonzero()[:, 0].tolist()
    piece = engine.indexer.tokenizer.unknown + 1
    return WordTarget(engine.encoder_model, source, row, here, wanted, tuple(possible), piece)


def choice_logits(output: WordOutput, step: int, wanted: TargetSpec) -> Tensor:
    """Return (B, C) logits of the labels of one step; their softmax is the probability."""
    if isinstance(output, TreeNodeOutput):
        return output.labels.data[:, step].float()
    if isinstance(output, NumberOutput):
        return output.numbers.data[:, step, None].float()
    if isinstance(output, (ConstituencyOutput, RecursiveOutput)) and wanted.what == "bracket":
        return bracket_logits(output, *wanted.span)
    if isinstance(output, RoleOutput) and wanted.what == "role":
        return role_logits(output, wanted.predicate, *wanted.span)
    if isinstance(output, RoleOutput) and wanted.what == "sense":
        return sense_logits(output, wanted.predicate)[0]
    if isinstance(output, RoleOutput):
        return predicate_logits(output)[:, step]
    if isinstance(output, CoreferenceOutput):
        return link_logits(output, wanted.predicate, wanted.candidates)
    if isinstance(output, IntentSlotOutput) and wanted.what == "intent":
        return output.intents.float()
    if isinstance(output, DependencyOutput) and wanted.what == "head":
        return output.arcs.arcs[:, step].float()
    if isinstance(output, DependencyOutput) and wanted.what == "relation":
        heads = torch.full_like(output.arcs.arcs[:, :, 0], IGNORED, dtype=torch.long)  # (B, T)
        heads[:, step] = wanted.heads[step]
        return output.head.arcs.labels(output.arcs, heads).float()
    tags = _tag_scores(output)
    own, chain = tags.columns[wanted.column], tags.chains[wanted.column]
    return own.data[:, step].float() if chain is None else crf_label_scores(chain, own.data, step)


def choice_probs(output: WordOutput, wanted: TargetSpec) -> Tensor:
    """Return (B, T, C) probabilities of all labels of each step."""
    if isinstance(output, TreeNodeOutput):
        return output.labels.data.float().softmax(2)
    if isinstance(output, NumberOutput):
        return output.numbers.data[:, :, None].float()
    if isinstance(output, RoleOutput):
        return predicate_logits(output).softmax(2)
    assert not isinstance(output, CoreferenceOutput)  # its mentions have probabilities
    if isinstance(output, IntentSlotOutput) and wanted.what == "intent":
        return output.intent_probs()[:, None]
    if isinstance(output, DependencyOutput) and wanted.what == "head":
        return output.arcs.arcs.float().softmax(2)
    if isinstance(output, DependencyOutput) and wanted.what == "relation":
        heads = torch.tensor(wanted.heads, device=output.arcs.arcs.device)[None]  # (1, T)
        return output.head.arcs.labels(output.arcs, heads).float().softmax(1)[None]
    tags = _tag_scores(output)
    own, chain = tags.columns[wanted.column], tags.chains[wanted.column]
    return own.data.float().softmax(2) if chain is None else chain.marginals(own)


def _tag_scores(
    output: TagOutput
    | DependencyOutput
    | ConstituencyOutput
    | RecursiveOutput
    | IntentSlotOutput
    | GridOutput,
) -> TagOutput:
    tags = output if isinstance(output, TagOutput) else output.tags
    assert tags is not None
    return tags


def _find_row(engine: NeuralEngine, example: Example, step: int) -> tuple[Row, Padded]:
    """The row of a sentence that holds a word, alone in its batch."""
    for rows, source in engine.batches([example]):  # type: ignore[list-item]
        for b, row in enumerate(rows):
            if row.start <= step < row.start + len(row.ids):
                return row, _select_row(source, b)
    raise UserError(f"{example.where}: the model truncates the sentence before word {step + 1}.")


def crf_label_scores(chain: CRF, emissions: Tensor, step: int) -> Tensor:
    """(B, C) log of the summed scores of all sequences with each label at one step.

    As plain steps and not `chain.log_partition`, whose gradient cannot be taken again.
    """
    own = emissions.to(accumulation_dtype(emissions.device))  # (B, T, C)
    learned = (chain.start, chain.transitions, chain.end)
    rules = (chain.may_start, chain.may_follow, chain.may_end)
    start, follow, end = (
        torch.where(rule, w.to(own.dtype), FORBIDDEN_SCORE)
        for w, rule in zip(learned, rules, strict=True)
    )
    left = own[:, 0] + start  # (B, C)
    for t in range(1, step + 1):
        left = (left[:, :, None] + follow).logsumexp(1) + own[:, t]
    right = end.expand_as(left)
    for t in range(own.shape[1] - 1, step, -1):
        right = ((right + own[:, t])[:, None] + follow).logsumexp(2)
    return left + right


def _select_row(source: Padded, b: int) -> Padded:
    length = int(source.lengths[b])
    pieces = tuple(p[b : b + 1, :length] for p in source.subtokens)
    parents = None if source.parents is None else source.parents[b : b + 1, :length]
    marks = None if source.marks is None else source.marks[b : b + 1, :length]
    return Padded(
        source.data[b : b + 1, :length], source.lengths[b : b + 1], pieces, parents, marks=marks
    )
