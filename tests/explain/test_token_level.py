"""Answers at every word: one word's score, hidden words, every method, and what is refused."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.networks import network
from tests.fixtures.tagged_files import columns, conllu, trained
from weft.config import recipe
from weft.decode.heads.crf import CRF
from weft.errors import UserError
from weft.explain.run import run_explain
from weft.explain.token_level import (
    answer_sentences,
    attribute,
    find_word,
    make_request,
    measure_faithfulness,
    text_and_offsets,
)
from weft.explain.word_target import crf_label_scores
from weft.text.annotation.schemes import allowed_transitions, convert
from weft.text.example import Example
from weft.text.read import read

TEXT = "The dog sees the bee."
NAMES = "Bo Lee lives in Rome ."
TREE = "(4 (2 (2 the) (2 film)) (4 (2 was) (4 good)))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("words")


@pytest.fixture(scope="module")
def pos(folder):
    file = conllu(folder / "a.conllu")
    return trained("tagger-bilstm", file, folder / "pos", **{"train.epochs": 4}).predictor


@pytest.fixture(scope="module")
def ner(folder):
    file = columns(folder / "a.conll")
    return trained("tagger-bilstm-crf", file, folder / "ner", **{"train.epochs": 4}).predictor


@pytest.fixture(scope="module")
def parser(folder):
    values = {"task.tags": ["upos"], "head.arc": 7, "head.label": 5, "encoder.layers": 1}
    file = conllu(folder / "b.conllu")
    return trained(
        "parser-tagger", file, folder / "parser", **values, **{"train.epochs": 6}
    ).predictor


@pytest.fixture(scope="module")
def trees(folder):
    rng = np.random.default_rng(5)
    kinds = [("good", 4), ("fine", 3), ("bad", 0)]
    lines = []
    for k in rng.integers(3, size=60):
        word, label = kinds[k]
        noun = rng.choice(["film", "plot", "cast"])
        lines.append(f"({label} (2 (2 the) (2 {noun})) ({label} (2 was) ({label} {word})))\n")
    (folder / "t.txt").write_text("".join(lines), "utf-8")
    values = {
        "data.train": str(folder / "t.txt"), "embedder.width": 5, "train.epochs": 15,
        "train.learning_rate": 0.05, "train.ema_decay": 0, "train.patience": 0,
    }  # fmt: skip
    found = recipe("rntn").with_values(values, "test")
    return weft.train(found, folder / "trees", quiet=True, device="cpu").predictor


def asked(predictor, text, **more):
    ((example, answer),) = answer_sentences(predictor, [text])
    return make_request(predictor, example, answer, **more)


def test_through_a_chain_every_sequence_counts():
    names = ["B-X", "I-X", "O"]
    torch.manual_seed(3)
    chain = CRF(3, allowed_transitions(names, "IOB2"), names)
    for weight in (chain.transitions, chain.start, chain.end):
        torch.nn.init.normal_(weight)
    emissions = torch.randn(1, 4, 3)
    start, follow, end = (rule.tolist() for rule in chain.rules)
    sums = {label: [] for label in range(3)}
    for path in itertools.product(range(3), repeat=4):
        allowed = start[path[0]] and end[path[-1]]
        allowed = allowed and all(follow[a][b] for a, b in itertools.pairwise(path))
        if allowed:
            score = chain.start[path[0]] + chain.end[path[-1]]
            score = score + sum(emissions[0, t, label] for t, label in enumerate(path))
            score = score + sum(chain.transitions[a, b] for a, b in itertools.pairwise(path))
            sums[path[2]].append(score)
    expected = [torch.stack(found).logsumexp(0).item() for found in sums.values()]
    assert crf_label_scores(chain, emissions, 2)[0].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["pos", "ner", "parser", "trees"])
def test_nothing_hidden_gives_the_models_own_probabilities(name, request):
    predictor = request.getfixturevalue(name)
    one = asked(predictor, {"ner": NAMES, "trees": TREE}.get(name, TEXT))
    none = np.zeros((1, len(one.example.words)), bool)
    found = one.spot.probs(none)[0]
    known = dict(one.at.probs)
    assert found[one.target.index] == pytest.approx(known[one.at.predicted], abs=1e-5)
    assert found.sum() == pytest.approx(1)
    assert sum(known.values()) == pytest.approx(1, abs=1e-5)
    assert len(found) <= len(known)


@pytest.mark.parametrize("name", ["pos", "ner", "parser", "trees"])
def test_integrated_gradients_share_out_what_hiding_everything_costs(name, request):
    predictor = request.getfixturevalue(name)
    one = asked(predictor, {"ner": NAMES, "trees": TREE}.get(name, TEXT))
    size = len(one.example.words)
    both = np.stack([np.zeros(size, bool), np.ones(size, bool)])
    whole, nothing = one.spot.scores(both) @ one.target.direction
    found = attribute(one, "integrated-gradients", steps=200)
    assert len(found.words) == size
    total = sum(word.weight for word in found.words)
    assert total == pytest.approx(whole - nothing, abs=2e-3 * max(1, abs(whole - nothing)))


def test_occlusion_hides_one_word_at_a_time(pos):
    one = asked(pos, TEXT, word="3")
    size = len(one.example.words)
    found = [word.weight for word in attribute(one, "occlusion").words]
    for i in range(size):
        hidden = np.zeros((2, size), bool)
        hidden[1, i] = True
        whole, less = one.spot.scores(hidden) @ one.target.direction
        assert found[i] == pytest.approx(whole - less, abs=1e-6)


def test_the_word_itself_speaks_for_its_tag_and_a_hidden_one_keeps_its_place(pos):
    one = asked(pos, TEXT, word="sees")
    found = attribute(one, "occlusion")
    best = max(found.words, key=lambda word: word.weight)
    assert found.text[best.start : best.end] == "sees"
    assert (one.at.step, one.at.predicted, one.at.start) == (2, "VERB", 8)


def test_least_confident_word_is_explained_by_default(ner):
    one = asked(ner, NAMES)
    said = [each[0][0] for each in one.probs]
    # The model learns spans in marks of its own, and the answer has those of the file.
    assert convert(said, "BIOES", "IOB2", "repair") == list(one.answer.structure.tags)
    assert one.at.step == int(np.argmin([each[0][1] for each in one.probs]))
    for i, (name, chance) in enumerate(each[0] for each in one.probs):
        assert chance == pytest.approx(one.answer.scores[i], abs=1e-5), name
    assert asked(ner, NAMES, word="lee").at.step == 1


def test_forbidden_transitions_are_not_targets(ner):
    first = asked(ner, NAMES, word="1")
    names = [ner.space.entries[0][i] for i in first.spot.choices]
    assert names == ["B-LOC", "B-PER", "O", "S-LOC", "S-PER"]
    with pytest.raises(UserError, match=r"Unknown target 'I-PER' for word 1, 'Bo'.*B-LOC, B-PER"):
        asked(ner, NAMES, word="1", target="I-PER")


def test_another_tag_can_be_the_target(pos):
    one, other = asked(pos, TEXT, word="3"), asked(pos, TEXT, word="3", target="NOUN")
    assert (one.target.name, other.target.name, other.at.predicted) == ("VERB", "NOUN", "VERB")
    assert attribute(one, "occlusion").words != attribute(other, "occlusion").words


def test_parser_heads_relations_and_tags_are_explained(parser):
    head = asked(parser, TEXT, word="dog")
    assert head.at.column == "head"
    assert len(head.spot.choices) == 6  # the root and every word but itself
    assert len(head.at.probs) == 7
    by_number, by_word = (asked(parser, TEXT, word="dog", target=t) for t in ("3", "sees"))
    assert by_number.target.name == by_word.target.name == "3:sees"
    relation = asked(parser, TEXT, word="dog", column="deprel")
    assert {name for name, _ in relation.at.probs} == {"dep", "root"}
    assert asked(parser, TEXT, word="dog", column="upos").at.predicted in parser.space.entries[1]
    with pytest.raises(UserError, match=r"Unknown column 'upso'.*Did you mean 'upos'"):
        asked(parser, TEXT, column="upso")


def test_a_tree_is_explained_at_its_root_by_its_leaves(trees):
    one = asked(trees, TREE)
    found = attribute(one, "integrated-gradients")
    assert (one.at.step, one.at.gold, found.text) == (-1, "4", "the film was good")
    best = max(found.words, key=lambda word: abs(word.weight))
    assert found.text[best.start : best.end] == "good"
    with pytest.raises(UserError, match="labels whole trees; there is no word 2 to choose"):
        asked(trees, TREE, word="2")


def test_a_transformer_shows_where_the_word_looks(folder):
    values = {"encoder": {"kind": "transformer", "hidden": 6, "heads": 3, "layers": 2}}
    found = recipe("tagger-bilstm").with_values({"embedder": [{"kind": "lookup", "width": 6}]}, "t")
    sections = {**found.sections, **values}
    from weft.config import from_sections

    config = from_sections(sections, "test").with_values(
        {"data.train": str(folder / "c.conllu"), "train.epochs": 1, "train.ema_decay": 0}, "test"
    )
    conllu(folder / "c.conllu", 20)
    predictor = weft.train(config, folder / "transformer", quiet=True, device="cpu").predictor
    one = asked(predictor, TEXT, word="2")
    found = attribute(one, "attention")
    assert len(found.words) == 6
    assert sum(word.weight for word in found.words) == pytest.approx(1, abs=1e-5)
    looked = run_explain(predictor, [Example(TEXT)], method="all", compare=False)
    assert list(looked.explanations)[-1] == "attention"


def test_faithful_weights_hide_what_matters_first(pos):
    ones = [asked(pos, text) for text in (TEXT, "The cow hears the ant.", "The ant eats the dog.")]
    good = measure_faithfulness(ones, [attribute(one, "occlusion") for one in ones])
    assert good.aopc.value > good.random.value
    assert good.gain.n == 3
    assert good.deletion[0] == pytest.approx(good.insertion[-1])
    again = measure_faithfulness(ones, [attribute(one, "occlusion") for one in ones])
    assert again == good


def test_words_of_a_file_are_used_as_they_are_with_what_is_right(pos, folder):
    examples = list(read(folder / "a.conllu"))[:3]
    found = run_explain(pos, examples, method="occlusion")
    assert [one.at.gold != "" for one in found.first] == [True] * 3
    assert found.right(0).tags == ("DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT")
    assert len(found.probs[0]) == 6


def test_words_that_share_a_place_are_spaced_out():
    example = Example("zum Haus", words=("zu", "dem", "Haus"), places=((0, 3), (0, 3), (4, 8)))
    text, places = text_and_offsets(example)
    assert text == "zu dem Haus"
    assert [text[a:b] for a, b in places] == ["zu", "dem", "Haus"]


def test_missing_word_raises_an_error_that_lists_the_words():
    with pytest.raises(UserError, match=r"no word 'cat' in this sentence.*1:The 2:dog"):
        find_word(Example("The dog", words=("The", "dog")), "cat")
    with pytest.raises(UserError, match="no word '3'"):
        find_word(Example("The dog", words=("The", "dog")), "3")


def test_long_sentences_are_explained_in_the_stretch_that_holds_the_word(folder):
    file = conllu(folder / "d.conllu", 20)
    changes = {"data.max_tokens": 4, "train.epochs": 1}
    predictor = trained("tagger-bilstm", file, folder / "limited", **changes).predictor
    found = attribute(asked(predictor, TEXT, word="5"), "integrated-gradients")
    assert [found.text[word.start : word.end] for word in found.words] == ["bee", "."]


def test_a_text_without_words_cannot_be_explained(pos):
    with pytest.raises(UserError, match="no text to explain"):
        run_explain(pos, [Example(" ")])


# ---- words that a pre-trained network reads by their pieces


def of_network(text, word):
    predictor = network("tag")
    ((example, answer),) = answer_sentences(predictor, [text])
    return predictor, make_request(predictor, example, answer, word=word, column="", target="")


def test_a_network_is_explained_from_the_pieces_of_its_words_on():
    predictor, one = of_network("the dogs lends money", "1")
    found = attribute(one, "integrated-gradients")
    network_, spot = predictor.engine.model.embedders[0], one.spot
    assert spot.source.subtokens[0].shape[2] > 1  # "dogs" has several pieces
    hidden = spot.source.subtokens[0].clone()
    hidden[hidden > 0] = predictor.engine.indexer.tokenizer.unknown + 1
    with torch.no_grad():
        ends = [
            float(spot._choice_scores(spot.model, spot.model.embed(source))[0].double()
                  @ torch.from_numpy(one.target.direction).double())
            for source in (spot.source, replace(spot.source, subtokens=(hidden,)))
        ]  # fmt: skip
    weights = [word.weight for word in found.words]
    assert len(weights) == 4
    assert sum(weights) == pytest.approx(ends[0] - ends[1], abs=1e-4)
    assert min(map(abs, weights)) > 1e-6  # the other words matter through their context
    assert len(network_.table._forward_hooks) == 0


def test_steps_belong_to_words():
    predictor, one = of_network("the dogs", "1")
    (given,) = predictor.engine.model.embedder_inputs(one.spot.source)
    owners = predictor.engine.model.embedders[0].word_indices(given)[0].tolist()
    many = int((one.spot.source.subtokens[0][0, 1] > 0).sum())
    assert owners == [-1, 0, *[1] * many, -1]


def test_a_hidden_word_of_a_network_is_one_unknown_piece():
    predictor, one = of_network("the dogs lends", "1")
    found = one.spot._mask_words(np.array([[False, True, False]]))
    unknown = predictor.engine.indexer.tokenizer.unknown + 1
    own = one.spot.source.subtokens[0]
    assert found.subtokens[0][0, 1].tolist() == [unknown, *[0] * (own.shape[2] - 1)]
    assert torch.equal(found.subtokens[0][0, [0, 2]], own[0, [0, 2]])
