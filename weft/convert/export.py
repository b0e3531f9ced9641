"""A model of ours as a checkpoint that `transformers` loads: its names, its settings, its files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from weft.convert import gpt2, sentence_transformers
from weft.convert import tokenizer as tokenizers
from weft.convert.families import BERT, DISTILBERT, ELECTRA, GPT2, ROBERTA, Family, expand_names
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
    Head,
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
    """A checkpoint that was not written yet."""

    name: str  # of its class in transformers
    tensors: Tensors
    files: Mapping[str, Any]  # JSON by name
    note: str = ""  # what is not in it

    def write(self, folder: Path) -> None:
        """Everything that `transformers` asks for."""
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
    state: Tensors, config: Mapping[str, Any], tokenizer: Tokenizer, space: Mapping[str, Any]
) -> ExportedCheckpoint:
    """A model's state dict and configuration as a checkpoint; strict: every tensor has a name."""
    if "embedder" not in config:
        return _export_lm(state, config, tokenizer)
    spec = _single_embedder(config)
    note = ""
    if config.get("pair", {}).get("kind") == "towers":
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
    state = _head_tensors(_rescale_regression(state, config, space), head)
    if family is GPT2:
        state = _to_gpt2(state, head)
    if head is NO_HEAD and config["pool"]["kind"] != "cls":
        over = {}
    if strange := state.keys() - inside.keys() - over.keys():
        raise UserError(f"transformers has no place for {join_names(strange)} in a {family.title}.")
    prefix = "" if head is NO_HEAD else family.prefix
    pooled = set(expand_names(POOLER_NAMES))
    names = {
        ours: prefix + theirs if ours in inside or theirs in pooled else theirs
        for ours, theirs in {**inside, **over}.items()
    }
    tensors = {names[ours]: tensor.contiguous() for ours, tensor in state.items()}
    rows = len(state["embedders.0.table.weight"])
    made = {"architectures": [family.title + head.suffix], **family.written(spec, rows)}
    made |= _label_settings(head, config, space)
    limit = spec["max_positions"]
    if family is GPT2:
        written, metadata = _gpt2_tokenizer_files(tokenizer, spec)
        files = {"config.json": made | metadata, **written}
    else:
        files = {"config.json": made, **_tokenizer_files(tokenizer, spec, family, limit)}
    if head is NO_HEAD:
        own = sentence_transformers.to_files(
            config["pool"], spec["hidden"], config["data"]["max_tokens"] or limit
        )
        files |= own or {}
    return ExportedCheckpoint(family.title + head.suffix, tensors, files, note)


def _sentence_encoder(
    state: Tensors, config: Mapping[str, Any], spec: Mapping[str, Any]
) -> tuple[Tensors, dict[str, Any], str]:
    """What gives each of two texts its vector: a model of sentences, without what compares them."""
    if spec["kind"] == "gpt":
        raise UserError("Vectors of texts by a GPT-2 cannot be written; those by a BERT can.")
    if sentence_transformers.to_files(config["pool"], 1, 1) is None:
        raise UserError(
            f"sentence-transformers has no pool '{config['pool']['kind']}'. Train it with "
            f"--set pool.kind={' or '.join(sentence_transformers.POOLS.values())}."
        )
    kept = {name: tensor for name, tensor in state.items() if name.startswith("embedders.")}
    out = {**config, "task": {"kind": "embed"}}
    del out["pair"]
    left = join_names(state.keys() - kept.keys())
    return kept, out, f"It gives a text its vector; what compares two is left out: {left}."


def _single_embedder(config: Mapping[str, Any]) -> dict[str, Any]:
    """The section of the embedder, which must be all that there is before the head."""
    spec, encoder = config["embedder"], config["encoder"]["kind"]
    if isinstance(spec, list) and len(spec) == 1:
        spec = spec[0]
    if isinstance(spec, list) or spec["kind"] not in ("bert", "gpt") or encoder != "none":
        raise UserError(
            "transformers has no class for this model: it is a pre-trained network and a head, "
            "with nothing between or beside them. Those of --recipe bert and its kin can be "
            "written."
        )
    if spec["mix"]:
        raise UserError("transformers has no class for a network whose layers are mixed.")
    return spec


def _detect_family(spec: Mapping[str, Any], config: Mapping[str, Any]) -> Family:
    """The family whose network this is."""
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
    fixed = {name: value for name, value in found.constants.items() if spec[name] != value}
    if fixed or (spec["position_offset"] and found is not ROBERTA):
        raise UserError(f"transformers has no class for this network: a {found.title} differs.")
    if dense is not None and dense != ACTIVATION[found.kind]:
        raise UserError(
            f"A {found.title} reads its first token with {ACTIVATION[found.kind]}, this model with "
            f"{dense}. Train it with --set pool.activation={ACTIVATION[found.kind]}."
        )
    return found


