"""Tokens kept in shards: the same as tokenised anew, made once, shared out between processes."""

import gzip

import numpy as np
import pytest

import weft
from tests.fixtures.language_files import corpus
from tests.fixtures.weights import digest
from weft.batch import token_cache
from weft.batch.token_cache import TokenCache
from weft.config import recipe
from weft.errors import UserError
from weft.runtime import World
from weft.text.example import Example

EXAMPLES = [
    Example(f"text {i} {'x ' * (i % 5)}", file="ab"[i // 20 % 2], line=i) for i in range(50)
]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(token_cache, "SHARD_TEXTS", 7)
    monkeypatch.setattr(token_cache, "CHUNK_TEXTS", 3)


class Counting:
    """Encodes letters, and counts the texts."""

    def __init__(self) -> None:
        self.texts = 0

    def __call__(self, texts):
        self.texts += len(texts)
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]


def read_all(shards):
    out = []
    for shard in shards:
        ids, ends = shard.read()
        out += [
            (bytes(row.astype(np.uint8)).decode(), shard.where(i))
            for i, row in enumerate(np.split(ids, ends[:-1]))
        ]
    return out


def unknown_notes(run):
    said = (run / "log.txt").read_text("utf-8").splitlines()
    return [line for line in said if "of unknown words only" in line]


def test_every_text_is_tokenised_once(tmp_path):
    encode = Counting()
    expected = [(e.text, e.where) for e in EXAMPLES]
    for _ in range(2):
        shards = TokenCache(tmp_path, "one", encode, World()).build(EXAMPLES)
        assert read_all(shards) == expected
        assert encode.texts == len(EXAMPLES)
    assert len(shards) == 8
    longer = [*EXAMPLES, Example("more")]  # only the last shard is another one
    TokenCache(tmp_path, "one", encode, World()).build(longer)
    assert encode.texts == len(EXAMPLES) + 2
    TokenCache(tmp_path, "other", encode, World()).build(EXAMPLES)
    assert encode.texts == 2 * len(EXAMPLES) + 2


def test_shards_are_cut_by_characters_too(tmp_path, monkeypatch):
    monkeypatch.setattr(token_cache, "SHARD_CHARACTERS", 20)
    shards = TokenCache(tmp_path, "one", Counting(), World()).build(EXAMPLES)
    assert max(len(shard.lines) for shard in shards) <= 3
    assert [where for _, where in read_all(shards)] == [e.where for e in EXAMPLES]


def test_processes_share_the_shards_out(tmp_path, monkeypatch):
    monkeypatch.setattr(World, "wait", lambda self: None)
    ranks = [TokenCache(tmp_path, "one", Counting(), World(rank, 3)) for rank in range(3)]
    found = [rank.build(EXAMPLES) for rank in ranks]
    assert [rank.made for rank in ranks] == [3, 3, 2]
    assert read_all(found[2]) == [(e.text, e.where) for e in EXAMPLES]


def test_damaged_or_missing_shard_is_named(tmp_path):
    (shard, *_) = TokenCache(tmp_path, "one", Counting(), World()).build(EXAMPLES)
    shard.path.write_bytes(shard.path.read_bytes()[:40])
    with pytest.raises(UserError, match=r"\.safetensors: damaged .* Delete it"):
        shard.read()
    shard.path.unlink()
    with pytest.raises(UserError, match="one that all processes see"):
        shard.read()


@pytest.mark.parametrize("lines", [True, False], ids=["lines", "running"])
def test_a_run_with_kept_tokens_is_the_same_run(tmp_path, monkeypatch, lines):
    rows = corpus(tmp_path).read_text("utf-8").splitlines()
    rows[30] = "unseen"
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    changes = {"task.lines": lines, "train.epochs": 1, "tokenizer.min_count": 2}
    values = {
        "data.train": str(tmp_path / "train.txt.gz"), "decoder.width": 11, "decoder.hidden": 13,
        "tokenizer": {"kind": "word"}, "train.batch_size": 4, "train.threads": 1, **changes,
    }  # fmt: skip
    config = recipe("lstm-lm").with_values(values, "test")
    weft.train(config, tmp_path / "plain", quiet=True, device="cpu")
    kept = config.with_values({"data.token_cache": str(tmp_path / "kept")}, "test")
    encoded = []
    usual = TokenCache._write
    monkeypatch.setattr(TokenCache, "_write", lambda *args: encoded.append(args[1]) or usual(*args))
    notes = unknown_notes(tmp_path / "plain")
    assert [note.endswith("train.txt.gz:31") for note in notes] == [True]
    for name in ("first", "second"):
        weft.train(kept, tmp_path / name, quiet=True, device="cpu")
        assert unknown_notes(tmp_path / name) == notes
        assert digest(tmp_path / name) == digest(tmp_path / "plain")
        assert (tmp_path / name / "model" / "weights.safetensors").read_bytes() == (
            tmp_path / "plain" / "model" / "weights.safetensors"
        ).read_bytes()
    shards = list((tmp_path / "kept").iterdir())
    assert len(encoded) == len(shards) > 10
    assert f"{len(shards)} shards in" in (tmp_path / "second" / "log.txt").read_text("utf-8")
