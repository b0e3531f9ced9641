"""Treebanks, tagged columns and trees under the doctor's eyes, and how the survey takes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.structured_files import GOOD, sentence
from weft.doctor import Finding, examine
from weft.doctor.annotations import annotation_hash, collect_annotations, describe_difference
from weft.doctor.checks.annotation_faults import group_faults
from weft.doctor.checks.consistency import MIN_FREQUENCY_RATIO, TagVariation
from weft.doctor.formats.column_files import detect_scheme, repair_tags
from weft.doctor.formats.files import open_files
from weft.doctor.formats.structured import check_files, find_faults, format_of
from weft.text.annotation import schemes
from weft.text.annotation.schemes import Span
from weft.text.columns import Columns
from weft.text.example import CharSpans, Example, WordAnnotations


def treebank(folder, *more: str, name: str = "a.conllu") -> str:
    path = folder / name
    path.write_text(GOOD + "".join(more), "utf-8")
    return str(path)


def columns(folder, *sentences: str, name: str = "a.conll") -> str:
    path = folder / name
    path.write_text("\n\n".join(s.replace(" ", "\t").replace("|", "\n") for s in sentences) + "\n")
    return str(path)


def told(path: str) -> dict[str, Finding]:
    kind = format_of(path, None, Columns())
    return {f.kind: f for f in group_faults(find_faults(path, kind, Columns()), "data")}


@pytest.mark.parametrize(
    ("bad", "kind", "line", "title", "detail"),
    [
        (
            sentence("x", [0, 3, 2]), "cycle", 12,
            "1 sentence of data has heads that form a cycle.",
            "sentence 'x': the heads form a cycle, 2 → 3 → 2",
        ),
        (
            sentence("x", [2, 3, 2, 1]), "no root", 11, "1 sentence of data has no root.",
            "sentence 'x': no root: no word has head 0",
        ),
        (
            sentence("x", [0, 0, 1]), "two roots", 12, "1 sentence of data has more than one root.",
            "sentence 'x': 2 roots, words 1, 2",
        ),
        (
            sentence("x", [0, 7]), "head out of range", 12,
            "1 word of data has a head that is not in the sentence.",
            "sentence 'x': the head of word 2 is 7, but the sentence has 2 words",
        ),
        (
            sentence("x", [0, "b"]), "head not a number", 12,
            "1 word of data has a head that is not a number.",
            "sentence 'x': the head of word 2 is 'b'",
        ),
        (
            sentence("x", [0, 2]), "self head", 12, "1 word of data is its own head.",
            "sentence 'x': word 2 is its own head",
        ),
        (
            sentence("x", [0, 1]).replace("\n2\t", "\n5\t"), "ids not in sequence", 12,
            "1 sentence of data does not number the words 1, 2, 3….",
            "sentence 'x': id 5 follows 1",
        ),
        (
            sentence("x", [0, 1], text="w0 w2"), "text disagrees", 13,
            '1 sentence of data differs from "# text =".',
            "sentence 'x': the form 'w1' does not match the text there, 'w2'",
        ),
        (
            sentence("good", [0, 1]), "repeated id", 10,
            "1 sentence of data has the id of an earlier one.",
            "sentence 'good': already used on line 1",
        ),
        (
            sentence("x", [0, 1], tags="NOUN VREB"), "unknown tag", 12,
            "1 word of data has a tag outside Universal Dependencies.",
            "sentence 'x': word 2 'w1' has VREB. Did you mean 'VERB'?",
        ),
        (
            sentence("x", [0, 1], tags="NOUN _"), "no tag", 12, "1 word of data has no tag.",
            "sentence 'x': word 2 'w1'",
        ),
        (
            sentence("x", [0, 1]).replace("dep", "nsbj:pass"), "unknown relation", 12,
            "1 word of data has a relation outside Universal Dependencies.",
            "sentence 'x': word 2 'w1' has nsbj:pass. Did you mean 'nsubj'?",
        ),
        (
            sentence("x", [0, 1]).replace("dep", "root"), "root relation", 12,
            "1 word of data is root by head or by relation, but not both.",
            "sentence 'x': word 2 'w1' has head 1 and relation root",
        ),
    ],
)  # fmt: skip
def test_faults_of_treebanks(tmp_path, bad, kind, line, title, detail):
    path = treebank(tmp_path, bad, sentence("end", [0, 1]))
    found = told(path)
    assert kind in found
    assert found[kind].title == title
    assert (found[kind].places[0].where, found[kind].places[0].detail) == (f"{path}:{line}", detail)
    assert len(found) == 1 or kind == "no root"  # without a root there is a circle as well


def test_a_sound_treebank_and_one_with_tags_of_its_own(tmp_path):
    assert told(treebank(tmp_path)) == {}
    own = GOOD.replace("NOUN", "NN").replace("dep", "ncmod").replace("root", "ncmod")
    (tmp_path / "b.conllu").write_text(own, "utf-8")
    assert told(str(tmp_path / "b.conllu")) == {}


@pytest.mark.parametrize(
    ("sentence", "kind", "line", "detail"),
    [
        (
            "Ada B-PER|met O|London I-LOC", "invalid tag", 5,
            "word 3 'London' has 'I-LOC' after 'O': IOB2 writes 'B-LOC'",
        ),
        (
            "Ada B-PER|Lovelace I-LOC|met O", "invalid tag", 4,
            "word 2 'Lovelace' has 'I-LOC' after 'B-PER': IOB2 writes 'B-LOC'",
        ),
        ("Ada B-PER|Lovelace X-PER|met O", "not a tag", 4, "word 2 'Lovelace' has 'X-PER'"),
    ],
)  # fmt: skip
def test_faulty_tags(tmp_path, sentence, kind, line, detail):
    path = columns(tmp_path, "Sound B-PER", f"{sentence}|and O|so O|on O|it O|goes O")
    found = told(path)
    assert set(found) == {kind}
    assert found[kind].places[0].where == f"{path}:{line}"
    assert found[kind].places[0].detail == f"sentence 2: {detail}"


@pytest.mark.parametrize(
    ("scheme", "sentence"),
    [
        ("IOB2", "Ada B-PER|Lovelace I-PER|met O|Charles B-PER|in O|London B-LOC"),
        ("BILOU", "Ada B-PER|Lovelace L-PER|met O|Charles U-PER"),
        ("BIOES", "Ada B-PER|King I-PER|Lovelace E-PER|met O|Charles S-PER"),
        ("IOB1", "Ada I-PER|met O|Bob I-PER|in O|London I-LOC|Bonn B-LOC"),
        ("IO", "Ada I-PER|met O|Bob I-PER|in O|London I-LOC"),
    ],
)
def test_sound_tags_in_any_scheme(tmp_path, scheme, sentence):
    path = columns(tmp_path, sentence, sentence)
    assert told(path) == {}
    assert detect_scheme(path, Columns()) == scheme


def test_parts_of_speech_have_no_scheme(tmp_path):
    path = columns(tmp_path, *["Ada NNP|met VBD|I PRP"] * 7)
    assert detect_scheme(path, Columns()) == ""
    assert told(path) == {}


def test_two_schemes_in_one_file_and_in_two(tmp_path):
    bilou = "Ada B-PER|Lovelace L-PER|met O|Charles U-PER"
    path = columns(tmp_path, bilou, bilou, "Ada B-PER|Fox E-PER|met O|Cy S-PER")
    found = told(path)
    assert set(found) == {"mixed schemes"}
    assert found["mixed schemes"].count == 2
    assert found["mixed schemes"].places[0].detail.endswith("the file is BILOU: write 'L-PER'")
    other = columns(tmp_path, "Ada B-PER|Fox I-PER|met O|Cy B-PER", name="b.conll")
    paths = {"train": path, "test": other}
    both = check_files(paths, dict.fromkeys(paths, "conll"), dict.fromkeys(paths, Columns()))
    (last,) = [f for f in both if f.kind == "schemes differ"]
    assert last.title == "2 tagging schemes are used: train BILOU, test IOB2."


TAG = st.sampled_from(["O", *(f"{m}-{k}" for m in "BILUES" for k in ("X", "Y"))])


@given(st.lists(TAG, max_size=7), st.sampled_from(["IOB1", "IOB2", "BILOU", "BIOES"]))
def test_repair_changes_exactly_the_faulty_tags(tags, scheme):
    right = repair_tags(tags, scheme)
    assert (right == tags) == (schemes.find_fault(tags, scheme) is None)
    assert schemes.find_fault(right, scheme) is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("(S (X b)", "the '(' in column 1 is never closed; the next tree begins on line 3"),
        ("(S (X b)))", "column 10: this ')' closes nothing"),
        ("(S () (X b))", "column 5: an empty bracket: a node needs a word or sub-trees"),
        ("(S (X b c))", "column 9: the leaf already holds the word 'b'"),
    ],
)
def test_reading_continues_after_a_broken_tree(tmp_path, lines, said):
    path = tmp_path / "a.ptb"
    path.write_text(f"(S (X a) (Y b))\n{lines}\n(S (X\n  c))\n(S (X d))\n", "utf-8")
    files = open_files([str(path)], Columns())
    assert [e.text for e in files.sources["data"]()] == ["a b", "c", "d"]
    assert files.tallies["data"].messages == {f"{path}:2": said}


def test_broken_trees_over_many_lines_are_known_for_trees(tmp_path):
    whole = "( (S\n    (NP (D the) (N dog))\n    (VP (V barks))) )\n"
    (tmp_path / "a.txt").write_text(whole + whole.replace(")) )", "))") + whole, "utf-8")
    assert format_of(str(tmp_path / "a.txt"), None, Columns()) == "trees"
    files = open_files([str(tmp_path / "a.txt")], Columns())
    assert [e.line for e in files.sources["data"]()] == [1, 7]
    (said,) = files.tallies["data"].messages.values()
    assert said == "the '(' in column 1 is never closed; the next tree begins on line 7"


def test_labels_on_a_scale_and_off_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("(3 (2 A) (4 film))\n" * 5 + "(1 (2 No) (7 way))\n(1 (2 a) (x b))\n", "utf-8")
    found = told(str(path))["label outside the scale"]
    assert found.count == 2
    assert found.places[0].detail == "tree 6: 'way' has 7, the others 1 to 4"
    path.write_text("(S (NP (DT a) (NN b)) ( (VB c)))\n(S (A a) (B b))\n", "utf-8")
    assert told(str(path))["node without label"].places[0].detail == "tree 1: 'c'"


def test_a_table_in_which_no_column_looks_like_a_label(tmp_path):
    path = tmp_path / "a.csv"
    rows = "".join(f"{i},soup {i} was cold,seen by {i}\n" for i in range(23))
    path.write_text(f"ticket,text,remark\n{rows}")
    (found,) = open_files([str(path)], Columns()).findings
    assert found.title == (
        "No column of data looks like a label; it might be 'ticket' or 'remark'."
    )
    assert "--label COLUMN" in found.fix
    for asked in (Columns(label="remark"), Columns(label="")):
        assert open_files([str(path)], asked).findings == ()
    path.write_text("id,text\n" + "".join(f"{i},soup {i} was cold\n" for i in range(23)))
    assert open_files([str(path)], Columns()).findings == ()


def layered(text: str, tags: str, id: str = "", **more: str) -> Example:
    extra = {name: tuple(value.split()) for name, value in more.items()}
    known = WordAnnotations({"upos": tuple(tags.split()), **extra}, "upos")
    return Example(text, known, id, "f", 1, tuple(text.split()))


def test_annotations_of_each_kind_are_collected():
    assert collect_annotations(layered("a b", "X _", deprel="root dep")) == {
        "tags": ["X"], "relations": ["root", "dep"]
    }  # fmt: skip
    assert collect_annotations(layered("a b c", "B-PER I-PER O")) == {"types": ["PER"]}
    assert collect_annotations(Example("Ada", CharSpans((Span("PER", 0, 3),)))) == {
        "types": ["PER"]
    }
    assert collect_annotations(Example("Ada", "label")) == {}


def test_the_first_difference_of_two_annotations():
    one, other = layered("a b", "X Y", lemma="a b"), layered("a b", "X Z", lemma="a c")
    assert annotation_hash(one) != annotation_hash(other)
    assert annotation_hash(one) == annotation_hash(layered("a b", "X Y", lemma="c d"))
    assert describe_difference(one, other) == "word 2 'b': upos Y / Z"
    spans = [Example("Ada met", CharSpans(m)) for m in ((Span("A", 0, 3),), (Span("B", 0, 3),), ())]
    assert describe_difference(spans[0], spans[1]) == "A 'Ada' / B 'Ada'"
    assert describe_difference(spans[0], spans[2]) == "A 'Ada' / nothing"


def found_in(**sources) -> dict[str, Finding]:
    given_sources = {name: (lambda rows=rows: iter(rows)) for name, rows in sources.items()}
    return {f.kind: f for f in examine(given_sources).findings}


def test_sentences_are_compared_by_their_annotation():
    long, short = "the dog sees the big bee", "thank you"
    tags = "DET NOUN VERB DET ADJ NOUN"
    train = [layered(long, tags, "a"), layered(short, "VERB PRON", "b")]
    train += [layered(f"w{i} x{i} y{i} z{i} v{i}", "X X NOUN NOUN X", f"n{i}") for i in range(7)]
    test = [layered(long, tags.replace("ADJ", "NOUN"), "c"), layered(short, "VERB PRON", "d")]
    found = found_in(train=train, test=test)
    assert found["leak"].title == "1 sentence of test (50.0 %) is also in train."  # not "thank you"
    conflict = found["conflict"]
    assert conflict.title == "1 sentence is annotated in more than one way."
    assert conflict.places[0].detail.startswith("sentence 'a' · word 5 'big': upos ADJ / NOUN")


def test_names_of_tags_are_looked_at():
    train = [layered("a b", "NOUN VERB") for _ in range(400)]
    train += [layered("c d", "noun VREB"), layered("e f", "NOUN ADV")]
    found = found_in(train=train, test=[layered("e f", "NOUN INTJ")])
    typo = found["tag typo"]
    assert typo.title.startswith("2 tags look like a misspelling of another one: ")
    assert "'noun' for 'NOUN'" in typo.title
    assert "'VREB' for 'VERB'" in typo.title
    assert found["unseen tag"].title == "1 tag of test never occurs in train (1 place): 'INTJ'."
    assert found["rare tag"].title == "1 tag of train has a single example: 'ADV'."


def test_tags_that_are_made_to_differ_are_no_slips():
    names = ("NN", "NNS", "NNP", "NNPS", "obj", "iobj", "obl")
    rows = [layered("a b", f"NN {name}") for name in names] + [layered("a b", "NN obj")] * 400
    assert "tag typo" not in found_in(train=rows)


def test_words_tagged_unlike_the_same_elsewhere():
    seen = TagVariation()
    for row in range(MIN_FREQUENCY_RATIO):
        seen.add_sentence(row, ("we", "saw", "it"), ("PRON", "VERB", "PRON"))
    seen.add_sentence(MIN_FREQUENCY_RATIO, ("we", "saw", "it"), ("PRON", "NOUN", "PRON"))
    seen.add_sentence(
        MIN_FREQUENCY_RATIO + 1, ("a", "saw", "it"), ("DET", "NOUN", "PRON")
    )  # another context
    (odd,) = seen.find_inconsistent()
    assert (odd.row, odd.word, odd.tag, odd.usual_tag, odd.usual_count) == (
        MIN_FREQUENCY_RATIO,
        1,
        "NOUN",
        "VERB",
        MIN_FREQUENCY_RATIO,
    )
    few = TagVariation()
    for tag in ["VERB"] * (MIN_FREQUENCY_RATIO - 1) + ["NOUN"]:
        few.add_sentence(0, ("saw",), (tag,))
    assert few.find_inconsistent() == []


def test_unusual_tags_are_reported_with_their_word():
    rows = [layered(f"we saw it {i}", "PRON VERB PRON X", f"s{i}") for i in range(6)]
    rows.append(layered("we saw it now", "PRON NOUN PRON X", "odd"))
    told_odd = found_in(train=rows)["odd tag"]
    place = told_odd.places[0]
    assert told_odd.title.startswith("1 word is tagged differently from the same word")
    assert place.detail == "sentence 'odd' · word 2 'saw' · NOUN here, VERB 6 times"


def test_long_sentences_say_what_a_model_does():
    rows = [layered("a b c", "X Y Z"), layered(" ".join(["w"] * 2000), " ".join(["X"] * 2000), "l")]
    long = found_in(train=rows)["long"]
    assert long.title == "1 sentence of train (50.0 %) has more than 512 words."
    assert long.places[0].detail == "sentence 'l' · 2,000 words"
    assert "in independent windows" in long.fix
