"""Tokenizers of strangers: expressions that backtrack, texts that grow, ids without a table."""

import json
import time

import pytest

from weft.errors import UserError
from weft.tokens import word_pattern
from weft.tokens.safety import find_backtracking
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.word import Word

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    "good",
    [
        *(GPT2, LLAMA, r"\s+", " {2,}", r"\d", "[0-9][0-9][0-9]", word_pattern.WHITESPACE_WORDS),
        *(
            word_pattern.word_regex(),
            word_pattern.word_regex(hyphens=True),
            f"▁?(?:{word_pattern.word_regex()})",
            "a{3}b{1,3}c?",
        ),
        *("(?>a+)+b", "(?:a|b)*+c", "[[a-z]&&[^(+]]+", r"\(\+\)+", "(?<n>ab)+", ""),
    ],
)
def test_common_expressions_are_read(good):
    assert find_backtracking(good) == ""


@pytest.mark.parametrize(
    "bad",
    [
        *("(a+)+$", "(a|a)*$", "(a|aa)+$", "(?:a*)*b", "((ab)*)*", "(a?a)*b", r"(a+)\1", "a*a*a*b"),
        *(r"(?<x>a)\k<x>", r"(?<x>a\g<x>?)", "(?:a{1,99}){1,99}b", "(?:a+){20}", "(?~abc)", "(*F)"),
        *(
            "(?=(a+)+$)",
            "(?i:(a+)+)",
            "(x(a*)y)+",
            "(a+|b+)+",
            "(?:a+?)+?",
            "a+b*(c+)",
            "(?(1)a|b)",
        ),
    ],
)
def test_expressions_that_backtrack_are_refused(bad):
    assert find_backtracking(bad) != ""


def made(**changes):
    """A tokenizer.json with some parts replaced."""
    saved = json.loads(Word().train(["a good film", "a bad film"]).to_json())
    for name, value in changes.items():
        saved["model" if name == "vocab" else name] = (
            {**saved["model"], "vocab": value} if name == "vocab" else value
        )
    return json.dumps(saved)


def replace(**content):
    return {"type": "Replace", **content}


HOSTILE = {
    "backtracking": (
        made(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated",
                            "invert": False}),
        r"x\.json: the regular expression '\(a\+\)\+\$' repeats",
    ),
    "nested in a sequence": (
        made(normalizer={"type": "Sequence", "normalizers": [
            {"type": "Lowercase"}, replace(pattern={"Regex": "(a|a)*b"}, content="")]}),
        "regular expression",
    ),
    "a page for a letter": (
        made(normalizer=replace(pattern={"String": "a"}, content="a" * 10_000)),
        "the normalizer makes a text more than 128 times as long",
    ),
    "a little, often": (
        made(normalizer={"type": "Sequence", "normalizers": [
            replace(pattern={"String": "a"}, content="aaaa") for _ in range(20)]}),
        "more than 128 times",
    ),
    "between any two characters": (
        made(normalizer=replace(pattern={"Regex": ""}, content="a" * 200)), "128 times",
    ),
    "a decoder": (made(decoder=replace(pattern={"String": "a"}, content="b" * 999)), "decoder"),
    "an id without a table": (
        made(vocab={"<pad>": 0, "<unk>": 1, "a": 2**31}), r"the id 2,147,483,648 in a vocabulary",
    ),
    "an added id": (
        made(added_tokens=[{"id": 2**31, "content": "x", "single_word": False, "lstrip": False,
                            "rstrip": False, "normalized": False, "special": True}]), "the id",
    ),
    "no object": ("[]", "not a tokenizer file"),
    "deep": ("[" * 5000 + "]" * 5000, r"x\.json:1: .*nested"),
    "digits": ('{"model": ' + "9" * 5000 + "}", "whole number of 5,000 digits"),
    "a vocabulary of texts": (made(vocab={"a": "b"}), "not a tokenizer file"),
    "no vocabulary": (made(vocab=None), "not a tokenizer file"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_at_once(case):
    text, message = HOSTILE[case]
    began = time.perf_counter()
    with pytest.raises(UserError, match=message):
        Tokenizer.from_json(text, "x.json")
    assert time.perf_counter() - began < 1


def test_unencodable_text_raises_user_error():
    lost = Tokenizer.from_json(made(vocab={"a": 0}))  # it has no entry for what it does not know
    with pytest.raises(UserError, match="The tokenizer cannot read a text"):
        lost.encode_ids(["b"])


def test_a_panic_of_the_library_is_one_line(monkeypatch):
    monkeypatch.setattr("weft.tokens.safety.find_backtracking", lambda pattern: "")
    text = HOSTILE["backtracking"][0]
    with pytest.raises(UserError, match=r"The tokenizer cannot read a text.*retry-limit"):
        Tokenizer.from_json(text).encode_ids(["a" * 40 + "b"])
