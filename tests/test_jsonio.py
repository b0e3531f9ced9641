"""Untrusted JSON: a value, or one line that names file and line."""

import json
import time

import pytest

from weft import jsonio
from weft.errors import UserError


@pytest.mark.parametrize(
    "text", ["null", "[]", '{"a": [1, 2.5, "[[["]}', '"\\u2028"', "[" * 100 + "]" * 100, "9" * 4300]
)
def test_valid_json_parses_as_in_the_standard_library(text):
    assert jsonio.parse(text, "x.json") == json.loads(text)
    assert jsonio.parse(text.encode(), "x.json") == json.loads(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"x\.json:1: not readable as JSON: .*column 2\.$"),
        ('{"a": 1,\n"b" 2}', r"x\.json:2: not readable as JSON: Expecting ':'.*column 5"),
        ("[1,\n" + "7" * 4301 + "]", r"x\.json:2: .*whole number of 4,301 digits; at most 4,300"),
        ("\n\n" + "[" * 5000, r"x\.json:3: .*nested more than 100 levels deep"),
        ("[" * 5000 + "]" * 5000, r"x\.json:1: .*nested more than 100 levels"),
        ('{"a":' * 101 + "1" + "}" * 101, r"x\.json:1: .*nested more than 100 levels"),
        (b'{"a": \n"\xff"}', r"x\.json:2: not readable as UTF-8: invalid start byte at byte 8"),
        ("", r"x\.json:1: .*Expecting value"),
    ],
)
def test_invalid_json_raises_user_error(text, message):
    with pytest.raises(UserError, match=message) as caught:
        jsonio.parse(text, "x.json")
    assert "\n" not in str(caught.value)


def test_brackets_inside_texts_are_no_nesting():
    value = {"a": "[{" * 500, "b": '\\"' * 50 + "[" * 200}
    assert jsonio.parse(json.dumps(value), "x.json") == value
    assert jsonio.parse(json.dumps([value] * 90), "x.json") == [value] * 90


def test_files(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "\u2028"}\n\n[1]\n', "utf-8")
    assert jsonio.read_lines(path) == [{"a": "\u2028"}, [1]]
    path.write_text('{"a": 1}\n\n[1\n', "utf-8")
    with pytest.raises(UserError, match=r"x\.jsonl:3: "):
        jsonio.read_lines(path)
    path.write_bytes(b"1\n\xff\n")
    with pytest.raises(UserError, match=r"x\.jsonl:2: not readable as UTF-8"):
        jsonio.read_lines(path)
    with pytest.raises(FileNotFoundError):
        jsonio.read(tmp_path / "none.json")


def test_hostile_texts_cost_little_time():
    began = time.perf_counter()
    for text in ('"' + "\\" * 10**6, "[" * 10**6, '["' * 10**5, "1" * 10**6, '"[' * 10**5):
        with pytest.raises(UserError):
            jsonio.parse(text, "x.json")
    assert time.perf_counter() - began < 3
