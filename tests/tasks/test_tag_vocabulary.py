"""Columns of tags by name and by number."""

import pytest

from weft.errors import UserError
from weft.tasks.tag_vocabulary import read_column
from weft.text.example import TAG_COLUMN, Example, WordAnnotations

COLUMNS = {"word": ("a", "b"), "pos": ("X", "Y"), TAG_COLUMN: ("O", "B-P")}


def example(columns=COLUMNS, main=TAG_COLUMN):
    return Example("a b", WordAnnotations(columns, main), file="x.conll", line=3)


def test_a_column_by_name_or_by_number():
    assert read_column(example(), "pos") == ("X", "Y")
    assert read_column(example(), "1") == ("X", "Y")
    assert read_column(example(), "0") == ("a", "b")


def test_a_column_named_by_a_number_comes_first():
    columns = {"1": ("X", "Y"), "pos": ("U", "V"), TAG_COLUMN: ("O", "O")}
    assert read_column(example(columns), "1") == ("X", "Y")


@pytest.mark.parametrize("name", ["3", "poss"])
def test_an_unknown_column_names_the_place_and_the_near_miss(name):
    with pytest.raises(UserError, match=rf"column '{name}'") as error:
        read_column(example(), name)
    assert "x.conll" in str(error.value)
