"""Resolve `pretrained` parts of a configuration, and load weights from a checkpoint folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from weft.config import Config, FilledSections
from weft.convert import gpt2
from weft.convert.checkpoint import Checkpoint, pretraining_head
from weft.convert.heads import ACTIVATION, LM_HEAD, NO_HEAD
from weft.convert.load_weights import load_weights
from weft.convert.locate import locate
from weft.convert.tensors import read_safetensors
from weft.convert.tokenizer import TOKENIZER_FILE, kind_of
from weft.embed import birnn, elmo
from weft.errors import UserError
from weft.model import Model
from weft.predict.predictor import model_folder, saved_config
from weft.protocols import Section
from weft.tasks.language import GPT2_EOS
from weft.tensorfile import build_on_meta
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.vocabulary import EOS

PRETRAINED = "pretrained"
# Options that may be set although the checkpoint fixes the sizes.
OVERRIDABLE = (
    "dropout",
    "attention_dropout",
    "subword_pooling",
    "mix",
    "frozen",
    "lora",
    "norm",
    "cls",
    "sep",
)
DECODER_OPTIONS = (
    "hidden",
    "layers",
    "heads",
    "feed_forward",
    "max_positions",
    "activation",
    "dropout",
)
DECODER_PREFIX = "head.decoder."
CHECKPOINT_ATTENTION = {"score": "scaled", "mask": "causal"}  # of GPT-2, and of our default
# The [embedder] section of language models whose network is one, by the decoder's kind.
DECODER_EMBEDDERS = {
    "elmo": elmo.embedder_section,
    "bidirectional-lm": birnn.embedder_section,
}
# From this rate on, a network this large may forget its pre-training.
HIGH_LEARNING_RATE, LARGE_NETWORK = 3e-4, 5_000_000
MAX_EXTRA_TENSORS = 5000  # of a model, beyond those of its checkpoint


@dataclass(frozen=True)
class PretrainedSource:
    """A checkpoint folder as a source for a new model: settings now, weights on request."""

    folder: Path
    embedder: FilledSections | None  # sections of a configuration
    decoder: FilledSections | None
    pool: FilledSections
    tokenizer: FilledSections
    weights: Callable[[str], Mapping[str, Tensor]]  # for a task, by the names of a Model
    attention: FilledSections | None = None  # of a language model; None: scaled and causal


def open_checkpoint(name: str) -> PretrainedSource:
    """Open a folder: a Hugging Face checkpoint, or a Weft model."""
    folder = locate(name)
    ours = any((candidate / "model.json").is_file() for candidate in (folder, folder / "model"))
    return _open_weft_folder(model_folder(folder)) if ours else _open_hub_folder(folder)


def _open_hub_folder(folder: Path) -> PretrainedSource:
    found = Checkpoint(folder)
    path = found.network / TOKENIZER_FILE
    _, note = found.read
    if not path.is_file() or note or (found.sentence and found.sentence.lowercase):
        raise UserError(
            f"{folder}: its tokenizer has to be made first. Run `weft convert {folder} -o MODEL`, "
            "then give MODEL."
        )
    speaks = found.family.embedder == "gpt"
    return PretrainedSource(
        folder, dict(found.embedder), found.decoder if speaks else None,
        {"kind": "cls", "activation": ACTIVATION.get(found.family.kind)},
        {"kind": kind_of(found.tokenizer), "path": str(path)}, partial(_hub_weights, found),
    )  # fmt: skip


def _hub_weights(checkpoint: Checkpoint, task: str) -> Mapping[str, Tensor]:
    head = pretraining_head(checkpoint) if task == "masked" else checkpoint.head
    alone = LM_HEAD if checkpoint.family.embedder == "gpt" else NO_HEAD
    head = head if head.task == task else alone
    weights = dict(checkpoint.weights(head).ours)
    if checkpoint.pooler:
        for part in ("weight", "bias"):
            weights.setdefault(f"pool.dense.{part}", checkpoint.tensors[f"pooler.dense.{part}"])
    return weights


def _open_weft_folder(folder: Path) -> PretrainedSource:
    config = saved_config(folder / "model.json")
    if "classic" in config:
        raise UserError(f"{folder}: a model without a network; there is nothing to start from.")
    decoder = config.get("decoder")
    tokenizer = {**config["tokenizer"], "path": str(folder / TOKENIZER_FILE)}
    embedder, number = _contextual_embedder(config)
    if embedder is None and decoder is not None and decoder["kind"] == "gpt":
        embedder = {"kind": "gpt", **{name: decoder[name] for name in DECODER_OPTIONS}}
    elif embedder is None and decoder is not None and decoder["kind"] in DECODER_EMBEDDERS:
        embedder = DECODER_EMBEDDERS[decoder["kind"]](decoder)
    if embedder is None:
        raise UserError(
            f"{folder}: a model whose vectors know no context. To start from a pre-trained "
            "network, give a model of `weft convert`, or of --recipe bert-pretrain, gpt, "
            "elmo-pretrain or masked-bilstm."
        )
    return PretrainedSource(
        folder, embedder, decoder if "embedder" not in config else None, config.get("pool", {}),
        tokenizer, partial(_weft_weights, folder, config, number),
        None if "embedder" in config else config.get("attention"),
    )  # fmt: skip


def _contextual_embedder(config: Section) -> tuple[FilledSections | None, int]:
    """Return the section of the contextual embedder, and its index."""
    sections = config.get("embedder", [])
    for i, one in enumerate(sections if isinstance(sections, list) else [sections]):
        if one["kind"] in ("bert", "gpt", "elmo", "birnn"):
            learned = {name: one[name] for name in one if name not in ("lora", "frozen", "model")}
            if one.get("mix") or one.get("lora"):
                message = "mixes its layers" if one.get("mix") else "was changed by LoRA"
                raise UserError(f"The network given {message}; start from one that does not.")
            return learned, i
    return None, 0


def _weft_weights(folder: Path, config: Section, number: int, task: str) -> Mapping[str, Tensor]:
    found = read_safetensors(folder / "weights.safetensors")
    own = f"embedders.{number}."
    out = {
        name.replace(own, "embedders.0.", 1): tensor
        for name, tensor in found.items()
        if name.startswith((own, "pool.")) or config["task"]["kind"] == task
    }
    return out | {name: tensor for name, tensor in found.items() if name.startswith(DECODER_PREFIX)}


def resolve(config: Config) -> Config:
    """Return the configuration with `pretrained` replaced by the network of its folder."""
    tables = config["embedder"]
    for i, spec in enumerate(tables if isinstance(tables, list) else [tables]):
        if isinstance(spec, Mapping) and spec.get("kind") == PRETRAINED:
            return _with_checkpoint(
                config, spec, "embedder", i if isinstance(tables, list) else None
            )
    spec = config["decoder"]
    return _with_checkpoint(config, spec, "decoder") if spec.get("kind") == PRETRAINED else config


def _with_checkpoint(config: Config, spec: Section, part: str, number: int | None = None) -> Config:
    """Return the configuration with a part (of several, that number) set from the folder."""
    if not spec.get("model"):
        raise UserError(
            f"[{part}] kind 'pretrained' needs a checkpoint: pass --pretrained FOLDER, a folder of "
            "the Hugging Face layout, a model of `weft convert`, or a run of --recipe "
            "bert-pretrain, gpt, elmo-pretrain or masked-bilstm."
        )
    found = open_checkpoint(str(spec["model"]))
    settings = found.embedder if part == "embedder" else found.decoder
    if settings is None:
        raise UserError(
            f"{found.folder}: not a language model, which is what this configuration goes on with."
        )
    if settings["kind"] == "gpt" and part == "embedder" and settings.get("sep", -1) < 0:
        settings = {**settings, "sep": _end_of_text_id(Path(found.tokenizer["path"]))}
    given = {name: value for name, value in spec.items() if name != "kind"}
    fixed = [name for name in given if name in settings and name not in (*OVERRIDABLE, "model")]
    if fixed:
        raise UserError(
            f"Remove '{fixed[0]}' from [{part}]: the checkpoint {found.folder} says it."
        )
    now, key = {**settings, **given}, part
    changes: FilledSections = {part: now, **_checkpoint_attention(config, found, settings, part)}
    if number is not None:
        key = f"{part}.{number}"
        changes[part] = [now if i == number else one for i, one in enumerate(config[part])]
    # As an embedder ELMo reads letters, whatever the tokens are.
    if settings["kind"] != "elmo" or part == "decoder":
        changes["tokenizer"] = found.tokenizer
    elif "tokenizer" not in config:
        raise UserError(
            f"{found.folder}: an ELMo, which reads the letters of words that a [tokenizer] cuts, "
            "and there is none. Use --recipe elmo or tagger-elmo, or set tokenizer.kind=word."
        )
    return config.with_values(changes, config.origin(f"{key}.model"))


def _checkpoint_attention(
    config: Config, found: PretrainedSource, settings: Section, part: str
) -> FilledSections:
    """Return the [attention] section of a language model that goes on from a checkpoint.

    Raises a UserError if the network was trained with another attention than is wanted.
    """
    if settings["kind"] != "gpt":
        return {}
    trained = found.attention or CHECKPOINT_ATTENTION
    if part == "embedder" and trained != CHECKPOINT_ATTENTION:
        other = ", ".join(f"attention.{key} = {value!r}" for key, value in trained.items())
        raise UserError(
            f"{found.folder} was trained with {other}; the embedder 'gpt' has scaled, causal "
            "attention. Start from a network trained with that."
        )
    if part == "embedder":
        return {}
    for key, value in config["attention"].items():
        if value != trained.get(key):
            now = trained.get(key, "none")
            raise UserError(
                f"attention.{key} = {value!r}: the checkpoint {found.folder} was trained with "
                f"{now!r}, which cannot be changed. Remove attention.{key}."
            )
    return {"attention": trained}


def _end_of_text_id(path: Path) -> int:
    """Return the id of the end-of-text token, the only one that has read everything; -1: none."""
    known = {entry: i for i, entry in enumerate(Tokenizer.load(path).vocabulary)}
    return known.get(EOS, known.get(GPT2_EOS, -1))


def check_sizes(make: Callable[[], Model], parts: Section, task: str) -> None:
    """Raise UserError if a checkpoint's tensors do not match its settings, before allocating."""
    tables = parts.get("embedder", [])
    specs = [*(tables if isinstance(tables, list) else [tables]), parts.get("decoder", {})]
    names = [str(one["model"]) for one in specs if one.get("model")]
    if names:
        tensors = sum(len(open_checkpoint(name).weights(task)) for name in names)
        network: Any = build_on_meta(make, tensors + MAX_EXTRA_TENSORS, names[0], "its settings")
        load_pretrained(network, task)


