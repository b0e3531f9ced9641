"""Cuts learned from a file: splits, joins, what is not learned, the way back from JSON."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.config import recipe
from weft.errors import UserError
from weft.explain.token_level import answer_sentences
from weft.predict.conllu import sentence_of
from weft.text.example import Example
from weft.tokens import word_segmenter as module
from weft.tokens.pretokenizer import split_words, word_spans
from weft.tokens.word_segmenter import (
    DecisionList,
    SegmenterTrainer,
    WordSegmenter,
    rule_contexts,
    save,
    split_shared_offsets,
)


def example(cut: str) -> Example:
    """A sentence written with "~" where words meet without a space."""
    words, places, text = [], [], ""
    for match in re.finditer(r"([^ ~]+)([ ~]?)", cut):
        places.append((len(text), len(text) + len(match[1])))
        words.append(match[1])
        text += match[1] + " " * (match[2] == " ")
    return Example(text.rstrip(), words=tuple(words), places=tuple(places))


LESSONS = [
    example(text)
    for text in (
        "I do~n't know~, but Ann~'s dog was~n't there~.",
        "She did~n't see Bob~'s e-mail~.",
        "The U.S. and the U.K. are far~.",
        "It costs $~3.50~, I ca~n't say~.",
        "See http://a.org/b for Eve~'s well~-~made e-mail~!",
        "Go to http://c.org/d~, then to http://e.net/f now~.",
        "You can~not have Kim~'s cat~... They have~n't it~.",
    )
]
TAUGHT = WordSegmenter.train(LESSONS)


def cut(text: str) -> str:
    words, places = TAUGHT.words_of(text)
    assert [text[start:end] for start, end in places] == list(words)
    return " ".join(words)


def test_training_texts_are_segmented_as_annotated():
    for one in LESSONS:
        assert TAUGHT.words_of(one.text) == (one.words, one.places)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Pat's", "Pat 's"),
        ("couldn't.", "could n't ."),
        ("http://z.org/y", "http://z.org/y"),
        ("U.N.", "U.N."),
        ("$7", "$ 7"),
        ("half-made,", "half - made ,"),
        ("Cannot", "Can not"),
        ("connote cannon", "connote cannon"),
        ("no。", "no 。"),  # never seen: as the regular expression has it
    ],
)
def test_unseen_texts_are_segmented_by_analogy(text, wanted):
    assert cut(text) == wanted
    assert cut(text) == wanted  # from memory


def test_the_more_frequent_cut_is_kept():
    seldom = [example("it~s Bo~'s~.")] + [example("its Bo~'s~.")] * 2
    often = [example("it~s Bo~'s~.")] * 2 + [example("its Bo~'s~.")]
    assert WordSegmenter.train(seldom).words_of("its")[0] == ("its",)
    assert WordSegmenter.train(often).words_of("its")[0] == ("it", "s")


def test_words_of_a_multi_word_token_are_cut_where_they_spell_it_out():
    one = Example(
        "du don't.", words=("de", "le", "do", "n't", "."),
        places=((0, 2), (0, 2), (3, 8), (3, 8), (8, 9)),
    )  # fmt: skip
    assert split_shared_offsets(one) == [(0, 2), (0, 2), (3, 5), (5, 8), (8, 9)]
    assert WordSegmenter.train([one]).words_of("Du don't.")[0] == ("Du", "do", "n't", ".")


def test_words_joined_by_spaces_teach_nothing():
    assert (
        WordSegmenter.train([example("Ann 's dog - a cat , here ."), Example("No words here.")])
        is None
    )


def test_words_of_the_regular_expression_teach_nothing():
    text = "Ann's e-mail, 3.5 or so..."
    words, places = split_words(text)
    assert WordSegmenter.train([Example(text, words=words, places=places)]) is None


def test_examples_pass_through_unchanged():
    lessons = SegmenterTrainer()
    assert list(lessons.observe(iter(LESSONS))) == LESSONS
    assert lessons.build().to_json() == TAUGHT.to_json()


def test_the_order_of_examples_does_not_matter():
    assert WordSegmenter.train(LESSONS[::-1]).to_json() == TAUGHT.to_json()


TEXTS = st.text("aAbnotcés'’.-:/ 0$!İß\x1c\ud800あ🙂", max_size=23)


@given(TEXTS)
def test_nothing_but_space_is_lost(text):
    words, places = TAUGHT.words_of(text)
    assert [text[start:end] for start, end in places] == list(words)
    ends = [0, *(end for _, end in places)]
    for end, start in zip(ends, [*(start for start, _ in places), len(text)], strict=True):
        assert not text[end:start].strip(" ")
    assert all(a < b for a, b in places)


@given(TEXTS)
def test_without_rules_it_is_the_regular_expression(text):
    assert WordSegmenter(DecisionList({}), {}).words_of(text) == split_words(text)


def by_every_rule(rules: dict[str, float], piece: str) -> tuple[int, ...]:
    """The slow way: each rule looked up at each place."""
    plain = {start for start, _ in word_spans(piece)}
    found = []
    for place, names in rule_contexts(piece):
        sure = max((rules.get(name, 0.0) for name in names), key=abs)
        if sure > 0 or (sure == 0 and place in plain):
            found.append(place)
    return tuple(found)


@pytest.mark.parametrize("piece", ["annotation", "Ananas", "no", "n0-ann'a.", "(été)", "a|bc|"])
def test_each_rule_applies_where_its_context_matches(piece):
    for name in sorted({name for _, names in rule_contexts(piece) for name in names}):
        for sure in (0.8, -0.8):
            assert DecisionList({name: sure}).cut(piece) == by_every_rule({name: sure}, piece), name


@given(st.data(), st.text("Aano'.-0é", min_size=2, max_size=11))
def test_the_surest_rule_decides(data, piece):
    known = sorted({name for _, names in rule_contexts(piece) for name in names})
    some = data.draw(st.lists(st.sampled_from(known), max_size=3, unique=True))
    rules = {name: data.draw(st.sampled_from([-0.9, -0.7, 0.8, 0.6])) for name in some}
    assert DecisionList(rules).cut(piece) == by_every_rule(rules, piece)


def test_there_and_back(tmp_path):
    path = tmp_path / "cuts.json"
    save(TAUGHT, path)
    again = WordSegmenter.load(path)
    assert again.to_json() == TAUGHT.to_json()
    assert again.words_of("Pat's e-mail cannot.") == TAUGHT.words_of("Pat's e-mail cannot.")
    save(None, path)
    assert WordSegmenter.load(path) is None


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"cut": {}, "keep": {}}', '{"cut": {"x": 1}, "keep": {}, "pieces": []}',
     '{"cut": {"kinds ": 1}, "keep": {}, "pieces": []}',
     '{"cut": {"two ab|cdef": "much"}, "keep": {}, "pieces": []}'],
)  # fmt: skip
def test_a_damaged_file_is_named(text, tmp_path):
    path = tmp_path / "cuts.json"
    path.write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"cuts\.json: not how a model cuts words, or damaged"):
        WordSegmenter.load(path)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_CACHED_CHUNKS", len(TAUGHT.exceptions) + 3)
    cuts = WordSegmenter(TAUGHT.rules, TAUGHT.exceptions)
    for letter in "ABCDEFGHIJK":
        assert cuts.words_of(f"{letter}am's")[0] == (f"{letter}am", "'s")
        assert len(cuts._cache) <= module.MAX_CACHED_CHUNKS
    cuts.words_of("a" * 100_000 + ".")  # in the time of a blink, and not remembered
    assert max(map(len, cuts._cache)) <= module.MAX_CACHED_LETTERS


SMALL = {
    "tagger-bilstm": {"encoder.hidden": 5, "train.epochs": 2, "tokenizer.min_count": 1},
    "crf": {"classic.iterations": 5},
}


def treebank(path):
    """A CoNLL-U file in which "don't" is two words, once as a multi-word token."""
    rows = ["1-2\tDon't", "1\tDo", "2\tn't", "3\tgo\tSpaceAfter=No", "4\t."]
    other = ["1\tYou", "2\tdid\tSpaceAfter=No", "3\tn't", "4\tgo\tSpaceAfter=No", "5\t!"]
    lines = []
    for n, sentence in enumerate([rows, other] * 11):
        lines.append(f"# sent_id = s{n}")
        for row in sentence:
            number, form, space = (*row.split("\t"), "_")[:3]
            tag = "_" if "-" in number else "PUNCT" if form in ".!" else "X"
            lines.append(f"{number}\t{form}\t_\t{tag}\t_\t_\t_\t_\t_\t{space}")
        lines.append("")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.parametrize("name", SMALL)
def test_a_model_cuts_plain_text_as_its_training_file_does(name, tmp_path):
    if name == "crf":
        pytest.importorskip("pycrfsuite")
    values = {**SMALL[name], "data.train": str(treebank(tmp_path / "a.conllu"))}
    folder = tmp_path / "run"
    weft.train(recipe(name).with_values(values, "test"), folder, quiet=True, device="cpu")
    loaded = weft.load(folder, device="cpu")
    text, wanted = "You don't go!", ("You", "do", "n't", "go", "!")
    (answer,) = loaded([text])
    assert answer.structure.words == wanted
    assert answer.structure.places == ((0, 3), (4, 6), (6, 9), (10, 12), (12, 13))
    assert [word.form for word in sentence_of(answer.structure, "1").words] == list(wanted)
    ((example, again),) = answer_sentences(loaded, [text])
    assert (example.words, again.structure) == (wanted, answer.structure)
    (folder / "model" / "cuts.json").unlink()  # as in a model of an earlier Weft
    older = weft.load(folder, device="cpu", replay=False)
    assert older([text])[0].structure.words == ("You", "don't", "go", "!")


def test_words_joined_by_spaces_leave_the_model_without_cuts(tmp_path):
    rows = [f"It X\n's X\nfar{n} Y\n. Y\n\n" for n in range(23)]
    (tmp_path / "a.conll").write_text("".join(rows), "utf-8")
    values = {**SMALL["tagger-bilstm"], "data.train": str(tmp_path / "a.conll")}
    config = recipe("tagger-bilstm").with_values(values, "test")
    found = weft.train(config, tmp_path / "run", quiet=True, device="cpu").predictor
    assert not (tmp_path / "run" / "model" / "cuts.json").exists()
    assert found(["It's far."])[0].structure.words == ("It's", "far", ".")


def test_a_training_that_goes_on_keeps_its_cuts(tmp_path):
    file = treebank(tmp_path / "a.conllu")
    values = {**SMALL["tagger-bilstm"], "data.train": str(file)}
    config = recipe("tagger-bilstm").with_values(values, "test")
    first = weft.train(config, tmp_path / "run", quiet=True, device="cpu").predictor
    again = weft.train(config, tmp_path / "run", quiet=True, device="cpu", resume=True).predictor
    assert again.engine.indexer.segmenter.to_json() == first.engine.indexer.segmenter.to_json()
    bare = replace(first.engine.indexer, segmenter=None)
    assert [row.words for row in bare.sentence_rows(["don't"])] == [("don't",)]
    assert [row.words for row in again.engine.indexer.sentence_rows(["Don't"])] == [("Do", "n't")]
