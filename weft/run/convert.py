"""Convert Hugging Face checkpoints to model folders, and model folders to checkpoints."""

import copy
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from weft.attend.lora import merge_lora
from weft.config import Config, FilledSections
from weft.convert.checkpoint import Checkpoint
from weft.convert.export import ExportedCheckpoint, export_checkpoint
from weft.convert.families import expand_names
from weft.convert.load_weights import load_weights
from weft.convert.locate import locate
from weft.convert.tensors import join_names
from weft.convert.tokenizer import TOKENIZER_FILE, kind_of
from weft.errors import UserError, unknown_name
from weft.model import Model, build_model
from weft.predict.neural import NeuralEngine, make_indexer
from weft.predict.predictor import Predictor, load
from weft.run.train import describe_command, resolve_config, versions
from weft.runtime import select_runtime
from weft.tasks.task import build_task
from weft.tensorfile import build_on_meta
from weft.text.annotation.schemes import OUTSIDE

TAG_COLUMN = "tag"  # the column of a tagger whose checkpoint names none
GOLDEN_TEXTS = (
    "The bank of the river was steep.",
    "Is it 3.14?",
    "She banks on a good answer, too.",
)
MAX_ANSWER_TOKENS = 30  # tokens of an answer
TASKS = ("masked", "pair-classify", "pair-score")  # what may be asked of a head
SCHEMES = {"I": "IO", "BI": "IOB2", "BILU": "BILOU", "BEIS": "BIOES"}


def convert(name: str, output: str | Path, *, overwrite: bool = False, task: str = "") -> list[str]:
    """Convert the checkpoint of a folder or hub name to a model folder; return notes.

    Its head is kept if a task here uses it; with the task `masked`, the masked-LM head is kept,
    too; with `pair-classify` or `pair-score`, the model classifies pairs of texts.
    """
    if task not in ("", *TASKS):
        raise unknown_name("task", task, TASKS, "--task")
    folder = locate(name)
    if any((one / "model.json").is_file() for one in (folder, folder / "model")):
        raise UserError(f"{name}: already a Weft model; use it, or pass it to --pretrained.")
    checkpoint = Checkpoint(folder, task)
    target = Path(output)
    _prepare_folder(target, overwrite, "model.json")
    predictor, record = predictor_of(checkpoint)
    predictor.save(target, golden_inputs(predictor), record)
    notes: list[str] = record["notes"]
    return notes


def predictor_of(checkpoint: Checkpoint, device: str = "cpu") -> tuple[Predictor, FilledSections]:
    """Return a checkpoint as a model, and the record of its conversion."""
    section, labels = _task_and_labels(checkpoint)
    data = {"max_tokens": checkpoint.sentence.max_tokens} if checkpoint.sentence else {}
    tokenizer = checkpoint.tokenizer
    sections = {
        **checkpoint.sections(),
        "task": section,
        "tokenizer": {"kind": kind_of(tokenizer)},
        "data": data,
    }
    full = resolve_config(Config(sections))
    task = build_task(full)
    space = task.load_space({**labels, **_lm_vocabulary(checkpoint)})
    weights = checkpoint.weights()

    def make() -> Model:
        return build_model(full, vocabulary_size=len(tokenizer), outputs=space.size)

    source = (weights.ours, str(checkpoint.network), weights.theirs)
    load_weights(build_on_meta(make, len(weights.ours), checkpoint.network, "config.json"), *source)
    model = make()
    load_weights(model, *source)
    notes = checkpoint.notes
    if weights.left:
        notes.append(f"left out because no task uses it: {join_names(weights.left)}")
    limits = full["data"]["max_tokens"], full["data"]["truncate"]
    runtime = select_runtime(device)
    model.to(runtime.device)
    engine = NeuralEngine(model, make_indexer(model, tokenizer, *limits), runtime)
    predictor = Predictor(engine, task, space, full)
    record = {
        "parameters": predictor.parameters,
        "notes": notes,
        "left_out": list(weights.left),
        "converted": {
            "family": checkpoint.family.kind,
            "class": checkpoint.config.get("architectures"),
        },
        "versions": versions(),
        "command": describe_command("weft.convert"),
    }
    return predictor, record


