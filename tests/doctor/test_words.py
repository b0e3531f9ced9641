"""All places of a finding are in the JSON; emoticons make texts different."""

import json

import pytest

from tests.fixtures.command import command
from weft.doctor.words import is_emoticon, split_words


def check(path, *options):
    return json.loads(command("check", path, "--json", *options).out)


def finding(found, kind):
    return next(one for one in found["findings"] if one["kind"] == kind)


def test_json_lists_every_place(tmp_path):
    path = tmp_path / "a.tsv"
    rows = [f"{'pos' if i % 2 else 'neg'}\tthe same text {i % 2}" for i in range(50)]
    rows += [f"pos\tword{i}" for i in range(30)]
    rows += [f"neg\tpart {'long ' * 40} {i}" for i in range(25)]
    path.write_text("\n".join(rows) + "\n", "utf-8")
    found = check(path, "--no-near", "--max-words", "20")
    for kind, count in (("duplicate", 48), ("long", 25)):
        one = finding(found, kind)
        assert (one["count"], len(one["places"])) == (count, count)
    page = tmp_path / "a.html"
    command("check", path, "--no-near", "--html", page)
    assert page.read_text("utf-8").count("a.tsv:") < 48 + 25  # a page names the first of them


@pytest.mark.parametrize(
    "pair", [(":)", ":("), (":-)", ""), ("😀", "😡"), ("<3", ":/"), (":D", ":P")]
)
def test_emoticons_count(tmp_path, pair):
    pytest.importorskip("rapidfuzz")
    rows = [f"pos\tthis was a really great film with many stars {pair[0]}"]
    rows += [f"neg\tthis was a really great film with many stars {pair[1]}"]
    rows += [f"pos\tanother text number {i} about thing{i} and place{i}" for i in range(20)]
    path = tmp_path / "a.tsv"
    path.write_text("\n".join(rows) + "\n", "utf-8")
    kinds = {one["kind"] for one in check(path)["findings"]}
    assert not kinds & {"near duplicate", "conflict"}
    path.write_text(path.read_text("utf-8").replace(pair[1], pair[0]) if pair[1] else "", "utf-8")
    if pair[1]:  # with the same face they are copies, as before
        assert "conflict" in {one["kind"] for one in check(path)["findings"]}


@pytest.mark.parametrize(
    "text", [":)", ";-)", ":((", "=/", "(:", "^_^", "<3", ":d", "!:)", "😀", "♥"]
)
def test_faces(text):
    assert any(map(is_emoticon, split_words(text)))


@pytest.mark.parametrize(
    "text", ["(see below):", "http://a.b", "10:30", "a:b", "...", "--", "x = 3", "(a)"]
)
def test_no_faces(text):
    assert not any(map(is_emoticon, split_words(text)))
