"""Word-level coreference (Dobrovolskii 2021): antecedents of head words, then their spans.

A bilinear form gives each word its k best antecedents among all earlier words; a feed-forward
network scores those pairs again. No antecedent has the score 0. A linked word is the head of a
mention, whose first and last words are found around it.

B rows   T words of a row   H width of a state   K antecedents of a word   F features of a pair
D width of hidden layers   M mentions of a row   W words of a window   L lines of a target
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from weft.batch import Padded
from weft.decode.heads.semantics.mentions import (
    DISTANCES,
    FEATURES,
    FORM,
    GENRE,
    NUM_MARKS,
    SENTENCE,
    SPEAKER,
    UNKNOWN,
    WIDTH,
    drop_repeats,
    link_words,
    mark_words,
)
from weft.decode.heads.tag import TagColumn
from weft.embed.activations import check_sizes
from weft.errors import UserError
from weft.protocols import Head
from weft.registry import register
from weft.text.example import Label

MAX_PAIRS = 1 << 18  # pairs whose layers are held at once
MAX_ROUGH_SCORES = 1 << 23  # bilinear scores that are held at once
MAX_SPAN_WORDS = 1 << 17  # words of windows that are held at once
PAIR_LOSS = 0.5  # weight of the binary loss of pairs, as in the paper
SPAN_CHANNELS, KERNEL = 4, 3  # of the convolutions over a window
RARE = -2.0  # logit of a mention at the start: few words are heads


@dataclass(frozen=True)
class Document:
    """One row of a batch: its states (T, H), mention logits (T,) and marks (T, 4)."""

    states: Tensor
    mentions: Tensor
    marks: Tensor


@dataclass(frozen=True)
class Antecedents:
    """The best antecedents of each word: their numbers, scores, and whether they are real."""

    words: Tensor  # (T, K)
    scores: Tensor  # (T, K)
    real: Tensor  # (T, K)


@dataclass(frozen=True)
class CoreferenceOutput:
    """The states of a batch of documents; antecedents and spans are scored on demand."""

    head: "WordCoreferenceHead"
    states: Padded

    def documents(self) -> Iterator[Document]:
        """Yield the rows."""
        logits = self.head.mention(self.states.data).squeeze(2).float()
        for row, size in enumerate(self.states.lengths.tolist()):
            yield Document(
                self.states.data[row, :size], logits[row, :size], self._marks(row)[:size]
            )

    def _marks(self, row: int) -> Tensor:
        device = self.states.data.device
        if self.states.marks is not None:
            return self.states.marks[row].to(device)
        # Without marks: one sentence, no speakers, no genre, and no word like another.
        steps = torch.arange(self.states.data.shape[1], device=device)
        none = torch.full_like(steps, UNKNOWN)
        return torch.stack([torch.zeros_like(steps), none, none, steps], 1)

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """Return the summed loss of antecedents, mentions and spans (B, L, 4), and the words."""
        total = self.states.data.new_zeros((), dtype=torch.float32)
        for row, document in enumerate(self.documents()):
            total = total + self.head.document_loss(document, target[row])
        return total, int(self.states.lengths.sum())

    @torch.no_grad()
    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return per row a table (M, 4) of heads, entities and spans, and probabilities (M,)."""
        return [self.head.resolve(document) for document in self.documents()]


