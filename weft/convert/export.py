"""Export a model as a checkpoint that `transformers` loads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import save_file

from weft import registry
from weft.config import Sections, section_kinds
from weft.convert import gpt2, sentence_transformers
from weft.convert import tokenizer as tokenizers
from weft.convert.families import (
    BERT,
    DISTILBERT,
    ELECTRA,
    GPT2,
    ROBERTA,
    Family,
    TransformerSpec,
    expand_names,
)
from weft.convert.heads import (
    ACTIVATION,
    CLASSIFIER,
    LM_HEAD,
    MLM_HEAD,
    NEXT_SENTENCE,
    NEXT_SENTENCE_LABELS,
    NO_HEAD,
    POOLER_NAMES,
    PRETRAINING,
    SPAN_HEAD,
    TAG_HEAD,
    PretrainedHead,
)
from weft.convert.tensors import Tensors, join_names
from weft.convert.tokenizer import END_OF_TEXT, TOKENIZER_FILE
from weft.errors import UserError
from weft.storage import atomic_write, atomic_write_folder, write_text
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.vocabulary import EOS, MASK, PAD, UNK

DECODER_PREFIX = "head.decoder."


@dataclass(frozen=True)
class ExportedCheckpoint:
    """A checkpoint in memory, ready to be written."""

    name: str  # of its class in transformers
    tensors: Tensors
    files: Mapping[str, object]  # by name: a text, or an object to be written as JSON
    note: str = ""  # what was left out

    def write(self, folder: Path) -> None:
        """Write all files that `transformers` needs."""
        with atomic_write_folder(folder) as part:
            for name, content in self.files.items():
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                text = content if isinstance(content, str) else json.dumps(
                    content, indent=2, ensure_ascii=False
                )  # fmt: skip
                write_text(path, text + "\n")
            with atomic_write(part / "model.safetensors") as file:
                save_file(self.tensors, file, metadata={"format": "pt"})


def export_checkpoint(
    state: Tensors, config: Sections, tokenizer: Tokenizer, space: Sections
) -> ExportedCheckpoint:
    """Convert a state dict and its configuration to a checkpoint; every tensor must have a name."""
    if "embedder" not in config:
        return _export_lm(state, config, tokenizer)
    spec = _single_embedder(config)
    note = ""
    if "pair" in config and registry.find("pair", config["pair"]["kind"]).has_text_vectors:
        state, config, note = _sentence_encoder(state, config, spec)
        space = {}
    family, head = _detect_family(spec, config), _detect_head(config, state, spec)
    if (
        family is BERT
        and head is CLASSIFIER
        and tuple(space.get("entries", ())) == NEXT_SENTENCE_LABELS
    ):
        head = NEXT_SENTENCE if "pair" in config else head
    wide, segments = bool(spec.get("width")), bool(spec.get("segments"))
    names = family.table(spec["layers"], wide, segments)
    inside = {f"embedders.0.{ours}": theirs for theirs, ours in names.items()}
    over = {ours: theirs for theirs, ours in expand_names(head.names[family.kind]).items()}
    state = _head_tensors(_rescale_regression(state, space), head)
    if family is GPT2:
        state = _to_gpt2(state, head)
    if head is NO_HEAD and config["pool"]["kind"] != "cls":
        over = {}
    if extra := state.keys() - inside.keys() - over.keys():
        raise UserError(f"A {family.title} of transformers has no tensor {join_names(extra)}.")
    prefix = "" if head is NO_HEAD else family.prefix
    pooled = set(expand_names(POOLER_NAMES))
    names = {
        ours: prefix + theirs if ours in inside or theirs in pooled else theirs
        for ours, theirs in {**inside, **over}.items()
    }
    tensors = {names[ours]: tensor.contiguous() for ours, tensor in state.items()}
    rows = len(state["embedders.0.table.weight"])
    settings: dict[str, object] = {
        "architectures": [family.title + head.suffix],
        **family.to_config(spec, rows),
        **_label_settings(head, config, space),
    }
    max_tokens = spec["max_positions"]
    files: dict[str, object]
    if family is GPT2:
        tokenizer_files, special_ids = _gpt2_tokenizer_files(tokenizer, spec)
        files = {"config.json": settings | special_ids, **tokenizer_files}
    else:
        files = {"config.json": settings, **_tokenizer_files(tokenizer, spec, max_tokens)}
    if head is NO_HEAD:
        pool_files = sentence_transformers.to_files(
            config["pool"], spec["hidden"], config["data"]["max_tokens"] or max_tokens
        )
        files |= pool_files or {}
    return ExportedCheckpoint(family.title + head.suffix, tensors, files, note)


def _sentence_encoder(
    state: Tensors, config: Sections, spec: TransformerSpec
) -> tuple[Tensors, Sections, str]:
    """Return the sentence encoder of a bi-encoder, without the part that compares two vectors."""
    if spec["kind"] == "gpt":
        raise UserError("A sentence encoder from a GPT-2 cannot be exported; one from BERT can.")
    if sentence_transformers.to_files(config["pool"], 1, 1) is None:
        raise UserError(
            f"sentence-transformers has no pool '{config['pool']['kind']}'. Train it with "
            f"--set pool.kind={' or '.join(sentence_transformers.POOLS.values())}."
        )
    kept = {name: tensor for name, tensor in state.items() if name.startswith("embedders.")}
    out = {**config, "task": {"kind": "embed"}}
    del out["pair"]
    left = join_names(state.keys() - kept.keys())
    return kept, out, f"It embeds one text; the comparison of two is left out: {left}."


def _single_embedder(config: Sections) -> TransformerSpec:
    """Return the [embedder] section; raise UserError if anything else precedes the head."""
    spec, encoders = config["embedder"], section_kinds(config["encoder"])
    if isinstance(spec, list) and len(spec) == 1:
        spec = spec[0]
    if isinstance(spec, list) or spec["kind"] not in ("bert", "gpt") or encoders != ("none",):
        raise UserError(
            "transformers has no class for this model: only a bert or gpt network with a head "
            "directly on it can be exported, such as one trained with --recipe bert."
        )
    if spec["mix"]:
        raise UserError(
            "transformers has no class for a mix of layers. Train with embedder.mix off."
        )
    return cast(TransformerSpec, spec)  # the registry has checked it against the constructor


def _detect_family(spec: TransformerSpec, config: Sections) -> Family:
    """Return the family whose architecture this network has."""
    if spec["kind"] == "gpt":
        return GPT2
    dense = config["pool"].get("activation") if config["pool"]["kind"] == "cls" else None
    if spec["position_offset"] and spec["double_sep"]:
        found = ROBERTA
    elif not spec["segments"] and not spec["position_offset"] and not spec["width"]:
        found = DISTILBERT
    elif spec["width"] or dense == "gelu":
        found = ELECTRA
    else:
        found = BERT
    values: Mapping[str, object] = spec
    fixed = [name for name, value in found.constants.items() if values[name] != value]
    if fixed or (spec["position_offset"] and found is not ROBERTA):
        raise UserError(f"transformers has no class for this network; {found.title} is close.")
    if dense is not None and dense != ACTIVATION[found.kind]:
        raise UserError(
            f"The pooler of {found.title} has the activation {ACTIVATION[found.kind]}, this one "
            f"{dense}. Train it with --set pool.activation={ACTIVATION[found.kind]}."
        )
    return found


def _detect_head(config: Sections, state: Tensors, spec: TransformerSpec) -> PretrainedHead:
    """Return the head that transformers has for the task."""
    task, pool, head = config["task"]["kind"], config["pool"]["kind"], config["head"]["kind"]
    if "pair" in config and config["pair"]["kind"] != "joint":
        raise UserError(
            "transformers has no class for two texts that are encoded apart and attend to each "
            "other. Models with pair 'towers' or 'joint' can be exported."
        )
    texts = ("classify", "regress", "pair-classify", "pair-score")
    gpt = spec["kind"] == "gpt"
    wanted = "last" if gpt else "cls"
    if task in texts and pool == wanted and head in ("linear", "logistic"):
        return CLASSIFIER
    if task in texts:
        reads = "the last token" if gpt else "the first token through a pooler"
        raise UserError(
            f"A classifier of transformers reads {reads}: pool '{wanted}' and head 'linear', not "
            f"'{pool}' and '{head}'. Train it with those."
        )
    if task == "tag" and head == "tags" and len([n for n in state if "head.score" in n]) == 2:
        if spec["subword_pooling"] != "first":
            raise UserError(
                "A tagger of transformers reads the first subword of a word, this one the "
                f"{spec['subword_pooling']}. Train it with --set embedder.subword_pooling=first."
            )
        return TAG_HEAD
    found = {"span": SPAN_HEAD, "masked": PRETRAINING if "head.next.weight" in state else MLM_HEAD}
    if task == "embed" and not gpt:
        return NO_HEAD
    if task not in found or gpt:
        raise UserError(f"transformers has no class for the task '{task}' with the head '{head}'.")
    return found[task]


def _head_tensors(state: Tensors, head: PretrainedHead) -> Tensors:
    """Return the tensors that the class in transformers has, in its layout."""
    if head is MLM_HEAD:  # without a pooler
        return {name: tensor for name, tensor in state.items() if not name.startswith("pool.")}
    if head is not SPAN_HEAD:
        return state
    out = dict(state)
    for part in ("weight", "bias"):
        both = [out.pop(f"head.{end}.{part}") for end in ("start", "end")]
        out[f"head.both.{part}"] = torch.cat(both)  # (2, H) or (2,)
    return out


def _to_gpt2(state: Tensors, head: PretrainedHead) -> Tensors:
    """Return the tensors in the layout of GPT-2, whose classifier has no bias.

    The last norm absorbs the bias: W (h + d) = W h + b.
    """
    out = dict(state)
    if head is CLASSIFIER:
        bias, norm = out.pop("head.score.bias"), "embedders.0.norm.bias"
        if bias.any():
            matrix = out["head.score.weight"].double()  # (C, H)
            shift = torch.linalg.pinv(matrix) @ bias.double()  # (H,)
            if (matrix @ shift - bias).abs().max() > 1e-6 * bias.abs().max():
                raise UserError(
                    "GPT2ForSequenceClassification has no bias, and the network cannot absorb it: "
                    "it has more labels than hidden units. Train with a larger hidden size."
                )
            out[norm] = (out[norm].double() + shift).to(out[norm].dtype)
    network = {n.removeprefix("embedders.0."): t for n, t in out.items() if "head." not in n}
    fused = {f"embedders.0.{name}": tensor for name, tensor in gpt2.fuse_qkv(network).items()}
    return fused | {name: tensor for name, tensor in out.items() if name.startswith("head.")}


def _rescale_regression(state: Tensors, space: Sections) -> Tensors:
    """Scale the output of a regression head to the unit of its labels."""
    if "deviation" not in space or (space["mean"], space["deviation"]) == (0.0, 1.0):
        return state
    weight, bias = "head.score.weight", "head.score.bias"
    return {
        **state,
        weight: state[weight] * space["deviation"],
        bias: state[bias] * space["deviation"] + space["mean"],
    }


def _label_settings(head: PretrainedHead, config: Sections, space: Sections) -> dict[str, object]:
    if head is TAG_HEAD:
        names = space["entries"][0]
    elif head is CLASSIFIER:
        names = space.get("entries", ["LABEL_0"])
    else:
        return {}
    out: dict[str, object] = {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }
    if head is CLASSIFIER:
        kind = "single_label" if not config["task"].get("multi_label") else "multi_label"
        out["problem_type"] = "regression" if "entries" not in space else f"{kind}_classification"
    dropout = config["head"].get("dropout", 0.0)
    return {**out, "classifier_dropout": dropout, "seq_classif_dropout": dropout}


def _tokenizer_files(
    tokenizer: Tokenizer, spec: TransformerSpec, max_tokens: int
) -> dict[str, object]:
    """Return the tokenizer files, with the special tokens that the model expects around a text."""
    settings, entries = json.loads(tokenizer.to_json()), tokenizer.vocabulary
    cls, sep = entries[spec["cls"]], entries[spec["sep"]]
    if not settings.get("post_processor"):
        settings["post_processor"] = _special_token_template(cls, sep, spec)
    usual = {"unk": (UNK, "[UNK]"), "pad": (PAD, "[PAD]"), "mask": (MASK, "[MASK]")}
    special_tokens = {"cls_token": cls, "sep_token": sep}
    for name, options in usual.items():
        present = [token for token in options if token in entries]
        special_tokens |= {f"{name}_token": present[0]} if present else {}
    metadata = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_tokens,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]
        if spec["segments"] > 1
        else ["input_ids", "attention_mask"],
        **special_tokens,
    }
    return {
        TOKENIZER_FILE: json.dumps(settings, ensure_ascii=False),
        "tokenizer_config.json": metadata,
    }


def _gpt2_tokenizer_files(
    tokenizer: Tokenizer, spec: TransformerSpec
) -> tuple[dict[str, object], dict[str, int | None]]:
    """Return the tokenizer files of a GPT-2 with a head, and the special ids of its config.json.

    The head reads the last token that is not padding, so the end token must not be padding.
    """
    settings, entries = json.loads(tokenizer.to_json()), tokenizer.vocabulary
    around = [[i] if i >= 0 else [] for i in (spec["cls"], spec["sep"])]
    if list(tokenizers.template_ids(tokenizer)) != around:
        before = [settings["post_processor"]] if settings.get("post_processor") else []
        cls, sep = (entries[i] if i >= 0 else "" for i in (spec["cls"], spec["sep"]))
        processors = [*before, _special_token_template(cls, sep, spec)]
        settings["post_processor"] = {"type": "Sequence", "processors": processors}
    end = next((token for token in (EOS, END_OF_TEXT) if token in entries), None)
    spare = next((token for token in (PAD, "<pad>", "[PAD]") if token in entries), None)
    pad = spare if spec["sep"] >= 0 or spare else end
    numbers = {name: entries.index(t) if t else None for name, t in (("eos", end), ("pad", pad))}
    metadata = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": spec["max_positions"],
        "eos_token": end,
        "pad_token": pad,
        "unk_token": UNK if UNK in entries else end,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    files: dict[str, object] = {
        TOKENIZER_FILE: json.dumps(settings, ensure_ascii=False),
        "tokenizer_config.json": metadata,
    }
    return files, {
        "bos_token_id": numbers["eos"],
        "eos_token_id": numbers["eos"],
        "pad_token_id": numbers["pad"],
    }


def _special_token_template(cls: str, sep: str, spec: TransformerSpec) -> dict[str, object]:
    """Return a template for the `tokenizers` library: [CLS] a [SEP] b [SEP]."""
    second = 1 if spec.get("segments", 0) > 1 else 0

    def special(token: str, kind: int) -> list[dict[str, object]]:
        return [{"SpecialToken": {"id": token, "type_id": kind}}] if token else []

    def text(name: str, kind: int) -> dict[str, object]:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [*special(cls, 0), text("A", 0), *special(sep, 0)]
    twice = special(sep, 0) if spec.get("double_sep") else []
    ids = {t: i for t, i in ((cls, spec["cls"]), (sep, spec["sep"])) if t}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *twice, text("B", second), *special(sep, second)],
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in ids.items()},
    }


def _export_lm(state: Tensors, config: Sections, tokenizer: Tokenizer) -> ExportedCheckpoint:
    """Export a language model as GPT-2."""
    spec = cast(TransformerSpec, config["decoder"])
    if spec["kind"] != "gpt":
        raise UserError(
            f"transformers has no class for the decoder '{spec['kind']}'. Only 'gpt' can be "
            "exported, as GPT-2."
        )
    attention = config.get("attention", {})
    trained = attention.get("score", "scaled"), attention.get("mask", "causal")
    if trained != ("scaled", "causal"):
        raise UserError(
            f"GPT-2 has scaled, causal attention; this model was trained with score {trained[0]!r} "
            f"and mask {trained[1]!r}. Only a model trained without [attention] can be exported."
        )
    ours = {
        gpt2.embedder_name(name.removeprefix(DECODER_PREFIX)): tensor
        for name, tensor in state.items()
        if name.startswith(DECODER_PREFIX)
    }
    scored = ours.pop("words.scored", None)
    names = {mine: theirs for theirs, mine in GPT2.table(spec["layers"]).items()}
    tensors = {
        GPT2.prefix + names[name]: tensor.contiguous()
        for name, tensor in gpt2.fuse_qkv(ours).items()
    }
    if scored is not None:
        tensors["lm_head.weight"] = scored.contiguous()
    entries = tokenizer.vocabulary
    end = next((token for token in (EOS, END_OF_TEXT) if token in entries), None)
    number = None if end is None else entries.index(end)
    spec = {**spec, "eps": 1e-5, "attention_dropout": spec["dropout"]}
    settings = {
        "architectures": [GPT2.title + LM_HEAD.suffix],
        **GPT2.to_config(spec, len(ours["table.weight"])),
        "tie_word_embeddings": scored is None,
        "bos_token_id": number,
        "eos_token_id": number,
    }
    metadata = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": spec["max_positions"],
        "bos_token": end,
        "eos_token": end,
        "unk_token": end,
    }
    files: dict[str, object] = {
        "config.json": settings,
        TOKENIZER_FILE: tokenizer.to_json(),
        "tokenizer_config.json": metadata,
    }
    return ExportedCheckpoint(GPT2.title + LM_HEAD.suffix, tensors, files)
