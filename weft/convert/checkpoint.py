"""A checkpoint folder of the Hugging Face layout, read into our names; nothing is guessed.

Its settings are known at once, its weights when they are asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from weft import jsonio
from weft.convert import gpt2, sentence_transformers, tensors, tokenizer
from weft.convert.families import Family, check_type, expand_names, find_family
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
    Head,
    class_of,
    head_of,
    head_prefixes,
    unsupported_note,
)
from weft.convert.tensors import Tensors, join_names
from weft.errors import UserError
from weft.tokens.tokenizer import Tokenizer

# Tasks whose heads always come along.
KEPT_TASKS = ("classify", "pair-classify", "tag", "span", "language", "embed")
MAX_LABELS = 100_000
PAIR_TASKS = {"classify": "pair-classify", "regress": "pair-score"}  # the same of two texts


@dataclass(frozen=True)
class Weights:
    """Tensors by the names they have in a Model, and what was not taken."""

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
            raise UserError(f"{folder}: sentences are read with BERT and its kin only.")
        brought = NO_HEAD if self.sentence else head_of(self.config, self.family, str(self.path))
        self.own_head: Head = brought
        # What only pre-training asks for is left behind, unless the task is to go on with it.
        self.head: Head = brought if task or brought.task in KEPT_TASKS else NO_HEAD
        if task == "masked":
            self.head = pretraining_head(self)
        self.asked = task
        if task and self.task != task:
            name, own = class_of(self.config) or "none", self.task
            hint = ""
            if PAIR_TASKS.get(own) == task:
                hint = " Its tokenizer puts no mark between two texts."
            elif own in PAIR_TASKS and task in PAIR_TASKS.values():
                hint = f" Its answers are those of '{PAIR_TASKS[own]}'."
            raise UserError(
                f"{self.path}: its class, {name}, has no head for the task '{task}'.{hint}"
            )

    @cached_property
    def task(self) -> str:
        """The task that its head answers; of two texts instead of one where that was asked."""
        own = self.head.task
        if self.head is CLASSIFIER and len(self.labels) == 1:
            own = "regress"
        return self.asked if PAIR_TASKS.get(own) == self.asked and self._separates_pairs else own

    @property
    def _separates_pairs(self) -> bool:
        """Whether something shows where the second of two texts begins."""
        return self.family.embedder == "bert" or self._special_ids()["sep"] >= 0

    @property
    def notes(self) -> list[str]:
        """What one should know of what was read."""
        return [note for note in (self.read[1], unsupported_note(self.config, self.family)) if note]

    @cached_property
    def read(self) -> tuple[Tokenizer, str]:
        """The tokenizer with an entry for every row of the table, and a note where it lacked some.

        Every row of the table that config.json speaks of has a token.
        """
        found = tokenizer.read(self.network, self.family.kind)
        if self.sentence and self.sentence.lowercase:
            found = tokenizer.with_lowercase(found)
        rows = self.config.get("vocab_size")
        if rows is None:
            raise UserError(f"{self.path}: no vocab_size.")
        check_type("vocab_size", rows, 0, str(self.path))
        return tokenizer.resize_vocab(found, rows, self.network)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.read[0]

    @cached_property
    def embedder(self) -> dict[str, Any]:
        """The section [embedder] of the same network."""
        spec = self.family.read(self.config, str(self.path))
        if self.family.embedder != "bert":
            return spec if self.head is LM_HEAD else {**spec, **self._special_ids()}
        declared = tokenizer.read_settings(self.network)
        usual = tokenizer.ROBERTA if self.family.kind == "roberta" else tokenizer.BERT
        known = {entry: i for i, entry in enumerate(self.tokenizer.vocabulary)}
        for name in ("cls", "sep"):
            token = tokenizer.special_token(declared, name, usual[name])
            if token not in known:
                raise UserError(
                    f"{self.network}: the tokenizer has no '{token}', which stands around texts. "
                    f"Name another as {name}_token in tokenizer_config.json."
                )
            spec[name] = known[token]
        return spec

    def _special_ids(self) -> dict[str, Any]:
        """What stands around a text that GPT-2 answers about, and what it reads of a word."""
        before, after = tokenizer.template_ids(self.tokenizer)
        if max(len(before), len(after)) > 1:
            raise UserError(
                f"{self.network}: the tokenizer puts {len(before)} tokens before a text and "
                f"{len(after)} behind it; a GPT-2 is read with one of each at most."
            )
        cls, sep = (ids[0] if ids else -1 for ids in (before, after))
        if sep == self.config.get("pad_token_id") and self.head is CLASSIFIER:
            sep = -1  # taken for padding: who answers is the token before it
        out = {"cls": cls, "sep": sep}
        return {**out, "subword_pooling": "first"} if self.head is TAG_HEAD else out

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of its classes or tags, in order."""
        if self.head is NEXT_SENTENCE:
            return NEXT_SENTENCE_LABELS
        declared = self.config.get("id2label") or {}
        try:
            count = len(declared) or int(self.config.get("num_labels") or 2)
            numbered = {int(i): str(label) for i, label in declared.items()}
            if count > MAX_LABELS:
                raise ValueError
        except (ValueError, AttributeError, TypeError, OverflowError):
            raise UserError(
                f"{self.path}: id2label should have numbers with names, num_labels be a number of "
                f"{MAX_LABELS:,} at most."
            ) from None
        names = numbered or {i: f"LABEL_{i}" for i in range(count)}
        if sorted(names) != list(range(len(names))) or len(set(names.values())) < len(names):
            raise UserError(
                f"{self.path}: id2label should number distinct labels from 0 on, without gaps; "
                f"found {str(names)[:200]}."
            )
        return tuple(names[i] for i in range(len(names)))

    @cached_property
    def tensors(self) -> Tensors:
        """Its tensors; those of the network without the family's prefix."""
        found = tensors.read(self.network)
        return {name.removeprefix(self.family.prefix): tensor for name, tensor in found.items()}

    @property
    def pooler(self) -> bool:
        """Whether a layer over the first step comes with it."""
        return "pooler.dense.weight" in self.tensors

    @property
    def pool(self) -> dict[str, Any]:
        """The section [pool] that makes one vector of a text, as those who made it do."""
        if self.sentence:
            return self.sentence.pool
        return {"kind": "cls"} if self.pooler else {"kind": "mean"}

    def weights(self, head: Head | None = None) -> Weights:
        """Everything that a model with this head needs, or its own; strict both ways."""
        head = self.head if head is None else head
        spec, found = self.embedder, self.tensors
        if spec["layers"] > len(found):
            raise UserError(
                f"{self.path}: speaks of {spec['layers']:,} layers, and there are {len(found)} "
                "tensors. The checkpoint is not whole, or of another class."
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
                f"{self.network}: {len(missing)} tensors are missing that {self.path.name} speaks "
                f"of: {join_names(missing)}. The checkpoint is not whole, or of another class."
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
        return Weights(ours, theirs, left)

    def _unused_tensors(self, names: set[str]) -> tuple[str, ...]:
        """What nothing here asks for; a UserError where that is not known to be harmless."""
        harmless = (*head_prefixes(self.family), "lm_head.")
        strange = {
            name
            for name in names
            if not name.startswith(harmless) and not name.endswith(self.family.buffers)
        }
        if strange:
            raise UserError(
                f"{self.network}: {len(strange)} tensors that {self.path.name} does not describe: "
                f"{join_names(strange)}. The file belongs to another checkpoint, or this kind of "
                "network is not supported."
            )
        return tuple(sorted(names))

    def _check_tied(self, found: Tensors, wanted: Mapping[str, str]) -> None:
        """Words are scored with the table that reads them: a second one must be the same."""
        theirs = {ours.removeprefix("embedders.0."): name for name, ours in wanted.items()}
        for copy, ours in TIED_COPIES.items():
            if copy in found and ours in theirs and "head.bias" in theirs:
                first = found[theirs[ours]]
                if first.shape != found[copy].shape or not torch.equal(first, found[copy]):
                    raise UserError(
                        f"{self.network}: {copy} is not the same as {theirs[ours]}; a head that "
                        "scores words with a table of its own is not read."
                    )

    def _lm_weights(
        self, ours: Tensors, theirs: Mapping[str, str], left: tuple[str, ...]
    ) -> Weights:
        """GPT-2 as a language model: its scores are of the table, or of a matrix of their own."""
        made = {
            "head.decoder." + gpt2.decoder_name(name): tensor
            for name, tensor in gpt2.unfuse_qkv(_strip_prefix(ours, "embedders.0.")).items()
        }
        back = {
            "head.decoder." + gpt2.decoder_name(name.removeprefix("embedders.0.")): own
            for name, own in theirs.items()
        }
        own = self.tensors.get("lm_head.weight")
        if self.tied and own is not None and not torch.equal(own, self.tensors["wte.weight"]):
            raise UserError(
                f"{self.network}: lm_head.weight is not wte.weight, though {self.path.name} says "
                "that they are one (tie_word_embeddings)."
            )
        if not self.tied and own is None and self.own_head is LM_HEAD:
            raise UserError(f"{self.network}: 1 tensor is missing: lm_head.weight.")
        if not self.tied and own is not None:
            made["head.decoder.words.scored"] = self.tensors["lm_head.weight"]
            back["head.decoder.words.scored"] = "lm_head.weight"
        return Weights(made, back, tuple(name for name in left if name != "lm_head.weight"))

    @property
    def tied(self) -> bool:
        """Whether a language model scores words with the table that reads them."""
        return self.config.get("tie_word_embeddings", True) is not False

    def sections(self) -> dict[str, Any]:
        """The model's sections of a configuration: what it would be trained again with."""
        if self.head is LM_HEAD:
            return {"task": {"kind": "language"}, "decoder": self.decoder}
        more: dict[str, Any] = {"kind": "linear", "dropout": self._dropout}
        out = {"embedder": self.embedder, "encoder": {"kind": "none"}}
        if self.head.task == "tag":
            return {**out, "pool": {"kind": "none"}, "head": {**more, "kind": "tags"}}
        if self.head.task == "span":
            whole = {"pool": {"kind": "none"}, "pair": {"kind": "joint"}}
            return {**out, **whole, "head": {"kind": "span"}}
        if self.head.task == "masked":
            pool = {"kind": "cls" if self.pooler else "first"}
            head = {
                "kind": "masked",
                **{name: self.embedder[name] for name in ("activation", "eps")},
            }
            return {**out, "pool": pool, "head": head}
        if self.head in (CLASSIFIER, NEXT_SENTENCE):
            # Only the last token of a GPT-2 has read everything.
            spoken = self.family.embedder == "gpt"
            pool = {"kind": "last"} if spoken else {
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
    def decoder(self) -> dict[str, Any]:
        """The section [decoder] of a language model."""
        spec = dict(self.embedder)
        if spec.pop("eps") != 1e-5:
            raise UserError(
                f"{self.path}: layer_norm_epsilon is {self.config['layer_norm_epsilon']}; a "
                "language model is read where it is 1e-05."
            )
        for name in ("attention_dropout", "cls", "sep", "subword_pooling"):
            spec.pop(name, None)
        return {**spec, "tied": self.tied}


def _read_config(path: Path) -> dict[str, Any]:
    try:
        found = jsonio.read(path)
    except FileNotFoundError:
        raise UserError(
            f"{path.parent}: not a checkpoint folder: there is no config.json in it. Give one of "
            "the Hugging Face layout; where a network to start from is asked for, a model or run "
            "folder of Weft will do, too."
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected an object, found {type(found).__name__}.")
    return found


def _split_span_head(weights: Tensors) -> Tensors:
    """The score of an answer's first token and that of its last, each with a matrix of its own."""
    out = dict(weights)
    for part in ("weight", "bias"):
        start, end = out.pop(f"head.both.{part}").chunk(2)  # (1, H) or (1,)
        out |= {f"head.start.{part}": start.contiguous(), f"head.end.{part}": end.contiguous()}
    return out


def _strip_prefix(found: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in found.items()}


def pretraining_head(checkpoint: Checkpoint) -> Head:
    """The head for masked words that a checkpoint brings along, with the next sentence's or not."""
    if "cls.seq_relationship.weight" in checkpoint.tensors and checkpoint.pooler:
        return PRETRAINING
    return checkpoint.own_head
