"""`weft export MODEL --to page`: a model folder becomes one HTML file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import UserError
from weft.export.page.assemble import PageText, assemble, write_page
from weft.export.page.support import check_config, check_tokenizer, find_tokenizers
from weft.jsonio import JsonObject
from weft.predict.golden import GOLDEN, input_json, recorded_inputs
from weft.predict.predictor import Predictor, load, model_folder
from weft.tokens.word_pattern import word_regex

MAX_EXAMPLES = 3  # golden texts that the page offers to try
MAX_EXAMPLE_CHARACTERS = 400
MAX_LABELS_SHOWN = 6  # in the first line of the page
OF_CLASSIC = {  # files of each kind of classic model; a pattern may match several
    "tfidf": ("vocabulary.json", "weights.safetensors"),
    "tfidf-pair": ("vocabulary.json", "weights.safetensors"),
    "fasttext": ("weights.safetensors",),
    "crf": ("columns.json", "cuts.json", "feature-*.safetensors", "tags-*.safetensors"),
    "ngram": ("weights.safetensors",),
    "kneser-ney": ("weights.safetensors",),
}


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
    overwrite: bool = False,
    golden: bool = True,
    trust: Sequence[str] = (),
) -> ExportedPage:
    """Write a model as one self-contained HTML file that answers texts offline.

    The model is loaded first, which replays its recorded answers. With `golden` the page holds
    their texts, replays them again in the browser and offers some to try.
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
    files = _read_files(folder, predictor)
    if golden:
        files[GOLDEN] = (folder / GOLDEN).read_bytes()
    about: JsonObject = {"words": word_regex(), "examples": _examples(folder) if golden else []}
    page = assemble(_describe(predictor, Path(model)), about, files)
    write_page(place, page)
    return ExportedPage(place, len(page.encode()), sum(map(len, files.values())))


def _examples(folder: Path) -> list[list[str]]:
    """Return the first short golden inputs, each one text or two."""
    inputs = [
        [one["text"], *([one["other"]] if "other" in one else [])]
        for one in map(input_json, recorded_inputs(folder / GOLDEN))
    ]
    return [one for one in inputs if len("".join(one)) <= MAX_EXAMPLE_CHARACTERS][:MAX_EXAMPLES]


def _read_files(folder: Path, predictor: Predictor) -> dict[str, bytes]:
    """Return the files of a model that its page needs, in the layout of an export folder."""
    patterns = OF_CLASSIC[predictor.config["classic"]["kind"]]
    paths = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    settings = {"format": 1, "config": predictor.config, "graphs": {}}
    return {
        "export.json": json.dumps(settings, ensure_ascii=False).encode(),
        **{path.name: path.read_bytes() for path in (folder / "labels.json", *paths)},
    }


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
        "language": "Measures how expected a text is, and continues it.",
    }
    facts = [(f"{predictor.parameters:,}", "parameters")]
    if labels:
        facts.append((f"{len(labels):,}", "labels"))
    path = model.resolve()
    title = path.parent.name if path.name == "model" else path.name
    first = "First text" if predictor.pairs else "Text"
    temperature = float((predictor.config.get("generate") or {}).get("temperature", 1.0))
    return PageText(
        title or "model", ledes.get(kind, ""), facts, input_name=first, temperature=temperature
    )
