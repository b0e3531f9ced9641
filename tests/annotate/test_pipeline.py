"""weft.Pipeline: sentences, words and every layer, with offsets into the text."""

import json
from itertools import pairwise

import pytest

import weft
from weft.annotate import Pipeline, SourceText, segment
from weft.annotate.segment import Segmenter, split_document, split_paragraphs
from weft.annotate.sources import read_sources
from weft.compare.prepare import find_tasks
from weft.compare.write_test_split import write_test_split
from weft.errors import UserError
from weft.run.data import Data
from weft.text.formats.conllu import read_conllu
from weft.text.formats.documents import locate_sentences, split_sentences
from weft.text.formats.structured import MAX_PARAGRAPH_WORDS, group_paragraphs, join_sentences
from weft.text.read import read

TEXT = (
    "The bee sees the ant. The dog eats the bee.\n\n"
    "Ada Lee lives in Rome .  The cow hears\nthe dog."
)


def test_every_layer_has_offsets_into_the_text(pipeline):
    assert pipeline.layers == ("tags", "dependencies", "roles", "entities", "coreference")
    (document,) = pipeline([TEXT])
    assert len(document.sentences) == 4
    assert [TEXT[one.start : one.end] for one in document.sentences] == [
        "The bee sees the ant.", "The dog eats the bee.", "Ada Lee lives in Rome .",
        "The cow hears\nthe dog.",
    ]  # fmt: skip
    assert [one.begins_paragraph for one in document.sentences] == [True, False, True, False]
    for one in document.sentences:
        assert one.words == tuple(TEXT[a:b] for a, b in one.places)
        assert len(one.heads) == len(one.relations) == len(one.words)
        assert set(one.tags) == {"upos", "feats", "xpos"}
        assert all(0 <= head <= len(one.words) for head in one.heads)
        for word, _, roles in one.frames:
            assert 0 <= word < len(one.words)
            assert all(0 <= i < j <= len(one.words) for _, i, j in roles)
    assert document.sentences[0].tags["xpos"] == (
        "XDET", "XNOUN", "XVERB", "XDET", "XNOUN", "XPUNCT",
    )  # fmt: skip
    assert ("Ada Lee", "PER") in [(TEXT[a:b], label) for a, b, label in document.entities]
    for spans in document.chains().values():
        assert all(TEXT[a:b].strip() == TEXT[a:b] for a, b in spans)
    saved = json.loads(json.dumps(document.to_json()))
    tokens = [token for one in saved["sentences"] for token in one["tokens"]]
    assert all(TEXT[token["start"] : token["end"]] == token["text"] for token in tokens)
    assert {"head", "deprel", "upos"} <= set(tokens[0])


def test_a_layer_is_what_its_model_alone_predicts(models, pipeline):
    (document,) = pipeline([TEXT])
    parser = weft.load(models["parser"])
    for one in document.sentences:
        places = tuple((a - one.start, b - one.start) for a, b in one.places)
        example = weft.Example(TEXT[one.start : one.end], words=one.words, places=places)
        (answer,) = parser([example])
        assert answer.structure.heads == one.heads
        assert tuple(tag.split(" ")[0] for tag in answer.structure.tags) == one.tags["upos"]


def test_documents_do_not_influence_each_other(pipeline, monkeypatch):
    texts = [TEXT, "", "  \n\n ", "The ant sees the cow.", TEXT[::-1]]
    alone = [pipeline([text])[0] for text in texts]
    assert pipeline(texts) == alone
    assert alone[1].sentences == alone[2].sentences == ()
    monkeypatch.setattr("weft.annotate.pipeline.MAX_BATCH_CHARACTERS", 10)
    assert pipeline(texts) == alone
    assert pipeline.annotators[0].speed.words > 0


def test_long_documents_are_annotated_in_parts(models, tmp_path, monkeypatch):
    for module in ("segment", "sources"):
        monkeypatch.setattr(f"weft.annotate.{module}.MAX_DOCUMENT_CHARACTERS", 60)
    (tmp_path / "a.txt").write_bytes(TEXT.replace("\n", "\r\n").encode())
    whole = TEXT.replace("\n", "\r\n")
    parts = list(read_sources([str(tmp_path / "a.txt")]))
    assert [one.part for one in parts] == list(range(1, len(parts) + 1))
    assert len(parts) > 1
    assert "".join(one.text for one in parts) == whole
    assert all(whole[one.start :].startswith(one.text) for one in parts)
    again = list(split_document(SourceText(whole)))
    assert [(one.text, one.start) for one in again] == [(one.text, one.start) for one in parts]
    only = Pipeline.load([models["sentences"]])
    found = only([whole])
    assert only.parts == 1
    assert found[1].to_json()["start"] == found[1].source.start > 0
    assert found[1].name.endswith(".2")


def test_long_sentences_are_cut(pipeline, monkeypatch):
    monkeypatch.setattr(segment, "MAX_SENTENCE_WORDS", 5)
    (document,) = pipeline(["the " * 12])
    assert [len(one.words) for one in document.sentences] == [5, 5, 2]
    assert [one.begins_paragraph for one in document.sentences] == [True, False, False]


def test_without_a_splitter_rules_and_blank_lines_end_sentences():
    text = "Mr. Lee left at 5 p.m. on May 3. Why? (He was ill.)\n\nno stop here\n \nEnd"
    (sentences,) = Segmenter(None).split([SourceText(text)])
    assert [text[one.start : one.end] for one in sentences] == [
        "Mr. Lee left at 5 p.m. on May 3.", "Why?", "(He was ill.)", "no stop here", "End",
    ]  # fmt: skip
    assert [one.begins_paragraph for one in sentences] == [True, False, False, True, True]
    assert split_paragraphs("\n\n a \n\t\nb\nc\n\n") == [(3, 4), (8, 11)]
    line = " One here.  Two there! "
    assert [line[a:b] for a, b in locate_sentences(line)] == split_sentences(line)


