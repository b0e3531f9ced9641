"""The made treebank: one set of sentences in every format, sound, varied and always the same."""

import hashlib
import json
import re
from collections import Counter, defaultdict

import pytest

from tests.fixtures.command import fails, ok
from weft.errors import UserError
from weft.text.annotation import schemes, trees
from weft.text.annotation.constituents import tree_to_spans
from weft.text.formats import brackets, conllu
from weft.text.formats.conllu_offsets import locate_words
from weft.text.read import read
from weft.text.synthetic.corpora import corpus
from weft.text.synthetic.grammar import HEAD, Grammar, Phrase
from weft.text.synthetic.lexicon import ATTRIBUTES, EVENTS, STATES, Leaf
from weft.text.synthetic.treebank import (
    KINDS,
    _build_sentence,
    _rate,
    generate_treebank,
    write_treebank,
)

DIGEST = "2f2d6df03c7399f965b8078c4a19c63ffede7d74b395cdcfff0ea81736c3dc0b"


@pytest.fixture(scope="module")
def made():
    return generate_treebank()


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    place = tmp_path_factory.mktemp("treebank")
    write_treebank(place, made)
    return place


def whole(made):
    return [one for part in made.values() for one in part]


def test_the_bytes_never_change(made):
    files = "".join(one.format_as(kind) for one in whole(made) for kind in KINDS)
    assert hashlib.sha256(files.encode()).hexdigest() == DIGEST


def test_another_seed_writes_other_sentences(made):
    other = generate_treebank(seed=1, size=50)
    assert not {m.text for m in whole(other)} & {m.text for m in made["train"][:35]}
    assert {name: len(part) for name, part in other.items()} == {"train": 35, "dev": 5, "test": 10}
    assert len(corpus("treebank")["train"]) == 1400


def test_no_sentence_comes_twice(made):
    texts = [one.text for one in whole(made)]
    assert len(set(texts)) == len(texts) == 2000


def test_every_format_has_the_same_words(folder, made):
    for split, part in made.items():
        for kind in ("conllu", "conll", "ptb", "trees"):
            found = list(read(folder / f"{split}.{kind}"))
            words = [tuple(e.tree.words) if e.tree else e.words for e in found]
            assert words == [one.forms for one in part]
        texts = [one.text for one in part]
        assert [e.text for e in read(folder / f"{split}.jsonl")] == texts
        assert (folder / f"{split}.txt").read_text("utf-8").splitlines() == texts


def test_conllu_is_sound_and_written_back_byte_for_byte(folder):
    for path in folder.glob("*.conllu"):
        sentences = list(conllu.read_conllu(path))
        assert "".join(map(conllu.format, sentences)).encode() == path.read_bytes()
        for sentence in sentences:
            assert conllu.validate(sentence) == []
            locate_words(sentence)  # raises where the text is not what the forms say
            for word in sentence.words:
                feats = [] if word.feats == "_" else word.feats.split("|")
                assert feats == sorted(feats)
                assert (word.deprel == "root") == (word.head == "0")


def test_arcs_do_not_cross(made):
    for one in whole(made):
        arcs = [tuple(sorted((i, head))) for i, head in enumerate(one.heads, 1) if head]
        for a, b in arcs:
            assert not any(a < c < b < d for c, d in arcs), one.text


def test_coordinators_attach_to_the_following_conjunct(made):
    for one in whole(made):
        for i, relation in enumerate(one.relations):
            if relation == "cc":
                assert one.heads[i] > i + 1
                assert one.relations[one.heads[i] - 1] == "conj"


def test_every_constituent_hangs_on_one_word(made):
    """Brackets and heads tell the same story: one word of a phrase has its head outside of it."""
    for one in made["test"]:
        for label, start, end in tree_to_spans(one.tree):
            inside = range(start + 1, end + 1)
            outer = [i for i in inside if one.heads[i - 1] not in inside]
            assert len(outer) == 1, (label, one.text)


