"""Check that the JavaScript of a page can run a model, before one is written."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from weft import jsonio
from weft.errors import UserError
from weft.jsonio import Json, JsonObject

# The names of the tables in js/classic/engine.js and js/tokens/*.js.
CLASSIC = ("tfidf", "tfidf-pair", "fasttext", "crf", "ngram", "kneser-ney")
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
    """Raise a UserError for a model that a page cannot run."""
    classic = config.get("classic")
    kind = classic.get("kind") if isinstance(classic, Mapping) else None
    if kind is None:
        raise UserError(
            f"{folder}: a page runs classic models ({', '.join(CLASSIC)}); this one is a neural "
            "network. Serve it from Python instead: weft predict."
        )
    if kind not in CLASSIC:
        raise UserError(
            f"{folder}: a page cannot run the classic model '{kind}', only {', '.join(CLASSIC)}."
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
