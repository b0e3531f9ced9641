"""A checkpoint folder in the Hugging Face layout, read strictly and converted to our names.

Settings are read at once, weights on demand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch

from weft import jsonio
from weft.convert import gpt2, sentence_transformers, tensors, tokenizer
from weft.convert.families import (
    Family,
    TransformerSpec,
    check_type,
    expand_names,
    find_family,
)
from weft.convert.heads import (
    ACTIVATION,
    CLASSIFIER,
    LM_HEAD,
    NEXT_SENTENCE,
    NEXT_SENTENCE_LABELS,
    NO_HEAD,
    POOLER_NAMES,
    PRETRAINING,
    SPAN_HEAD,
    TAG_HEAD,
    TIED_COPIES,
    PretrainedHead,
    class_of,
    head_of,
    head_prefixes,
    unsupported_note,
)
from weft.convert.sentence_transformers import PoolSpec
from weft.convert.tensors import Tensors, join_names
from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.tokens.tokenizer import Tokenizer

# Tasks whose heads are always kept.
KEPT_TASKS = ("classify", "pair-classify", "tag", "span", "language", "embed")
MAX_LABELS = 100_000
PAIR_TASKS = {"classify": "pair-classify", "regress": "pair-score"}  # the same for two texts
T = TypeVar("T")


@dataclass(frozen=True)
class ConvertedWeights:
    """Tensors by their names in a Model, and the names of those left out."""

    ours: Tensors
    theirs: Mapping[str, str]  # ours -> theirs, for messages
    left: tuple[str, ...] = ()


class Checkpoint:
    """One folder: its family, its settings as those of our embedder, its tokenizer and weights."""

    def __init__(self, folder: Path, task: str = ""):
        self.folder = folder
        self.sentence = sentence_transformers.read(folder)
        self.network = self.sentence.network if self.sentence else folder
        self.path = self.network / "config.json"
        self.config = _read_config(self.path)
        self.family: Family = find_family(self.config, str(self.path))
        if self.sentence and self.family.embedder != "bert":
            raise UserError(
                f"{folder}: sentence encoders are supported for BERT-family models only."
            )
        head = NO_HEAD if self.sentence else head_of(self.config, self.family, str(self.path))
        self.original_head: PretrainedHead = head
        # A head for pre-training is dropped, unless the task is to continue it.
        self.head: PretrainedHead = head if task or head.task in KEPT_TASKS else NO_HEAD
        if task == "masked":
            self.head = pretraining_head(self)
        self.requested_task = task
        if task and self.task != task:
            name, of_head = class_of(self.config) or "none", self.task
            hint = ""
            if PAIR_TASKS.get(of_head) == task:
                hint = " Its tokenizer puts no separator between two texts."
            elif of_head in PAIR_TASKS and task in PAIR_TASKS.values():
                hint = f" Its task is '{PAIR_TASKS[of_head]}'."
            raise UserError(
                f"{self.path}: the class {name} has no head for the task '{task}'.{hint}"
            )

    @cached_property
    def task(self) -> str:
        """The task of its head; that for two texts if it was requested."""
        task = self.head.task
        if self.head is CLASSIFIER and len(self.labels) == 1:
            task = "regress"
        pairs = PAIR_TASKS.get(task) == self.requested_task and self._separates_pairs
        return self.requested_task if pairs else task

    @property
    def _separates_pairs(self) -> bool:
        """True if a separator marks the start of the second text."""
        return self.family.embedder == "bert" or self._special_ids()["sep"] >= 0

    @property
    def notes(self) -> list[str]:
        """Notes for the user about what was read."""
        return [note for note in (self.read[1], unsupported_note(self.config, self.family)) if note]

    @cached_property
    def read(self) -> tuple[Tokenizer, str]:
        """The tokenizer with an entry per row of the table, and a note if some were added."""
        found = tokenizer.read(self.network, self.family.kind)
        if self.sentence and self.sentence.lowercase:
            found = tokenizer.with_lowercase(found)
        rows = self.config.get("vocab_size")
        if rows is None:
            raise UserError(f"{self.path}: no vocab_size. Add the number of rows of the table.")
        size = check_type("vocab_size", rows, 0, str(self.path))
        return tokenizer.resize_vocab(found, size, self.network)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.read[0]

    @cached_property
    def embedder(self) -> TransformerSpec:
        """The [embedder] section of this network."""
        spec = self.family.read(self.config, str(self.path))
        if self.family.embedder != "bert":
            if self.head is not LM_HEAD:
                spec.update(self._special_ids())
            return spec
        declared = tokenizer.read_settings(self.network)
        usual = tokenizer.ROBERTA if self.family.kind == "roberta" else tokenizer.BERT
        known = {entry: i for i, entry in enumerate(self.tokenizer.vocabulary)}

        def id_of(name: str) -> int:
            token = tokenizer.special_token(declared, name, usual[name])
            if token not in known:
                raise UserError(
                    f"{self.network}: the tokenizer has no '{token}', the {name} token. Name "
                    f"another as {name}_token in tokenizer_config.json."
                )
            return known[token]

        spec["cls"], spec["sep"] = id_of("cls"), id_of("sep")
        return spec

    def _special_ids(self) -> TransformerSpec:
        """Return the special tokens around a text for a GPT-2 with a head, and its pooling."""
        before, after = tokenizer.template_ids(self.tokenizer)
        if max(len(before), len(after)) > 1:
            raise UserError(
                f"{self.network}: the tokenizer adds {len(before)} tokens before a text and "
                f"{len(after)} after it; for a GPT-2 at most one of each is supported."
            )
        cls, sep = (ids[0] if ids else -1 for ids in (before, after))
        if sep == self.config.get("pad_token_id") and self.head is CLASSIFIER:
            sep = -1  # taken for padding: the head reads the token before it
        if self.head is TAG_HEAD:
            return {"cls": cls, "sep": sep, "subword_pooling": "first"}
        return {"cls": cls, "sep": sep}

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of its classes or tags, in order."""
        if self.head is NEXT_SENTENCE:
            return NEXT_SENTENCE_LABELS
        declared = self.config.get("id2label") or {}
        count = self.config.get("num_labels") or 2
        try:
            if not isinstance(declared, dict) or not isinstance(count, (int, float, str)):
                raise ValueError
            count = len(declared) or int(count)
            numbered = {int(i): str(label) for i, label in declared.items()}
            if count > MAX_LABELS:
                raise ValueError
        except (ValueError, OverflowError):
            raise UserError(
                f"{self.path}: id2label should map numbers to names, and num_labels be at most "
                f"{MAX_LABELS:,}."
            ) from None
        names = numbered or {i: f"LABEL_{i}" for i in range(count)}
        if sorted(names) != list(range(len(names))) or len(set(names.values())) < len(names):
            raise UserError(
                f"{self.path}: id2label should number distinct labels from 0, without gaps; "
                f"found {str(names)[:200]}."
            )
        return tuple(names[i] for i in range(len(names)))

    @cached_property
    def tensors(self) -> Tensors:
        """The tensors by name, without the family's prefix."""
        found = tensors.read(self.network)
        return {name.removeprefix(self.family.prefix): tensor for name, tensor in found.items()}

    @property
    def pooler(self) -> bool:
        """True if it has a pooler over the first token."""
        return "pooler.dense.weight" in self.tensors

    @property
    def pool(self) -> PoolSpec:
        """The [pool] section: how its authors pool a text to one vector."""
        if self.sentence:
            return self.sentence.pool
        return {"kind": "cls"} if self.pooler else {"kind": "mean"}

    def weights(self, head: PretrainedHead | None = None) -> ConvertedWeights:
        """Return the weights for a model with this head, or the original one; strict both ways."""
        head = self.head if head is None else head
        spec, found = self.embedder, self.tensors
        if spec["layers"] > len(found):
            raise UserError(
                f"{self.path}: declares {spec['layers']:,} layers, but there are {len(found)} "
                "tensors. The checkpoint is incomplete, or of another class."
            )
        wanted = self.family.table(
            spec["layers"], wide=bool(spec.get("width")), segments=bool(spec.get("segments", 1))
        )
        wanted = {theirs: f"embedders.0.{ours}" for theirs, ours in wanted.items()}
        over = expand_names(head.names.get(self.family.kind, {}))
        if head is NO_HEAD and self.pool["kind"] != "cls":
            over = {}
        if head.task == "masked" and self.pooler:
            over |= expand_names(POOLER_NAMES)
        wanted |= over
        if missing := [theirs for theirs in wanted if theirs not in found]:
            raise UserError(
                f"{self.network}: {len(missing)} tensors that {self.path.name} declares are "
                f"missing: {join_names(missing)}. The checkpoint is incomplete, or of another "
                "class."
            )
        left = self._unused_tensors(set(found) - set(wanted))
        self._check_tied(found, wanted)
        ours = {wanted[theirs]: found[theirs] for theirs in wanted}
        theirs = {ours: theirs for theirs, ours in wanted.items()}
        if head is SPAN_HEAD:
            ours = _split_span_head(ours)
        if head is LM_HEAD:
            return self._lm_weights(ours, theirs, left)
        if self.family.kind == "gpt2":
            ours = gpt2.unfuse_qkv(_strip_prefix(ours, "embedders.0."))
            ours = {n if n.startswith("head.") else f"embedders.0.{n}": t for n, t in ours.items()}
            if head is CLASSIFIER:
                ours["head.score.bias"] = torch.zeros(len(ours["head.score.weight"]))
        return ConvertedWeights(ours, theirs, left)

    def _unused_tensors(self, names: set[str]) -> tuple[str, ...]:
        """Return the names of unused tensors; raise UserError for one that is not known."""
        harmless = (*head_prefixes(self.family), "lm_head.")
        unknown = {
            name
            for name in names
            if not name.startswith(harmless) and not name.endswith(self.family.buffers)
        }
        if unknown:
            raise UserError(
                f"{self.network}: {len(unknown)} tensors that {self.path.name} does not describe: "
                f"{join_names(unknown)}. The file belongs to another checkpoint, or this kind of "
                "network is not supported."
            )
        return tuple(sorted(names))

    def _check_tied(self, found: Tensors, wanted: Mapping[str, str]) -> None:
        """Raise UserError if the output layer is not tied to the embedding table."""
        theirs = {ours.removeprefix("embedders.0."): name for name, ours in wanted.items()}
        for copy, ours in TIED_COPIES.items():
            if copy in found and ours in theirs and "head.bias" in theirs:
                first = found[theirs[ours]]
                if first.shape != found[copy].shape or not torch.equal(first, found[copy]):
                    raise UserError(
                        f"{self.network}: {copy} differs from {theirs[ours]}; a head with an "
                        "untied output layer is not supported."
                    )

    def _lm_weights(
        self, ours: Tensors, theirs: Mapping[str, str], left: tuple[str, ...]
    ) -> ConvertedWeights:
        """Return the weights of GPT-2 as a language model, with a tied or untied output layer."""
        converted = {
            "head.decoder." + gpt2.decoder_name(name): tensor
            for name, tensor in gpt2.unfuse_qkv(_strip_prefix(ours, "embedders.0.")).items()
        }
        back = {
            "head.decoder." + gpt2.decoder_name(name.removeprefix("embedders.0.")): original
            for name, original in theirs.items()
        }
        output = self.tensors.get("lm_head.weight")
        if self.tied and output is not None and not torch.equal(output, self.tensors["wte.weight"]):
            raise UserError(
                f"{self.network}: lm_head.weight differs from wte.weight, but {self.path.name} "
                "ties them (tie_word_embeddings)."
            )
        if not self.tied and output is None and self.original_head is LM_HEAD:
            raise UserError(f"{self.network}: 1 tensor is missing: lm_head.weight.")
        if not self.tied and output is not None:
            converted["head.decoder.words.scored"] = self.tensors["lm_head.weight"]
            back["head.decoder.words.scored"] = "lm_head.weight"
        left = tuple(name for name in left if name != "lm_head.weight")
        return ConvertedWeights(converted, back, left)

    @property
    def tied(self) -> bool:
        """True if the output layer of a language model is its embedding table."""
        return self.config.get("tie_word_embeddings", True) is not False

    def sections(self) -> dict[str, object]:
        """Return the model's sections of a configuration."""
        if self.head is LM_HEAD:
            return {"task": {"kind": "language"}, "decoder": self.decoder}
        more = {"kind": "linear", "dropout": self._dropout}
        out: dict[str, object] = {"embedder": self.embedder, "encoder": {"kind": "none"}}
        if self.head.task == "tag":
            return {**out, "pool": {"kind": "none"}, "head": {**more, "kind": "tags"}}
        if self.head.task == "span":
            whole = {"pool": {"kind": "none"}, "pair": {"kind": "joint"}}
            return {**out, **whole, "head": {"kind": "span"}}
        if self.head.task == "masked":
            pool = {"kind": "cls" if self.pooler else "first"}
            spec = self.embedder
            head = {"kind": "masked", "activation": spec["activation"], "eps": spec["eps"]}
            return {**out, "pool": pool, "head": head}
        if self.head in (CLASSIFIER, NEXT_SENTENCE):
            # Only the last token of a GPT-2 has read everything.
            causal = self.family.embedder == "gpt"
            pool = {"kind": "last"} if causal else {
                "kind": "cls", "activation": ACTIVATION[self.family.kind]
            }  # fmt: skip
            two = {"pair": {"kind": "joint"}} if self.task.startswith("pair") else {}
            return {**out, **two, "pool": pool, "head": more}
        return {**out, "pool": self.pool, "head": {"kind": "none"}}

    @property
    def _dropout(self) -> float:
        for name in ("classifier_dropout", "seq_classif_dropout"):
            if (declared := self.config.get(name)) is not None:
                return float(check_type(name, declared, 0.0, str(self.path)))
        return self.embedder["dropout"]

    @property
    def decoder(self) -> dict[str, object]:
        """The [decoder] section of a language model."""
        if self.embedder["eps"] != 1e-5:
            raise UserError(
                f"{self.path}: layer_norm_epsilon is {self.config['layer_norm_epsilon']}; for a "
                "language model only 1e-05 is supported."
            )
        dropped = ("eps", "attention_dropout", "cls", "sep", "subword_pooling")
        spec = {name: value for name, value in self.embedder.items() if name not in dropped}
        return {**spec, "tied": self.tied}


def _read_config(path: Path) -> JsonObject:
    try:
        found = jsonio.read(path)
    except FileNotFoundError:
        raise UserError(
            f"{path.parent}: no config.json, so not a checkpoint folder. Pass a folder in the "
            "Hugging Face layout; --pretrained also takes a model or run folder of Weft."
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected an object, found {type(found).__name__}.")
    return found


def _split_span_head(weights: Tensors) -> Tensors:
    """Split the weights of an answer-span head into those of the start and the end."""
    out = dict(weights)
    for part in ("weight", "bias"):
        start, end = out.pop(f"head.both.{part}").chunk(2)  # (1, H) or (1,)
        out |= {f"head.start.{part}": start.contiguous(), f"head.end.{part}": end.contiguous()}
    return out


def _strip_prefix(found: Mapping[str, T], prefix: str) -> dict[str, T]:
    return {name.removeprefix(prefix): value for name, value in found.items()}


def pretraining_head(checkpoint: Checkpoint) -> PretrainedHead:
    """Return the masked-LM head of a checkpoint, with or without next-sentence prediction."""
    if "cls.seq_relationship.weight" in checkpoint.tensors and checkpoint.pooler:
        return PRETRAINING
    return checkpoint.original_head
