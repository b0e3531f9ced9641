"""Read the tokenizer of a checkpoint folder: tokenizer.json, or its vocabulary files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from weft import jsonio
from weft.convert.tensors import join_names
from weft.errors import UserError
from weft.tokens.safety import check_ids
from weft.tokens.tokenizer import Tokenizer, replace_surrogates
from weft.untrusted import has_surrogate

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RawTokenizer

    from weft.jsonio import Json, JsonObject

TOKENIZER_FILE = "tokenizer.json"
KINDS = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram", "WordLevel": "word"}
BERT = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
ROBERTA = {"unk": "<unk>", "cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>"}
END_OF_TEXT = "<|endoftext|>"
MAX_ROWS = 10**9  # of a table
MAX_UNUSED_FRACTION = 0.05  # of the table's rows may have no entry in the tokenizer


def read(folder: Path, family: str) -> Tokenizer:
    """Read the tokenizer of a folder."""
    if (folder / TOKENIZER_FILE).is_file():
        return Tokenizer.load(folder / TOKENIZER_FILE)
    declared = read_settings(folder)
    if (folder / "vocab.txt").is_file():
        raw = _wordpiece(folder / "vocab.txt", declared)
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        raw = _byte_level(folder, declared, framed=family == "roberta")
    else:
        raise UserError(
            f"{folder}: no tokenizer found: no {TOKENIZER_FILE}, no vocab.txt, no vocab.json with "
            "merges.txt. Copy the tokenizer of the checkpoint there."
        )
    declared_ids = _read_object(folder / "added_tokens.json")
    added = {token: number for token, number in declared_ids.items() if type(number) is int}
    if len(added) < len(declared_ids):
        raise UserError(f"{folder / 'added_tokens.json'}: expected tokens with their ids.")
    if broken := [token for token in added if has_surrogate(token)]:
        raise UserError(
            f"{folder / 'added_tokens.json'}: {broken[0][:60]!a} holds half of a surrogate pair. "
            "Remove that token."
        )
    for token, number in sorted(added.items(), key=lambda item: item[1]):
        if raw.token_to_id(token) is None:
            raw.add_tokens([token])
        if raw.token_to_id(token) != number:
            raise UserError(
                f"{folder / 'added_tokens.json'}: '{token:.60}' should have the id {number}, but "
                f"the next free one is {raw.token_to_id(token)}."
            )
    return Tokenizer(raw)


def kind_of(tokenizer: Tokenizer) -> str:
    """Return the kind of a tokenizer, as a [tokenizer] section names it."""
    return KINDS.get(json.loads(tokenizer.to_json())["model"].get("type", ""), "bpe")


def with_lowercase(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer with a lower-casing step in front."""
    settings = json.loads(tokenizer.to_json())
    normalizers = [{"type": "Lowercase"}, *filter(None, [settings.get("normalizer")])]
    settings["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    return Tokenizer.from_json(json.dumps(settings, ensure_ascii=False))


def read_settings(folder: Path) -> "JsonObject":
    """Read tokenizer_config.json and special_tokens_map.json."""
    special = _read_object(folder / "special_tokens_map.json")
    return {**special, **_read_object(folder / "tokenizer_config.json")}


def special_token(declared: Mapping[str, "Json"], name: str, usual: str) -> str:
    """Return the token for "cls", "sep" and so on: the declared one, or the usual one."""
    found = declared.get(f"{name}_token")
    found = found.get("content") if isinstance(found, Mapping) else found
    return replace_surrogates(str(found or usual))


def template_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids that its template adds before and after a text."""
    from tokenizers import Tokenizer as Raw

    raw = Raw.from_str(tokenizer.to_json())
    bare, whole = (raw.encode("a", add_special_tokens=more).ids for more in (False, True))
    starts = [i for i in range(len(whole)) if whole[i : i + len(bare)] == bare]
    if not starts:  # the template depends on the text
        return [], []
    return whole[: starts[0]], whole[starts[0] + len(bare) :]


def resize_vocab(tokenizer: Tokenizer, rows: int, folder: Path) -> tuple[Tokenizer, str]:
    """Return the tokenizer with an entry per row of the table, and a note if some were added."""
    size = len(tokenizer)
    if size == rows:
        return tokenizer, ""
    message = f"{folder}: the tokenizer has {size} entries, the embedding table {rows} rows"
    if size > rows:
        beyond = tokenizer.vocabulary[rows:]
        raise UserError(
            f"{message}: no vectors for {join_names(beyond)}. They are of different checkpoints."
        )
    if rows > MAX_ROWS or rows - size > MAX_UNUSED_FRACTION * rows:
        raise UserError(f"{message}. Copy the tokenizer of this checkpoint there.")
    spare = [f"[spare{i}]" for i in range(rows - size)]
    return tokenizer.with_words(spare), f"{rows - size} rows of the embedding table have no token"


def _read_object(path: Path) -> "JsonObject":
    """Read a JSON object; empty if there is no such file."""
    try:
        found = jsonio.read(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected an object, found {type(found).__name__}.")
    return found


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}).") from None


def _wordpiece(path: Path, declared: Mapping[str, "Json"]) -> "RawTokenizer":
    """Build BERT's tokenizer from a file with one entry per line."""
    from tokenizers import Tokenizer as Raw
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    # Not splitlines: entries may hold other line breaks.
    lines = _read_text(path).split("\n")
    entries = [line.rstrip("\r") for line in (lines if lines[-1] else lines[:-1])]
    known = {entry: i for i, entry in enumerate(entries)}
    names = {name: special_token(declared, name, usual) for name, usual in BERT.items()}
    if lost := [token for token in names.values() if token not in known]:
        raise UserError(f"{path}: no entry {join_names(lost)}, which the tokenizer needs. Add it.")
    raw = Raw(models.WordPiece(known, unk_token=names["unk"], max_input_chars_per_word=100))
    accents = declared.get("strip_accents")
    raw.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(declared.get("tokenize_chinese_chars", True)),
        strip_accents=accents if isinstance(accents, bool) else None,
        lowercase=bool(declared.get("do_lower_case", True)),
    )
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece(prefix="##")
    raw.add_special_tokens(list(names.values()))
    both = [(token, known[token]) for token in (names["sep"], names["cls"])]
    raw.post_processor = processors.BertProcessing(*both)
    return raw