def load_pretrained(model: Model, task: str, rate: float = 0.0) -> list[str]:
    """Load the weights that a new model's configuration names; return notes.

    With the learning `rate`, also warn if it is high for such a network.
    """
    message = []
    for part, embedder in zip(model.embedder_parts, model.embedders, strict=True):
        if part.model:
            checkpoint = open_checkpoint(part.model)
            weights = checkpoint.weights(task)
            own = _embedder_weights(weights, model.parts, part.token_table)
            load_weights(embedder, own, str(checkpoint.folder))
            message.append(f"weights of the embedder are those of {checkpoint.folder}")
            more = _load_pool_and_head(model, checkpoint, weights, task)
            message += [f"weights of the {part} begin there, too" for part in more]
            tuned = sum(p.numel() for p in embedder.parameters() if p.requires_grad)
            if rate >= HIGH_LEARNING_RATE and tuned >= LARGE_NETWORK and not part.frozen:
                message.append(
                    f"note: train.learning_rate={rate:g} is high for a network of {tuned:,} "
                    "weights: it may forget what it knows. 2e-5 to 5e-5 is usual; or set "
                    "embedder.frozen=true"
                )
    if model.traits.is_lm and model.head.decoder.model:
        checkpoint = open_checkpoint(model.head.decoder.model)
        decoder: Any = model.head.decoder
        weights = _strip_prefix(checkpoint.weights(task), DECODER_PREFIX)
        load_weights(decoder, weights, str(checkpoint.folder))
        message.append(f"weights are those of {checkpoint.folder}")
    return message


