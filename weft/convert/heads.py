"""The heads of checkpoints: which class has which, and what their tensors are called.

Names that begin with the family's prefix are written without it, like those of the network.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.convert.families import Family, Names

ACTIVATION = {"bert": "tanh", "roberta": "tanh", "distilbert": "relu", "electra": "gelu"}
POOLER = {"pooler.dense.{p}": "pool.dense.{p}"}
# What scores words again with the table that reads them; kept once, checked to be the same.
TIED = {
    "cls.predictions.decoder.weight": "table.weight",
    "cls.predictions.decoder.bias": "head.bias",
    "lm_head.decoder.weight": "table.weight",
    "lm_head.decoder.bias": "head.bias",
    "vocab_projector.weight": "table.weight",
    "generator_lm_head.weight": "table.weight",
}


@dataclass(frozen=True)
class Head:
    """One kind of head: the end of its class's name, and the task it answers here."""

    suffix: str
    task: str
    names: Mapping[str, Names]  # by family, theirs -> ours


_TWO_LAYERS = {
    "classifier.dense.{p}": "pool.dense.{p}",
    "classifier.out_proj.{p}": "head.score.{p}",
}
_BERT_WORDS = {
    "cls.predictions.transform.dense.{p}": "head.dense.{p}",
    "cls.predictions.transform.LayerNorm.{p}": "head.norm.{p}",
    "cls.predictions.bias": "head.bias",
}
_WORD = {"classifier.{p}": "head.score.0.{p}"}
_SPAN = {"qa_outputs.{p}": "head.both.{p}"}  # the start is its first row, the end its second
_ENCODERS = ("bert", "roberta", "distilbert", "electra")

PLAIN = Head("Model", "embed", {"bert": POOLER, "roberta": POOLER, "distilbert": {}, "electra": {}})
CLASSES = Head(
    "ForSequenceClassification",
    "classify",
    {
        "bert": {**POOLER, "classifier.{p}": "head.score.{p}"},
        "roberta": _TWO_LAYERS,
        "electra": _TWO_LAYERS,
        "distilbert": {
            "pre_classifier.{p}": "pool.dense.{p}",
            "classifier.{p}": "head.score.{p}",
        },
    },
)
TAGS = Head("ForTokenClassification", "tag", dict.fromkeys(_ENCODERS, _WORD))
SPANS = Head("ForQuestionAnswering", "span", dict.fromkeys(_ENCODERS, _SPAN))
WORDS = Head(
    "ForMaskedLM",
    "masked",
    {
        "bert": _BERT_WORDS,
        "roberta": {
            "lm_head.dense.{p}": "head.dense.{p}",
            "lm_head.layer_norm.{p}": "head.norm.{p}",
            "lm_head.bias": "head.bias",
        },
        "distilbert": {
            "vocab_transform.{p}": "head.dense.{p}",
            "vocab_layer_norm.{p}": "head.norm.{p}",
            "vocab_projector.bias": "head.bias",
        },
        "electra": {
            "generator_predictions.dense.{p}": "head.dense.{p}",
            "generator_predictions.LayerNorm.{p}": "head.norm.{p}",
            "generator_lm_head.bias": "head.bias",
        },
    },
)
BOTH = Head(
    "ForPreTraining",
    "masked",
    {"bert": {**_BERT_WORDS, **POOLER, "cls.seq_relationship.{p}": "head.next.{p}"}},
)
SPEECH = Head("LMHeadModel", "language", {"gpt2": {}})
HEADS = (CLASSES, TAGS, SPANS, WORDS, BOTH, SPEECH, PLAIN)
# Taught for something that nothing here asks: ELECTRA's guesses which words were replaced.
ONLY_THERE = ("discriminator_predictions.", "multiple_choice_head.")


def head_of(config: Mapping[str, Any], family: Family) -> Head:
    """The head that a config.json says its class has; none where it is silent."""
    listed = config.get("architectures") or [""]
    name = str(listed[0])
    for head in HEADS:
        if name == family.title + head.suffix and family.kind in head.names:
            return head
    return SPEECH if family.kind == "gpt2" else PLAIN


def known_heads(family: Family) -> tuple[str, ...]:
    """How the names of all tensors of its heads begin."""
    tables = (head.names.get(family.kind, {}) for head in HEADS)
    starts = {theirs.split("{")[0] for table in tables for theirs in table}
    return (*starts, *TIED, *ONLY_THERE)
