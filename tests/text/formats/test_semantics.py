"""Readers of semantic roles, coreference and extracted tuples: what they read, and where."""

import gzip

import pytest

from tests.fixtures.semantic_files import (
    CONLL_2012,
    COREFERENCE,
    ROLES,
    TUPLES,
    roles,
    written,
)
from weft.errors import UserError
from weft.text.annotation.frames import Coreference, Extraction, is_core_role, is_role
from weft.text.annotation.schemes import Span
from weft.text.example import Example, SkipCounter
from weft.text.formats.semantics.coreference import (
    detect_coreference,
    format_document,
    read_coreference,
)
from weft.text.formats.semantics.extractions import detect_extractions, read_extractions
from weft.text.formats.semantics.roles import detect_roles, read_roles
from weft.text.read import read
from weft.text.write import write


def test_roles_belong_to_their_predicates(tmp_path):
    first, second, third = read_roles(roles(tmp_path / "a.conll"))
    assert (first.id, first.line, second.line) == ("a", 2, 10)
    assert first.words == ("The", "dog0", "wants", "to", "sleep", ".")
    want, sleep = first.label.predicates
    assert (want.word, want.sense, sleep.word) == (2, "want.01", 4)
    assert want.roles == (Span("ARG0", 0, 2), Span("V", 2, 3), Span("ARG1", 3, 5))
    assert sleep.roles == (Span("V", 4, 5),)
    assert [first.text[a:b] for a, b in first.places] == list(first.words)
    assert not third.label.predicates


def test_roles_of_conll_2012_stand_before_the_coreference_column(tmp_path):
    path = written(tmp_path / "a.conll", CONLL_2012)
    layout = detect_roles(path)
    assert (layout.words, layout.predicates, layout.first, layout.trailing) == (3, 7, 11, 1)
    (one,) = read_roles(path)
    (see,) = one.label.predicates
    assert see.sense == "see.01"
    assert see.roles == (Span("ARG0", 0, 1), Span("V", 1, 2), Span("ARG1", 2, 4))
    (document,) = read_coreference(path)
    assert document.words == ("Mary", "saw", "her", "dog")
    assert document.label.chains == {"4": (Span("4", 0, 1), Span("4", 2, 3))}


def test_mentions_form_chains_within_their_document(tmp_path):
    first, second = read_coreference(written(tmp_path / "a.conll", COREFERENCE))
    assert (first.id, first.line, second.id, second.line) == ("first", 1, "second", 14)
    chains = first.label.chains
    assert chains["2"] == (Span("2", 2, 4), Span("2", 5, 6))
    assert chains["1"] == (Span("1", 0, 1), Span("1", 2, 3), Span("1", 8, 9))
    assert first.label.sentences == (0, 5)
    assert [first.text[a:b] for a, b in first.places] == list(first.words)


def test_tuples_of_one_sentence_are_one_example(tmp_path):
    path = tmp_path / "gold.tsv.gz"
    path.write_bytes(gzip.compress(TUPLES.encode()))
    first, second, third = read_extractions(path)
    assert (first.line, second.line, third.line) == (1, 3, 5)
    assert first.label.tuples[0] == Extraction("fed", ("The old man", "his birds", "in the park"))
    places = first.label.tuples[0].locate(first.text)
    found = [first.text[a:b] for a, b in places]
    assert found == ["fed", "The old man", "his birds", "in the park"]
    assert Extraction("was fed", ("man",)).locate(first.text) == (None, (8, 11))


def test_tuples_of_a_system_have_a_confidence(tmp_path):
    rows = [line.split("\t") for line in TUPLES.splitlines()]
    lines = ["\t".join([row[0], f"0.{k}", *row[1:]]) for k, row in enumerate(rows)]
    path = written(tmp_path / "system.tsv", "\n".join(lines) + "\n")
    assert detect_extractions(path) is True
    first, *_ = read_extractions(path)
    assert [one.confidence for one in first.label.tuples] == [0.0, 0.1]
    assert first.label.tuples[1].predicate == "were in"


WANTS = "3\twants\twant\tVERB\tVBZ\t(VP*\twant.01\t(V*)"


