"""The tokenizers of a page are those of the `tokenizers` library, offset by offset."""

import random
import re
from pathlib import Path

import pytest

from tests.fixtures import node, scripts
from weft.errors import UserError
from weft.export.page.support import TOKENIZER_PARTS, check_tokenizer

HERE = Path(__file__).parent
TABLES = {
    "normalizer": ("normalizers.js", "NORMALIZERS"),
    "pre_tokenizer": ("pretokenizers.js", "PRE_TOKENIZERS"),
    "decoder": ("decoders.js", "DECODERS"),
    "model": ("models.js", "MODELS"),
}


@node.needs_node
def test_ids_and_offsets_are_equal_to_the_library(tmp_path):
    rng = random.Random(7)
    lines = [*(scripts.random_line(rng) for _ in range(200)), "", " ", "a", "  a  b "]
    trained = scripts.trained_tokenizers(lines[:120])
    every = {**trained, **scripts.foreign_tokenizers(trained)}
    cases = [scripts.tokenizer_case(name, one, lines) for name, one in every.items()]
    node.run_tests(HERE / "tokenizers.test.mjs", {"lines": lines, "cases": cases}, tmp_path)


@pytest.mark.parametrize("section", TABLES)
def test_supported_parts_are_those_of_the_scripts(section):
    file, table = TABLES[section]
    source = (node.MODULES / "tokens" / file).read_text("utf-8")
    body = re.search(rf"^const {table} = \{{(.*?)\}};$", source, re.MULTILINE | re.DOTALL)
    names = re.findall(r"(?:^  |\{ |, )([A-Z]\w+)(?=:)", body[0], re.MULTILINE)
    assert set(names) == set(TOKENIZER_PARTS[section])


def test_unsupported_part_is_named():
    settings = {
        "model": {"type": "BPE"},
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "NFC"}, {"type": "Precompiled"}],
        },
    }
    with pytest.raises(
        UserError, match=r"m/tokenizer.json: a page has no normalizer 'Precompiled'"
    ):
        check_tokenizer(settings, "m/tokenizer.json")
