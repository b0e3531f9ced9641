"""N6: roles, mentions and tuples are read as they are written, and broken ones are found."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.text.annotation.schemes import Span
from weft.text.formats.semantics.bracket_cells import (
    UNCLOSED,
    UNOPENED,
    format_mentions,
    format_roles,
    parse_mentions,
    parse_roles,
)
from weft.text.formats.semantics.coreference import CROSSING, CoreferenceDocument
from weft.text.formats.semantics.extractions import overlap, split_tokens
from weft.text.formats.semantics.roles import COLUMNS, RoleLayout, RoleSentence

T = 7  # words
LABELS = ("ARG0", "ARG1", "ARGM-TMP", "V")


def spans(labels):
    """Any spans of T words."""
    ends = st.tuples(st.integers(0, T - 1), st.integers(1, T)).filter(lambda s: s[0] < s[1])
    return st.lists(st.tuples(st.sampled_from(labels), ends), max_size=5).map(
        lambda rows: [Span(label, *place) for label, place in rows]
    )


def nested_or_apart(some):
    return all(
        a.end <= b.start or b.end <= a.start or (a.start <= b.start and b.end <= a.end)
        or (b.start <= a.start and a.end <= b.end)
        for a in some for b in some
    )  # fmt: skip


@given(spans(LABELS).filter(nested_or_apart))
def test_roles_are_read_as_they_were_written(some):
    cells = format_roles(some, T)
    found, faults = parse_roles(cells)
    assert not faults
    # Of two equal spans, either may be the outer one.
    assert Counter(found) == Counter(some)
    assert "".join(cells).count("(") == "".join(cells).count(")") == len(some)


@given(spans(LABELS).filter(lambda some: some and nested_or_apart(some)), st.data())
def test_a_lost_bracket_is_one_fault(some, data):
    cells = format_roles(some, T)
    where = data.draw(st.sampled_from([i for i, cell in enumerate(cells) if ")" in cell]))
    broken = [c.replace(")", "", 1) if i == where else c for i, c in enumerate(cells)]
    assert [fault.kind for fault in parse_roles(broken)[1]] == [UNCLOSED]
    span = data.draw(st.sampled_from(some))
    broken = list(cells)
    broken[span.start] = broken[span.start].replace(f"({span.label}", "", 1)
    assert [fault.kind for fault in parse_roles(broken)[1]] == [UNOPENED]


@given(spans(("1", "2", "person-3")).map(lambda some: list(dict.fromkeys(some))))
def test_mentions_are_read_as_they_were_written(some):
    # Of one entity, mentions must be nested: (1 (1 … 1) 1) does not say which bracket closes.
    own = [m for m in some if nested_or_apart([o for o in some if o.label == m.label])]
    found, faults = parse_mentions(format_mentions(own, T))
    assert not faults
    assert Counter(found) == Counter(own)


@given(spans(("1", "2", "3")).map(lambda some: list({s.label: s for s in some}.values())))
def test_mentions_cross_if_they_overlap_without_containing_each_other(some):
    cells = tuple(format_mentions(some, T))
    words = tuple("abcdefg")
    document = CoreferenceDocument("d", words, cells, tuple(range(1, T + 1)), (0,))
    crossing = sum(a.start < b.start < a.end < b.end for a in some for b in some)
    assert sum(fault.kind == CROSSING for fault in document.faults()) == crossing


@given(st.lists(st.booleans(), min_size=1, max_size=T), st.integers(0, 3))
def test_a_sentence_needs_a_role_column_for_each_predicate(marked, columns):
    rows = tuple(
        (f"w{i}", "do.01" if is_predicate else "_", *["*"] * columns)
        for i, is_predicate in enumerate(marked)
    )
    layout = RoleLayout("\t", 0, 1, 2)
    sentence = RoleSentence(rows, tuple(range(1, len(rows) + 1)), layout)
    wrong = any(fault.kind == COLUMNS for fault in sentence.faults())
    assert wrong == (sum(marked) != columns)
    assert len(sentence.frames().predicates) == sum(marked)


@pytest.mark.parametrize(
    ("part", "expected"),
    [("the Dog", 1.0), ("a dog", 1 / 2), ("nobody", 0.0), ("man's cat .", 4 / 5), ("", 1.0)],
)
def test_overlap_is_the_fraction_of_tokens_that_stand_in_the_sentence(part, expected):
    words = set(split_tokens("The old man 's dog barked ."))
    assert overlap(part, words) == pytest.approx(expected)