def _embedder_weights(
    weights: Mapping[str, Tensor], parts: Section, table: nn.Embedding | None
) -> dict[str, Tensor]:
    own = _strip_prefix(weights, "embedders.0.")
    if own:
        return own
    specs = parts["embedder"] if isinstance(parts["embedder"], list) else [parts["embedder"]]
    kinds = {spec["kind"] for spec in specs}
    if "elmo" in kinds:
        return elmo.network_weights(weights)
    if "birnn" in kinds:
        assert table is not None
        return birnn.network_weights(weights, table.num_embeddings)
    decoder_weights = _strip_prefix(weights, DECODER_PREFIX)
    # What scores words stays behind: only who reads them is wanted.
    return {
        gpt2.embedder_name(name): tensor
        for name, tensor in decoder_weights.items()
        if name not in ("words.scored", "words.bias")
    }


def _load_pool_and_head(
    model: Model, checkpoint: PretrainedSource, weights: Mapping[str, Tensor], task: str
) -> list[str]:
    """Initialise pool and head from the folder, if they match; return their names."""
    done = []
    pool = model.parts.get("pool", {})
    same = {k: checkpoint.pool.get(k) for k in ("kind", "activation")}
    matching = {"pool": same == {k: pool.get(k) for k in same}, "head": task == "masked"}
    modules = dict(model.named_children())
    for name, wanted in matching.items():
        part = modules[name]
        current, loaded = part.state_dict(), _strip_prefix(weights, f"{name}.")
        fits = {
            k: loaded[k] for k in current if k in loaded and current[k].shape == loaded[k].shape
        }
        if wanted and fits:
            load_weights(part, {**current, **fits}, str(checkpoint.folder))
            done.append(name)
    return done


def _strip_prefix(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in weights.items() if n.startswith(prefix)}