@pytest.mark.parametrize(
    ("format", "content", "damage", "message"),
    [
        ("roles", ROLES, ("(ARG0*\t*\n", "*\t*\n"), "a.txt:3: sentence 'a': unopened bracket"),
        ("roles", ROLES, (f"{WANTS}\t*", WANTS), "a.txt:4: sentence 'a': ragged sentence: 8 colu"),
        ("coreference", COREFERENCE, ("\t2)\n4", "\t_\n4"), "a.txt:4: document 'first': unclosed"),
        ("coreference", COREFERENCE, ("#end document\n#b", "#b"), "document 'first' has no '#end"),
        ("extractions", TUPLES, ("\tsaw\t", "\t\t"), "a.txt:3: missing predicate"),
    ],
)
def test_damage_is_an_error_with_its_line_or_drops_the_row(
    tmp_path, format, content, damage, message
):
    assert damage[0] in content
    path = written(tmp_path / "a.txt", content.replace(*damage, 1) + content * 2)
    with pytest.raises(UserError) as error:
        list(read(path, format=format))
    assert message in str(error.value)
    assert "--on-bad-row skip" in str(error.value)
    tally = SkipCounter()
    kept = list(read(path, format=format, on_bad_row="skip", skipped=tally))
    assert sum(tally.counts.values()) == 1
    whole = list(read(written(tmp_path / "b.txt", content * 3), format=format))
    assert len(kept) == len(whole) - (format != "extractions")


@pytest.mark.parametrize("format", ["roles", "coreference", "extractions"])
def test_another_file_is_refused_with_the_form_that_is_meant(tmp_path, format):
    path = written(tmp_path / "a.txt", "a b\nc d\n\ne f\n")
    with pytest.raises(UserError, match=r"a\.txt: no (column|tuples) of"):
        list(read(path, format=format))


def test_a_format_is_not_seen_in_files_of_another(tmp_path):
    files = {
        "roles": roles(tmp_path / "a.conll"),
        "coreference": written(tmp_path / "b.conll", COREFERENCE),
        "extractions": written(tmp_path / "c.tsv", TUPLES),
        "tags": written(tmp_path / "d.conll", "Bo B-PER\nran O\n\nHi O\n\n"),
        "pairs": written(tmp_path / "e.tsv", "a dog ran home\ta cat sat here\tno\n" * 3),
    }
    found = {
        name: [
            detect_roles(path) is not None,
            detect_coreference(path) is not None,
            detect_extractions(path) is not None,
        ]
        for name, path in files.items()
    }
    assert found["roles"][0]
    assert found["coreference"] == [False, True, False]
    assert found["extractions"] == [False, False, True]
    assert found["tags"] == found["pairs"] == [False, False, False]


@pytest.mark.parametrize(
    ("name", "known", "core"),
    [
        ("ARG0", True, True), ("ARGA", True, True), ("A1", True, True), ("V", True, False),
        ("R-ARGM-TMP", True, False), ("C-ARG1", True, False), ("AM-LOC", True, False),
        ("ARGO", False, False), ("ARGM-TPM", False, False), ("arg0", False, False),
    ],
)  # fmt: skip
def test_roles_of_propbank(name, known, core):
    assert (is_role(name), is_core_role(name)) == (known, core)


def test_coreference_is_written_as_it_is_read(tmp_path):
    (first, *_) = read_coreference(written(tmp_path / "a.conll", COREFERENCE))
    text = format_document(first)
    assert text.startswith("#begin document (")
    assert text.endswith("#end document\n")
    (tmp_path / "b.conll").write_text(text, "utf-8")
    (again,) = read_coreference(tmp_path / "b.conll")
    assert (again.words, again.label.sentences) == (first.words, first.label.sentences)
    spans = [
        sorted([(m.start, m.end) for m in chain] for chain in one.label.chains.values())
        for one in (first, again)
    ]
    assert spans[0] == spans[1] != []
    write([first], tmp_path / "c.conll", format="coreference")
    assert (tmp_path / "c.conll").read_text("utf-8") == text


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (Example("a", "x", words=("a",)), "no coreference to write"),
        (Example("a b", Coreference(()), words=("a b",)), "'a b' is empty or has a space"),
        (Example("", Coreference(()), words=("",)), "is empty or has a space"),
    ],
)
def test_documents_that_columns_cannot_hold(example, message):
    with pytest.raises(UserError, match=message):
        format_document(example)
