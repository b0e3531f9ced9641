"""Semantic role labelling: predicates, their senses, and the roles of their arguments.

A sentence is encoded once. Each predicate then has layers of its own over the states, with an
indicator embedding at the predicate (He et al. 2017), and either BIO tags with a CRF or labelled
spans.

B rows   T words   H width of a state   M width for a predicate   n predicates of all rows   R roles
C tags   S senses   K senses of one word   G groups of lemmas   L lines of a target
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.heads.biaffine import IGNORED, Biaffine
from weft.decode.heads.crf import CRF
from weft.decode.heads.semantics.role_spans import (
    FORBIDDEN,
    IS_GIVEN,
    LEMMAS,
    MIN_PROB,
    NO_SPAN,
    NOT_TOLD,
    VERB_GAIN,
    WIDTH,
    RoleSpan,
    best_disjoint,
    mark_words,
    predicate_chunks,
    predicate_status,
    read_tags,
    sense_candidates,
)
from weft.decode.heads.tag import TagColumn
from weft.embed.activations import check_sizes
from weft.encode.rnn import Recurrent
from weft.errors import UserError
from weft.protocols import Head
from weft.registry import register
from weft.text.annotation.schemes import allowed_transitions
from weft.text.annotation.senses import SenseInventory
from weft.text.example import Label

VERB = "V"  # the role of the predicate itself
FEW_SPANS = -4.0  # logit at the start: of all spans, few are arguments


@dataclass(frozen=True)
class Predicates:
    """Predicates of a batch: their rows and words, and the lengths of their rows."""

    rows: Tensor  # (n,)
    words: Tensor  # (n,)
    lengths: Tensor  # (n,) on the host


@dataclass(frozen=True)
class GoldRoles:
    """The predicates of a target with their senses (n,) and roles, by number of the predicate."""

    predicates: Predicates
    senses: np.ndarray
    roles: list[tuple[int, int, int, int]]  # predicate, role, start, end


class PredicateLayers(nn.Module):
    """States of words -> states of words for one predicate of their row.

    x = relu(W hₜ + U hₚ + e), e an embedding that says whether t is the predicate p; then BiLSTM
    layers. W is applied once per sentence, whatever its predicates.
    """

    def __init__(self, input_size: int, hidden: int, layers: int, dropout: float):
        super().__init__()
        self.output_size = 2 * hidden
        self.word = nn.Linear(input_size, self.output_size)
        self.predicate = nn.Linear(input_size, self.output_size, bias=False)
        self.indicator = nn.Embedding(2, self.output_size)
        self.dropout = nn.Dropout(dropout)
        self.layers = (
            Recurrent(self.output_size, hidden, layers, dropout=dropout) if layers else None
        )

    def forward(self, states: Padded, predicates: Predicates) -> Padded:
        rows, words = predicates.rows, predicates.words
        own = self.predicate(states.data[rows, words])  # (n, M)
        steps = torch.arange(states.data.shape[1], device=rows.device)
        is_predicate = (steps == words[:, None]).to(own.dtype)  # (n, T)
        # As a sum: an embedding's gradient would add up thousands of steps one by one.
        usual, marked = self.indicator.weight
        own = own + usual  # (n, M)
        x = self.word(states.data)[rows] + own[:, None]  # (n, T, M)
        x = x + is_predicate[:, :, None] * (marked - usual)
        out = Padded(x, predicates.lengths).with_data(self.dropout(x.relu()))
        if self.layers is None:
            return out
        encoded: Padded = self.layers(out)
        return encoded.with_data(self.dropout(encoded.data))


class SenseScorer(nn.Module):
    """Scores of the senses that a word can have: a dot product with the vector of each."""

    candidates: Tensor  # (G, K) the senses of a group of lemmas, -1 behind the last

    def __init__(self, input_size: int, inventory: SenseInventory, width: int, dropout: float):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(input_size, width), nn.ReLU(), nn.Dropout(dropout))
        self.vectors = nn.Embedding(len(inventory.senses), width)
        nn.init.normal_(self.vectors.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(len(inventory.senses)))
        table = torch.from_numpy(sense_candidates(inventory))
        self.register_buffer("candidates", table, persistent=False)

    def forward(self, states: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores (n, K) of candidates (n, K), at states (n, H) of words of a group."""
        senses = self.candidates[groups]  # (n, K)
        # Of all senses: one product is faster than gathering a vector for each candidate.
        scores = F.linear(self.query(states), self.vectors.weight, self.bias).float()  # (n, S)
        return scores.gather(1, senses.clamp(min=0)).masked_fill(senses < 0, -torch.inf), senses

    def loss(self, states: Tensor, groups: Tensor, gold: Tensor) -> Tensor:
        """Return the summed cross-entropy of senses (n,); those that no candidate is cost none."""
        scores, senses = self(states, groups)
        is_gold = (senses == gold[:, None]) & (gold[:, None] >= 0)
        has_gold = is_gold.any(1)
        target = torch.where(has_gold, is_gold.long().argmax(1), IGNORED)
        # Without candidates all scores are -inf, which has no gradient.
        scores = scores.masked_fill(~has_gold[:, None], 0)
        return F.cross_entropy(scores, target, reduction="sum", ignore_index=IGNORED)

    @torch.no_grad()
    def best(self, states: Tensor, groups: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return the best sense (n,) of each word and its probability; -1 of unknown lemmas."""
        scores, senses = self(states, groups)
        probs = scores.softmax(1).nan_to_num(1.0)  # no candidates: nothing to choose
        prob, place = probs.max(1)
        return senses.gather(1, place[:, None]).squeeze(1).cpu().numpy(), prob.cpu().numpy()


@dataclass(frozen=True)
class RoleOutput:
    """The states of a batch and the logits (B, T) of predicates; roles are scored on demand."""

    head: "RoleHead"
    states: Padded
    predicates: Tensor

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """Return the summed loss of predicates, senses and roles (B, L, 4), and the words."""
        gold = read_target(target, self.states)
        wanted = torch.zeros_like(self.predicates, dtype=torch.float32)
        wanted[gold.predicates.rows, gold.predicates.words] = 1
        logits = self.predicates.float()
        losses = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        total = losses.masked_fill(~self.states.mask, 0).sum()
        if len(gold.senses):
            senses = torch.from_numpy(gold.senses).to(target.device)
            states = self.states.data[gold.predicates.rows, gold.predicates.words]  # (n, H)
            total = total + self.head.senses.loss(states, self.groups(gold.predicates), senses)
            total = total + self.head.role_loss(self.states, gold)
        return total, int(self.states.lengths.sum())

    @torch.no_grad()
    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return per row a table (L, 4) of predicates and roles, and their probabilities (L,).

        A predicate has a line with its sense, then a line for each role.
        """
        states = self.states.with_data(self.states.data.float())
        probs = self.predicates.float().sigmoid().masked_fill(~states.mask, 0).cpu().numpy()
        given = self._marks(IS_GIVEN, NOT_TOLD)
        chosen = (probs > 0.5) | (given == 1)  # (B, T)
        lines: list[list[tuple[int, int, int, int]]] = [[] for _ in given]
        scores: list[list[float]] = [[] for _ in given]
        for rows, words in predicate_chunks(chosen):
            predicates = self._index(rows, words)
            here = states.data[predicates.rows, predicates.words]  # (n, H)
            senses, sense_probs = self.head.senses.best(here, self.groups(predicates))
            all_roles = self.head.best_roles(states, predicates)
            for i, (row, word) in enumerate(zip(rows.tolist(), words.tolist(), strict=True)):
                status = predicate_status(given[row, word], probs[row, word] > 0.5)
                lines[row].append((word, int(senses[i]), NO_SPAN, status))
                scores[row].append(float(sense_probs[i] * probs[row, word]))
                lines[row] += [(word, s.role, s.start, s.end) for s in all_roles[i]]
                scores[row] += [s.prob for s in all_roles[i]]
        return [
            (np.array(some, np.int64).reshape(-1, WIDTH), np.array(own))
            for some, own in zip(lines, scores, strict=True)
        ]

    def _index(self, rows: np.ndarray, words: np.ndarray) -> Predicates:
        return index_predicates(rows, words, self.states)

    def _marks(self, column: int, default: int) -> np.ndarray:
        """Return a column (B, T) of the marks; the default if the words have none."""
        marks = self.states.marks
        if marks is None:
            return np.full(self.states.data.shape[:2], default)
        found: np.ndarray = marks[:, :, column].numpy()
        return found

    def groups(self, predicates: Predicates) -> Tensor:
        """Return the number of the lemmas (n,) that each predicate can have."""
        groups = self._marks(LEMMAS, 0)
        at = predicates.rows.cpu().numpy(), predicates.words.cpu().numpy()
        return torch.from_numpy(groups[at]).to(self.states.data.device)


class RoleHead(nn.Module, Head):
    """Predicates and senses from the states; subclasses score the roles of a predicate."""

    task = "srl"
    needs_full_sentence = True
    max_positions = 1000  # words: every predicate has a state for each
    can_average = False
    num_marks = 2

    def __init__(
        self,
        input_size: int,
        outputs: Sequence[TagColumn],
        hidden: int,
        layers: int,
        predicate: int,
        sense: int,
        dropout: float,
    ):
        super().__init__()
        name = f"head '{self.kind}'"
        if not isinstance(outputs, (list, tuple)) or len(outputs) != 3:
            raise UserError(f"The {name} needs the task 'srl'. Set task.kind to 'srl'.")
        check_sizes(name, dropout, hidden=hidden, predicate=predicate, sense=sense)
        if layers < 0:
            raise UserError(f"{name}: 'layers' is {layers}; it should be 0 or more.")
        self.roles = tuple(outputs[0][0])
        self.verb = self.roles.index(VERB)
        forms = tuple(tuple(entry.split("\t")) for entry in outputs[2][0])
        self.inventory = SenseInventory(tuple(outputs[1][0]), forms)
        self.dropout = nn.Dropout(dropout)
        self.predicates = nn.Sequential(
            nn.Linear(input_size, predicate), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(predicate, 1),
        )  # fmt: skip
        self.senses = SenseScorer(input_size, self.inventory, sense, dropout)
        self.layers = PredicateLayers(input_size, hidden, layers, dropout)

    kind = ""

    def mark_words(self, words: Sequence[str], label: Label) -> np.ndarray:
        """Return (T, 2): whether a file says that a word is a predicate, and its lemmas."""
        return mark_words(words, label, self.inventory)

    def forward(self, states: Padded) -> RoleOutput:
        if not isinstance(states, Padded):
            raise UserError(
                f"The head '{self.kind}' needs a state per word. Set pool.kind to 'none'."
            )
        states = states.with_data(self.dropout(states.data))
        return RoleOutput(self, states, self.predicates(states.data).squeeze(2))

    def role_loss(self, states: Padded, gold: GoldRoles) -> Tensor:
        """Return the summed loss of the roles of gold predicates."""
        raise NotImplementedError

    def best_roles(self, states: Padded, predicates: Predicates) -> list[list[RoleSpan]]:
        """Return the roles of each predicate, which do not overlap; V covers the predicate."""
        raise NotImplementedError


@register("head", "role-crf")
class RoleCRFHead(RoleHead):
    """Semantic roles as BIO tags with a CRF for each predicate (He et al. 2017).

    `layers` BiLSTM layers of width `hidden` read the shared states for each predicate;
    `predicate` and `sense` are the widths of the layers that find predicates and their senses.
    """

    kind = "role-crf"

    def __init__(
        self,
        input_size: int,
        outputs: Sequence[TagColumn],
        hidden: int = 200,
        layers: int = 1,
        predicate: int = 100,
        sense: int = 200,
        dropout: float = 0.3,
    ):
        super().__init__(input_size, outputs, hidden, layers, predicate, sense, dropout)
        # A role r has the tags 2 r + 1 (B) and 2 r + 2 (I).
        tags = ["O", *(f"{mark}-{role}" for role in self.roles for mark in "BI")]
        self.score = nn.Linear(self.layers.output_size, len(tags))
        self.chain = CRF(len(tags), allowed_transitions(tags, "IOB2"), tags)

    def emissions(self, states: Padded, predicates: Predicates) -> Padded:
        """Return the logits (n, T, C) of the tags of every word, for each predicate."""
        words: Padded = self.layers(states, predicates)
        return words.with_data(self.score(words.data))

    def role_loss(self, states: Padded, gold: GoldRoles) -> Tensor:
        tags = np.zeros((len(gold.senses), states.data.shape[1]), np.int64)
        for predicate, role, start, end in gold.roles:
            tags[predicate, start:end] = 2 * role + 2
            tags[predicate, start] = 2 * role + 1
        emissions = self.emissions(states, gold.predicates)
        return self.chain.loss(emissions, torch.from_numpy(tags).to(emissions.data.device))[0]

    @torch.no_grad()
    def best_roles(self, states: Padded, predicates: Predicates) -> list[list[RoleSpan]]:
        emissions = self.emissions(states, predicates)
        marginals = self.chain.marginals(emissions)  # (n, T, C)
        data = self._with_verbs(emissions.data, predicates)
        tags, _ = self.chain.viterbi(Padded(data, emissions.lengths))  # (n, T)
        log_probs = marginals.gather(2, tags[:, :, None]).squeeze(2).clamp(min=MIN_PROB).log()
        return read_tags(tags.cpu().numpy(), log_probs.cpu().numpy())

    def _with_verbs(self, emissions: Tensor, predicates: Predicates) -> Tensor:
        """Return the emissions where the predicate must be V, and V can begin nowhere else."""
        begin, inside = 2 * self.verb + 1, 2 * self.verb + 2
        steps = torch.arange(emissions.shape[1], device=emissions.device)
        here = (steps == predicates.words[:, None])[:, :, None]  # (n, T, 1)
        tags = torch.arange(emissions.shape[2], device=emissions.device)
        is_verb = (tags == begin) | (tags == inside)
        before = steps < predicates.words[:, None]  # a V may begin before its predicate
        allowed = torch.where(here, is_verb, (tags != begin) | before[:, :, None])
        return emissions.masked_fill(~allowed, FORBIDDEN)


@register("head", "role-spans")
class RoleSpanHead(RoleHead):
    """Semantic roles as labelled spans, scored by biaffine forms of their first and last words.

    As in the parser, one form says which spans are arguments and one labels them (Dozat and Manning
    2017; spans for each predicate as in He et al. 2018). The best set of spans that do not overlap
    is found exactly. `span` is the width of the layers before the forms.
    """

    kind = "role-spans"
    max_positions = 500  # words: every pair has a score, for each predicate

    def __init__(
        self,
        input_size: int,
        outputs: Sequence[TagColumn],
        hidden: int = 200,
        layers: int = 1,
        predicate: int = 100,
        sense: int = 200,
        span: int = 150,
        dropout: float = 0.3,
    ):
        super().__init__(input_size, outputs, hidden, layers, predicate, sense, dropout)
        check_sizes(f"head '{self.kind}'", dropout, span=span)
        self.first, self.last = (
            nn.Sequential(
                nn.Linear(self.layers.output_size, span), nn.LeakyReLU(0.1), nn.Dropout(dropout)
            )
            for _ in range(2)
        )
        self.spans = Biaffine(span, span, 1, bias_x=True, bias_y=True)
        with torch.no_grad():
            self.spans.weight[0, -1, -1] = FEW_SPANS
        self.labels = Biaffine(span, span, len(self.roles), bias_x=True, bias_y=True)

    def score_spans(
        self, states: Padded, predicates: Predicates
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the logits (n, T, T) of spans from first to last word, where there are any, and
        the first and last words (n, T, W) for the labels."""
        words = self.layers(states, predicates)
        first, last = self.first(words.data), self.last(words.data)  # (n, T, W)
        steps = torch.arange(first.shape[1], device=first.device)
        real = words.mask[:, None] & (steps[:, None] <= steps)  # (n, T, T)
        return self.spans.all_pairs(first, last).float(), real, first, last

    def role_loss(self, states: Padded, gold: GoldRoles) -> Tensor:
        logits, real, first, last = self.score_spans(states, gold.predicates)
        columns = np.array(gold.roles, np.int64).reshape(-1, 4).T
        owner, role, start, end = (torch.from_numpy(c).to(logits.device) for c in columns)
        wanted = torch.zeros_like(logits)
        wanted[owner, start, end - 1] = 1
        losses = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        labels = self.labels.pairs(first[owner, start], last[owner, end - 1]).float()  # (n, R)
        total = losses.masked_fill(~real, 0).sum()
        return total + F.cross_entropy(labels, role, reduction="sum")

    @torch.no_grad()
    def best_roles(self, states: Padded, predicates: Predicates) -> list[list[RoleSpan]]:
        logits, real, first, last = self.score_spans(states, predicates)
        words = predicates.words[:, None, None]
        steps = torch.arange(logits.shape[1], device=logits.device)
        covers = (steps[:, None] <= words) & (words <= steps)  # (n, T, T)
        alone = covers & (steps[:, None] == steps)
        # A label costs probability, so a span whose logit is below 0 is never worth it.
        owner, start, end = (((logits > 0) & real) | alone).nonzero(as_tuple=True)
        labels = self.labels.pairs(first[owner, start], last[owner, end]).float()  # (m, R)
        is_verb = torch.arange(labels.shape[1], device=labels.device) == self.verb
        labels = labels.masked_fill(is_verb != covers[owner, start, end][:, None], -torch.inf)
        prob, label = labels.softmax(1).max(1)
        logit = logits[owner, start, end]
        gain = logit + prob.log() + VERB_GAIN * covers[owner, start, end]
        columns = (owner, label, start, end + 1, gain, logit.sigmoid() * prob)
        found: list[list[tuple[RoleSpan, float]]] = [[] for _ in predicates.lengths]
        for n, role, i, j, worth, p in zip(*(c.tolist() for c in columns), strict=True):
            found[n].append((RoleSpan(role, i, j, p), worth))
        return [best_disjoint(own) for own in found]


def read_target(target: Tensor, states: Padded) -> GoldRoles:
    """Return the predicates and roles of a target (B, L, 4) as far as the rows reach."""
    table = target.cpu().numpy()
    steps = states.data.shape[1]
    word, label, start, end = (table[:, :, k] for k in range(WIDTH))
    inside = (word >= 0) & (word < steps)
    rows, lines = (inside & (start == NO_SPAN)).nonzero()
    words = word[rows, lines]
    number = np.full((len(table), steps), -1)
    number[rows, words] = np.arange(len(rows))
    of, at = (inside & (start >= 0) & (start < steps) & (label >= 0)).nonzero()
    columns = (number[of, word[of, at]], label[of, at], start[of, at], end[of, at].clip(max=steps))
    roles = list(zip(*(column.tolist() for column in columns), strict=True))
    return GoldRoles(index_predicates(rows, words, states), label[rows, lines], roles)


def index_predicates(rows: np.ndarray, words: np.ndarray, states: Padded) -> Predicates:
    """Return predicates by their rows and words (n,)."""
    device = states.data.device
    on_host = torch.from_numpy(rows)
    return Predicates(
        on_host.to(device), torch.from_numpy(words).to(device), states.lengths[on_host]
    )
