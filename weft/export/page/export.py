"""`weft export MODEL --to page`: a model folder becomes one HTML file."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft import jsonio
from weft.errors import UserError
from weft.export.page.assemble import PageText, assemble, write_page
from weft.export.page.runtime import LICENCE, VERSION, read_runtime
from weft.export.page.support import (
    check_config,
    check_export,
    check_tokenizer,
    find_tokenizers,
)
from weft.export.runtime.metadata import EXPORT_FILE
from weft.export.write import export_predictor
from weft.jsonio import JsonObject
from weft.predict.golden import GOLDEN, input_json, recorded_inputs
from weft.predict.predictor import Predictor, load, model_folder
from weft.tokens.word_pattern import word_regex

MAX_EXAMPLES = 3  # golden texts that the page offers to try
MAX_EXAMPLE_CHARACTERS = 400
MAX_LABELS_SHOWN = 6  # in the first line of the page
LEFT_OUT = ("parity.json", "record.json")  # files that a page does not need


@dataclass(frozen=True)
class ExportedPage:
    """A page that was written."""

    path: Path
    size: int  # bytes
    model_size: int  # of these, the files of the model


def export_page(
    model: str | Path,
    output: str | Path,
    *,
    int8: bool = False,
    overwrite: bool = False,
    golden: bool = True,
    trust: Sequence[str] = (),
) -> ExportedPage:
    """Write a model as one self-contained HTML file that answers texts offline.

    The model is exported as `weft export --to onnx` does it, so the recorded answers go through
    both. With `golden` the page holds their texts, replays them again in the browser and offers
    some to try.
    """
    place = Path(output)
    if place.is_dir():
        raise UserError(f"{place} is a folder; a page is one file: -o model.html.")
    if place.exists() and not overwrite:
        raise UserError(f"{place} exists. Pass --overwrite, or choose another file.")
    folder = model_folder(Path(model))
    predictor = load(folder, device="cpu", trust=trust)
    check_config(predictor.config, folder)
    for settings, where in find_tokenizers(folder):
        check_tokenizer(settings, where)
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / "export"
        export_predictor(folder, predictor, target, int8=int8)
        files = _read_files(target)
    check_export(jsonio.parse(files[EXPORT_FILE], folder), folder)
    if not golden:
        del files[GOLDEN]
    about: JsonObject = {"words": word_regex(), "examples": _examples(folder) if golden else []}
    modules, licences, runtime = [], {}, {}
    if "classic" not in predictor.config:
        script, wasm = read_runtime()
        modules, runtime = [script], {"ort.wasm": wasm}
        licences[f"onnxruntime-web {VERSION}"] = LICENCE
    text = _describe(predictor, Path(model))
    page = assemble(text, about, {**files, **runtime}, modules, licences)
    write_page(place, page)
    return ExportedPage(place, len(page.encode()), sum(map(len, files.values())))


def _examples(folder: Path) -> list[list[str]]:
    """Return the first short golden inputs, each one text or two."""
    inputs = [
        [one["text"], *([one["other"]] if "other" in one else [])]
        for one in map(input_json, recorded_inputs(folder / GOLDEN))
    ]
    return [one for one in inputs if len("".join(one)) <= MAX_EXAMPLE_CHARACTERS][:MAX_EXAMPLES]


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return the files of an export that its page needs."""
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: path.read_bytes() for path in paths if path.name not in LEFT_OUT}


def _describe(predictor: Predictor, model: Path) -> PageText:
    """Return the title and the first lines of the page."""
    kind, labels = predictor.config["task"]["kind"], predictor.class_labels
    shown = ", ".join(labels[:MAX_LABELS_SHOWN])
    if len(labels) > MAX_LABELS_SHOWN:
        shown += f" and {len(labels) - MAX_LABELS_SHOWN} more"
    ledes = {
        "classify": f"Sorts a text into {shown}.",
        "pair-classify": f"Compares two texts: {shown}.",
        "regress": "Gives a text a number.",
        "pair-score": "Scores how two texts relate.",
        "tag": "Tags every word of a text.",
        "parse": "Finds the head of every word of a sentence.",
        "constituency": "Finds the phrases of a sentence.",
        "span": "Finds the answer to a question in a passage.",
        "intent-slots": "Finds the intent of a sentence, and its slots.",
        "language": "Measures how expected a text is, and continues it.",
        "seq2seq": "Writes a text for a text.",
        "embed": "Finds the sentences that are nearest to a text.",
    }
    facts = [(f"{predictor.parameters:,}", "parameters")]
    if labels:
        facts.append((f"{len(labels):,}", "labels"))
    path = model.resolve()
    title = path.parent.name if path.name == "model" else path.name
    names = ("First text", "Second text") if predictor.pairs else ("Text", "")
    if kind == "span":
        names = ("Question", "Passage")
    if kind == "embed":
        names = ("Text", "Sentences to search in, one a line")
    temperature = float((predictor.config.get("generate") or {}).get("temperature", 1.0))
    text = PageText(title or "model", ledes.get(kind, ""), facts, *names, temperature=temperature)
    if kind == "seq2seq":
        return replace(text, generate_name="Write the answer word by word", generate_verb="Write")
    return text
