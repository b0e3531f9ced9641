"""Files compressed by Zstandard."""

import pytest

from weft.errors import UserError
from weft.text.example import Example
from weft.text.read import read
from weft.text.write import write

pa = pytest.importorskip("pyarrow")
EXAMPLES = [Example(f"text number {i}", "ab"[i % 2]) for i in range(5000)]


@pytest.fixture
def path(tmp_path):
    write(EXAMPLES, tmp_path / "rows.tsv.zst")
    return tmp_path / "rows.tsv.zst"


def test_a_compressed_file_is_read_back(path):
    assert path.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    assert [(e.text, e.label) for e in read(path)] == [(e.text, e.label) for e in EXAMPLES]


def test_the_contents_decide_and_not_the_name(path):
    renamed = path.rename(path.with_name("rows.tsv"))
    assert sum(1 for _ in read(renamed)) == len(EXAMPLES)


def test_a_truncated_file_is_named_with_the_last_line(path):
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UserError, match=r"rows\.tsv\.zst: cannot read past line \d+: .*truncated"):
        list(read(path))


def test_a_file_that_is_not_compressed_is_an_error(path):
    path.write_bytes(b"label\ttext\na\tx\n")
    with pytest.raises(UserError, match=r"rows\.tsv\.zst: cannot read past line 0"):
        list(read(path))
