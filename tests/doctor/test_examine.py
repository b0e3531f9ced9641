"""The whole examination, on texts with one planted fault a test."""

from dataclasses import asdict, replace

import pytest

from tests.fixtures.examinations import found, kinds
from tests.fixtures.near_duplicates import sentences
from weft.doctor import Diagnosis, examine
from weft.errors import MissingLibrary
from weft.text.example import Example, SkipCounter


def rows(count: int = 61, seed: int = 0, file: str = "train.csv") -> list[Example]:
    labels = ("a class", "another", "third")
    return [
        Example(text, labels[i % 3], file=file, line=i + 1)
        for i, text in enumerate(sentences(count, seed))
    ]


def look(train: list[Example], test: list[Example] | None = None, **options) -> Diagnosis:
    sources = {"train": train.__iter__}
    if test is not None:
        sources["test"] = test.__iter__
    return examine(sources, **options)


def with_row(place: int, **changes) -> list[Example]:
    out = rows()
    out[place] = Example(**{**asdict(out[place]), **changes})
    return out


def test_sound_data_gives_no_finding():
    diagnosis = look(rows(), rows(31, 1, "test.csv"))
    assert diagnosis.findings == ()
    assert diagnosis.worst is None
    assert diagnosis.rows == {"train": 61, "test": 31}
    assert diagnosis.labels["a class"] == {"train": 21, "test": 11}
    assert diagnosis.lengths["train"] == {
        **{"median": 8, "p95": 8, "p99": 8, "max": 8},
        "beyond": 0.0,
    }
    assert diagnosis.scripts == {"Latin": 92}
    edges, counts = diagnosis.histogram.edges, diagnosis.histogram.counts["train"]
    assert sum(counts) == counts[edges.index(8)] == 61


def test_exact_and_near_leaks_are_distinguished():
    train, test = rows(), rows(31, 1, "test.csv")
    test[3] = Example(f"  {train[7].text.upper()} ", "a class", file="test.csv", line=4)
    test[5] = Example(train[9].text.replace("what is", "what was"), "a class", "", "test.csv", 6)
    diagnosis = look(train, test)
    exact, near = found(diagnosis, "leak"), found(diagnosis, "near leak")
    assert (exact.level, near.level) == ("error", "warning")
    assert exact.title == "1 text of test (3.2 %) is also in train."
    assert near.title == "1 text of test (3.2 %) has a near duplicate in train."
    assert exact.places[0].where == "test.csv:4"
    assert exact.places[0].detail.startswith("train.csv:8: ")
    assert near.places[0].where == "test.csv:6"
    assert near.places[0].detail == f"train.csv:10: {train[9].text}"
    assert diagnosis.findings[0] is exact  # the worst first
    assert "near leak" not in kinds(look(train, test, near=False))


def test_dev_is_compared_with_both():
    train, dev, test = rows(), rows(31, 1), rows(31, 2)
    dev[0], test[0] = train[0], dev[1]
    sources = {"train": train.__iter__, "dev": dev.__iter__, "test": test.__iter__}
    titles = [f.title for f in examine(sources).findings if f.kind == "leak"]
    assert titles == [
        "1 text of dev (3.2 %) is also in train.",
        "1 text of test (3.2 %) is also in dev.",
    ]


def test_repeats_say_how_many_are_identical():
    train = rows()
    train[5] = train[2]
    train[8] = Example(train[2].text.title(), train[2].label, file="train.csv", line=9)
    told = found(look(train), "duplicate")
    assert told.title == (
        "2 rows of train repeat an earlier text "
        "(1 exactly, the rest up to case, spaces or Unicode form)."
    )
    assert [place.where for place in told.places] == ["train.csv:3", "train.csv:9"]


def test_conflicting_labels_are_found_across_splits():
    train, test = rows(), rows(31, 1, "test.csv")
    test[2] = Example(train[0].text, "another", file="test.csv", line=3)
    told = found(look(train, test), "conflict")
    assert told.title == "1 text has more than one label."
    assert told.places[0].detail == "a class / another · test.csv:3"


@pytest.mark.parametrize(
    ("kind", "text", "title"),
    [
        ("empty", " ", "1 text of train is empty."),
        ("control", "bell\x07 rings", "1 text of train has control characters."),
        ("script", "Привет мир", "1 text has mostly Cyrillic letters, not Latin."),
        ("script", "12 : 30", "1 text has no letters."),
        ("short", "alone", "1 text of train has a single word; the median is 8."),
        ("long", "many words in here " * 5, "1 text of train (1.6 %) has more than 17 words."),
        (
            "outlier",
            "many words " * 101,
            "1 text of train is over 10 times as long as 95 % of the rest (up to 202 words).",
        ),
    ],
)
def test_odd_texts(kind, text, title):
    told = found(look(with_row(13, text=text), max_words=17), kind)
    assert told.title == title
    assert told.places[0].where == "train.csv:14"


def test_an_exact_copy_is_no_near_copy_of_another():
    train, test = rows(), rows(31, 1, "test.csv")
    train[9] = Example(train[7].text.replace("what is", "what was"), "a class", "", "train.csv", 10)
    test[3] = train[7]
    diagnosis = look(train, test)
    assert {"leak", "near duplicate"} <= kinds(diagnosis)
    assert "near leak" not in kinds(diagnosis)


