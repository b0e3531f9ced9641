"""The built-in corpora keep what they promise, byte for byte."""

import hashlib
import subprocess
import sys
from collections import Counter

import pytest

from weft.errors import UserError
from weft.text.synthetic.corpora import corpus, python_docs
from weft.text.synthetic.reviews import bag_of_words_ceiling, find_twins, generate_reviews

DIGEST = "6ad28958b3dcd82f9694ac9a172249df311b53ae26f06244a62df6ce13ad4b37"


@pytest.fixture(scope="module")
def splits():
    return generate_reviews()


def test_the_bytes_never_change(splits):
    rows = [f"{s}\t{e.id}\t{e.label}\t{e.text}" for s, part in splits.items() for e in part]
    assert hashlib.sha256("\n".join(rows).encode()).hexdigest() == DIGEST


def test_sizes_and_balance(splits):
    assert {name: len(part) for name, part in splits.items()} == {
        "train": 4500,
        "dev": 750,
        "test": 1500,
    }
    for part in splits.values():
        counts = Counter(e.label for e in part)
        assert counts["positive"] == counts["negative"]


def test_no_sentence_comes_twice(splits):
    texts = [e.text for part in splits.values() for e in part]
    assert len(set(texts)) == len(texts)


def test_twins_are_the_same_words_with_opposite_labels(splits):
    for part in splits.values():
        pairs = find_twins(part)
        assert len(pairs) > 0.25 * len(part)  # so more than half of the sentences have a twin
        for good, bad in pairs:
            assert Counter(good.text.split()) == Counter(bad.text.split())
            assert good.text != bad.text
            assert (good.label, bad.label) == ("positive", "negative")


def test_no_bag_can_pass_the_ceiling(splits):
    for part in splits.values():
        assert bag_of_words_ceiling(part) < 0.75
        assert bag_of_words_ceiling(part) == pytest.approx(1 - len(find_twins(part)) / len(part))


def test_every_word_is_at_home_under_both_labels(splits):
    seen = {"positive": Counter(), "negative": Counter()}
    for example in splits["train"]:
        seen[example.label].update(set(example.text.split()))
    total = seen["positive"] + seen["negative"]
    shares = {w: seen["positive"][w] / n for w, n in total.items() if n >= 60}
    assert len(shares) > 150
    assert all(0.3 < share < 0.7 for share in shares.values()), shares
    assert sum(abs(share - 0.5) for share in shares.values()) / len(shares) < 0.06


def test_a_bag_of_words_stays_far_below(splits):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    from sklearn.linear_model import LogisticRegression

    vectors = text.TfidfVectorizer()
    x = vectors.fit_transform(e.text for e in splits["train"])
    model = LogisticRegression(C=10, max_iter=1000).fit(x, [e.label for e in splits["train"]])
    accuracy = model.score(
        vectors.transform(e.text for e in splits["test"]), [e.label for e in splits["test"]]
    )
    assert 0.60 < accuracy < 0.70


def test_other_seeds_and_sizes():
    other = generate_reviews(seed=7, size=113)
    assert sum(len(part) for part in other.values()) == 113
    assert {e.text for e in other["train"]} != {
        e.text for e in generate_reviews(seed=8, size=113)["train"]
    }


def test_python_docs_are_prose():
    paragraphs = python_docs()
    assert paragraphs == python_docs()
    assert 300_000 < sum(map(len, paragraphs)) < 1_000_000
    assert len(set(paragraphs)) == len(paragraphs)
    assert not any("\n" in p or ">>>" in p or "  " in p for p in paragraphs)


def test_by_name():
    assert corpus("reviews")["train"][0].id == "train-1"
    with pytest.raises(UserError, match=r"Unknown corpus 'review'. Did you mean 'reviews'"):
        corpus("review")


def test_making_them_needs_no_torch():
    code = (
        "import sys, weft.text.synthetic.corpora as corpora; "
        "print('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
