"""Vector files: exact round trips, the published layouts byte by byte, gensim and fastText."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.embed import subwords as sub
from weft.embed.subwords import Subwords
from weft.embed.vector_files.text import read_vectors
from weft.errors import UserError
from weft.vectors.files import FORMATS
from weft.vectors.store import Vectors

WORDS = ["the", "naïve", "日本", "</s>", "of"]
RANDOM = np.random.default_rng(5)
MATRIX = RANDOM.normal(size=(5, 7)).astype(np.float32)
COUNTS = np.array([11, 7, 5, 3, 2])
TABLE = RANDOM.normal(size=(5 + 13, 7)).astype(np.float32)
ENDINGS = ["v.txt", "v.vec", "v.glove.txt", "v.bin", "v.npz", "v.npy", "v.safetensors"]
FULL = ["v.bin", "v.npz", "v.safetensors"]  # formats that keep all there is


def vectors(**more):
    return Vectors(WORDS, MATRIX, **more)


def fasttext_vectors():
    record = {"fasttext": {"ws": 3, "epoch": 2, "minCount": 2, "t": 1e-3, "tokens": 31}}
    output = RANDOM.normal(size=(5, 7)).astype(np.float32)
    subwords = Subwords(TABLE, 5, 2, 4)
    return Vectors(WORDS, None, counts=COUNTS, subwords=subwords, output=output, record=record)


def fasttext_bytes(table=TABLE, buckets=13, version=12, quantised=False, model=2, labels=()):
    """A .bin as fastText 0.9 writes it: FastText::saveModel, Args, Dictionary, DenseMatrix."""
    rows, width = table.shape
    out = struct.pack("<ii", 793712314, version)
    out += struct.pack("<12i", width, 3, 2, 2, 5, 1, 2, model, buckets, 2, 4, 100)
    out += struct.pack("<d", 1e-3)
    out += struct.pack("<iiiqq", 5 + len(labels), 5, len(labels), 31, -1)
    for word, count in zip(WORDS, COUNTS.tolist(), strict=True):
        out += word.encode() + b"\0" + struct.pack("<qb", count, 0)
    for label in labels:
        out += label.encode() + b"\0" + struct.pack("<qb", 4, 1)
    out += struct.pack("<?qq", quantised, rows, width) + table.astype("<f4").tobytes()
    return out + struct.pack("<?qq", False, 5, width) + np.zeros((5, width), "<f4").tobytes()


def test_endings_say_all_formats():
    assert len(FORMATS) == 8  # those of ENDINGS, .txt and .vec being one, and two named ones


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("name", ENDINGS)
def test_round_trips_are_exact(tmp_path, name, mmap):
    vectors(counts=COUNTS).save(tmp_path / name)
    again = Vectors.load(tmp_path / name, mmap=mmap)
    assert list(again.words) == WORDS
    np.testing.assert_array_equal(again.matrix, MATRIX)
    assert again.matrix.dtype == np.float32
    mapped = isinstance(again.matrix, np.memmap)
    assert mapped == (mmap and name in ("v.npz", "v.npy", "v.safetensors"))
    if name in ("v.npz", "v.safetensors"):
        assert again.counts.tolist() == COUNTS.tolist()
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".part") == []


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("name", FULL)
def test_subwords_round_trip(tmp_path, name, mmap):
    made = fasttext_vectors()
    made.save(tmp_path / name)
    again = Vectors.load(tmp_path / name, mmap=mmap)
    np.testing.assert_array_equal(again.subwords.table, TABLE)
    np.testing.assert_array_equal(again.output, made.output)
    np.testing.assert_array_equal(again.matrix, made.matrix)
    np.testing.assert_array_equal(again["unheard"], made["unheard"])
    assert again.counts.tolist() == COUNTS.tolist()
    again.save(tmp_path / "again.bin")
    made.save(tmp_path / "made.bin")
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "made.bin").read_bytes()


@given(
    st.lists(
        st.text(min_size=1, max_size=9).filter(lambda w: w.isprintable() and not w.isspace()),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.integers(0, 2**32 - 1),
    st.sampled_from(ENDINGS),
)
@settings(max_examples=60, deadline=None)
def test_any_words_and_numbers_round_trip(tmp_path_factory, words, bits, name):
    if name not in ("v.npz", "v.npy", "v.safetensors"):
        words = list(dict.fromkeys(w.replace(" ", "_") for w in words))
    number = np.array([bits], np.uint32).view(np.float32)[0]
    matrix = np.full((len(words), 3), number if np.isfinite(number) else 1 / 3, np.float32)
    place = tmp_path_factory.mktemp("v") / name
    Vectors(words, matrix).save(place)
    again = Vectors.load(place)
    assert list(again.words) == words
    np.testing.assert_array_equal(again.matrix, matrix)


def test_words_with_spaces_need_a_format_that_holds_them(tmp_path):
    spaced = Vectors(["new york", "of"], MATRIX[:2])
    for name in ("v.txt", "v.glove.txt", "v.bin"):
        with pytest.raises(UserError, match=r"'new york' \(row 1\) has a space.*\.safetensors"):
            spaced.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
    spaced.save(tmp_path / "v.npz")
    assert Vectors.load(tmp_path / "v.npz").words == ["new york", "of"]
    with pytest.raises(UserError, match=r"an empty word \(row 2\)"):
        Vectors(["a", ""], MATRIX[:2]).save(tmp_path / "v.npz")
    with pytest.raises(UserError, match="cannot hold it"):
        Vectors(["a\nb"], MATRIX[:1]).save(tmp_path / "v.safetensors")


def test_bytes_that_are_no_utf8_come_back(tmp_path):
    place = tmp_path / "v.txt"
    place.write_bytes(b"2 1\ncaf\xe9 1\ncaf\xe8 2\n")
    loaded = Vectors.load(place)
    assert len(loaded) == 2
    for name in ("w.txt", "w.bin", "w.npz", "w.safetensors"):
        loaded.save(tmp_path / name)
        Vectors.load(tmp_path / name).save(tmp_path / "again.txt")
        assert (tmp_path / "again.txt").read_bytes() == b"2 1\ncaf\xe9 1.0\ncaf\xe8 2.0\n"


def test_reads_fasttexts_layout(tmp_path):
    place = tmp_path / "model.bin"
    place.write_bytes(fasttext_bytes())
    model = Vectors.load(place)
    assert list(model.words) == WORDS
    assert model.counts.tolist() == COUNTS.tolist()
    assert model.record["fasttext"]["ws"] == 3
    # By hand: <of> has <o of f> <of of> <of>, and its own row.
    grams = [sub.fnv1a(g) % 13 + 5 for g in (b"<o", b"<of", b"<of>", b"of", b"of>", b"f>")]
    expected = (TABLE[4] + TABLE[grams].sum(axis=0)) / 7
    np.testing.assert_allclose(model["of"], expected, atol=1e-6)
    np.testing.assert_allclose(model.matrix[4], expected, atol=1e-6)
    np.testing.assert_array_equal(model["</s>"], TABLE[3])  # never cut
    np.testing.assert_allclose(
        model["o"],
        TABLE[[sub.fnv1a(g) % 13 + 5 for g in (b"<o", b"<o>", b"o>")]].mean(0),
        atol=1e-6,
    )
    model.save(tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == place.read_bytes()


def test_labels_of_a_classifier_are_passed_over(tmp_path):
    place = tmp_path / "model.bin"
    place.write_bytes(fasttext_bytes(model=3, labels=("__label__a", "__label__b")))
    model = Vectors.load(place)
    assert list(model.words) == WORDS
    model.save(tmp_path / "words.bin")
    again = Vectors.load(tmp_path / "words.bin")
    assert again.record["fasttext"]["model"] == 2
    np.testing.assert_array_equal(again.matrix, model.matrix)
    place.write_bytes(fasttext_bytes(model=3, version=11))  # those had no sub-words
    np.testing.assert_array_equal(Vectors.load(place).matrix, TABLE[:5])


def test_compiled_composition_is_the_plain_one(monkeypatch):
    words = ["</s>", "a", "naïve", "日本語", "caf\udce9", "\udce9\udc80x", "unbelievable", "é"]
    table = RANDOM.normal(size=(8 + 31, 5)).astype(np.float32)
    for shortest, longest in ((3, 6), (1, 2), (2, 2)):
        parts = Subwords(table, 8, shortest, longest)
        plain = parts.compose(words)
        monkeypatch.setattr(sub, "MIN_COMPILED_WORDS", 1)
        np.testing.assert_array_equal(parts.compose(words), plain)
        monkeypatch.setattr(sub, "MIN_COMPILED_WORDS", 99)


def test_a_gigabyte_is_opened_without_reading_it(tmp_path):
    """The file is a hole: reading its matrix through would take that much memory and seconds."""
    width = 1 << 26  # 5 rows of 256 MB
    Vectors(["a"], np.zeros((1, 1), np.float32)).save(tmp_path / "v.npy")
    with (tmp_path / "v.npy").open("wb") as stream:
        form = {"descr": "<f4", "fortran_order": False, "shape": (5, width)}
        np.lib.format.write_array_header_1_0(stream, form)
        stream.truncate(stream.tell() + 5 * width * 4)
    (tmp_path / "v.words").write_text("\n".join(WORDS) + "\n")
    loaded = Vectors.load(tmp_path / "v.npy")
    assert isinstance(loaded.matrix, np.memmap)
    assert loaded.matrix.nbytes > 1e9


def test_numpy_files_of_others_are_read(tmp_path):
    np.savez_compressed(tmp_path / "v.npz", words=np.array(WORDS), matrix=MATRIX.astype(">f8"))
    loaded = Vectors.load(tmp_path / "v.npz")
    assert list(loaded.words) == WORDS
    np.testing.assert_array_equal(loaded.matrix, MATRIX)
    np.savez(tmp_path / "f.npz", words=np.array(WORDS), matrix=np.asfortranarray(MATRIX))
    np.testing.assert_array_equal(Vectors.load(tmp_path / "f.npz").matrix, MATRIX)


def test_our_safetensors_is_one_that_the_library_reads(tmp_path):
    from safetensors.numpy import load_file

    vectors(counts=COUNTS, record={"method": "skipgram", "n": np.int64(3)}).save(
        tmp_path / "v.safetensors"
    )
    arrays = load_file(tmp_path / "v.safetensors")
    np.testing.assert_array_equal(arrays["matrix"], MATRIX)
    assert bytes(arrays["words"]).decode().split("\n") == WORDS
    assert json.loads(bytes(arrays["about"]))["record"] == {"method": "skipgram", "n": 3}
    assert Vectors.load(tmp_path / "v.safetensors").record["n"] == 3


@pytest.mark.parametrize("name", ["v.bin", "v.npz", "v.npy", "v.safetensors"])
def test_embedders_read_them_too(tmp_path, name):
    vectors().save(tmp_path / name)
    found, width = read_vectors(tmp_path / name, {"of", "日本", "unheard"})
    assert width == 7
    assert sorted(found) == ["of", "日本"]
    np.testing.assert_array_equal(found["of"], MATRIX[4])


def test_embedders_get_subwords_for_any_wanted_word(tmp_path):
    made = fasttext_vectors()
    made.save(tmp_path / "v.bin")
    found, _ = read_vectors(tmp_path / "v.bin", {"of", "unheard", "<unk>"})
    assert sorted(found) == ["of", "unheard"]
    np.testing.assert_array_equal(found["unheard"], made["unheard"])
    np.testing.assert_array_equal(found["of"], made["of"])


def npz(**arrays):
    def write(place: Path):
        with place.open("wb") as stream:
            np.savez(stream, **arrays)

    return write


def of(content: bytes):
    return lambda place: place.write_bytes(content)


def saved(name, cut):
    def write(place: Path):
        vectors().save(place.with_name(name))
        place.write_bytes(place.with_name(name).read_bytes()[:cut])

    return write


NAN = np.where(np.arange(7) == 3, np.nan, MATRIX).astype("<f4")
HEAD = b"5 7\n" + b"".join(w.encode() + b" " + r.tobytes() for w, r in zip(WORDS, NAN, strict=True))
BROKEN = {
    "header, a word": (of(b"five 3\na 1 2 3\n"), r"v:1: corrupt header: 'five 3'"),
    "header, a fraction": (of(b"2 3.5\na 1 2 3\n"), r"v:1: corrupt header: '2 3\.5'"),
    "header, no rows": (of(b"0 3\n"), "corrupt header: 0 vectors of width 3"),
    "header, too wide": (of(b"2 999\na 1 2 3\n"), "a vector of width 999 takes 1,998 bytes"),
    "header, too few": (of(b"1 2\na 1 2\nb 3 4\n"), "promises 1 vectors, found 2.*first line"),
    "wider rows": (of(b"2 2\na 1 2 3\nb 1 2 3\n"), "v:2: 3 numbers, but the file's width is 2"),
    "twice": (of(b"2 1\na 1\na 2\n"), r"v:3: the word 'a' again; it is vector 1 already.*first"),
    "twice, npz": (npz(words=np.array(["a", "b", "a"]), matrix=MATRIX[:3]), "'a' twice.*1 and 3"),
    "nan in binary": (of(HEAD), r"vector 1, 'the': a number that is not finite"),
    "npz, no words": (npz(matrix=MATRIX), r"no array 'words'; found \['matrix'\]"),
    "npz, other count": (npz(words=np.array(WORDS[:3]), matrix=MATRIX), r"\(5, 7\) for 3 words"),
    "npz, one axis": (npz(words=np.array(["a"]), matrix=MATRIX[0]), r"shape \(7,\)"),
    "npz, whole numbers": (npz(words=np.array(["a"]), matrix=np.ones((1, 3), int)), "decimals"),
    "npz, no width": (npz(words=np.array(["a"]), matrix=MATRIX[:1, :0]), r"shape \(1, 0\)"),
    "npz, objects": (npz(words=np.array([1, "a"], object), matrix=MATRIX), "Python objects"),
    "npz, numbers": (npz(words=np.arange(5), matrix=MATRIX), "'words' is an array of int64"),
    "npz, cut": (saved("v.npz", 300), r"broken \.npz file"),
    "safetensors, cut": (saved("v.safetensors", -40), "truncated"),
    "safetensors, cut early": (saved("v.safetensors", 50), "corrupt header"),
    "safetensors, no shape": (of(b"\x11" + b"\0" * 7 + b'{"a":{"dtype":1}}'), "corrupt header"),
    "safetensors, nothing": (of(b"\x02" + b"\0" * 7 + b"{}"), "no array 'matrix'"),
    "bin, version": (of(fasttext_bytes(version=14)), "fastText model of version 14"),
    "bin, quantised": (of(fasttext_bytes(quantised=True)), r"quantised fastText model \(\.ftz\)"),
    "bin, cut in words": (of(fasttext_bytes()[:110]), r"truncated in entry \d of 5"),
    "bin, cut in matrix": (of(fasttext_bytes()[:400]), r"shape \(18, 7\).*truncated"),
    "bin, cut before output": (of(fasttext_bytes()[:-147]), "truncated or corrupt"),
    "bin, other buckets": (of(fasttext_bytes(buckets=14)), r"14 buckets.*shape \(18, 7\)"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_named_with_their_place(tmp_path, case):
    write, message = BROKEN[case]
    write(tmp_path / "v")
    with pytest.raises(UserError, match=f"(?s){message}") as error:
        Vectors.load(tmp_path / "v")
    assert str(tmp_path / "v") in str(error.value)


def test_more_than_promised_in_a_binary_file(tmp_path):
    vectors().save(tmp_path / "v.bin")
    whole = (tmp_path / "v.bin").read_bytes()
    (tmp_path / "v.bin").write_bytes(whole.replace(b"5 7", b"4 7", 1))
    with pytest.raises(UserError, match="promises 4 vectors of width 7, but more follows"):
        Vectors.load(tmp_path / "v.bin")


def test_matrix_without_its_words(tmp_path):
    np.save(tmp_path / "v.npy", MATRIX)
    with pytest.raises(UserError, match=r"no words.*v\.words"):
        Vectors.load(tmp_path / "v.npy")


def test_packed_models_are_to_be_unpacked(tmp_path):
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(fasttext_bytes()))
    with pytest.raises(UserError, match=r"packed fastText model.*gunzip"):
        Vectors.load(tmp_path / "v.bin.gz")


def test_first_of_two_can_be_kept(tmp_path):
    (tmp_path / "v.txt").write_text("3 1\na 1\nb 3\na 2\n")
    npz(words=np.array(["a", "b", "a"]), matrix=MATRIX[:3])(tmp_path / "v.npz")
    kept = Vectors.load(tmp_path / "v.txt", duplicates="first")
    assert (list(kept.words), kept.matrix.tolist()) == (["a", "b"], [[1], [3]])
    np.testing.assert_array_equal(
        Vectors.load(tmp_path / "v.npz", duplicates="first").matrix, MATRIX[:2]
    )


def test_unknown_formats(tmp_path):
    with pytest.raises(UserError, match=r"v\.csv: the ending does not say.*\.vec.*glove"):
        vectors().save(tmp_path / "v.csv")
    with pytest.raises(UserError, match=r"Unknown format 'glov'.*Did you mean 'glove'"):
        vectors().save(tmp_path / "v.csv", format="glov")
    with pytest.raises(UserError, match="Make it first"):
        vectors().save(tmp_path / "no" / "v.txt")


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    place = tmp_path / "v.txt"
    place.write_text("old")

    def fail(made, stream):
        stream.write(b"new")
        raise OSError("disk full")

    monkeypatch.setitem(FORMATS, "word2vec", fail)
    with pytest.raises(UserError, match=f"^Cannot write {place}: disk full.$"):
        vectors().save(place)
    assert place.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["v.txt"]


def test_missing_file_error_suggests_a_name_and_the_setting(tmp_path):
    vectors().save(tmp_path / "words.txt")
    with pytest.raises(
        UserError, match=r"'words\.txt'\? Correct 'vectors' in the configuration\.$"
    ):
        read_vectors(tmp_path / "word.txt")
    with pytest.raises(UserError, match=r"Did you mean 'words\.txt'\?$"):
        Vectors.load(tmp_path / "word.txt")


def test_a_number_that_is_not_finite_is_not_written(tmp_path):
    npz(words=np.array(WORDS), matrix=NAN)(tmp_path / "v.npz")
    mapped = Vectors.load(tmp_path / "v.npz")
    for name in ("w.txt", "w.safetensors"):
        with pytest.raises(UserError, match=r"v\.npz: the vector of 'the' \(row 1\)"):
            mapped.save(tmp_path / name)
    with pytest.raises(UserError, match=r"v\.npz: the vector of 'of'"):
        read_vectors(tmp_path / "v.npz", {"of"})
    assert [path.name for path in tmp_path.iterdir()] == ["v.npz"]
