"""W13: shapes of e-mail addresses, URLs, phone numbers and numbers as features of the CRF."""

import numpy as np
import pytest

import weft
from weft.classic.crf.features import features
from weft.classic.crf.patterns import MAX_CHARACTERS, PATTERNS, recognise
from weft.config import recipe
from weft.explain.run import run_explain
from weft.predict import load
from weft.text.example import Example

KINDS = {
    "email": ("ana.berg@example.org", "x+y@mail.example.co.uk", "A_1%@b-c.de"),
    "url": (
        *("http://example.org/a?b=c", "https://x.y", "www.weft.dev", "example.com", "FTP://a/b"),
        *("news.example.co.uk/today", "example.org:80"),
    ),
    "phone": (
        *("713-853-1234", "+442079460958", "(713)853-1234", "+1-713-853-1234", "555-1234"),
        *("713.853.1234", "001/713/8531234"),
    ),
    "date": ("2001-10-31", "31.10.2001", "10/31/01"),
    "time": ("12:30", "9:05:59", "7:00pm", "7:00P.M."),
    "percent": ("12%", "-3.5%"),
    "money": ("$100", "€1,000.50", "$3.5m", "20€"),
    "ordinal": ("1st", "22nd", "113th"),
    "number": ("7", "-7", "1,234.5", "3.14", ".5", "2026", "7138531234"),
    "": (
        *("", "word", "x@y", "@user", "#tag", "U.S.", "A-1", "1990s", "...", "-", "+", "3-1"),
        *("example.org.", "12:3", "mp3", "a.b", "B2B", "1-2-3", "("),
    ),
}


@pytest.mark.parametrize(
    ("kind", "word"), [(kind, w) for kind, all_ in KINDS.items() for w in all_]
)
def test_words_are_recognised_by_their_shape(kind, word):
    assert recognise(word) == kind


def test_every_pattern_has_an_example():
    assert set(PATTERNS) == set(KINDS) - {""}


def test_long_words_take_no_time():
    assert recognise("1-" * MAX_CHARACTERS) == ""
    for word in ("a." * 149 + "x", "1-" * 149, "a@" + "b." * 148, "(1)" * 99):
        assert recognise(word) in ("", "url")


def test_kind_is_a_feature_of_the_word_and_of_its_neighbours():
    sentence = [(word,) for word in ("mail", "ana@example.org", "or", "call", "555-1234", "now")]
    found = [[f for f in own if f.startswith("pattern")] for own in features(sentence, True)]
    assert found == [
        ["pattern[1]=email"],
        ["pattern[0]=email"],
        ["pattern[-1]=email", "pattern[2]=phone"],
        ["pattern[-2]=email", "pattern[1]=phone"],
        ["pattern[0]=phone"],
        ["pattern[-1]=phone"],
    ]
    plain = features(sentence)
    assert plain == [[f for f in own if f[:7] != "pattern"] for own in features(sentence, True)]


def conll(path, sentences):
    lines = ("".join(f"{w}\t{t}\n" for w, t in sentence) + "\n" for sentence in sentences)
    path.write_text("".join(lines), "utf-8")
    return str(path)


def test_crf_learns_the_kind_of_a_word_it_has_never_met(tmp_path):
    pytest.importorskip("pycrfsuite")
    names = ("ana", "Bo7", "c.d", "e-f", "G", "hi99", "j_k", "L.m.n")
    train = [
        [("Write", "VERB"), ("to", "ADP"), (f"{name}@{name}.example", "X"), (".", "PUNCT")]
        for name in names
    ] + [
        [("Call", "VERB"), (number, "NUM"), ("now", "ADV"), (".", "PUNCT")]
        for number in ("555-1234", "713-853-1234", "+15551234567", "(713)853-1234")
    ]
    config = recipe("crf").with_values(
        {"data.train": conll(tmp_path / "train.conll", train), "classic.patterns": True}, "test"
    )
    weft.train(config, tmp_path / "run", quiet=True)
    model = load(tmp_path / "run")
    chain = model.engine.part.chains[0]
    assert "pattern[0]=email" in chain.features
    assert model.engine.part.patterns
    weights = dict(
        zip(chain.labels, chain.table[chain.features["pattern[0]=email"]].toarray()[0], strict=True)
    )
    assert max(weights, key=weights.get) == "X"
    example = Example(
        "Mail x.y@z.example .",
        words=("Mail", "x.y@z.example", "."),
        places=((0, 4), (5, 18), (19, 20)),
    )
    found = run_explain(model, [example], word="2")
    (explanation,) = next(iter(found.explanations.values()))
    shown = dict(explanation.at.features)
    own = chain.table[chain.features["pattern[0]=email"]].toarray()[0]
    target = chain.labels.index(explanation.target)
    others = [weight for i, weight in enumerate(own) if i != target]
    assert shown["pattern[0]=email"] == pytest.approx(own[target] - np.mean(others), abs=1e-5)
    strengths = [abs(weight) for weight in shown.values()]
    assert strengths == sorted(strengths, reverse=True)
    assert ["pattern[0]=email", shown["pattern[0]=email"]] in explanation.at.to_json()["features"]
