"""BERT's second objective: does the second sentence follow the first, or was it drawn at random?"""

import numpy as np
import torch

from weft.batch import Padded
from weft.batch.documents import Documents
from weft.batch.mlm_collator import Masking, MLMLoader
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Model, build, label_loss, logits_of, minimise
from weft.tokens.special_tokens import SpecialTokens
from weft.tokens.vocabulary import CLS, MASK, SEP, SPECIALS

FIRST = len(SPECIALS)  # id of the first word
TOPICS, TOPIC_WORDS, SENTENCE = 6, 8, 5
VOCABULARY = FIRST + TOPICS * TOPIC_WORDS
FRAME = SpecialTokens((SPECIALS.index(CLS),), (SPECIALS.index(SEP),), (SPECIALS.index(SEP),))
DOCUMENTS, SENTENCES = 400, 4
PRETRAINED, TUNED, LABELS, TESTED = 900, 150, 96, 600
WITH, WITHOUT = "with next sentence", "masked words only"
PAIRS, SINGLE = "two sentences: one topic?", "one sentence: which topic?"
BERT = {
    "kind": "bert", "hidden": 32, "layers": 2, "heads": 4, "max_positions": 32, "dropout": 0.0,
    "attention_dropout": 0.0,
}  # fmt: skip


def draw_sentences(rng: np.random.Generator, topics: np.ndarray) -> np.ndarray:
    """Draw a sentence about each topic; a quarter of the words are of any topic."""
    size = (len(topics), SENTENCE)
    mixed = np.where(rng.random(size) < 0.25, rng.integers(TOPICS, size=size), topics[:, None])
    return FIRST + mixed * TOPIC_WORDS + rng.integers(TOPIC_WORDS, size=size)


def pretrain(next_sentence: bool, seed: int) -> Model:
    """Train a small BERT on documents about one topic each."""
    rng, documents = np.random.default_rng(seed), Documents()
    for topic in rng.integers(TOPICS, size=DOCUMENTS):
        documents.append(list(draw_sentences(rng, np.full(SENTENCES, topic))))
    masking = Masking(
        SPECIALS.index(MASK), np.arange(FIRST, VOCABULARY), FRAME, window=3 + 2 * SENTENCE,
        next_sentence=next_sentence, short_fraction=0.0,
    )  # fmt: skip
    loader = MLMLoader(documents.close(), masking, rows=32, seed=seed, epochs=1000)
    batches = iter(loader)
    torch.manual_seed(seed)
    model = build(
        VOCABULARY, (VOCABULARY, next_sentence),
        embedder=BERT, pool={"kind": "cls"}, head={"kind": "masked"},
    )  # fmt: skip

    def loss(update: int) -> torch.Tensor:
        batch, _ = next(batches)
        total, rows = model(batch.source).loss(batch.target)
        return total / rows

    minimise(model, loss, PRETRAINED, warmup=PRETRAINED // 10, decay=True)
    return model


def frame(*texts: np.ndarray) -> Padded:
    """Return texts, or pairs of them side by side, as the rows that BERT reads."""
    rows = [FRAME.wrap(*row) for row in zip(*texts, strict=True)]
    second = torch.tensor([start for _, start in rows]) if len(texts) == 2 else None
    source = Padded.from_rows([ids for ids, _ in rows])
    return Padded(source.data, source.lengths, second=second)


def tune(base: Model, outputs: int, source: Padded, labels: torch.Tensor, pair: bool) -> float:
    """Train on the first rows, labelled, and return the accuracy on the others."""
    parts = {"pair": {"kind": "joint"}} if pair else {}
    model = build(VOCABULARY, outputs, embedder=BERT, pool={"kind": "cls"}, **parts)
    for part in ("embedders", "pool"):
        model.get_submodule(part).load_state_dict(base.get_submodule(part).state_dict())

    def rows(chosen: slice) -> Padded:
        second = None if source.second is None else source.second[chosen]
        return Padded(source.data[chosen], source.lengths[chosen], second=second)

    def loss(update: int) -> torch.Tensor:
        start = 16 * update % LABELS
        chosen = slice(start, start + 16)
        return label_loss(model(rows(chosen)), labels[chosen])

    minimise(model, loss, TUNED, learning_rate=1e-3, warmup=TUNED // 10, decay=True)
    with torch.no_grad():
        predicted = logits_of(model(rows(slice(LABELS, None)))).argmax(1)
    return float((predicted == labels[LABELS:]).float().mean())


def measure(seed: int) -> Table:
    """Return the accuracy after fine-tuning on few labels, with and without the objective."""
    rng = np.random.default_rng([seed, 1])
    count = LABELS + TESTED
    topics, same = rng.integers(TOPICS, size=count), rng.integers(2, size=count)
    others = (topics + rng.integers(1, TOPICS, size=count)) % TOPICS
    first = draw_sentences(rng, topics)
    second = draw_sentences(rng, np.where(same == 1, topics, others))
    scores: Table = {}
    for name, next_sentence in ((WITHOUT, False), (WITH, True)):
        base = pretrain(next_sentence, seed)
        torch.manual_seed(seed)
        scores[name] = {
            PAIRS: tune(base, 2, frame(first, second), torch.from_numpy(same), True),
            SINGLE: tune(base, TOPICS, frame(first), torch.from_numpy(topics), False),
        }
    return scores


def _holds(mean: Means) -> str:
    return (
        f"From {LABELS} labelled pairs, BERT learns whether two sentences have one topic in "
        f"{mean(WITH, PAIRS):.0%} of cases if it was also pre-trained on which sentence follows, "
        f"and in {mean(WITHOUT, PAIRS):.0%} if not; the topic of one sentence, in "
        f"{mean(WITH, SINGLE):.0%} and {mean(WITHOUT, SINGLE):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"With next-sentence prediction {mean(WITH, PAIRS):.0%} of the pairs and "
        f"{mean(WITH, SINGLE):.0%} of the single sentences are right, without it "
        f"{mean(WITHOUT, PAIRS):.0%} and {mean(WITHOUT, SINGLE):.0%}."
    )


EXPERIMENT = Experiment(
    claim="Next-sentence prediction helps where two sentences are compared, and costs nothing "
    "where there is one.",
    decks=("001",),
    why="To say whether a sentence follows, the network has to look from one sentence into the "
    "other and sum up both at [CLS]; hidden words alone do not ask for that.",
    data=f"A BERT of two layers of width 32, {PRETRAINED} updates on {DOCUMENTS} documents of four "
    f"sentences about one topic; then {TUNED} updates on {LABELS} labels.",
    measure=measure,
    conditions=(
        (at(WITH, PAIRS) - at(WITHOUT, PAIRS)).above(0.05),
        (at(WITH, SINGLE) - at(WITHOUT, SINGLE)).above(-0.05),
    ),
    holds=_holds,
    fails=_fails,
    x="task",
    y="accuracy",
    limits=(0, 1),
    seeds=8,
    seconds=14,
)