def test_two_languages_are_a_mixture():
    train = rows()
    for place in range(0, 61, 2):
        train[place] = Example(f"Привет мир номер {place * 7919}", "a class", "", "train.csv", 1)
    titles = [f.title for f in look(train, near=False).findings if f.kind == "script"]
    assert titles == ["2 scripts are mixed: Cyrillic 31, Latin 30."]


def test_mojibake_says_what_it_was():
    told = found(look(with_row(13, text="the cafÃ© is here")), "mojibake")
    assert told.places[0].detail == "probably: the café is here"


def test_labels_that_need_a_look():
    train, test = rows(), rows(31, 1, "test.csv")
    for place, label in enumerate(("anohter", "single", "few", "few", None)):
        train[20 + place] = Example(train[20 + place].text, label, "", "train.csv", 21 + place)
    test[4] = Example(test[4].text, "unheard", file="test.csv", line=5)
    diagnosis = look(train, test)
    assert found(diagnosis, "label typo").title == (
        "1 label looks like a misspelling of another one: 'anohter' for 'another'."
    )
    assert found(diagnosis, "label typo").places[0].where == "train.csv:21"
    rare = [f.title for f in diagnosis.findings if f.kind == "rare label"]
    assert rare == [
        "1 label of train has a single example: 'single'.",
        "1 label of train has fewer than 5 examples: 'few'.",
    ]
    unseen = found(diagnosis, "unseen label")
    assert unseen.title == "1 label of test never occurs in train (1 row): 'unheard'."
    assert unseen.level == "error"
    assert found(diagnosis, "unlabelled").title == "1 row of train has no label."
    assert found(diagnosis, "label not tested").title == (
        "2 labels of train have no example in test: 'single', 'few'."
    )


def test_one_class_and_a_giant_one():
    alone = [Example(e.text, "same", "", e.file, e.line) for e in rows()]
    assert "nothing to learn" in found(look(alone), "one label").title
    giant = [*alone[:-5], *(Example(e.text, "other") for e in alone[-5:])]
    told = found(look(giant), "uneven labels")
    assert told.title == "92 % of train is 'same' (56 rows), 'other' has 5."


def test_numbers_on_a_scale_are_no_classes():
    scored = [Example(e.text, f"{i / 7:.3f}", "", e.file, e.line) for i, e in enumerate(rows())]
    assert look(scored).findings == ()
    stars = [Example(e.text, str(i % 5 + 1), "", e.file, e.line) for i, e in enumerate(rows())]
    assert look(stars).findings == ()


def test_a_word_among_the_numbers_of_a_scale():
    scored = [Example(e.text, f"{i / 7:.3f}", "", e.file, e.line) for i, e in enumerate(rows())]
    holes = [replace(e, label="n/a") if i in (11, 13) else e for i, e in enumerate(scored)]
    (told,) = look(holes).findings
    assert (told.kind, told.level, told.count) == ("no number", "error", 2)
    assert told.title == "2 labels of train are not numbers: 'n/a'."
    assert [place.where for place in told.places] == [scored[11].where, scored[13].where]


def test_several_labels_a_text():
    many = [Example(e.text, ("x", "y") if i % 2 else ("x",)) for i, e in enumerate(rows())]
    assert look(many).labels == {"x": {"train": 61}, "y": {"train": 30}}


def test_skipped_rows_are_reported_once():
    tally = SkipCounter()

    def source():
        tally.add("undecodable bytes", "train.csv:62")
        return iter(with_row(13, text=""))  # a place to read again

    diagnosis = examine({"train": source}, tallies={"train": tally})
    told = found(diagnosis, "undecodable bytes")
    assert told.title == "1 row of train could not be used: not UTF-8."
    assert told.places[0].where == "train.csv:62"
    assert told.level == "error"
    assert tally.counts == {"undecodable bytes": 1}


def test_watch_hears_of_every_row():
    heard = []
    look(rows(61), rows(2003, 1), on_progress=heard.append, near=False)
    assert sum(heard) == 2064


def test_rows_from_memory_have_a_place():
    train = [Example(e.text, e.label) for e in rows()]
    train[5] = Example("", "third")
    assert found(look(train), "empty").places[0].where == "train, row 6"


def test_without_the_libraries_the_rest_is_still_found(monkeypatch):
    def none(name, purpose):
        raise MissingLibrary(f"{purpose} needs {name}, which is not installed: pip install {name}.")

    for module in ("minhash", "near_duplicates", "label_variants"):
        monkeypatch.setattr(f"weft.doctor.checks.{module}.optional_import", none)
    diagnosis = look(with_row(13, text=""))
    assert {"empty", "not looked for"} == kinds(diagnosis)
    assert "pip install rensa" in found(diagnosis, "not looked for").title


def test_the_diagnosis_is_plain_json():
    import json

    told = json.loads(json.dumps(look(with_row(13, text="")).to_json()))
    place = {"where": "train.csv:14", "text": "", "detail": "", "sketch": None}
    assert told["findings"][0]["places"][0] == place
    assert told["rows"] == {"train": 61}
