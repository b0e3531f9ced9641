"""weft tokens train, encode, decode."""

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from weft.cli.tokens import app
from weft.errors import UserError


def run(*arguments, stdin=None):
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def trained(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("a good film\nnot a good film\nthe film was good\n" * 7, "utf-8")
    run("train", texts, "-o", tmp_path / "t.json", "--kind", "word", "--vocab-size", "5")
    return tmp_path / "t.json"


def test_encode_prints_tokens_or_json(trained, tmp_path):
    (tmp_path / "new.txt").write_text("A good  meal\n", "utf-8")
    assert run("encode", trained, tmp_path / "new.txt") == "a good <unk>\n"
    row = json.loads(run("encode", trained, tmp_path / "new.txt", "--json"))
    assert row["tokens"] == ["A", "good", "meal"]
    assert row["spans"] == [[0, 1], [2, 6], [8, 12]]
    assert len(row["ids"]) == 3


def test_decode_reverses_encode(trained, tmp_path):
    (tmp_path / "new.txt").write_text("a good film\n", "utf-8")
    ids = json.loads(run("encode", trained, tmp_path / "new.txt", "--json"))["ids"]
    (tmp_path / "ids.txt").write_text(f"{ids}\n{ids[2]} {ids[0]}\n\n", "utf-8")
    assert run("decode", trained, tmp_path / "ids.txt") == "a good film\nfilm a\n\n"
    assert run("decode", trained, "-", stdin=f"{ids[1]}\n") == "good\n"


def test_a_text_column_by_name(tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("id,remark,body\n1,x,some words\n2,y,more words\n", "utf-8")
    run("train", table, "-o", tmp_path / "t.json", "--kind", "word", "--text", "body")
    assert run("encode", tmp_path / "t.json", table, "--text", "body").startswith("some words\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [("2 x", "expected ids.*'x'"), ("99", "Id 99 is not in")],
)
def test_bad_ids_are_named_with_their_line(trained, tmp_path, line, message):
    (tmp_path / "ids.txt").write_text(line, "utf-8")
    where = re.escape(f"{tmp_path / 'ids.txt'}:1: ")
    with pytest.raises(UserError, match=f"^{where}{message}"):
        run("decode", trained, tmp_path / "ids.txt")


def test_refusals(trained, tmp_path):
    texts = tmp_path / "texts.txt"
    with pytest.raises(UserError, match=r"t\.json exists\. Pass --overwrite"):
        run("train", texts, "-o", trained)
    with pytest.raises(UserError, match=r"Unknown tokenizer 'bpee'.*Did you mean 'bpe'"):
        run("train", texts, "-o", tmp_path / "u.json", "--kind", "bpee")
    with pytest.raises(UserError, match="none does not exist"):
        run("train", texts, "-o", tmp_path / "none" / "u.json")
    with pytest.raises(UserError, match=r"gone\.json: cannot read the tokenizer"):
        run("encode", tmp_path / "gone.json", texts)


def test_importing_the_verb_is_cheap():
    code = (
        "import sys, weft.cli.tokens\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import weft.tokens\n"
        "heavy = {'torch', 'tokenizers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_blank_lines_stop_nothing(trained, tmp_path):
    (tmp_path / "prose.txt").write_text("\na good film\n\n  \nnot a good film\n\n", "utf-8")
    run("train", tmp_path / "prose.txt", "-o", tmp_path / "p.json", "--kind", "word")
    assert run("encode", tmp_path / "p.json", tmp_path / "prose.txt") == (
        "\na good film\n\n\nnot a good film\n\n"
    )
    (tmp_path / "blank.txt").write_text("\n\n", "utf-8")
    with pytest.raises(UserError, match="hold no word"):
        run("train", tmp_path / "blank.txt", "-o", tmp_path / "b.json", "--kind", "word")


def test_a_file_of_ids_that_is_no_text(trained, tmp_path):
    (tmp_path / "ids").write_bytes(b"1 2\n\xff\n")
    with pytest.raises(UserError, match=r"ids:2: byte 0xff"):
        run("decode", trained, tmp_path / "ids")