def _byte_level(folder: Path, declared: Mapping[str, "Json"], framed: bool) -> "RawTokenizer":
    """Build the tokenizer of GPT-2 or RoBERTa from entries with ids, and merges in order."""
    from tokenizers import Tokenizer as Raw
    from tokenizers import decoders, models, pre_tokenizers, processors

    vocabulary = _read_object(folder / "vocab.json")
    check_ids(vocabulary.values(), len(vocabulary), str(folder / "vocab.json"))
    known = {entry: number for entry, number in vocabulary.items() if isinstance(number, int)}
    if len(known) < len(vocabulary):
        raise UserError(f"{folder / 'vocab.json'}: expected entries with their ids.")
    lines = _read_text(folder / "merges.txt").split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    if bad := [line for line in merges if line.count(" ") != 1]:
        raise UserError(f"{folder / 'merges.txt'}: '{bad[0]}' is not a pair of subwords.")
    pairs = [(left, right) for left, _, right in (line.partition(" ") for line in merges)]
    try:
        raw = Raw(models.BPE(known, pairs))
    except Exception as error:  # the library raises bare Exception
        raise UserError(f"{folder}: vocab.json and merges.txt do not fit: {error}.") from None
    spaced = bool(declared.get("add_prefix_space", False))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    raw.decoder = decoders.ByteLevel()
    if not framed:
        raw.post_processor = processors.ByteLevel(trim_offsets=False)
        raw.add_special_tokens([special_token(declared, "eos", END_OF_TEXT)])
        return raw
    names = {name: special_token(declared, name, usual) for name, usual in ROBERTA.items()}
    if lost := [token for token in names.values() if token not in known]:
        raise UserError(f"{folder / 'vocab.json'}: no entry {join_names(lost)}.")
    raw.add_special_tokens(list(names.values()))
    sep, cls = ((token, known[token]) for token in (names["sep"], names["cls"]))
    raw.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=spaced)
    return raw
