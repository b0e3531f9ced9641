"""Tags and spans say the same in every scheme, and conlleval's reading of broken tags is ours."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.text.annotation import schemes
from weft.text.annotation.schemes import (
    SCHEMES,
    Span,
    convert,
    find_fault,
    is_allowed,
    recognise,
    spans_to_tags,
    tags_to_spans,
)

LABELS = ("X", "Y-Z")
MARKS = {"IO": "I", "IOB1": "BI", "IOB2": "BI", "BILOU": "BILU", "BIOES": "BIES"}


def every_tag(scheme: str) -> list[str]:
    return ["O", *(f"{mark}-{label}" for mark in MARKS[scheme] for label in LABELS)]


@st.composite
def sentences(draw) -> tuple[list[Span], int]:
    """Spans side by side or apart, and the length of their sentence."""
    found, reach = [], 0
    for _ in range(draw(st.integers(0, 5))):
        start = reach + draw(st.integers(0, 2))
        reach = start + draw(st.integers(1, 3))
        found.append(Span(draw(st.sampled_from(LABELS)), start, reach))
    return found, reach + draw(st.integers(0, 2))


def merged(given: list[Span]) -> list[Span]:
    """What IO can say: neighbours of one label are one."""
    out: list[Span] = []
    for span in given:
        if out and out[-1].label == span.label and out[-1].end == span.start:
            out[-1] = Span(span.label, out[-1].start, span.end)
        else:
            out.append(span)
    return out


@given(sentences(), st.sampled_from(SCHEMES))
def test_spans_survive_every_scheme(sentence, scheme):
    given_spans, length = sentence
    written = spans_to_tags(given_spans, length, scheme)
    expected = merged(given_spans) if scheme == "IO" else given_spans
    for invalid in ("error", "repair", "discard"):
        assert tags_to_spans(written, scheme, invalid) == expected
    assert find_fault(written, scheme) is None


@given(sentences(), st.sampled_from(SCHEMES), st.sampled_from(SCHEMES))
def test_conversion_keeps_the_spans(sentence, source, target):
    given_spans, length = sentence
    kept = merged(given_spans) if source == "IO" else given_spans
    assert convert(spans_to_tags(given_spans, length, source), source, target) == spans_to_tags(
        kept, length, target
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_transitions_allow_exactly_what_can_be_written(scheme):
    """All sequences of three words, against those that some set of spans is written as."""
    known = every_tag(scheme)
    start, pairs, end = schemes.allowed_transitions(known, scheme)
    number = {tag: i for i, tag in enumerate(known)}
    one = [[Span(label, a, b)] for a in range(3) for b in range(a + 1, 4) for label in LABELS]
    written = {tuple(spans_to_tags([], 3, scheme))}
    for chosen in itertools.chain(one, map(sum_of, itertools.product(one, repeat=2))):
        written |= spelt(chosen, scheme)
    for chosen in map(sum_of, itertools.product(one, repeat=3)):
        written |= spelt(chosen, scheme)
    for sequence in itertools.product(known, repeat=3):
        a, b, c = (number[tag] for tag in sequence)
        may = start[a] and pairs[a, b] and pairs[b, c] and end[c]
        assert may == (sequence in written), sequence
        assert may == (find_fault(sequence, scheme) is None)


def sum_of(lists) -> list[Span]:
    return [span for spans in lists for span in spans]


def spelt(chosen: list[Span], scheme: str) -> set[tuple[str, ...]]:
    try:
        return {tuple(spans_to_tags(chosen, 3, scheme))}
    except UserError:  # they overlap
        return set()


def conlleval(given: list[str]) -> list[Span]:
    """Chunks by the two tables of the original script, for the tags it knows: B, I, O."""
    out: list[Span] = []
    start = None
    before = ("O", "")
    for place, tag in enumerate([*given, "O"]):
        mark, _, label = tag.partition("-")
        was, own = before
        ends = (was, mark) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}
        ends = ends or (was != "O" and own != label)
        begins = (was, mark) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}
        begins = begins or (mark != "O" and own != label)
        if ends and start is not None:
            out.append(Span(own, start, place))
            start = None
        if begins:
            start = place
        before = (mark, label)
    return out


@given(st.lists(st.sampled_from(every_tag("IOB2")), max_size=7), st.sampled_from(["IOB1", "IOB2"]))
def test_repair_reads_as_conlleval(given_tags, scheme):
    assert tags_to_spans(given_tags, scheme, "repair") == conlleval(given_tags)


@given(st.lists(st.sampled_from(every_tag("IOB2")), max_size=7))
def test_repaired_tags_are_valid(given_tags):
    for target in SCHEMES:
        assert find_fault(convert(given_tags, "BIO", target, "repair"), target) is None


@pytest.mark.parametrize(
    ("scheme", "given_tags", "repaired", "kept"),
    [
        ("IOB2", "O I-X I-X O B-X", [("X", 1, 3), ("X", 4, 5)], [("X", 4, 5)]),
        ("IOB2", "B-X I-Y I-X", [("X", 0, 1), ("Y", 1, 2), ("X", 2, 3)], [("X", 0, 1)]),
        ("IOB1", "B-X O I-X", [("X", 0, 1), ("X", 2, 3)], [("X", 2, 3)]),
        ("BILOU", "B-X I-X O U-Y", [("X", 0, 2), ("Y", 3, 4)], [("Y", 3, 4)]),
        ("BILOU", "B-X B-X L-X L-X", [("X", 0, 1), ("X", 1, 3), ("X", 3, 4)], [("X", 1, 3)]),
        ("BIOES", "S-X I-X E-X", [("X", 0, 1), ("X", 1, 3)], [("X", 0, 1)]),
    ],
)
def test_repair_and_discard(scheme, given_tags, repaired, kept):
    assert tags_to_spans(given_tags.split(), scheme, "repair") == repaired
    assert tags_to_spans(given_tags.split(), scheme, "discard") == kept
    with pytest.raises(UserError):
        tags_to_spans(given_tags.split(), scheme)


@pytest.mark.parametrize(
    ("sequences", "scheme"),
    [
        (["O O"], "IOB2"),
        (["I-X O", "I-Y I-Y"], "IO"),
        (["I-X B-X O I-Y"], "IOB1"),
        (["B-X I-X B-X", "O"], "IOB2"),
        (["B-X I-X O B-Y", "B-X O I-Y"], "IOB2"),
        (["B-X L-X O"], "BILOU"),
        (["U-X"], "BILOU"),
        (["B-X I-X E-X", "S-X"], "BIOES"),
    ],
)
def test_recognise(sequences, scheme):
    assert recognise(sequence.split() for sequence in sequences) == scheme


@given(st.lists(sentences(), min_size=1, max_size=5), st.sampled_from(SCHEMES))
def test_detected_scheme_reads_the_same_spans(many, scheme):
    written = [spans_to_tags(given_spans, length, scheme) for given_spans, length in many]
    found = recognise(written)
    assert [tags_to_spans(t, found, "repair") for t in written] == [
        tags_to_spans(t, scheme) for t in written
    ]


@pytest.mark.parametrize(
    ("scheme", "given_tags", "message"),
    [
        ("BIO", "O I-X", r"word 2: 'I-X' after 'O' continues nothing\. Write B-X, or .*'repair'"),
        ("BIO", "I-X", r"word 1: 'I-X' at the beginning continues nothing"),
        ("BILOU", "O L-X", r"'L-X' after 'O' continues nothing\. Write U-X"),
        ("BILOU", "B-X O", r"word 1: 'B-X' is left open before 'O'\. Close it with L-X"),
        ("BIOES", "O B-X", r"word 2: 'B-X' is left open at the end of the sentence.*E-X"),
        ("IOB1", "O B-X", r"word 2: .*IOB1 writes B- only right after another X\. Write I-X"),
        ("IO", "I-X B-X", r"word 2: IO has no tag 'B-X'; its marks are O, I-\."),
        ("IOB2", "O X", r"'X' is not a tag\. Write O, or a mark and a label such as B-PER"),
        ("BIOS", "O", r"Unknown tagging scheme 'BIOS'\. Did you mean 'BIOES'\?"),
    ],
)
def test_messages(scheme, given_tags, message):
    with pytest.raises(UserError, match=message):
        tags_to_spans(given_tags.split(), scheme)


def test_spans_that_cannot_be_tagged():
    with pytest.raises(UserError, match=r"X \[0, 2\) and Y \[1, 3\) overlap"):
        spans_to_tags([Span("Y", 1, 3), Span("X", 0, 2)], 5, "IOB2")
    with pytest.raises(UserError, match=r"X \[3, 6\) does not fit a sentence of 5 words"):
        spans_to_tags([Span("X", 3, 6)], 5, "IOB2")
    with pytest.raises(UserError, match="Two schemes are mixed: L-, S-"):
        recognise([["L-X", "S-X"]])
    with pytest.raises(UserError, match="Unknown way with invalid tags 'repare'"):
        tags_to_spans([], "IOB2", "repare")


def test_borders_of_a_sentence():
    assert not is_allowed(None, "I-X", "IOB2")
    assert is_allowed("B-X", None, "IOB2")
    assert not is_allowed("B-X", None, "BILOU")
