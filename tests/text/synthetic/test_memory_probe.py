"""The corpus of long memory: the label is the first word and nothing else tells it."""

import hashlib
from collections import Counter

import pytest

from weft.errors import UserError
from weft.text.read import read
from weft.text.synthetic.corpora import corpus
from weft.text.synthetic.memory_probe import (
    CUE,
    MAX_EXTRA_STEPS,
    generate_recall,
    generate_recall_text,
    write_recall,
)

DIGEST = "f7a9d01455d2cf7dfc9916827084a5784bebd1a4b9db702f73b1025f5b2e420e"


def test_the_bytes_never_change():
    rows = [
        f"{s}\t{e.id}\t{e.label}\t{e.text}" for s, part in generate_recall().items() for e in part
    ]
    assert hashlib.sha256("\n".join(rows).encode()).hexdigest() == DIGEST


def test_the_label_is_the_first_word_and_lies_far_back():
    splits = corpus("recall")
    assert {name: len(part) for name, part in splits.items()} == {
        "train": 1000,
        "dev": 166,
        "test": 334,
    }
    lengths = set()
    for part in splits.values():
        counts = Counter(e.label for e in part)
        assert len(counts) == 4
        assert max(counts.values()) - min(counts.values()) <= 1
        for example in part:
            first, *filler = example.text.split()
            assert first == example.label
            assert first not in filler
            lengths.add(len(filler))
    assert lengths == set(range(60, 60 + MAX_EXTRA_STEPS))


def test_filler_says_nothing_about_the_label():
    seen = {}
    for example in generate_recall(size=3000)["train"]:
        seen.setdefault(example.label, Counter()).update(example.text.split()[1:])
    shares = [{w: n / c.total() for w, n in c.items()} for c in seen.values()]
    for word in shares[0]:
        values = [share[word] for share in shares]
        assert max(values) - min(values) < 0.01


def test_texts_are_all_different():
    texts = [e.text for part in generate_recall().values() for e in part]
    assert len(set(texts)) == len(texts)
    assert generate_recall(seed=1)["train"][0].text != generate_recall(seed=2)["train"][0].text


def test_out_of_range_arguments_raise_user_error():
    with pytest.raises(UserError, match="'symbols' must be from 2 to 8, got 9"):
        generate_recall(symbols=9)
    with pytest.raises(UserError, match="'steps' must be 0 or more, got -1"):
        generate_recall(steps=-1)


def test_a_sentence_ends_with_its_first_word_at_the_distance():
    splits = generate_recall_text(steps=13)
    assert {name: len(part) for name, part in splits.items()} == {
        "train": 1000,
        "dev": 166,
        "test": 334,
    }
    symbols = Counter()
    for example in splits["train"]:
        first, *between, cue, last = example.text.split()
        assert (first, cue, len(between)) == (last, CUE, 11)
        assert first not in between
        symbols[first] += 1
    assert len(symbols) == 4
    assert min(symbols.values()) > 200  # of 1000, in random order
    with pytest.raises(UserError, match="'steps' must be 2 or more, got 1"):
        generate_recall_text(steps=1)


def test_both_probes_are_written_as_files_that_are_read_back(tmp_path):
    paths = write_recall(tmp_path, steps=7)
    names = [f"{split}{end}" for end in (".tsv", ".txt") for split in ("train", "dev", "test")]
    assert [path.name for path in paths] == names
    assert (tmp_path / "dev.txt").read_text().splitlines() == [
        example.text for example in generate_recall_text(steps=7)["dev"]
    ]
    assert [e.label for e in read(tmp_path / "dev.tsv")] == [
        example.label for example in generate_recall(steps=7)["dev"]
    ]