def test_subjects_and_verbs_agree(made):
    checked = 0
    for one in whole(made):
        for i, (leaf, head) in enumerate(zip(one.leaves, one.heads, strict=True)):
            if one.relations[i] != "nsubj" or one.leaves[head - 1].xpos not in ("VBZ", "VBP"):
                continue
            joined = ("conj", i + 1) in zip(one.relations, one.heads, strict=True)
            if leaf.xpos in ("NN", "NNP") and not joined:
                assert one.leaves[head - 1].xpos == "VBZ", one.text
            if leaf.xpos == "NNS" or joined:
                assert one.leaves[head - 1].xpos == "VBP", one.text
            checked += 1
    assert checked > 100


def test_the_verb_decides_what_with_belongs_to(made):
    """A tool hangs on what is done with it, everything else on the noun; some words are both."""
    tools = {v.forms.split()[0]: v.tools.split() for v in (*EVENTS, *STATES)}
    hung = defaultdict(set)
    for one in whole(made):
        for i, leaf in enumerate(one.leaves):
            if leaf.lemma != "with":
                continue
            thing = one.heads[i] - 1
            above = one.leaves[one.heads[thing] - 1]
            if above.upos == "VERB":
                assert one.leaves[thing].lemma in tools[above.lemma], one.text
            else:
                assert any(
                    one.leaves[thing].lemma in words.split() for words in ATTRIBUTES.values()
                )
            hung[one.leaves[thing].lemma].add(above.upos == "VERB")
    assert sum(len(kinds) == 2 for kinds in hung.values()) >= 5  # camera, phone, telescope, …


def test_words_have_more_than_one_use(made):
    tags, names = defaultdict(set), defaultdict(set)
    for one in whole(made):
        for form, leaf in zip(one.forms, one.leaves, strict=True):
            tags[form].add(leaf.xpos)
        for label, start, end in one.entities:
            for form in one.forms[start:end]:
                names[form].add(label)
    assert sum(len(found) > 1 for found in tags.values()) >= 15
    assert tags["that"] == {"DT", "IN", "WDT"}
    assert {"NN", "VB"} <= tags["film"]
    assert sum(len(found) > 1 for found in names.values()) >= 15
    assert names["Florence"] == {"PER", "LOC", "ORG"}
    known = {form for one in made["train"] for form in one.forms}
    assert sum(form not in known for one in made["test"] for form in one.forms) > 20


def test_entities_are_the_same_in_words_and_in_characters(folder, made):
    for one, row in zip(made["dev"], (folder / "dev.jsonl").read_text().splitlines(), strict=True):
        spans = json.loads(row)["spans"]
        words = [" ".join(one.forms[i:j]) for _, i, j in one.entities]
        assert [one.text[s["start"] : s["end"]] for s in spans] == words
    for example in read(folder / "test.conll"):
        assert schemes.find_fault(example.label.columns["tag"], "IOB2") is None


def test_rated_trees_have_two_children_and_a_label_everywhere(made):
    counts = Counter(one.rated.label for one in whole(made))
    assert set(counts) == set("01234")
    assert min(counts.values()) > 150
    for one in whole(made):
        for node in trees.iter_nodes(one.rated):
            assert len(node.children) in (0, 2)
            assert node.label in "01234"


SHIFTS = {
    "horrible": (-2, ""), "wonderful": (2, ""), "dull": (-1, ""), "failure": (-1, ""),
    "likes": (1, ""), "love": (2, ""), "warm": (1, ""), "never": (0, "not"), "no": (0, "not"),
    "very": (0, "more"), "fairly": (0, "less"), "but": (0, "but"), "although": (0, "although"),
}  # fmt: skip


def phrase(parts):
    """Words of SHIFTS, and others that say nothing, in nested tuples."""
    if isinstance(parts, str):
        sentiment, shift = SHIFTS.get(parts, (0, ""))
        return Leaf(parts, parts, "X", "X", sentiment=sentiment, polarity_shift=shift)
    return Phrase("X", tuple((HEAD, phrase(part)) for part in parts))