def test_words_are_cut_as_a_model_has_learned(models):
    # "cat-fish" is one word of the regular expression's three.
    lines = [f"{i}\tcat-fish\t_\tX\t_\t_\t0\troot\t_\tSpaceAfter=No\n" for i in (1,)]
    text = "# text = cat-fish.\n" + lines[0] + "2\t.\t_\tX\t_\t_\t1\tp\t_\t_\n\n"
    path = models["names"].parent / "d.conllu"
    path.write_text(text * 20, "utf-8")
    made = weft.recipe("crf").with_values({"data.train": str(path)}, "test")
    weft.train(made, path.with_suffix(""), quiet=True, device="cpu")
    (document,) = Pipeline.load([path.with_suffix("")])(["cat-fish. Cat-fish."])
    assert document.words == ("cat-fish", ".", "Cat-fish", ".")


def test_paragraphs_of_a_treebank_are_running_text(tmp_path):
    (tmp_path / "a.conllu").write_text(
        "# newdoc id = d\n# newpar\n# text = It's here\n1-2\tIt's\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "1\tIt\t_\tX\t_\t_\t0\troot\t_\t_\n2\t's\t_\tX\t_\t_\t1\td\t_\t_\n"
        "3\there\t_\tX\t_\t_\t1\td\t_\tSpaceAfter=No\n\n"
        "# text = , too.\n1\t,\t_\tX\t_\t_\t2\td\t_\t_\n2\ttoo\t_\tX\t_\t_\t0\troot\t_\t"
        "SpaceAfter=No\n3\t.\t_\tX\t_\t_\t2\td\t_\t_\n\n"
        "# newpar id = p2\n# text = End\n1\tEnd\t_\tX\t_\t_\t0\troot\t_\t_\n\n",
        "utf-8",
    )
    first, second = read(tmp_path / "a.conllu", format="paragraphs")
    assert first.text == "It's here, too."
    assert [first.text[a:b] for a, b in first.places] == ["It's", "It's", "here", ",", "too", "."]
    assert first.label.columns["sentence"] == (
        "B-sentence", *["I-sentence"] * 2, "B-sentence", *["I-sentence"] * 2,
    )  # fmt: skip
    assert second.text == "End"
    assert second.line == 14
    (sentence,) = [s for s in read_conllu(tmp_path / "a.conllu") if s.text == "End"]
    groups = list(group_paragraphs([sentence] * 3))
    assert [len(group) for group in groups] == [1, 1, 1]
    plain = [s for s in read_conllu(tmp_path / "a.conllu") if s.text == ", too."]
    groups = list(group_paragraphs(plain * 400))  # no marks: cut by length
    assert all(len(join_sentences(g).words) <= MAX_PARAGRAPH_WORDS for g in groups)
    assert sum(map(len, groups)) == 400


def test_compare_fits_sentences_and_keeps_whole_paragraphs(models, tmp_path):
    path = models["sentences"].parent / "a.conllu"
    assert find_tasks(Data(train=str(path)))[-1] == "sentences"
    data = Data(train=str(path), format="paragraphs")
    assert find_tasks(data) == ("sentences",)
    rows = list(read(path, format="paragraphs"))[1::2]
    written = write_test_split(data, lambda: iter(rows), tmp_path)
    again = list(read(written, format="paragraphs"))
    assert [(e.text, e.places, e.label) for e in again] == [
        (e.text, e.places, e.label) for e in rows
    ]


def test_a_splitter_is_a_tagger_of_words_with_its_own_scores(models):
    splitter = weft.load(models["sentences"])
    (answer,) = splitter(["The bee sees the ant. The dog eats the bee."])
    assert [(one["start"], one["end"]) for one in answer.value] == [(0, 21), (22, 43)]
    scores = weft.evaluate(splitter, models["sentences"].parent / "a.conllu")
    metrics = scores.compute(resamples=0)
    assert metrics["f1"].value > 0.95
    assert metrics["f1"].n == 30


def test_models_that_do_not_fit_together_are_refused(models, pipeline, tmp_path):
    loaded = {str(k): weft.load(v) for k, v in models.items() if k in ("parser", "names", "chains")}
    with pytest.raises(UserError, match="at least one model"):
        Pipeline({})
    for name, layer in {
        "parser": "dependencies",
        "names": "entities",
        "chains": "coreference",
    }.items():
        with pytest.raises(UserError, match=f"both give the {layer}. Leave one out"):
            Pipeline({"a": loaded[name], "b": loaded[name]})
    with pytest.raises(UserError, match="a list of texts"):
        pipeline("a text")
    (tmp_path / "t.tsv").write_text("a\tx\nb\ty\n" * 9, "utf-8")
    made = weft.recipe("bag").with_values(
        {"data.train": str(tmp_path / "t.tsv"), "train.epochs": 1, "embedder.width": 3}, "test"
    )
    weft.train(made, tmp_path / "bag", quiet=True, device="cpu")
    with pytest.raises(UserError, match="'classify', which annotates no words"):
        Pipeline.load([tmp_path / "bag"])


def test_spans_of_a_batch_stay_in_order(pipeline):
    documents = pipeline(["Ada Lee lives in Oslo .", "Bo Fox lives in Bonn ."] * 3)
    for document in documents:
        assert all(a.end <= b.start for a, b in pairwise(document.sentences))
        assert all(0 <= a < b <= len(document.text) for a, b, _ in document.entities)
