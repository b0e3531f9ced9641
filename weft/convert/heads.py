"""The heads of checkpoints: their classes, their tasks and the names of their tensors.

Names are given without the family's prefix, as those of the network are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.convert.families import Family, Names
from weft.errors import UserError
from weft.jsonio import Json

ACTIVATION = {"bert": "tanh", "roberta": "tanh", "distilbert": "relu", "electra": "gelu"}
POOLER_NAMES = {"pooler.dense.{p}": "pool.dense.{p}"}
# Copies of the embedding table in the output layer; checked to be equal, and kept once.
TIED_COPIES = {
    "cls.predictions.decoder.weight": "table.weight",
    "cls.predictions.decoder.bias": "head.bias",
    "lm_head.decoder.weight": "table.weight",
    "lm_head.decoder.bias": "head.bias",
    "vocab_projector.weight": "table.weight",
    "generator_lm_head.weight": "table.weight",
}


@dataclass(frozen=True)
class PretrainedHead:
    """The head of a checkpoint class: the suffix of the class name, and our task for it."""

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

NO_HEAD = PretrainedHead(
    "Model",
    "embed",
    {"bert": POOLER_NAMES, "roberta": POOLER_NAMES, "distilbert": {}, "electra": {}},
)
CLASSIFIER = PretrainedHead(
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
TAG_HEAD = PretrainedHead("ForTokenClassification", "tag", dict.fromkeys(_ALL, _WORD))
SPAN_HEAD = PretrainedHead("ForQuestionAnswering", "span", dict.fromkeys(_ENCODERS, _SPAN))
MLM_HEAD = PretrainedHead(
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
PRETRAINING = PretrainedHead(
    "ForPreTraining",
    "masked",
    {"bert": {**_BERT_WORDS, **POOLER_NAMES, "cls.seq_relationship.{p}": "head.next.{p}"}},
)
NEXT_SENTENCE = PretrainedHead(
    "ForNextSentencePrediction",
    "pair-classify",
    {"bert": {**POOLER_NAMES, "cls.seq_relationship.{p}": "head.score.{p}"}},
)
NEXT_SENTENCE_LABELS = ("next", "random")  # the second text follows the first, or is random
LM_HEAD = PretrainedHead("LMHeadModel", "language", {"gpt2": {}})
HEADS = (CLASSIFIER, TAG_HEAD, SPAN_HEAD, MLM_HEAD, PRETRAINING, NEXT_SENTENCE, LM_HEAD, NO_HEAD)
# Trained for something that is no task here: what it is, and the prefixes of its tensors.
UNSUPPORTED = {
    "ElectraForPreTraining": ("which words were replaced", ("discriminator_predictions.",)),
    "GPT2DoubleHeadsModel": ("which of several texts goes on", ("multiple_choice_head.",)),
    **{
        f"{title}ForMultipleChoice": ("which of several texts fits", ("sequence_summary.",))
        for title in ("Bert", "Roberta", "DistilBert", "Electra")
    },
}


def class_of(config: Mapping[str, Json]) -> str:
    """Return the class that a config.json names, or ""."""
    listed = config.get("architectures")
    first = listed[0] if isinstance(listed, list) and listed else listed
    return first if isinstance(first, str) else ""


def head_of(config: Mapping[str, Json], family: Family, where: str) -> PretrainedHead:
    """Return the head of the class that a config.json names; NO_HEAD if it names none."""
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
        f"{where}: the head of {name} is not supported; those of {', '.join(known)} are. To use "
        f"the network alone, save it in transformers with `{family.title}Model.from_pretrained("
        "FOLDER).save_pretrained(OTHER)` and pass --pretrained OTHER."
    )


def unsupported_note(config: Mapping[str, Json], family: Family) -> str:
    """Return a note if no task here uses the head of the class, else ""."""
    name = class_of(config)
    if name in UNSUPPORTED:
        requested = UNSUPPORTED[name][0]
        return f"only the encoder is kept: no task here uses the head of {name} ({requested})"
    known = {family.title + head.suffix for head in HEADS if family.kind in head.names}
    if name in ("", f"{family.title}Model", *known):
        return ""
    return f"only the network is kept: the head of {name} is unknown"


def head_prefixes(family: Family) -> tuple[str, ...]:
    """Return the prefixes of the names of all tensors of its heads."""
    tables = (head.names.get(family.kind, {}) for head in HEADS)
    starts = {theirs.split("{")[0] for table in tables for theirs in table}
    only = {start for _, starts in UNSUPPORTED.values() for start in starts}
    return (*starts, *TIED_COPIES, *only)
