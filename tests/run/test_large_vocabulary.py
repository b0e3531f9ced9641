"""Ids above 32,767 and 65,535, where 16 bits end, from the tokenizer to the answer.

Every text is about words whose ids differ by a power of two only: with 16 bits they would be
the same word, and no model could tell them apart.
"""

import numpy as np
import pytest

import weft
from weft.batch import TokenStore
from weft.batch.lm_windows import TokenStream, TokenTypes
from weft.config import recipe
from weft.predict import load
from weft.run import Splits
from weft.text.example import Example
from weft.tokens.word import Word

SIZE = 70_000  # words of the vocabulary
EDGES = [1, 255, 256, 32_767, 32_768, 65_535, 65_536, SIZE]
COMMON = {"train.threads": 1, "train.patience": 0, "train.ema_decay": 0.0}


def word(i: int) -> str:
    return f"w{i:05d}"


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory):
    """A tokenizer in which `word(i)` has the id i + 2."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made = Word(min_count=1).train(word(i) for i in range(SIZE))
    made.save(path)
    assert made.vocabulary[2 + 66_000] == word(66_000)
    return path


@pytest.mark.parametrize("memory", [1, 10**6])
def test_stores_keep_large_ids(memory):
    store = TokenStore(subtokens=1, memory=memory, columns=2, trees=True)
    ids, table = np.array(EDGES), np.array([EDGES, EDGES[::-1]]).T
    store.append(ids, table, subtokens=[[[i, 1] for i in EDGES]], parents=ids - 2)
    store.close()
    batch = store.padded(np.array([0]))
    assert batch.data.tolist() == [EDGES]
    assert batch.subtokens[0].tolist() == [[[i, 1] for i in EDGES]]
    assert batch.parents.tolist() == [[i - 2 for i in EDGES]]
    assert store.targets[0].tolist() == table.tolist()
    assert store.targets.padded(np.array([0])).tolist() == [table.tolist()]


@pytest.mark.parametrize("memory", [1, 10**6])
def test_streams_keep_large_ids(memory):
    stream = TokenStream(SIZE, memory=memory)
    stream.append(np.array(EDGES))
    assert stream.close().read(0, len(EDGES)).tolist() == [SIZE, *EDGES]
    types = TokenTypes(lambda words: [[66_000, len(word)] for word in words])
    numbers = types.numbers(EDGES, [word(i) for i in EDGES])
    assert types.rows(numbers).tolist() == [[i, 66_000, 6] for i in EDGES]


def test_classifier_distinguishes_ids_beyond_16_bits(tmp_path, tokenizer_file):
    rows = [
        Example(word(low + offset), label, file="rows", line=1)
        for low in range(40)
        for offset, label in ((0, "low"), (32_768, "middle"), (65_536, "high"))
    ]
    splits = Splits(lambda: iter(rows), lambda: iter(rows), None)
    changes = {
        **COMMON, "train.epochs": 6, "train.batch_size": 20, "train.learning_rate": 0.1,
        "tokenizer.path": str(tokenizer_file), "embedder.width": 7,
    }  # fmt: skip
    config = recipe("bag").with_values(changes, "test")
    out = weft.train(config, tmp_path, splits=splits, quiet=True, device="cpu")
    assert out.figures["dev"]["accuracy"].value == 1.0
    again = load(tmp_path / "model", device="cpu")
    texts = [word(3), word(3 + 32_768), word(3 + 65_536)]
    assert [answer.value for answer in again(texts)] == ["low", "middle", "high"]


def test_a_language_model_writes_words_that_16_bits_cannot_count(tmp_path, tokenizer_file):
    path = tmp_path / "train.txt"
    line = " ".join(word(i) for i in (5, 5 + 65_536, 7 + 32_768, 9 + 65_536))
    path.write_text(f"{line}\n" * 40, "utf-8")
    changes = {
        **COMMON, "train.epochs": 12, "train.batch_size": 4, "train.learning_rate": 0.02,
        "tokenizer.path": str(tokenizer_file), "decoder.width": 11, "decoder.hidden": 13,
        "decoder.dropout": 0.0, "task.window": 10, "data.train": str(path), "data.dev": str(path),
    }  # fmt: skip
    config = recipe("nnlm").with_values(changes, "test")
    out = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    assert out.figures["dev"]["perplexity"].value < 1.5
    ((written,),) = weft.generate(out.predictor, word(5), method="greedy", max_length=3)
    assert written.text.split() == line.split()[1:]