@pytest.mark.parametrize(
    ("parts", "labels"),
    [
        ((("a", "nurse"), ("is", "horrible"), "."), "0 2 2 2 0 0 2 0 2"),
        ((("a", "nurse"), ("is", "never", "wonderful")), "1 2 2 2 1 2 1 2 4"),
        ((("cake", ("is", "never", ("a", "failure")))), "3 2 3 2 3 2 1 2 1"),
        (("warm", ("very", "warm")), "4 3 4 2 3"),
        (("is", ("fairly", "horrible")), "1 2 1 2 0"),
        ((("it", "wonderful"), "but", ("it", "dull")), "1 4 2 4 1 2 1 2 1"),
        ((("although", ("it", "wonderful")), ("it", "dull")), "1 4 2 4 2 4 1 2 1"),
        ((("it", "dull"), ("although", ("it", "wonderful"))), "1 1 2 1 4 2 4 2 4"),
        ((("no", "critic"), ("likes", "it")), "1 2 2 2 3 3 2"),
        (("we", ("love", ("no", "film"))), "1 2 1 4 2 2 2"),
    ],
)
def test_negation_and_contrast_flip_phrase_sentiment(parts, labels):
    forms = re.findall(r"\w+|\.", str(parts))
    rated = _rate(phrase(parts), iter(forms)).tree
    assert rated.words == forms
    assert [node.label for node in trees.iter_nodes(rated)] == list(labels.replace(" ", ""))


def test_brackets_are_what_a_treebank_has(folder):
    first = next(brackets.read_brackets(folder / "train.ptb"))
    assert first.tree.label in ("S", "SQ")
    assert brackets.strip(first.tree) == first.tree  # neither traces nor function tags
    labels = Counter(
        node.label for e in read(folder / "train.ptb") for node in trees.iter_nodes(e.tree)
    )
    assert {"S", "SQ", "SBAR", "NP", "VP", "PP", "ADJP", "WHNP"} <= set(labels)


def test_no_comma_stands_before_a_stop():
    grammar = Grammar("commas")
    texts = [_build_sentence(grammar.sentence(), "x").text for _ in range(500)]
    assert not [text for text in texts if ",." in text or ",," in text or " ," in text]


def test_files_of_others_are_left_alone(tmp_path, made):
    (tmp_path / "dev.conllu").write_text("mine\n", "utf-8")
    with pytest.raises(UserError, match=r"dev\.conllu exists with other contents"):
        write_treebank(tmp_path, made)
    assert [path.name for path in tmp_path.iterdir()] == ["dev.conllu"]
    told = fails("demo", "--treebank", tmp_path)
    assert "Pass another folder." in told


def test_the_demo_writes_it_twice_without_a_word(tmp_path):
    out = ok("demo", "--treebank", tmp_path / "tb").out
    assert "train.conllu, dev.conllu, test.conllu" in out
    assert out.splitlines()[-1].startswith("next: weft train --recipe tagger-bilstm --train ")
    assert ok("demo", "--treebank", tmp_path / "tb", "--quiet").out == ""
    assert len(list((tmp_path / "tb").iterdir())) == 3 * len(KINDS)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "a").write_text("x")
    with pytest.raises(UserError, match=r"is a file\. Pass a folder"):
        write_treebank(tmp_path / "a")


def test_questions_have_one_answer_in_their_sentence(tmp_path):
    write_treebank(tmp_path, generate_treebank(size=200))
    rows = (tmp_path / "train.tsv").read_text("utf-8").splitlines()
    assert rows[0] == "question\tcontext\tanswer\tanswer_start"
    assert len(rows) > 20
    for row in rows[1:]:
        _, context, answer, start = row.split("\t")
        assert context[int(start) : int(start) + len(answer)] == answer
    pairs = [tuple(row.split("\t")[:2]) for row in rows[1:]]
    assert len(pairs) == len(set(pairs))
