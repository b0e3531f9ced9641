"""The tokenizer of a checkpoint folder: its tokenizer.json, or built from vocabulary files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft import jsonio
from weft.convert.tensors import join_names
from weft.errors import UserError
from weft.tokens.safety import check_ids
from weft.tokens.tokenizer import Tokenizer, replace_surrogates
from weft.untrusted import has_surrogate

TOKENIZER_FILE = "tokenizer.json"
KINDS = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram", "WordLevel": "word"}
BERT = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
ROBERTA = {"unk": "<unk>", "cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>"}
END_OF_TEXT = "<|endoftext|>"
MAX_ROWS = 10**9  # of a table
MAX_UNUSED_FRACTION = 0.05  # share of a table's rows that the tokenizer may leave without an entry


def read(folder: Path, family: str) -> Tokenizer:
    """The tokenizer of a folder."""
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
    added = _read_object(folder / "added_tokens.json")
    if not all(type(number) is int for number in added.values()):
        raise UserError(f"{folder / 'added_tokens.json'}: expected tokens with their ids.")
    if broken := [token for token in added if has_surrogate(token)]:
        raise UserError(
            f"{folder / 'added_tokens.json'}: {broken[0][:60]!a} holds half of a surrogate "
            "pair, which no token can."
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
    """What kind of tokenizer it is, as a configuration calls it."""
    return KINDS.get(json.loads(tokenizer.to_json())["model"].get("type", ""), "bpe")


def with_lowercase(tokenizer: Tokenizer) -> Tokenizer:
    """The same after everything was made lower case."""
    made = json.loads(tokenizer.to_json())
    before = [{"type": "Lowercase"}, *filter(None, [made.get("normalizer")])]
    made["normalizer"] = {"type": "Sequence", "normalizers": before}
    return Tokenizer.from_json(json.dumps(made, ensure_ascii=False))


def read_settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json and special_tokens_map.json say."""
    special = _read_object(folder / "special_tokens_map.json")
    return {**special, **_read_object(folder / "tokenizer_config.json")}


def special_token(declared: Mapping[str, Any], name: str, usual: str) -> str:
    """The token that stands for "cls", "sep" and so on: as the folder says, or as is usual."""
    found = declared.get(f"{name}_token")
    found = found.get("content") if isinstance(found, Mapping) else found
    return replace_surrogates(str(found or usual))


def template_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that it would put before and behind a text, if it were asked to."""
    from tokenizers import Tokenizer as Raw

    raw = Raw.from_str(tokenizer.to_json())
    bare, whole = (raw.encode("a", add_special_tokens=more).ids for more in (False, True))
    places = [i for i in range(len(whole)) if whole[i : i + len(bare)] == bare]
    if not places:  # what it puts there depends on the text
        return [], []
    return whole[: places[0]], whole[places[0] + len(bare) :]


def resize_vocab(tokenizer: Tokenizer, rows: int, folder: Path) -> tuple[Tokenizer, str]:
    """The tokenizer with an entry for every row of the table, and a note where some were added."""
    size = len(tokenizer)
    if size == rows:
        return tokenizer, ""
    message = f"{folder}: the tokenizer has {size} entries, the table of words {rows} rows"
    if size > rows:
        beyond = tokenizer.vocabulary[rows:]
        raise UserError(
            f"{message}: no vectors for {join_names(beyond)}. They are not of one checkpoint."
        )
    if rows > MAX_ROWS or rows - size > MAX_UNUSED_FRACTION * rows:
        raise UserError(f"{message}. They are not of one checkpoint: copy its own tokenizer there.")
    spare = [f"[spare{i}]" for i in range(rows - size)]
    return tokenizer.with_words(spare), f"{rows - size} rows of the table belong to no token"


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no such file."""
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


def _wordpiece(path: Path, declared: Mapping[str, Any]) -> Any:
    """BERT's tokenizer, from one entry a line."""
    from tokenizers import Tokenizer as Raw
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    # Not splitlines: entries may hold other line breaks.
    lines = _read_text(path).split("\n")
    entries = [line.rstrip("\r") for line in (lines if lines[-1] else lines[:-1])]
    known = {entry: i for i, entry in enumerate(entries)}
    names = {name: special_token(declared, name, usual) for name, usual in BERT.items()}
    if lost := [token for token in names.values() if token not in known]:
        raise UserError(
            f"{path}: no entry {join_names(lost)}, which the tokenizer cannot do without."
        )
    raw = Raw(models.WordPiece(known, unk_token=names["unk"], max_input_chars_per_word=100))
    raw.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(declared.get("tokenize_chinese_chars", True)),
        strip_accents=declared.get("strip_accents"),
        lowercase=bool(declared.get("do_lower_case", True)),
    )
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece(prefix="##")
    raw.add_special_tokens(list(names.values()))
    both = [(token, known[token]) for token in (names["sep"], names["cls"])]
    raw.post_processor = processors.BertProcessing(*both)
    return raw


def _byte_level(folder: Path, declared: Mapping[str, Any], framed: bool) -> Any:
    """The tokenizer of GPT-2 and RoBERTa, from entries with their ids and the merges in order."""
    from tokenizers import Tokenizer as Raw
    from tokenizers import decoders, models, pre_tokenizers, processors

    known = _read_object(folder / "vocab.json")
    check_ids(known.values(), len(known), str(folder / "vocab.json"))
    lines = _read_text(folder / "merges.txt").split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    if bad := [pair for pair in pairs if len(pair) != 2]:
        raise UserError(f"{folder / 'merges.txt'}: '{' '.join(bad[0])}' is no pair of pieces.")
    try:
        raw = Raw(models.BPE(known, pairs))  # type: ignore[arg-type]
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
