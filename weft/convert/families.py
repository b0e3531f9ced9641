"""Families of Hugging Face checkpoints: their names of settings and tensors, and ours.

In the tables of names {i} is the number of a layer and {p} is weight or bias.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict, TypeVar, cast

from weft.errors import UserError, unknown_name
from weft.jsonio import Json
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
Scalar = bool | int | float | str
T = TypeVar("T", bound=int | float | str)


class TransformerSpec(TypedDict, total=False):
    """The settings of a `bert` or `gpt` embedder, or of a `gpt` decoder."""

    kind: str
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    max_positions: int
    segments: int
    position_offset: int
    width: int
    activation: str
    eps: float
    dropout: float
    attention_dropout: float
    cls: int
    sep: int
    double_sep: bool
    subword_pooling: str
    mix: bool
    tied: bool


@dataclass(frozen=True)
class Family:
    """One kind of checkpoint."""

    kind: str  # model_type in config.json
    title: str  # prefix of its class names in transformers
    prefix: str  # of its tensors' names in a checkpoint with a head
    embedder: str  # kind of our embedder
    names: Names  # of tensors, theirs -> ours
    settings: tuple[tuple[str, str, int | float | str], ...]  # theirs, ours, default
    required: Mapping[str, Scalar]  # settings that change the network; other values are refused
    constants: Mapping[str, Scalar] = field(default_factory=dict)  # our settings that never vary
    buffers: tuple[str, ...] = ()  # name endings of tensors that hold nothing learned

    def read(self, config: Mapping[str, Json], where: str) -> TransformerSpec:
        """Convert a config.json to the settings of our embedder."""
        for name, only in self.required.items():
            if config.get(name, only) not in (only, None):
                raise UserError(
                    f"{where}: {name} is {config[name]!r}; a '{self.kind}' network can be read "
                    f"only if it is {only!r}."
                )
        values: dict[str, Scalar] = {"kind": self.embedder, **self.constants}
        for theirs, ours, usual in self.settings:
            value = config.get(theirs)
            values[ours] = usual if value is None else check_type(theirs, value, usual, where)
        out = cast(TransformerSpec, values)  # the names and types are those of self.settings
        if out["activation"] not in ACTIVATIONS:
            raise unknown_name("activation", out["activation"], ACTIVATIONS, where)
        out["activation"] = ACTIVATIONS[out["activation"]]
        if self.kind == "roberta":
            # Positions start after that of the padding.
            declared = config.get("pad_token_id")
            out["position_offset"] = 1 + (
                1 if declared is None else check_type("pad_token_id", declared, 1, where)
            )
            out["max_positions"] -= out["position_offset"]
        if out.get("width") == out["hidden"]:
            out["width"] = 0
        return out

    def to_config(self, spec: TransformerSpec, rows: int) -> dict[str, object]:
        """Return the config.json of an embedder, without the settings of a head."""
        values: Mapping[str, object] = spec
        out: dict[str, object] = {"model_type": self.kind, "vocab_size": rows}
        out |= {theirs: values[ours] for theirs, ours, _ in self.settings if ours in values}
        for theirs, ours, _ in self.settings:
            if ours == "activation":
                out[theirs] = HF_ACTIVATIONS[spec["activation"]]
            if ours == "feed_forward":
                out[theirs] = spec["feed_forward"] or 4 * spec["hidden"]
            if ours == "width":
                out[theirs] = spec["width"] or spec["hidden"]
            if ours == "max_positions":
                out[theirs] = spec["max_positions"] + spec.get("position_offset", 0)
        if self.kind == "roberta":
            out["pad_token_id"] = spec["position_offset"] - 1
        return out | {"dtype": "float32"}

    def table(self, layers: int, wide: bool = False, segments: bool = True) -> dict[str, str]:
        """Return the names of all tensors of a network with this many layers, theirs -> ours."""
        out = expand_names(self.names, layers)
        return {
            theirs: ours
            for theirs, ours in out.items()
            if (wide or not ours.startswith("enter.")) and (segments or ours != "segments.weight")
        }


def check_type(name: str, value: Json, usual: T, where: str) -> T:
    """Return a setting of config.json; raise UserError if it has not the type of the default."""
    wanted = (int, float) if isinstance(usual, float) else type(usual)
    if isinstance(value, wanted) and fits(value, type(usual)):
        return cast(T, value)  # isinstance with a type that is a value narrows nothing
    kind = {int: "a whole number", float: "a number"}.get(type(usual), "a name")
    raise UserError(f"{where}: {name} should be {kind}, found {value!r}.")


def expand_names(names: Names, layers: int = 0) -> dict[str, str]:
    """Expand a table of names to every layer, weight and bias."""
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
_BERT_MUST: Mapping[str, Scalar] = {
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
        "h.{i}.attn.c_attn.{p}": "blocks.{i}.attention.three.{p}",  # split by weft.convert.gpt2
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


def find_family(config: Mapping[str, Json], where: str) -> Family:
    """Return the family that a config.json names."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise UserError(
            f"{where}: no model_type, so the family of this Hugging Face checkpoint is unknown. "
            f"Set model_type to one of {', '.join(sorted(FAMILIES))}, or pass a Weft model folder."
        )
    if kind not in FAMILIES:
        raise unknown_name("family of checkpoints", kind, FAMILIES, where)
    return FAMILIES[kind]
