"""Drift: the tests against scipy, its false alarms, its power, and its file."""

import json
import math
import random
import zlib
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from tests.fixtures.command import command
from weft import config, load, train
from weft.doctor.drift import (
    BUCKETS,
    FINGERPRINT_FILE,
    Reservoir,
    bucket,
    compare,
    load_fingerprint,
    take_fingerprint,
)
from weft.errors import UserError
from weft.text.synthetic.corpora import generate_reviews
from weft.text.write import write

LABELS = ("negative", "positive")


def answered(examples, label=None):
    """Examples as if a perfect model had answered them."""
    return [(e.text, 1.0, label or e.label, 0.9) for e in examples]


@pytest.fixture(scope="module")
def reviews():
    parts = generate_reviews()
    return [example for part in ("train", "dev", "test") for example in parts[part]]


@pytest.fixture(scope="module")
def fingerprint(reviews):
    texts = [example.text for example in reviews[:1000]]
    return take_fingerprint(texts, answered(reviews[1000:1300]), LABELS)


def measure(fingerprint, rows):
    return [fingerprint.measure(*row, LABELS) for row in rows]


def test_surprise_is_the_mean_information_of_the_words(fingerprint, reviews):
    counts = Counter(
        bucket(word) for e in reviews[:1000] for word in e.text.lower().replace("'", " ").split()
        if word.isalnum()
    )  # fmt: skip
    text = "the film zzyzx"
    total = sum(counts.values()) + BUCKETS
    bits = [math.log2(total / (counts[bucket(word)] + 1)) for word in text.split()]
    assert fingerprint.surprise(text) == pytest.approx(np.mean(bits), rel=0.01)
    assert fingerprint.unfamiliar(text) == ["zzyzx"]
    assert fingerprint.surprise("...") == 0.0
    assert bucket("film") == zlib.crc32(b"film") % 4096  # the file depends on it


def test_the_same_kind_of_texts_seldom_drifts(fingerprint, reviews):
    draw = random.Random(5)
    rest = answered(reviews[1300:])
    ps = [compare(fingerprint, measure(fingerprint, draw.sample(rest, 60))).p for _ in range(60)]
    assert sum(p < 0.05 for p in ps) <= 6


@pytest.mark.parametrize(
    ("change", "trait"),
    [
        (lambda e: (f"{e.text} {e.text} {e.text}", 1.0, e.label, 0.9), "length"),
        (lambda e: (e.text.replace("e", "xq"), 1.0, e.label, 0.9), "surprise"),
        (lambda e: (e.text, 0.7, e.label, 0.9), "coverage"),
        (lambda e: (e.text, 1.0, e.label, 0.6), "confidence"),
        (lambda e: (e.text, 1.0, "positive", 0.9), "label"),
    ],
    ids=["length", "surprise", "coverage", "confidence", "label"],
)
def test_each_kind_of_change_is_found(fingerprint, reviews, change, trait):
    rows = [change(example) for example in reviews[1300:1400]]
    found = compare(fingerprint, measure(fingerprint, rows))
    assert found.p < 1e-6
    assert min(found.traits, key=lambda one: one.p).name == trait


def test_tests_are_those_of_scipy(fingerprint, reviews):
    rows = answered(reviews[1300:1380], "positive") + answered(reviews[1400:1420], "negative")
    measured = measure(fingerprint, rows)
    found = {one.name: one for one in compare(fingerprint, measured).traits}
    surprise = [one.values["surprise"] for one in measured]
    expected = stats.ks_2samp(fingerprint.traits["surprise"], surprise)
    assert (found["surprise"].distance, found["surprise"].p) == pytest.approx(tuple(expected[:2]))
    usual = [fingerprint.labels[name] for name in LABELS]
    table = [usual, [20, 80]]
    assert found["label"].p == pytest.approx(stats.chi2_contingency(table)[1])
    assert found["label"].distance == pytest.approx(abs(0.8 - usual[1] / sum(usual)))
    smallest = min(one.p for one in found.values())
    assert compare(fingerprint, measured).p == pytest.approx(min(1, smallest * len(found)))


def test_few_texts_are_not_tested(fingerprint, reviews):
    found = compare(fingerprint, measure(fingerprint, answered(reviews[:19])))
    assert (found.traits, found.p) == ((), 1.0)


def test_a_sample_is_uniform_and_repeatable():
    def sample():
        reservoir = Reservoir(100)
        for i in range(1000):
            reservoir.add(i)
        return reservoir.items

    assert sample() == sample()
    assert len(set(sample())) == 100
    assert 400 < np.mean(sample()) < 600


def test_a_fingerprint_is_read_as_it_was_written(fingerprint, tmp_path):
    fingerprint.save(tmp_path)
    loaded = load_fingerprint(tmp_path)
    np.testing.assert_array_equal(loaded.counts, fingerprint.counts)
    assert loaded.labels == fingerprint.labels
    for name, values in fingerprint.traits.items():
        np.testing.assert_allclose(loaded.traits[name], values, rtol=1e-5)
    assert (tmp_path / FINGERPRINT_FILE).stat().st_size < 40_000
    assert load_fingerprint(tmp_path / "none") is None


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"words": "!!"}, {"words": ""}, {"traits": {"length": ["a"]}},
        {"traits": []},
        {"traits": {"length": [[1.0]]}}, {"labels": {"a": "b"}}, {"labels": {"a": -1}},
        {"traits": {"length": [1e999]}},
    ],
    ids=range(9),
)  # fmt: skip
def test_a_damaged_fingerprint_is_an_error(fingerprint, tmp_path, change):
    fingerprint.save(tmp_path)
    path = tmp_path / FINGERPRINT_FILE
    saved = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**saved, **change}), "utf-8")
    with pytest.raises(UserError, match=r"fingerprint\.json: damaged"):
        load_fingerprint(tmp_path)


def test_the_verb(reviews, tmp_path):
    parts = {"train": reviews[:800], "dev": reviews[800:1000], "same": reviews[1100:1250]}
    files = {name: str(tmp_path / f"{name}.tsv") for name in parts}
    for name, examples in parts.items():
        write(examples, files[name])
    values = {"data.train": files["train"], "data.dev": files["dev"]}
    train(config.recipe("tfidf").with_values(values, "test"), tmp_path / "run", quiet=True)
    same = files["same"]
    done = command("drift", tmp_path / "run", same)
    assert done.status == 0, done.err
    assert done.lines[0].startswith("no drift: p = ")
    other = tmp_path / "other.txt"
    other.write_text("".join(f"quarterly revenue of unit {i} fell sharply\n" for i in range(30)))
    done = command("drift", tmp_path / "run", other, "--json", "--examples", "2")
    row = json.loads(done.out)
    assert row["drift"]
    assert row["p"] < 1e-6
    assert row["texts"] == 30
    assert len(row["examples"]) == 2
    assert "revenue" in row["examples"][0]["unfamiliar"]
    # A model without a fingerprint still loads.
    (tmp_path / "run" / "model" / FINGERPRINT_FILE).unlink()
    load(tmp_path / "run")
    done = command("drift", tmp_path / "run", same)
    assert done.status == 2
    assert "no fingerprint" in done.err
