"""The heads of checkpoints: which class has which, and what their tensors are called.

Names that begin with the family's prefix are written without it, like those of the network.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.convert.families import Family, Names
from weft.errors import UserError

ACTIVATION = {"bert": "tanh", "roberta": "tanh", "distilbert": "relu", "electra": "gelu"}
POOLER_NAMES = {"pooler.dense.{p}": "pool.dense.{p}"}
# What scores words again with the table that reads them; kept once, checked to be the same.
TIED_COPIES = {
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
_ALL = (*_ENCODERS, "gpt2")

NO_HEAD = Head(
    "Model",
    "embed",
    {"bert": POOLER_NAMES, "roberta": POOLER_NAMES, "distilbert": {}, "electra": {}},
)
CLASSIFIER = Head(
    "ForSequenceClassification",
    "classify",
    {
        "bert": {**POOLER_NAMES, "classifier.{p}": "head.score.{p}"},
        "roberta": _TWO_LAYERS,
        "electra": _TWO_LAYERS,
        "distilbert": {
            "pre_classifier.{p}": "pool.dense.{p}",
            "classifier.{p}": "head.score.{p}",
        },
        "gpt2": {"score.weight": "head.score.weight"},  # without a bias
    },
)
TAG_HEAD = Head("ForTokenClassification", "tag", dict.fromkeys(_ALL, _WORD))
SPAN_HEAD = Head("ForQuestionAnswering", "span", dict.fromkeys(_ENCODERS, _SPAN))
MLM_HEAD = Head(
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
PRETRAINING = Head(
    "ForPreTraining",
    "masked",
    {"bert": {**_BERT_WORDS, **POOLER_NAMES, "cls.seq_relationship.{p}": "head.next.{p}"}},
)
NEXT_SENTENCE = Head(
    "ForNextSentencePrediction",
    "pair-classify",
    {"bert": {**POOLER_NAMES, "cls.seq_relationship.{p}": "head.score.{p}"}},
)
NEXT_SENTENCE_LABELS = ("next", "random")  # the second text follows the first, or is random
LM_HEAD = Head("LMHeadModel", "language", {"gpt2": {}})
HEADS = (CLASSIFIER, TAG_HEAD, SPAN_HEAD, MLM_HEAD, PRETRAINING, NEXT_SENTENCE, LM_HEAD, NO_HEAD)
# Taught for something that no task here asks: what it is, and how its tensors begin.
UNSUPPORTED = {
    "ElectraForPreTraining": ("which words were replaced", ("discriminator_predictions.",)),
    "GPT2DoubleHeadsModel": ("which of several texts goes on", ("multiple_choice_head.",)),
    **{
        f"{title}ForMultipleChoice": ("which of several texts fits", ("sequence_summary.",))
        for title in ("Bert", "Roberta", "DistilBert", "Electra")
    },
}


def class_of(config: Mapping[str, Any]) -> str:
    """The class that a config.json names, or nothing."""
    listed = config.get("architectures")
    first = listed[0] if isinstance(listed, list) and listed else listed
    return first if isinstance(first, str) else ""


def head_of(config: Mapping[str, Any], family: Family, where: str) -> Head:
    """The head that a config.json says its class has; none where it is silent."""
    name = class_of(config)
    for head in HEADS:
        if name == family.title + head.suffix and family.kind in head.names:
            return head
    if family.kind != "gpt2":
        return NO_HEAD
    if name in ("", f"{family.title}Model", *UNSUPPORTED):
        return LM_HEAD
    known = [family.title + head.suffix for head in HEADS if family.kind in head.names]
    raise UserError(
        f"{where}: the head of {name} is not read; those of {', '.join(known)} are. To start from "
        f"its network alone, save that with `{family.title}Model.from_pretrained(FOLDER)"
        ".save_pretrained(OTHER)` of transformers, and give OTHER to --pretrained."
    )


def unsupported_note(config: Mapping[str, Any], family: Family) -> str:
    """What to say of a class whose head has no task here; nothing of the others."""
    name = class_of(config)
    if name in UNSUPPORTED:
        requested = UNSUPPORTED[name][0]
        return f"only the encoder is kept: no task here uses the head of {name} ({requested})"
    known = {family.title + head.suffix for head in HEADS if family.kind in head.names}
    if name in ("", f"{family.title}Model", *known):
        return ""
    return f"only the network is kept: a head of {name} is not known here"


def head_prefixes(family: Family) -> tuple[str, ...]:
    """How the names of all tensors of its heads begin."""
    tables = (head.names.get(family.kind, {}) for head in HEADS)
    starts = {theirs.split("{")[0] for table in tables for theirs in table}
    only = {start for _, starts in UNSUPPORTED.values() for start in starts}
    return (*starts, *TIED_COPIES, *only)
