"""The families of checkpoints: what their settings and tensors are called, there and here.

In the tables of names {i} is the number of a layer and {p} is weight or bias.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import UserError, unknown_name
from weft.registry import fits

ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
}
HF_ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "gelu-tanh": "gelu_new"}

Names = Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """One kind of checkpoint."""

    kind: str  # model_type in config.json
    title: str  # how the names of its classes begin in transformers
    prefix: str  # before the names of its tensors, where a head stands beside it
    embedder: str  # the kind it has here
    names: Names  # of tensors, theirs -> ours
    # Theirs, ours, and what is meant where config.json is silent.
    settings: tuple[tuple[str, str, Any], ...]
    required: Mapping[str, Any]  # settings that change the network; only this value is read
    constants: Mapping[str, Any] = field(
        default_factory=dict
    )  # settings of ours that are always so
    buffers: tuple[str, ...] = ()  # endings of tensors that hold nothing learned

    def read(self, config: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The settings of our embedder, from a config.json."""
        for name, only in self.required.items():
            if config.get(name, only) not in (only, None):
                raise UserError(
                    f"{where}: {name} is {config[name]!r}; networks of the kind '{self.kind}' are "
                    f"read only where it is {only!r}."
                )
        out: dict[str, Any] = {"kind": self.embedder, **self.constants}
        for theirs, ours, usual in self.settings:
            value = config.get(theirs)
            out[ours] = usual if value is None else check_type(theirs, value, usual, where)
        activation = out["activation"]
        if activation not in ACTIVATIONS:
            raise unknown_name("activation", str(activation), ACTIVATIONS, where)
        out["activation"] = ACTIVATIONS[activation]
        if self.kind == "roberta":
            # Positions are counted from the one behind the padding's.
            declared = config.get("pad_token_id")
            out["position_offset"] = 1 + (
                1 if declared is None else check_type("pad_token_id", declared, 1, where)
            )
            out["max_positions"] -= out["position_offset"]
        if out.get("width") == out["hidden"]:
            out["width"] = 0
        return out

    def written(self, spec: Mapping[str, Any], rows: int) -> dict[str, Any]:
        """The config.json of an embedder of ours, without what belongs to its head."""
        out = {"model_type": self.kind, "vocab_size": rows}
        out |= {theirs: spec[ours] for theirs, ours, _ in self.settings if ours in spec}
        for theirs, ours, _ in self.settings:
            if ours == "activation":
                out[theirs] = HF_ACTIVATIONS[spec["activation"]]
            if ours == "feed_forward":
                out[theirs] = spec["feed_forward"] or 4 * spec["hidden"]
            if ours == "width":
                out[theirs] = spec["width"] or spec["hidden"]
            if ours == "max_positions":
                out[theirs] = spec["max_positions"] + spec.get("position_offset", 0)
            if ours == "dropout":
                out[theirs] = spec["dropout"]
        if self.kind == "roberta":
            out["pad_token_id"] = spec["position_offset"] - 1
        return out | {"dtype": "float32"}

    def table(self, layers: int, wide: bool = False, segments: bool = True) -> dict[str, str]:
        """The names of all tensors of a network with so many layers."""
        out = expand_names(self.names, layers)
        return {
            theirs: ours
            for theirs, ours in out.items()
            if (wide or not ours.startswith("enter.")) and (segments or ours != "segments.weight")
        }


def check_type(name: str, value: Any, usual: Any, where: str) -> Any:
    """A setting of config.json, or a UserError where it is not what it usually is."""
    wanted = (int, float) if isinstance(usual, float) else type(usual)
    if isinstance(value, wanted) and fits(value, type(usual)):
        return value
    kind = {int: "a whole number", float: "a number"}.get(type(usual), "a name")
    raise UserError(f"{where}: {name} should be {kind}, found {value!r}.")


def expand_names(names: Names, layers: int = 0) -> dict[str, str]:
    """A table of names with every layer, weight and bias written out."""
    out = {}
    for theirs, ours in names.items():
        for i in range(layers) if "{i}" in theirs else (0,):
            for p in ("weight", "bias") if "{p}" in theirs else ("",):
                out[theirs.format(i=i, p=p)] = ours.format(i=i, p=p)
    return out


_BERT_NAMES = {
    "embeddings.word_embeddings.weight": "table.weight",
    "embeddings.position_embeddings.weight": "positions.weight",
    "embeddings.token_type_embeddings.weight": "segments.weight",
    "embeddings.LayerNorm.{p}": "norm.{p}",
    "encoder.layer.{i}.attention.self.query.{p}": "blocks.{i}.attention.query.{p}",
    "encoder.layer.{i}.attention.self.key.{p}": "blocks.{i}.attention.key.{p}",
    "encoder.layer.{i}.attention.self.value.{p}": "blocks.{i}.attention.value.{p}",
    "encoder.layer.{i}.attention.output.dense.{p}": "blocks.{i}.attention.output.{p}",
    "encoder.layer.{i}.attention.output.LayerNorm.{p}": "blocks.{i}.attention_norm.{p}",
    "encoder.layer.{i}.intermediate.dense.{p}": "blocks.{i}.feed_in.{p}",
    "encoder.layer.{i}.output.dense.{p}": "blocks.{i}.feed_out.{p}",
    "encoder.layer.{i}.output.LayerNorm.{p}": "blocks.{i}.feed_norm.{p}",
}
_BERT_SETTINGS = (
    ("hidden_size", "hidden", 768),
    ("num_hidden_layers", "layers", 12),
    ("num_attention_heads", "heads", 12),
    ("intermediate_size", "feed_forward", 3072),
    ("max_position_embeddings", "max_positions", 512),
    ("type_vocab_size", "segments", 2),
    ("hidden_act", "activation", "gelu"),
    ("layer_norm_eps", "eps", 1e-12),
    ("hidden_dropout_prob", "dropout", 0.1),
    ("attention_probs_dropout_prob", "attention_dropout", 0.1),
)
_BERT_MUST = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
_POSITIONS = ("embeddings.position_ids", "embeddings.token_type_ids")