def _detect_head(config: Mapping[str, Any], state: Tensors, spec: Mapping[str, Any]) -> Head:
    """The head that a class of transformers has for the task."""
    task, pool, head = config["task"]["kind"], config["pool"]["kind"], config["head"]["kind"]
    if "pair" in config and config["pair"]["kind"] != "joint":
        raise UserError(
            "transformers has no class for two texts that are read apart and look at each other. "
            "Those of pair 'towers' and 'joint' can be written."
        )
    texts = ("classify", "regress", "pair-classify", "pair-score")
    gpt = spec["kind"] == "gpt"
    wanted = "last" if gpt else "cls"
    if task in texts and pool == wanted and head in ("linear", "logistic"):
        return CLASSIFIER
    if task in texts:
        reads = "the last token of a GPT-2" if gpt else "the first token through one more layer"
        raise UserError(
            f"A classifier of transformers reads {reads}: pool '{wanted}' and head 'linear', not "
            f"'{pool}' and '{head}'. Train it with those."
        )
    if task == "tag" and head == "tags" and len([n for n in state if "head.score" in n]) == 2:
        if spec["subword_pooling"] != "first":
            raise UserError(
                "A tagger of transformers reads the first piece of a word, this one its "
                f"{spec['subword_pooling']}. Train it with --set embedder.subword_pooling=first."
            )
        return TAG_HEAD
    found = {"span": SPAN_HEAD, "masked": PRETRAINING if "head.next.weight" in state else MLM_HEAD}
    if task == "embed" and not gpt:
        return NO_HEAD
    if task not in found or gpt:
        raise UserError(f"transformers has no class for the task '{task}' with the head '{head}'.")
    return found[task]


def _head_tensors(state: Tensors, head: Head) -> Tensors:
    """The tensors that its class has, as that class keeps them."""
    if head is MLM_HEAD:  # which looks at no pooled vector
        return {name: tensor for name, tensor in state.items() if not name.startswith("pool.")}
    if head is not SPAN_HEAD:
        return state
    out = dict(state)
    for part in ("weight", "bias"):
        both = [out.pop(f"head.{end}.{part}") for end in ("start", "end")]
        out[f"head.both.{part}"] = torch.cat(both)  # (2, H) or (2,)
    return out


def _to_gpt2(state: Tensors, head: Head) -> Tensors:
    """The tensors as GPT-2 keeps them: its classifier has no bias.

    What the bias adds to the scores, the last norm can add to the states: W (h + d) = W h + b.
    """
    out = dict(state)
    if head is CLASSIFIER:
        bias, norm = out.pop("head.score.bias"), "embedders.0.norm.bias"
        if bias.any():
            matrix = out["head.score.weight"].double()  # (C, H)
            shift = torch.linalg.pinv(matrix) @ bias.double()  # (H,)
            if (matrix @ shift - bias).abs().max() > 1e-6 * bias.abs().max():
                raise UserError(
                    "GPT2ForSequenceClassification has no bias, and the scores of this model "
                    "cannot be written without one: it has more labels than the network is wide."
                )
            out[norm] = (out[norm].double() + shift).to(out[norm].dtype)
    network = {n.removeprefix("embedders.0."): t for n, t in out.items() if "head." not in n}
    made = {f"embedders.0.{name}": tensor for name, tensor in gpt2.fuse_qkv(network).items()}
    return made | {name: tensor for name, tensor in out.items() if name.startswith("head.")}


def _rescale_regression(
    state: Tensors, config: Mapping[str, Any], space: Mapping[str, Any]
) -> Tensors:
    """Scores in the unit of the answers, where a number is what is answered."""
    if "deviation" not in space or (space["mean"], space["deviation"]) == (0.0, 1.0):
        return state
    weight, bias = "head.score.weight", "head.score.bias"
    return {
        **state,
        weight: state[weight] * space["deviation"],
        bias: state[bias] * space["deviation"] + space["mean"],
    }


def _label_settings(
    head: Head, config: Mapping[str, Any], space: Mapping[str, Any]
) -> dict[str, Any]:
    if head is TAG_HEAD:
        names = space["entries"][0]
    elif head is CLASSIFIER:
        names = space.get("entries", ["LABEL_0"])
    else:
        return {}
    out: dict[str, Any] = {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }
    if head is CLASSIFIER:
        kind = "single_label" if not config["task"].get("multi_label") else "multi_label"
        out["problem_type"] = "regression" if "entries" not in space else f"{kind}_classification"
    dropout = config["head"].get("dropout", 0.0)
    return {**out, "classifier_dropout": dropout, "seq_classif_dropout": dropout}