class PairScorer(nn.Module):
    """v · relu(A a + B b + C (a∘b) + F f + c): a hidden layer over [a, b, a∘b, f].

    The layer is split, so that A a and B b are computed once per word and not once per pair.
    """

    def __init__(self, input_size: int, features: int, hidden: int, dropout: float):
        super().__init__()
        self.word = nn.Linear(input_size, hidden)
        self.antecedent = nn.Linear(input_size, hidden, bias=False)
        self.product = nn.Linear(input_size, hidden, bias=False)
        self.features = nn.Linear(features, hidden, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(hidden, 1)

    def forward(
        self, word: Tensor, pairs: Tensor, products: Tensor, projected: Tensor, features: Tensor
    ) -> Tensor:
        """Return (n, K) from words (n, H), the antecedents (n, K) as numbers, the products of both
        states (n, K, H), all words as antecedents (T, D), and features (n, K, F)."""
        own = _take(projected, pairs)  # (n, K, D)
        hidden = self.word(word)[:, None] + own + self.product(products) + self.features(features)
        scores: Tensor = self.score(self.dropout(hidden.relu()))
        return scores.squeeze(-1)


class SpanScorer(nn.Module):
    """Scores of the words around a head as first and last words of its mention.

    Head, word and distance go through a hidden layer, then two convolutions over the window.
    """

    def __init__(self, input_size: int, hidden: int, window: int, dropout: float):
        super().__init__()
        self.window = window
        self.head = nn.Linear(input_size, hidden)
        self.word = nn.Linear(input_size, hidden, bias=False)
        self.table = nn.Embedding(2 * window + 1, hidden)  # of the distance to the head
        nn.init.normal_(self.table.weight, std=hidden**-0.5)
        self.layers = nn.Sequential(
            nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, max(hidden // 4, 1)), nn.ReLU(),
            nn.Dropout(dropout),
        )  # fmt: skip
        self.convolutions = nn.Sequential(
            nn.Conv1d(max(hidden // 4, 1), SPAN_CHANNELS, KERNEL, padding=KERNEL // 2), nn.ReLU(),
            nn.Conv1d(SPAN_CHANNELS, 2, KERNEL, padding=KERNEL // 2),
        )  # fmt: skip

    def forward(self, states: Tensor, sentences: Tensor, heads: Tensor) -> Tensor:
        """Return the logits (M, W, 2) of the words of each window, -inf where none may be."""
        near = torch.arange(-self.window, self.window + 1, device=heads.device)  # (W,)
        words = heads[:, None] + near  # (M, W)
        inside = (words >= 0) & (words < len(states))
        words = words.clamp(0, len(states) - 1)
        inside = inside & (sentences[words] == sentences[heads][:, None])
        hidden = self.head(states[heads])[:, None] + _take(self.word(states), words)
        hidden = hidden + self.table.weight
        hidden = self.layers(hidden).masked_fill(~inside[..., None], 0)
        logits = self.convolutions(hidden.transpose(1, 2)).transpose(1, 2).float()  # (M, W, 2)
        sides = torch.stack([near <= 0, near >= 0], 1)  # a head is between first and last word
        allowed: Tensor = inside[..., None] & sides
        return torch.where(allowed, logits, -torch.inf)


@register("head", "word-coreference")
class WordCoreferenceHead(nn.Module, Head):
    """Coreference between head words, then the spans of mentions (Dobrovolskii 2021).

    Each word has `antecedents` candidates; `hidden` is the width of the layer that scores pairs,
    `span` of the one that finds spans, and a mention reaches at most `window` words from its head.
    A word is linked if its best antecedent scores above `link_margin`: higher values mean fewer
    and surer links.
    Beside the distance, a pair has these features: same word, same speaker, and the genre.
    """

    task = "coref"
    kind = "word-coreference"
    needs_full_sentence = True
    reads_documents = True
    max_positions = 20_000  # words, or pieces of words
    can_average = False
    num_marks = NUM_MARKS

    def __init__(
        self,
        input_size: int,
        outputs: Sequence[TagColumn],
        antecedents: int = 50,
        hidden: int = 512,
        span: int = 256,
        window: int = 48,
        dropout: float = 0.3,
        link_margin: float = 0.0,
    ):
        super().__init__()
        name = f"head '{self.kind}'"
        if not isinstance(outputs, (list, tuple)) or len(outputs) != 2:
            raise UserError(f"The {name} needs the task 'coref'. Set task.kind to 'coref'.")
        check_sizes(name, dropout, antecedents=antecedents, hidden=hidden, span=span, window=window)
        self.antecedents, self.link_margin = antecedents, link_margin
        self.singletons = len(outputs[0][0]) > 1
        self.genres = {genre: number for number, genre in enumerate(outputs[1][0])}
        self.dropout = nn.Dropout(dropout)
        self.mention = nn.Sequential(
            nn.Linear(input_size, span), nn.ReLU(), nn.Dropout(dropout), nn.Linear(span, 1)
        )
        nn.init.constant_(self.mention[-1].bias, RARE)  # type: ignore[arg-type]
        self.rough = nn.Linear(input_size, input_size)
        self.pairs = PairScorer(input_size, FEATURES + len(self.genres), hidden, dropout)
        self.spans = SpanScorer(input_size, span, window, dropout)

    def mark_words(self, words: Sequence[str], label: Label) -> np.ndarray:
        """Return (T, 4): the sentence of each word, its speaker, the genre, and its form."""
        return mark_words(words, label, self.genres)

    def hide_marks(self, marks: Tensor, hidden: Tensor) -> Tensor:
        """Return marks in which hidden words have the form of no other word."""
        unlike = -2 - torch.arange(marks.shape[1])  # (T,), below UNKNOWN
        out = marks.clone()
        out[..., FORM] = torch.where(hidden, unlike, marks[..., FORM])
        return out

    def forward(self, states: Padded) -> CoreferenceOutput:
        if not isinstance(states, Padded):
            raise UserError(
                f"The head '{self.kind}' needs a state per word. Set pool.kind to 'none'."
            )
        return CoreferenceOutput(self, states.with_data(self.dropout(states.data)))

    @torch.no_grad()
    def find_candidates(self, document: Document) -> Tensor:
        """Return the K earlier words (T, K) with the best bilinear scores; later ones fill up."""
        states = document.states
        size = len(states)
        keys = min(self.antecedents, max(size - 1, 1))
        queries, steps = self.rough(states), torch.arange(size, device=states.device)
        rows = max(1, MAX_ROUGH_SCORES // max(size, 1))
        chosen = []
        for at in range(0, size, rows):
            scores = (queries[at : at + rows] @ states.T).float() + document.mentions  # (n, T)
            later = steps >= steps[at : at + rows, None]
            chosen.append(scores.masked_fill(later, -torch.inf).topk(keys, dim=1).indices)
        return torch.cat(chosen)

    def find_antecedents(self, document: Document) -> Antecedents:
        """Return the scores of the best antecedents of each word."""
        words = self.find_candidates(document)  # (T, K)
        size, keys = words.shape
        steps = torch.arange(size, device=words.device)
        rows = max(1, MAX_PAIRS // keys)
        projected = self.pairs.antecedent(document.states)  # (T, D)
        queries = self.dropout(self.rough(document.states))  # (T, H)
        scores = []
        for at in range(0, size, rows):
            part = steps[at : at + rows], words[at : at + rows], queries, projected
            if size > rows and torch.is_grad_enabled():
                # Layers of the pairs of long documents are computed again, not kept.
                own = checkpoint(self.score_pairs, document, *part, use_reentrant=False)
            else:
                own = self.score_pairs(document, *part)
            scores.append(own)
        return Antecedents(words, torch.cat(scores), words < steps[:, None])

    def score_pairs(
        self, document: Document, steps: Tensor, pairs: Tensor, queries: Tensor, projected: Tensor
    ) -> Tensor:
        """Return the scores (n, K) of words (n,) with antecedents (n, K)."""
        states, mentions = document.states, document.mentions
        others = _take(states, pairs)  # (n, K, H)
        rough = (others @ queries[steps][..., None]).squeeze(-1).float()  # (n, K)
        rough = rough + mentions[steps][:, None] + mentions[pairs]
        own = states[steps]  # (n, H)
        features = self.pair_features(document.marks, steps, pairs).to(states.dtype)
        fine = self.pairs(own, pairs, others * own[:, None], projected, features)
        total: Tensor = rough + fine.float()
        return total

    def pair_features(self, marks: Tensor, steps: Tensor, pairs: Tensor) -> Tensor:
        """Return (n, K, F): bucket of the distance, same word, speakers, genre."""
        distance = bucket_distances((steps[:, None] - pairs).clamp(min=1))
        first, second = marks[steps][:, None], marks[pairs]  # (n, 1, 4), (n, K, 4)
        known = (first[..., SPEAKER] >= 0) & (second[..., SPEAKER] >= 0)
        same = first[..., SPEAKER] == second[..., SPEAKER]
        flags = [first[..., FORM] == second[..., FORM], known & same, known & ~same]
        columns = [F.one_hot(distance, DISTANCES), *(flag.long()[..., None] for flag in flags)]
        if self.genres:
            genres = torch.arange(len(self.genres), device=marks.device)
            columns.append((second[..., GENRE, None] == genres).long())
        return torch.cat(columns, dim=-1)

    def document_loss(self, document: Document, target: Tensor) -> Tensor:
        """Return the summed loss of a document: antecedents, pairs, mentions and spans."""
        size = len(document.states)
        lines = target[(target[:, 0] >= 0) & (target[:, 0] < size)]
        heads, entities, starts, ends = lines.unbind(1)
        entity = torch.full((size,), -1, device=target.device)
        entity[heads] = entities
        found = self.find_antecedents(document)
        same = (entity[found.words] == entity[:, None]) & (entity >= 0)[:, None] & found.real
        total = antecedent_loss(found, same)
        wanted = (entity >= 0).float()
        total = total + F.binary_cross_entropy_with_logits(
            document.mentions, wanted, reduction="sum"
        )
        if not len(heads):
            return total
        logits = self.spans(document.states, document.marks[:, SENTENCE], heads)  # (M, W, 2)
        for side, words in enumerate((starts, ends - 1)):
            place = words - heads + self.spans.window
            reached = (place >= 0) & (place < logits.shape[1])
            place = place.clamp(0, logits.shape[1] - 1)
            chosen = logits[:, :, side].log_softmax(1).gather(1, place[:, None]).squeeze(1)
            total = total - chosen[reached & chosen.isfinite()].sum()
        return total

    def resolve(self, document: Document) -> tuple[np.ndarray, np.ndarray]:
        """Return the mentions (M, 4) of a document as heads, entities, spans; and probs."""
        if not len(document.states):
            return np.zeros((0, WIDTH), np.int64), np.zeros(0)
        found = self.find_antecedents(document)
        scores = found.scores.masked_fill(~found.real, -torch.inf)
        none = torch.full_like(scores[:, :1], self.link_margin)
        scores = torch.cat([none, scores], 1)  # (T, K + 1)
        prob, place = scores.softmax(1).max(1)
        chosen = found.words.gather(1, (place - 1).clamp(min=0)[:, None]).squeeze(1)
        antecedent = torch.where(place > 0, chosen, UNKNOWN).tolist()
        mention_probs = document.mentions.sigmoid().tolist()
        entity, probs = link_words(antecedent, prob.tolist(), mention_probs, self.singletons)
        heads = torch.tensor(sorted(entity), device=scores.device, dtype=torch.long)
        starts, ends = self.best_spans(document, heads)
        lines = [
            (head, entity[head], start, end)
            for head, start, end in zip(heads.tolist(), starts, ends, strict=True)
        ]
        kept = drop_repeats(lines, [probs[line[0]] for line in lines], self.singletons)
        table = np.array([line for line, _ in kept], np.int64).reshape(-1, WIDTH)
        return table, np.array([one for _, one in kept])

    def best_spans(self, document: Document, heads: Tensor) -> tuple[list[int], list[int]]:
        """Return the first word of each mention, and the word after its last one."""
        starts: list[int] = []
        ends: list[int] = []
        rows = max(1, MAX_SPAN_WORDS // (2 * self.spans.window + 1))
        for own in heads.split(rows):
            logits = self.spans(document.states, document.marks[:, SENTENCE], own)
            best = logits.argmax(1) - self.spans.window + own[:, None]  # (M, 2)
            starts += best[:, 0].tolist()
            ends += (best[:, 1] + 1).tolist()
        return starts, ends


def antecedent_loss(found: Antecedents, same: Tensor) -> Tensor:
    """Return -Σ log P(one of the gold antecedents), with no antecedent if there is none, and the
    binary loss of pairs."""
    none = torch.zeros_like(found.scores[:, :1])
    scores = torch.cat([none, found.scores.masked_fill(~found.real, -torch.inf)], 1)  # (T, K + 1)
    gold = torch.cat([~same.any(1, keepdim=True), same], 1)
    marginal = scores.logsumexp(1) - scores.masked_fill(~gold, -torch.inf).logsumexp(1)
    pairs = F.binary_cross_entropy_with_logits(found.scores, same.float(), reduction="none")
    return marginal.sum() + PAIR_LOSS * pairs.masked_fill(~found.real, 0).mean(1).sum()


def bucket_distances(distance: Tensor) -> Tensor:
    """Return the bucket of distances from 1 on: 1, 2, 3, 4, then powers of two up to 64."""
    powers = distance.clamp(max=64).float().log2().floor().long() + 2
    return torch.where(distance < 5, distance - 1, powers)


def _take(rows: Tensor, numbers: Tensor) -> Tensor:
    """Return rows (T, H) by number (n, K) as (n, K, H); its gradient is faster than indexing's."""
    taken = rows.index_select(0, numbers.flatten())
    return taken.view(*numbers.shape, rows.shape[1])