def export(
    model: str | Path, output: str | Path, *, overwrite: bool = False, trust: Sequence[str] = ()
) -> ExportedCheckpoint:
    """Write a model folder as a checkpoint that `transformers` loads."""
    predictor = load(model, device="cpu", trust=trust)
    if not isinstance(predictor.engine, NeuralEngine):
        raise UserError(f"{model}: a classical model; it cannot be exported as a checkpoint.")
    network = copy.deepcopy(predictor.engine.model)
    merge_lora(network)
    made = export_checkpoint(
        dict(network.state_dict()),
        {**predictor.config, **network.parts},
        predictor.engine.indexer.tokenizer,
        predictor.space.to_json(),
    )
    place = Path(output)
    _prepare_folder(place, overwrite, "config.json")
    made.write(place)
    return made


def _task_and_labels(checkpoint: Checkpoint) -> tuple[FilledSections, FilledSections]:
    """Return the [task] section and the label space of a checkpoint, as saved in a model folder."""
    task = checkpoint.task
    if task in ("regress", "pair-score"):
        return {"kind": task}, {"mean": 0.0, "deviation": 1.0}
    if task in ("classify", "pair-classify"):
        several = checkpoint.config.get("problem_type") == "multi_label_classification"
        return (
            {"kind": task, "multi_label": several},
            {"entries": list(checkpoint.labels), "threshold": 0.5},
        )
    if task == "tag":
        scheme = _tag_scheme(checkpoint.labels)
        settings = {"kind": "tag", "columns": [TAG_COLUMN], "scheme": scheme, "learn": scheme}
        return settings, {
            "names": [TAG_COLUMN],
            "entries": [list(checkpoint.labels)],
            "scheme": scheme,
        }
    if task == "masked":
        follows = (
            "head.next.weight"
            in expand_names(checkpoint.head.names[checkpoint.family.kind]).values()
        )
        # A model that reads less than usual is also asked less at a time.
        window = min(128, checkpoint.embedder["max_positions"])
        message = {"kind": "masked", "next_sentence": follows, "window": window}
        return {
            **message,
            "long_window": max(window, min(512, checkpoint.embedder["max_positions"])),
        }, {
            "tokenizer": json.loads(checkpoint.tokenizer.to_json()),
            "next": follows,
        }
    if task == "span":
        return {"kind": "span"}, {
            "longest": MAX_ANSWER_TOKENS,
            "no_answer": False,
            "threshold": 0.0,
        }
    return {"kind": task}, {}


def golden_inputs(predictor: Predictor) -> list[str | tuple[str, str]]:
    """Return a few inputs whose answers are saved with the model."""
    if predictor.pairs:
        return [("Where was it steep?", text) for text in GOLDEN_TEXTS]
    if predictor.config["task"]["kind"] == "masked":
        return [text.replace(" ", " [MASK] ", 1) for text in GOLDEN_TEXTS]
    return list(GOLDEN_TEXTS)


def _tag_scheme(labels: tuple[str, ...]) -> str:
    """Return the span scheme of the tags, or ""."""
    inside = [label for label in labels if label != OUTSIDE]
    if OUTSIDE not in labels or not all(label[1:2] == "-" for label in inside):
        return ""
    return SCHEMES.get("".join(sorted({label[0] for label in inside})), "")


def _lm_vocabulary(checkpoint: Checkpoint) -> FilledSections:
    """Return the vocabulary entries of a language model's label space, else {}."""
    if checkpoint.head.task != "language":
        return {}
    return {"tokenizer": json.loads(checkpoint.tokenizer.to_json()), "lines": True}


def _prepare_folder(folder: Path, overwrite: bool, ours: str) -> None:
    """Create an empty folder; raise UserError if an existing one must not be touched."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder to -o.")
    present = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    if present and not overwrite:
        raise UserError(f"{folder} is not empty. Pass --overwrite, or choose another folder.")
    if present and ours not in present:
        raise UserError(f"{folder} holds no {ours}, so --overwrite leaves it alone.")
    for name in present:
        path = folder / name
        if path.suffix in (".json", ".jsonl", ".safetensors") or name in (
            "1_Pooling",
            TOKENIZER_FILE,
        ):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot write to {folder}: {error.strerror or error}.") from None
