"""Trees from file to answer: dependencies, constituents, and labels at every node."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures.parsed_files import bracketed
from tests.fixtures.tagged_files import NOUNS, VERBS, conllu
from weft.config import recipe
from weft.errors import UserError
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.text.annotation import trees
from weft.text.read import read

WORDS = {
    "tokenizer.min_count": 1,
    "embedder": [{"kind": "lookup", "width": 13}, {"kind": "character-cnn", "width": 5}],
    "encoder.hidden": 17, "encoder.layers": 1, "encoder.dropout": 0.0,
    "train.batch_size": 8, "train.learning_rate": 0.02, "train.ema_decay": 0, "train.warmup": 0.0,
    "train.schedule": "constant",
}  # fmt: skip
ARCS = {**WORDS, "head.arc": 11, "head.label": 7, "head.dropout": 0.0, "train.epochs": 12}
SPANS = {
    **WORDS, "head.hidden": 19, "head.dropout": 0.0, "train.epochs": 15,
    "train.learning_rate": 0.005,
}  # fmt: skip
NODES = {
    "embedder.width": 11, "embedder.word_dropout": 0.0, "train.epochs": 20, "train.batch_size": 5,
    "train.patience": 0,
    "head.dropout": 0.0, "train.learning_rate": 0.1, "train.head_learning_rate": 0.1,
    "train.clip_norm": 1.0,
}  # fmt: skip
GOOD, BAD = ("fine", "lovely", "great"), ("dull", "poor", "sad")


def trained(name, file, folder, **changes):
    config = recipe(name).with_values({"data.train": str(file), **changes}, "test")
    return weft.train(config, folder, quiet=True, device="cpu")


def sentiment(path, count=60, turning=True):
    """A phrase is as good as its word; 'not' turns it round, which no sum of vectors can."""
    rng = np.random.default_rng(6)
    lines = []
    for _ in range(count):
        good, turned = rng.integers(2, size=2)
        word, own = rng.choice(GOOD if good else BAD), 4 if good else 0
        label = 4 - own if turned else own
        first = "not" if turned else "so"
        label = label if turning else own
        lines.append(f"({label} (2 It) ({label} (2 is) ({label} (2 {first}) ({own} {word}))))")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def test_a_parser_learns_heads_relations_and_tags(tmp_path):
    file = conllu(tmp_path / "a.conllu")
    out = trained("parser-tagger", file, tmp_path / "run", **ARCS)
    assert out.figures["dev"]["las"].value == 1.0
    assert out.figures["dev"]["feats"].value == 1.0
    predictor = load(tmp_path / "run/model", device="cpu")
    (answer,) = predictor(["The bee sees the cow."])
    assert [word["head"] for word in answer.value] == [2, 3, 0, 5, 3, 3]
    assert answer.value[4] == {
        "text": "cow", "start": 17, "end": 20, "head": 3, "relation": "dep",
        "upos": "NOUN", "xpos": "XNOUN", "feats": "Number=Sing",
    }  # fmt: skip
    assert answer.structure.kind == "arcs"
    assert answer.structure.tags[0] == "DET XDET _"
    assert 0 < answer.score <= 1


def test_a_parser_without_tags_says_none(tmp_path):
    out = trained("parser", conllu(tmp_path / "a.conllu", 20), tmp_path / "run", **ARCS)
    assert "upos" not in out.figures["dev"]
    (answer,) = out.predictor(["the cow"])
    assert set(answer.value[0]) == {"text", "start", "end", "head", "relation"}


def test_gold_of_a_parse_is_what_the_file_says(tmp_path):
    file = conllu(tmp_path / "a.conllu", 20)
    out = trained("parser-tagger", file, tmp_path / "run", **{**ARCS, "train.epochs": 1})
    gold = out.predictor.task.gold(next(read(file)), out.predictor.space)
    assert gold.heads == (2, 3, 0, 5, 3, 3)
    assert gold.relations[2] == "root"


def test_every_parse_is_a_tree_with_one_root(tmp_path):
    out = trained(
        "parser", conllu(tmp_path / "a.conllu", 20), tmp_path / "run", **{**ARCS, "train.epochs": 1}
    )
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(NOUNS, n)) for n in (1, 2, 7, 19)]
    for answer in out.predictor(texts):
        heads = [0, *(word["head"] for word in answer.value)]
        assert heads[1:].count(0) == 1
        for at in range(1, len(heads)):
            steps = 0
            while at and steps < len(heads):
                at, steps = heads[at], steps + 1
            assert at == 0
        relations = [word["relation"] for word in answer.value]
        assert [r == "root" for r in relations] == [head == 0 for head in heads[1:]]


def test_words_without_heads_cannot_teach_a_parser(tmp_path):
    file = conllu(tmp_path / "a.conllu", 3)
    lines = [line.split("\t") for line in file.read_text("utf-8").split("\n")]
    for cells in lines:
        if len(cells) == 10:
            cells[6] = cells[7] = "_"
    file.write_text("\n".join("\t".join(cells) for cells in lines), "utf-8")
    with pytest.raises(UserError, match=r"a\.conllu:\d+: sentence 's0': word 1 has no head"):
        trained("parser", file, tmp_path / "run")


def test_sentence_beyond_max_tokens_raises_user_error(tmp_path):
    file = conllu(tmp_path / "a.conllu", 3)
    with pytest.raises(UserError, match=r"sentence 's\d': a sentence of 6 words; .* at most 5"):
        trained("parser", file, tmp_path / "run", **{"data.max_tokens": 5})


def test_constituents_from_trees_over_many_lines(tmp_path):
    out = trained("constituency", bracketed(tmp_path / "a.mrg"), tmp_path / "run", **SPANS)
    assert out.figures["dev"]["f1"].value == 1.0
    assert out.figures["dev"]["tag"].value == 1.0
    predictor = load(tmp_path / "run/model", device="cpu")
    (answer,) = predictor(["The dog eats the cow ."])
    tree = "(S (NP (DT The) (NN dog)) (VP (VBZ eats) (NP (DT the) (NN cow))) (. .))"
    assert answer.value == tree
    assert answer.structure.tree == trees.parse(tree)
    assert predictor([next(read(tmp_path / "a.mrg"))])[0].value.count("(DT") == 2
    (empty,) = predictor([" "])
    assert (empty.value, empty.coverage) == ("", 0.0)


def test_constituents_by_greedy_merging(tmp_path):
    changes = {**SPANS, "train.epochs": 20, "head.dropout": 0.0}
    out = trained(
        "constituency-recursive", bracketed(tmp_path / "a.mrg"), tmp_path / "run", **changes
    )
    assert out.figures["dev"]["f1"].value > 0.97
    assert out.figures["dev"]["unlabelled_f1"].value >= out.figures["dev"]["f1"].value
    predictor = load(tmp_path / "run/model", device="cpu")
    answers = predictor(["The dog eats the cow .", "The", " "])
    tree = "(S (NP (DT The) (NN dog)) (VP (VBZ eats) (NP (DT the) (NN cow))) (. .))"
    assert answers[0].value == tree
    assert answers[1].structure.words == ("The",)
    assert answers[2].value == ""


def test_constituents_from_parse_bits(tmp_path):
    from weft.text.formats.brackets import read_brackets, strip, to_parse_bits

    rows = []
    for n, one in enumerate(read_brackets(bracketed(tmp_path / "a.mrg", 20))):
        tree = strip(one.tree)
        rows.append(f"# sent_id = s{n}")
        words, tags = tree.words, [x.label for x in trees.iter_nodes(tree) if not x.children]
        for i, cells in enumerate(
            zip(words, tags, to_parse_bits(tree.children[0]), strict=True), 1
        ):
            rows.append("\t".join([str(i), *cells]))
        rows.append("")
    file = tmp_path / "a.conll"
    file.write_text("\n".join(rows) + "\n", "utf-8")
    out = trained("constituency", file, tmp_path / "run", **{**SPANS, "train.epochs": 2})
    assert out.predictor.config["task"]["bits"] == "3"
    assert set(out.predictor.space.entries[0]) == {"S", "NP", "VP"}


def test_a_file_without_trees_has_no_constituents(tmp_path):
    with pytest.raises(UserError, match=r"No column of parse bits such as \(S\(NP\* among"):
        trained("constituency", conllu(tmp_path / "a.conllu", 3), tmp_path / "run")


@pytest.mark.parametrize("name", ["tree-rnn", "rntn", "tree-lstm"])
def test_networks_over_trees_label_every_node(tmp_path, name):
    file = sentiment(tmp_path / "a.txt", turning=name != "tree-rnn")
    out = trained(name, file, tmp_path / "run", **NODES, **{"data.dev": str(file)})
    assert out.figures["dev"]["root"].value > 0.9
    assert out.figures["dev"]["nodes"].value > 0.9
    predictor = load(tmp_path / "run/model", device="cpu")
    given = "(4 (2 It) (4 (2 is) (4 (2 so) (4 great))))"
    (answer,) = predictor([given])
    assert answer.value == "4"
    assert trees.format(answer.structure.tree) == given
    assert len(answer.structure.scores) == 7
    assert answer.structure.scores[0] == pytest.approx(
        float(np.dot(answer.scores, np.linspace(-1, 1, 3))), abs=1e-6
    )


def test_a_tree_model_without_a_parser_asks_for_trees(tmp_path):
    file = sentiment(tmp_path / "a.txt", 20)
    out = trained("tree-rnn", file, tmp_path / "run", **{**NODES, "train.epochs": 1})
    with pytest.raises(
        UserError, match=r"text 2: this model needs a tree, and the text has none.*data\.parser"
    ):
        out.predictor(["(2 fine)", "It is fine"])
    plain = tmp_path / "b.csv"
    plain.write_text("text,label\nIt is fine,4\nIt is dull,0\n", "utf-8")
    with pytest.raises(UserError, match=r"b\.csv:\d: there is no tree\..*data\.parser"):
        trained("tree-rnn", plain, tmp_path / "other")


def test_with_a_parser_trees_grow_from_plain_text(tmp_path):
    parser = trained(
        "constituency", bracketed(tmp_path / "a.mrg", 20), tmp_path / "p",
        **{**SPANS, "train.epochs": 2},
    )  # fmt: skip
    rows = [f"The {noun} {verb} it,{n}" for noun in NOUNS for n, verb in enumerate(VERBS[:2])]
    plain = tmp_path / "b.csv"
    plain.write_text("text,label\n" + "\n".join(rows) + "\n", "utf-8")
    changes = {**NODES, "data.parser": str(tmp_path / "p/model"), "data.dev": str(plain)}
    out = trained("tree-lstm", plain, tmp_path / "run", **{**changes, "train.epochs": 20})
    assert out.figures["dev"]["root"].value == 1.0
    (tmp_path / "p").rename(tmp_path / "gone")  # the model has a copy of it
    predictor = load(tmp_path / "run/model", device="cpu")
    said = predictor(["The cow eats it", "", "The cow sees it"])
    assert [one.value for one in said] == ["0", "", "1"]
    assert said[0].structure.words == ("The", "cow", "eats", "it")
    assert parser.predictor.parameters > 0


def test_measures_are_those_of_the_whole_file(tmp_path):
    file = sentiment(tmp_path / "a.txt", 30)
    out = trained("tree-rnn", file, tmp_path / "run", **{**NODES, "train.epochs": 1})
    found = evaluate(out.predictor, read(file)).compute(resamples=0)
    assert found["root"].n == 30
    assert found["nodes"].n == 30 * 7
    rows = (tmp_path / "run/predictions.jsonl").read_text("utf-8").splitlines()
    assert json.loads(rows[0])["structure"]["tree"].startswith(("(", "Tree("))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"head.kind": "brackets"},
            r"head 'brackets' answers the task 'constituency', not 'parse'",
        ),
        ({"head.kind": "linear"}, r"head 'linear' answers about the text as a whole, not"),
        ({"pool.kind": "mean"}, r"task 'parse' asks about every word: set pool\.kind to 'none'"),
    ],
)
def test_incompatible_parts_raise_user_error(tmp_path, changes, message):
    config = {"embedder": {"kind": "lookup"}, "encoder.hidden": 5}
    with pytest.raises(UserError, match=message):
        trained("parser", conllu(tmp_path / "a.conllu", 3), tmp_path / "run", **config, **changes)
    plain = tmp_path / "b.csv"
    plain.write_text("text,label\nfine,1\ndull,0\n", "utf-8")
    with pytest.raises(UserError, match="asks about the text as a whole: choose another pool"):
        trained("cnn", plain, tmp_path / "other", **{"pool.kind": "none"})


def test_text_too_long_for_one_tree_is_reported(tmp_path):
    file = conllu(tmp_path / "a.conllu", 3)
    out = trained("parser", file, tmp_path / "run", **{**ARCS, "train.epochs": 1})
    with pytest.raises(UserError, match=r"text 2: a sentence of 4001 words; .* at most 4000 as a"):
        out.predictor(["the cow", "cow " * 4001])
