"""Files that belong together line by line."""

import gzip
import lzma

import pytest

from weft.errors import UserError
from weft.text.example import SkipCounter
from weft.text.formats.parallel import read_parallel, resolve_files, sibling_file, target_ending
from weft.text.formats.raw import read_raw_lines
from weft.text.read import Columns, read


def files(folder, source, target):
    (folder / "a.en").write_bytes(source)
    (folder / "a.de").write_bytes(target)
    return folder / "a.en", folder / "a.de"


def test_lines_meet(tmp_path):
    found = list(read_parallel(*files(tmp_path, b"a dog\r\na cat\n", b"ein Hund\neine Katze")))
    assert [(e.text, e.label, e.line) for e in found] == [
        ("a dog", "ein Hund", 1), ("a cat", "eine Katze", 2),
    ]  # fmt: skip
    assert found[0].where.endswith("a.en:1")


def test_the_name_of_the_other_side(tmp_path):
    assert sibling_file("x/train.en", "de") == "x/train.de"
    assert sibling_file("x/Train.EN.gz", ".de") == "x/Train.de.gz"
    with pytest.raises(UserError, match=r"x/train: the name has no ending to replace by 'de'."):
        sibling_file("x/train", "de")
    with pytest.raises(UserError, match="source and target are the same file"):
        sibling_file("train.de", "de")


def test_packed_files(tmp_path):
    for name, text in (("a.en.gz", b"one\n"), ("a.de.gz", b"eins\n")):
        (tmp_path / name).write_bytes(gzip.compress(text))
    (only,) = read_parallel(tmp_path / "a.en.gz", sibling_file(tmp_path / "a.en.gz", "de"))
    assert (only.text, only.label) == ("one", "eins")


def test_only_one_side_is_packed(tmp_path):
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"one\n"))
    (tmp_path / "a.de").write_bytes(b"eins\n")
    (tmp_path / "a.fr.xz").write_bytes(lzma.compress(b"un\n"))
    for source, ending, said in (("a.en.gz", "de", "eins"), ("a.de", "fr", "un")):
        (only,) = read_parallel(tmp_path / source, sibling_file(tmp_path / source, ending))
        assert only.label == said


def test_a_comma_joins_files(tmp_path):
    source, target = files(tmp_path, b"a\n", b"b\n")
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "more").write_bytes(b"c\n")
    pair = f"{source},{target}"
    assert resolve_files(pair) == (str(source), str(target))
    assert resolve_files(f" {source} , {target} ") == resolve_files(pair)
    assert resolve_files(source, "de") == resolve_files(pair)
    assert resolve_files(source) == (str(source),)
    (only,) = read(pair)
    assert (only.text, only.label, only.where) == ("a", "b", f"{source}:1")
    (only,) = read(f"{pair},{tmp_path / 'o' / 'more'}")
    assert only.label == ("b", "c")  # more files are further references
    (only,) = read(pair, columns=Columns(label=""))
    assert (only.text, only.label) == ("a", None)


def test_a_comma_in_the_name_of_a_file_joins_nothing(tmp_path):
    folder = tmp_path / "x, y"
    folder.mkdir()
    source, target = files(folder, b"a\n", b"b\n")
    assert resolve_files(f"{source},{target}") == (str(source), str(target))
    both = tmp_path / "a.en,a.de"
    both.write_text("one\n")
    files(tmp_path, b"a\n", b"b\n")
    assert resolve_files(both) == (str(both),)
    assert [(e.text, e.label) for e in read(both)] == [("one", None)]


def test_wrong_file_after_a_comma_raises_user_error(tmp_path):
    source, target = files(tmp_path, b"a\n", b"b\n")
    with pytest.raises(UserError, match=r"a\.du: no such file\. Did you mean 'a\.de'\?"):
        read(f"{source},{tmp_path / 'a.du'}")
    with pytest.raises(UserError, match=r"a\.an: no such file\. Did you mean 'a\.en'\?"):
        read(f"{tmp_path / 'a.an'},{target}")
    with pytest.raises(UserError, match=r"the comma already names .* Drop --target fr, or"):
        resolve_files(f"{source},{target}", "fr")
    with pytest.raises(
        UserError, match=r"a\.en,: a name is missing next to a comma\. Write SOURCE,"
    ):
        resolve_files(f"{source},")
    with pytest.raises(UserError, match=r"2 files\. Pass one of them here\."):
        list(read_raw_lines(f"{source},{target}"))


def test_the_ending_that_would_say_the_same():
    assert target_ending("x/a.en,x/a.de") == "de"
    assert target_ending("x/a.en.gz,x/a.de.gz") == "de"
    for others in ("x/a.en", "x/a.en,y/a.de", "src.txt,tgt.txt", "x/a.en,x/a.de,x/a.fr"):
        assert target_ending(others) == ""


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"", b"", r"a\.en: the file is empty\."),
        (b"a\nb\n", b"x\n", r"a\.de ends after line 1, but .*a\.en continues"),
        (b"a\n", b"x\ny\n", r"a\.en ends after line 1, but .*a\.de continues"),
        (b"a\n \n", b"x\ny\n", r"a\.en:2: empty line\. Fill it"),
        (b"a\nb\n", b"x\n\n", r"a\.de:2: empty line\. Fill it"),
        (b"a\nb\n", b"x\n\xff\n", r"a\.de:2: .*UTF-8"),
    ],
)
def test_misaligned_files_raise_user_error(tmp_path, source, target, message):
    with pytest.raises(UserError, match=message):
        list(read_parallel(*files(tmp_path, source, target)))


def test_skipped_lines_keep_the_others_together(tmp_path):
    tally = SkipCounter()
    paths = files(tmp_path, b"a\n\nc\nd\n\xff\nf\n", b"x\ny\n\nw\nv\nu\n")
    found = list(read_parallel(*paths, on_bad_row="skip", skipped=tally))
    assert [(e.text, e.label, e.line) for e in found] == [
        ("a", "x", 1),
        ("d", "w", 4),
        ("f", "u", 6),
    ]
    assert sum(tally.counts.values()) == 3
    with pytest.raises(UserError, match="ends after line 1"):
        list(read_parallel(*files(tmp_path, b"a\nb\n", b"x\n"), on_bad_row="skip"))


def test_a_missing_side_is_named(tmp_path):
    (tmp_path / "a.en").write_text("a\n")
    with pytest.raises(UserError, match=r"a\.de"):
        list(read_parallel(tmp_path / "a.en", tmp_path / "a.de"))
