"""export.json: what an exported model reads, what it gives, and what it was made of."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from weft import __version__, jsonio
from weft.batch.indexer import Indexer, MarkWords, SubtokenEncoder
from weft.embed.spelling import ByteSpelling, NgramSpelling
from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.model.traits import Traits
from weft.protocols import InputKind
from weft.registry import describe_type, fits
from weft.storage import ESCAPE_SURROGATES, write_text
from weft.text.audio.log_mel import LogMel
from weft.text.formats.features import Frontend
from weft.text.images import Patches
from weft.tokens.special_tokens import SpecialTokens
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.truncate import Policy
from weft.tokens.word_segmenter import WordSegmenter

EXPORT_FILE = "export.json"
FORMAT = 2
Weights = Literal["float32", "int8"]
# What answers are decoded with, by kind of answer; a model has some of it.
GIVES: dict[str, Any] = {
    "kind": str, "stride": int, "leading": int, "columns": int, "sentence_columns": int,
    "size": int, "bos": int, "eos": int, "blank": int, "forbidden": list[int],
    "search": dict | str, "dynamic": list[str], "static": list[str],
    "row_steps": int, "new_steps": int, "window": int, "limit": int | None,
    "masks": bool, "backward": bool, "max_subtokens": int, "unwritten": list[int], "beams": int,
    "root": int, "epsilon": float, "roles": str, "verb": int, "rows": int, "longest": int,
    "antecedents": int, "link_margin": float, "singletons": bool, "genres": int,
}  # fmt: skip
# The least and the most of the numbers by which something is divided, allocated or repeated.
RANGES = {
    "stride": (1, 4096), "row_steps": (1, 2**24), "new_steps": (1, 2**24), "beams": (1, 4096),
    "max_subtokens": (3, 4096), "columns": (0, 4096), "rows": (0, 4096), "genres": (0, 2**20),
}  # fmt: skip
# Small files that a new training changes: golden answers have the scores of its weights.
SOURCE_FILES = ("model.json", "labels.json", "tokenizer.json", "golden.jsonl")


@dataclass(frozen=True)
class Reads:
    """The way from a text to the inputs of a graph."""

    input_kind: InputKind
    is_structured: bool = False
    is_bi_encoder: bool = False
    is_lm: bool = False
    is_mlm: bool = False
    features: int = 0  # width of input vectors
    frontend: dict[str, Any] | None = None  # how recordings or images become vectors
    frame: dict[str, Any] = field(default_factory=dict)
    spellings: tuple[dict[str, Any], ...] = ()  # of words, one for each embedder that spells them
    subwords: bool = False  # words come with sub-tokens, pooled as:
    subword_pooling: str = ""
    max_positions: int | None = None  # steps of a window of sub-tokens
    limit: int | None = None  # of the indexer: tokens, policy, and so on
    policy: Policy = "head"
    overlap: float = 0.0
    characters: int = 0
    full_sentences: bool = False
    extended_vocab_start: int = 0
    reads_ids: bool = True
    arity: int = 0  # most children of a node of a tree; 0: any number

    def traits(self) -> Traits:
        """Return the traits that engines ask for."""
        return Traits(
            self.input_kind, "", self.is_lm, self.is_mlm, self.is_structured, self.is_bi_encoder,
            features=self.features, frontend=_frontend(self.frontend),
            subwords=self.subwords, frame=self.special_tokens(),
        )  # fmt: skip

    def special_tokens(self) -> SpecialTokens:
        """Return what stands around a text."""
        ids = {name: tuple(self.frame[name]) for name in ("before", "after", "between")}
        return SpecialTokens(**ids, each=self.frame["each"])

    def indexer(
        self, tokenizer: Tokenizer, segmenter: WordSegmenter | None, marks: MarkWords | None
    ) -> Indexer:
        """Return what turns texts into rows."""
        return Indexer(
            tokenizer, [_spelling(one) for one in self.spellings], self.limit, self.policy,
            self.full_sentences, segmenter, self.extended_vocab_start, self.special_tokens(),
            self.subwords, self.overlap, self.reads_ids, self.characters, marks,
        )  # fmt: skip


def _frontend(saved: Mapping[str, Any] | None) -> Frontend | None:
    if saved is None:
        return None
    if "shape" in saved:
        return Patches(tuple(saved["shape"]), saved["size"])
    return LogMel(**saved)


def _spelling(saved: Mapping[str, Any]) -> SubtokenEncoder:
    if saved["kind"] == "bytes":
        return ByteSpelling(saved["max_bytes"])
    return NgramSpelling(saved["min_n"], saved["max_n"], saved["buckets"])


@dataclass(frozen=True)
class Source:
    """The model that an export was made from."""

    folder: str  # seen from the export; "" if it lies on another disk
    digest: str


@dataclass(frozen=True)
class ExportInfo:
    """The contents of export.json."""

    config: dict[str, Any]
    golden: int  # recorded answers
    parameters: int
    weights: Weights
    source: Source
    note: str = ""
    reads: Reads | None = None  # of a neural model
    gives: dict[str, Any] = field(default_factory=dict)
    graphs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write export.json."""
        saved: JsonObject = {"format": FORMAT, "weft": __version__, **asdict(self)}
        text = json.dumps(saved, indent=1, ensure_ascii=False) + "\n"
        write_text(folder / EXPORT_FILE, text, errors=ESCAPE_SURROGATES)