BERT = Family(
    "bert", "Bert", "bert.", "bert", _BERT_NAMES, _BERT_SETTINGS, _BERT_MUST, buffers=_POSITIONS
)
ROBERTA = Family(
    "roberta", "Roberta", "roberta.", "bert", _BERT_NAMES, _BERT_SETTINGS, _BERT_MUST,
    {"double_sep": True}, _POSITIONS,
)  # fmt: skip
ELECTRA = Family(
    "electra", "Electra", "electra.", "bert",
    {**_BERT_NAMES, "embeddings_project.{p}": "enter.{p}"},
    (*_BERT_SETTINGS, ("embedding_size", "width", 128)), _BERT_MUST, buffers=_POSITIONS,
)  # fmt: skip
DISTILBERT = Family(
    "distilbert", "DistilBert", "distilbert.", "bert",
    {
        "embeddings.word_embeddings.weight": "table.weight",
        "embeddings.position_embeddings.weight": "positions.weight",
        "embeddings.LayerNorm.{p}": "norm.{p}",
        "transformer.layer.{i}.attention.q_lin.{p}": "blocks.{i}.attention.query.{p}",
        "transformer.layer.{i}.attention.k_lin.{p}": "blocks.{i}.attention.key.{p}",
        "transformer.layer.{i}.attention.v_lin.{p}": "blocks.{i}.attention.value.{p}",
        "transformer.layer.{i}.attention.out_lin.{p}": "blocks.{i}.attention.output.{p}",
        "transformer.layer.{i}.sa_layer_norm.{p}": "blocks.{i}.attention_norm.{p}",
        "transformer.layer.{i}.ffn.lin1.{p}": "blocks.{i}.feed_in.{p}",
        "transformer.layer.{i}.ffn.lin2.{p}": "blocks.{i}.feed_out.{p}",
        "transformer.layer.{i}.output_layer_norm.{p}": "blocks.{i}.feed_norm.{p}",
    },
    (
        ("dim", "hidden", 768),
        ("n_layers", "layers", 6),
        ("n_heads", "heads", 12),
        ("hidden_dim", "feed_forward", 3072),
        ("max_position_embeddings", "max_positions", 512),
        ("activation", "activation", "gelu"),
        ("dropout", "dropout", 0.1),
        ("attention_dropout", "attention_dropout", 0.1),
    ),
    {}, {"segments": 0, "eps": 1e-12}, _POSITIONS,
)  # fmt: skip
GPT2 = Family(
    "gpt2", "GPT2", "transformer.", "gpt",
    {
        "wte.weight": "table.weight",
        "wpe.weight": "positions.weight",
        "h.{i}.ln_1.{p}": "blocks.{i}.attention_norm.{p}",
        "h.{i}.ln_2.{p}": "blocks.{i}.feed_norm.{p}",
        "h.{i}.attn.c_attn.{p}": "blocks.{i}.attention.three.{p}",  # cut by weft.convert.gpt2
        "h.{i}.attn.c_proj.{p}": "blocks.{i}.attention.output.{p}",
        "h.{i}.mlp.c_fc.{p}": "blocks.{i}.feed_in.{p}",
        "h.{i}.mlp.c_proj.{p}": "blocks.{i}.feed_out.{p}",
        "ln_f.{p}": "norm.{p}",
    },
    (
        ("n_embd", "hidden", 768),
        ("n_layer", "layers", 12),
        ("n_head", "heads", 12),
        ("n_inner", "feed_forward", 0),
        ("n_positions", "max_positions", 1024),
        ("activation_function", "activation", "gelu_new"),
        ("layer_norm_epsilon", "eps", 1e-5),
        ("resid_pdrop", "dropout", 0.1),
        ("embd_pdrop", "dropout", 0.1),
        ("attn_pdrop", "attention_dropout", 0.1),
    ),
    {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    buffers=("attn.bias", "attn.masked_bias"),
)  # fmt: skip

FAMILIES = {one.kind: one for one in (BERT, ROBERTA, ELECTRA, DISTILBERT, GPT2)}


def find_family(config: Mapping[str, Any], where: str) -> Family:
    """The family that a config.json names."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise UserError(
            f"{where}: no model_type, so the family of this Hugging Face checkpoint is unknown. "
            f"Set model_type to one of {', '.join(sorted(FAMILIES))}, or pass a Weft model folder."
        )
    if kind not in FAMILIES:
        raise unknown_name("family of checkpoints", kind, FAMILIES, where)
    return FAMILIES[kind]
