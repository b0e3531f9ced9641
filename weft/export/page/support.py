"""Check that the JavaScript of a page can run a model, before one is written."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from weft import jsonio
from weft.errors import UserError
from weft.jsonio import Json, JsonObject

# The names of the tables in js/classic/engine.js and js/tokens/*.js.
CLASSIC = ("tfidf", "tfidf-pair", "fasttext", "crf", "ngram", "kneser-ney")
TASKS = (
    "classify", "regress", "pair-classify", "pair-score", "tag", "intent-slots", "regress-words",
    "parse", "constituency", "span", "language", "seq2seq", "embed",
)  # fmt: skip
INPUTS = ("text", "words", "pairs")
ANSWERS = (
    "logits", "tags", "intent-slots", "numbers", "span", "arcs", "brackets", "tokens", "text",
)  # fmt: skip
TOKENIZER_PARTS: Mapping[str, tuple[str, ...]] = {
    "normalizer": (
        "NFC", "NFKC", "NFD", "NFKD", "Lowercase", "StripAccents", "Strip", "Replace", "Prepend",
        "BertNormalizer", "Sequence",
    ),
    "pre_tokenizer": (
        "Split", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits", "BertPreTokenizer",
        "Metaspace", "ByteLevel", "Sequence",
    ),
    "decoder": (
        "Fuse", "Replace", "Strip", "Metaspace", "WordPiece", "BPEDecoder", "ByteLevel",
        "ByteFallback", "Sequence",
    ),
    "model": ("WordLevel", "WordPiece", "BPE", "Unigram"),
}  # fmt: skip


def check_config(config: Mapping[str, Json], folder: Path) -> None:
    """Raise a UserError for a task or a classic model that a page cannot run."""
    task = config.get("task")
    name = task.get("kind") if isinstance(task, Mapping) else None
    if name not in TASKS:
        raise UserError(
            f"{folder}: a page has no task '{name}'; it has {', '.join(TASKS)}. Use the model from "
            "Python: weft export --to onnx."
        )
    if isinstance(task, Mapping) and task.get("record"):
        raise UserError(
            f"{folder}: this model reads records, and a page does not. Use it from Python: "
            "weft export --to onnx."
        )
    classic = config.get("classic")
    kind = classic.get("kind") if isinstance(classic, Mapping) else None
    if kind is not None and kind not in CLASSIC:
        raise UserError(
            f"{folder}: a page cannot run the classic model '{kind}', only {', '.join(CLASSIC)}."
        )


def check_export(info: JsonObject, folder: Path) -> None:
    """Raise a UserError for a neural model that reads or gives what a page does not know."""
    reads, gives = info.get("reads"), info.get("gives")
    if not isinstance(reads, Mapping) or not isinstance(gives, Mapping):
        return  # classic models have neither
    reason, search = "", gives.get("search")
    if reads.get("input_kind") not in INPUTS:
        reason = f"reads {reads.get('input_kind')}"
    elif reads.get("extended_vocab_start"):
        reason = "copies words"
    elif gives.get("backward"):
        reason = "has a backward language model"
    elif isinstance(search, Mapping) and search.get("num_beam_groups", 1) != 1:
        reason = "searches in groups of beams"
    elif gives.get("kind") not in ANSWERS:
        reason = f"gives answers of the kind '{gives.get('kind')}'"
    if reason:
        raise UserError(
            f"{folder}: this model {reason}, and a page does not. Use it from Python: "
            "weft export --to onnx."
        )


def check_tokenizer(settings: JsonObject, where: str) -> None:
    """Raise a UserError for a tokenizer.json with a part that the page does not have."""
    for section, known in TOKENIZER_PARTS.items():
        for kind in _kinds(settings.get(section)):
            if kind not in known:
                raise UserError(
                    f"{where}: a page has no {section.replace('_', '-')} '{kind}'; it has "
                    f"{', '.join(known)}."
                )


def _kinds(part: Json) -> Iterator[str]:
    """Yield the types of a section and of those inside it."""
    if not isinstance(part, Mapping):
        return
    kind = part.get("type")
    if isinstance(kind, str):
        yield kind
    for name in ("normalizers", "pretokenizers", "decoders"):
        inner = part.get(name)
        for one in inner if isinstance(inner, list) else ():
            yield from _kinds(one)


def find_tokenizers(folder: Path) -> Iterator[tuple[JsonObject, str]]:
    """Yield the tokenizers of a model: its own, and that of its labels."""
    path = folder / "tokenizer.json"
    if path.is_file():
        yield jsonio.read(path), str(path)
    labels = jsonio.read(folder / "labels.json")
    inner = labels.get("tokenizer") if isinstance(labels, Mapping) else None
    if isinstance(inner, dict):
        yield inner, str(folder / "labels.json")