def _tokenizer_files(
    tokenizer: Tokenizer, spec: Mapping[str, Any], family: Family, limit: int
) -> dict[str, Any]:
    """The files of the tokenizer; where it puts nothing around a text, what the model expects."""
    made, entries = json.loads(tokenizer.to_json()), tokenizer.vocabulary
    cls, sep = entries[spec["cls"]], entries[spec["sep"]]
    if not made.get("post_processor"):
        made["post_processor"] = _special_token_template(cls, sep, spec)
    usual = {"unk": (UNK, "[UNK]"), "pad": (PAD, "[PAD]"), "mask": (MASK, "[MASK]")}
    named_ = {"cls_token": cls, "sep_token": sep}
    for name, options in usual.items():
        known = [token for token in options if token in entries]
        named_ |= {f"{name}_token": known[0]} if known else {}
    metadata = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": limit,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]
        if spec["segments"] > 1
        else ["input_ids", "attention_mask"],
        **named_,
    }
    return {TOKENIZER_FILE: json.dumps(made, ensure_ascii=False), "tokenizer_config.json": metadata}


def _gpt2_tokenizer_files(
    tokenizer: Tokenizer, spec: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The files of the tokenizer of a GPT-2 that answers, and what config.json says of its marks.

    Who answers is the last token that is not padding, so the mark at the end must not be padding.
    """
    made, entries = json.loads(tokenizer.to_json()), tokenizer.vocabulary
    around = [[i] if i >= 0 else [] for i in (spec["cls"], spec["sep"])]
    if list(tokenizers.template_ids(tokenizer)) != around:
        before = [made["post_processor"]] if made.get("post_processor") else []
        cls, sep = (entries[i] if i >= 0 else "" for i in (spec["cls"], spec["sep"]))
        processors = [*before, _special_token_template(cls, sep, spec)]
        made["post_processor"] = {"type": "Sequence", "processors": processors}
    end = next((token for token in (EOS, END_OF_TEXT) if token in entries), None)
    spare = next((token for token in (PAD, "<pad>", "[PAD]") if token in entries), None)
    pad = spare if spec["sep"] >= 0 or spare else end
    numbers = {name: entries.index(t) if t else None for name, t in (("eos", end), ("pad", pad))}
    metadata = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": spec["max_positions"],
    }
    metadata |= {"eos_token": end, "pad_token": pad, "unk_token": UNK if UNK in entries else end}
    metadata["model_input_names"] = ["input_ids", "attention_mask"]
    files = {
        TOKENIZER_FILE: json.dumps(made, ensure_ascii=False),
        "tokenizer_config.json": metadata,
    }
    return files, {
        "bos_token_id": numbers["eos"],
        "eos_token_id": numbers["eos"],
        "pad_token_id": numbers["pad"],
    }


def _special_token_template(cls: str, sep: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A template of the `tokenizers` library: [CLS] a [SEP] b [SEP]; of a GPT-2 without [CLS]."""
    second = 1 if spec.get("segments", 0) > 1 else 0

    def put(token: str, kind: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": token, "type_id": kind}}] if token else []

    def text(name: str, kind: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [*put(cls, 0), text("A", 0), *put(sep, 0)]
    twice = put(sep, 0) if spec.get("double_sep") else []
    ids = {t: i for t, i in ((cls, spec["cls"]), (sep, spec["sep"])) if t}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *twice, text("B", second), *put(sep, second)],
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in ids.items()},
    }


def _export_lm(
    state: Tensors, config: Mapping[str, Any], tokenizer: Tokenizer
) -> ExportedCheckpoint:
    """A language model as GPT-2."""
    spec = config["decoder"]
    if spec["kind"] != "gpt":
        raise UserError(
            f"transformers has no class for the decoder '{spec['kind']}'; 'gpt' is its GPT-2."
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
    made = {
        "architectures": [GPT2.title + LM_HEAD.suffix],
        **GPT2.written(
            {**spec, "eps": 1e-5, "attention_dropout": spec["dropout"]}, len(ours["table.weight"])
        ),
        "tie_word_embeddings": scored is None,
        "bos_token_id": number,
        "eos_token_id": number,
    }
    metadata = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": spec["max_positions"],
    }
    metadata |= {"bos_token": end, "eos_token": end, "unk_token": None if end is None else end}
    files = {
        "config.json": made,
        TOKENIZER_FILE: tokenizer.to_json(),
        "tokenizer_config.json": metadata,
    }
    return ExportedCheckpoint(GPT2.title + LM_HEAD.suffix, tensors, files)
