"""Files of structure are recognised by ending and content; files of texts stay what they were."""

import gzip
import json

import pytest

from tests.fixtures.conll_texts import CHUNKS, NEWS, ROLES, TWEETS, UNER
from tests.fixtures.conllu_texts import FRENCH, TWO
from tests.fixtures.treebank_texts import TREEBANK
from weft.text.formats.recognise import recognise

SPANS = json.dumps({"text": "Ada met", "spans": [{"start": 0, "end": 3, "label": "PER"}]}) + "\n"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.conllu", FRENCH, "conllu"),
        ("a.txt", FRENCH + TWO, "conllu"),
        ("a.conllu", "# odd\n", "conllu"),
        ("a.conll", CHUNKS, "conll"),
        ("a.conll", ROLES, "conll"),
        ("a.conll", "cat NN\nruns VB\n", "conll"),
        ("a.iob2", UNER, "conll"),
        ("a.txt", CHUNKS, "conll"),
        ("a.txt", NEWS, "conll"),
        ("a.tsv", TWEETS, "conll"),
        ("a.jsonl", SPANS, "spans"),
        ("a.txt", SPANS, "spans"),
        ("a.jsonl", '{"text": "Ada", "entities": []}\n' + SPANS, "spans"),
        ("a.jsonl", '{"text": "hi", "label": [[0, 2, "X"]]}\n', "spans"),
        ("a.jsonl", '{"text": "hi", "labels": ["a", "b", "c"]}\n', "jsonl"),
        ("a.jsonl", '{"text": "hi", "label": 3}\n', "jsonl"),
        ("a.ann", "", "standoff"),
        ("a.mrg", TREEBANK, "trees"),
        ("a.ptb", "(S (NP a))\n", "trees"),
        ("a.txt", TREEBANK, "trees"),
        ("a.txt", "(3 (2 The) (4 good))\n", "trees"),
        ("a.txt", "(and so on)\nplain text\n", "lines"),
        ("a.txt", "He O\nsaw a film B-X\nyes\n", "lines"),
        ("a.tsv", "O\tgood film\nA-B\tbad film\n", "tsv"),
        ("a.csv", "text,label\nhi,B-X\n", "csv"),
        ("a.csv", CHUNKS, "csv"),
        ("a.txt", "", "lines"),
    ],
)
def test_recognise(tmp_path, name, content, kind):
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert recognise(path) == kind
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(content.encode()))
    assert recognise(packed) == kind


def test_standoff(tmp_path):
    (tmp_path / "a.txt").write_text("Ada met\n")
    assert recognise(tmp_path / "a.txt") == "lines"
    assert recognise(tmp_path) == "folder"
    (tmp_path / "a.ann").write_text("T1\tPER 0 3\tAda\n")
    assert recognise(tmp_path / "a.txt") == recognise(tmp_path) == "standoff"