def is_export(folder: Path) -> bool:
    """Return True for the folder of an exported model."""
    return (folder / EXPORT_FILE).is_file()


def read_info(path: Path) -> ExportInfo:
    """Read and check export.json."""
    try:
        saved = jsonio.read(path)
    except UserError as error:
        raise UserError(f"{path}: damaged ({error}) Export the model again.") from None
    number = saved.get("format") if isinstance(saved, dict) else None
    if number != FORMAT:
        newer = isinstance(number, int) and number > FORMAT
        fix = "Upgrade Weft, or export the model again" if newer else "Export the model again"
        raise UserError(f"{path}: export format {number!r}, this Weft reads {FORMAT}. {fix}.")
    try:
        reads = saved.get("reads")
        given = {one.name: saved[one.name] for one in fields(ExportInfo)}
        given["source"] = _checked(Source, saved["source"])
        given["reads"] = None if reads is None else _checked(Reads, reads)
        info: ExportInfo = _checked(ExportInfo, given)
        for name, value in info.gives.items():
            _check_type(f"gives.{name}", value, GIVES[name])
            if name in RANGES:
                low, high = RANGES[name]
                if not low <= value <= high:
                    raise TypeError(f"gives.{name} should be {low:,} to {high:,}, found {value:,}")
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: damaged ({error!r}). Export the model again.") from None
    return info


def _checked(kind: Any, saved: Mapping[str, Any]) -> Any:
    """Return a dataclass of saved values, each of the type that it declares."""
    import typing

    hints = typing.get_type_hints(kind)
    values = dict(saved)
    for one in fields(kind):
        if one.name not in values:
            continue
        value, hint = values[one.name], hints[one.name]
        if isinstance(value, list):
            values[one.name] = value = tuple(value)
        whole = hint in (Source, Reads | None)
        table = typing.get_origin(hint) is dict and isinstance(value, Mapping)
        if not whole and not table:
            _check_type(one.name, value, hint)
    return kind(**values)


def _check_type(name: str, value: object, hint: Any) -> None:
    if not fits(value, hint):
        raise TypeError(f"{name} should be {describe_type(hint)}, found {value!r:.60}")


def digest_model(folder: Path) -> str:
    """Return a hash of what a new training or a change of settings would change in a model."""
    found = hashlib.sha256()
    for name in SOURCE_FILES:
        path = folder / name
        found.update(path.read_bytes() if path.is_file() else b"")
        found.update(b"\0")
    return found.hexdigest()


def check_source(folder: Path, source: Source) -> None:
    """Raise UserError if the model was trained again after it was exported."""
    model = folder / source.folder
    if not source.folder or not (model / "model.json").is_file():
        return
    if digest_model(model) != source.digest:
        raise UserError(
            f"{folder}: older than its model: {model} has changed since. Export it again, or load "
            "this one as it is with replay=False (--no-replay)."
        )
