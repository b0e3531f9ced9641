"""How texts are written: chances, attention, beams and sources, against slow and plain versions."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

import weft
from tests.fixtures.data_to_text_runs import restaurants
from tests.fixtures.data_to_text_runs import trained as informed
from tests.fixtures.seq2seq_runs import trained
from weft.cli.explain.generation import show_text
from weft.config import recipe
from weft.decode.search.search import search
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.explain.beams import BeamNode, build_search_tree
from weft.explain.explanation import Explanation
from weft.explain.generation import (
    END_SIGN,
    GenerationTrace,
    TokenTrace,
    _trace_tokens,
    answer_ids,
    score_answer,
    trace_generation,
    trace_scoring,
)
from weft.explain.method import explain, methods
from weft.explain.run import run_explain
from weft.report.pages.explain import describe_answer, render
from weft.tasks.task import Answer
from weft.text.example import Example

QUICK = {"train.epochs": 1, "generate.num_beams": 3}
TEXT = "a b c"


@pytest.fixture(scope="module")
def rnn(tmp_path_factory):
    return trained("seq2seq-attention", tmp_path_factory.mktemp("rnn"), **QUICK).predictor


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    changes = {"decoder.layers": 2, "decoder.heads": 4, **QUICK}
    return trained("seq2seq-transformer", tmp_path_factory.mktemp("t"), **changes).predictor


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt")
    lines = [f"the cat {i} sat on mat {i % 3}" for i in range(60)]
    (folder / "a.txt").write_text("\n".join(lines) + "\n")
    values = {
        "tokenizer": {"kind": "word"}, "data.train": str(folder / "a.txt"), "task.window": 7,
        "decoder.hidden": 12, "decoder.layers": 2, "decoder.heads": 3, "decoder.max_positions": 17,
        "train.epochs": 1, "train.batch_size": 5,
    }  # fmt: skip
    config = recipe("gpt").with_values(values, "test")
    return weft.train(config, folder / "run", quiet=True, device="cpu").predictor


def test_a_beam_that_goes_on_behind_its_answer_is_shown_in_part():
    nodes = [BeamNode(step, 0, "x", -1.0, step - 1, "open", is_best=step < 2) for step in range(40)]
    out = io.StringIO()
    show_text(
        Console(file=out, width=100), GenerationTrace((), nodes=tuple(nodes)),
        Explanation("a", Answer("x", 0.5), "x", "", ()), None, close=True,
    )  # fmt: skip
    steps = [line.split()[0] for line in out.getvalue().splitlines() if "x -1.00" in line]
    assert steps == ["1", "2", "3", "4", "5"]
    assert "… and 35 steps more" in out.getvalue()


def test_pieces_of_words_are_shown_as_they_are_written():
    def shown(tokens: list[TokenTrace]) -> str:
        out = io.StringIO()
        one = Explanation("a", Answer("x", 0.5), "x", "", ())
        show_text(
            Console(file=out, width=100), GenerationTrace(tuple(tokens)), one, None, close=True
        )
        return out.getvalue()

    pieces = shown([TokenTrace(text, 0.5) for text in (" le", " mat", "in", END_SIGN)])
    assert pieces.startswith("le matin ⏎  0.500")
    assert "alternatives" not in pieces  # nothing is known of that
    words = shown([TokenTrace(text, 0.5, (("un", 0.25),)) for text in ("le", "matin")])
    assert words.startswith("le matin  0.500")
    assert "alternatives" in words


def test_no_mark_is_shown_for_a_word_that_might_have_been():
    names = ["<pad>", "<unk>", "<bos>", END_SIGN, "le", "un"]
    logps = np.log(np.array([[0.2, 0.1, 0.3, 0.2, 0.15, 0.05]]))
    (token,) = _trace_tokens([4], [0.15], logps, lambda i: names[i])
    assert [name for name, _ in token.others] == [END_SIGN, "le", "<unk>", "un"]


def test_the_page_quotes_what_was_written(rnn, gpt):
    page = render(run_explain(rnn, [Example(TEXT)]), rnn, command=["weft"])
    assert "The model predicts an empty text (" in page  # after one epoch
    found = Explanation(TEXT, Answer("le " * 99, 0.5, tokens=(("le", 0.5),)), "", "", ())
    assert describe_answer(found) == f"“{('le ' * 99)[:200].rstrip()} …” (50 %)"
    assert "<th>alternatives</th>" in page
    heard_one = run_explain(gpt, [Example(TEXT)])
    bare = [replace(token, others=()) for token in heard_one.written[0].tokens]
    heard_one.written[0] = replace(heard_one.written[0], tokens=tuple(bare))
    page = render(heard_one, gpt, command=["weft"])
    assert "<th>alternatives</th>" not in page
    assert "Hover over a token" not in page


def test_token_probabilities_equal_those_of_the_answer(rnn):
    found, (answer,) = trace_generation(rnn, TEXT), rnn([TEXT])
    assert [token.prob for token in found.tokens] == pytest.approx(answer.scores, abs=1e-5)
    spelt = [token.text for token in found.tokens if token.text != END_SIGN]
    assert " ".join(spelt) == answer.value
    for token in found.tokens:
        chances = [chance for _, chance in token.others]
        assert chances == sorted(chances, reverse=True)
        assert sum(chances) <= 1 + 1e-5
        if token.text in dict(token.others):
            assert dict(token.others)[token.text] == pytest.approx(token.prob, abs=1e-5)
    assert [text for text, _ in answer.tokens] == spelt


def test_attention_is_of_every_layer_and_head_and_sums_to_one(rnn, transformer):
    one, many = trace_generation(rnn, TEXT), trace_generation(transformer, TEXT)
    assert one.attention.shape == (1, 1, len(one.tokens), 3)
    assert many.attention.shape == (2, 4, len(many.tokens), 3)
    for found in (one, many):
        assert found.source == ("a", "b", "c")
        assert found.attention.sum(-1) == pytest.approx(1.0, abs=1e-5)
    # The decoder itself gives the mean of the last layer's heads.
    engine = transformer.engine
    _, source = next(engine.batches([TEXT]))
    ids = answer_ids(transformer, TEXT)
    with torch.no_grad():
        memory = engine.model.encoder(engine.model.embed(source))
        given = weft.batch.Padded.from_rows([[engine.model.head.bos, *ids[:-1]]])
        weights = engine.model.head.decoder.read(given, memory).weights
    assert many.attention[-1].mean(0) == pytest.approx(weights[0].numpy(), abs=1e-5)


def test_the_way_of_the_winner_is_the_answer(rnn, transformer):
    for predictor in (rnn, transformer):
        found = trace_generation(predictor, TEXT)
        way = sorted((node for node in found.nodes if node.is_best), key=lambda node: node.step)
        assert [node.token for node in way] == [token.text for token in found.tokens]
        assert way[-1].total == pytest.approx(sum(math.log(t.prob) for t in found.tokens), abs=1e-4)
        if way[-1].score is not None:
            assert way[-1].score == pytest.approx(found.found[0][1], abs=1e-5)
        assert (
            max(sum(n.step == s and n.status == "open" for n in found.nodes) for s in range(9)) <= 3
        )


def plain_beams(table: np.ndarray, width: int, steps: int, eos: int) -> list[set[tuple[int, ...]]]:
    """The open hypotheses of each step, by lists and sorting."""
    open_: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    out = []
    for _ in range(steps):
        made = [
            (total + table[way[-1] if way else eos, token], (*way, token))
            for total, way in open_
            for token in range(len(table))
        ]
        made.sort(key=lambda one: -one[0])
        open_ = [one for one in made if one[1][-1] != eos][:width]
        out.append({way for _, way in open_})
    return out


def test_the_open_hypotheses_are_those_of_a_plain_beam():
    eos, width = 0, 3
    logits = torch.randn(7, 7, generator=torch.Generator().manual_seed(5))
    logits[:, eos] -= 2
    table = logits.log_softmax(-1)
    runs = []

    def watched(body):
        def step(run):
            run = body(run)
            runs.append(run)
            return run

        return step

    settings = SearchSettings(
        method="beam", num_beams=width, max_length=6, length_normalisation="none", num_return=3
    )
    (best,) = search(
        lambda ids, state: (table[ids], state), torch.zeros(1, 1), settings, batch=1, bos=eos,
        eos=eos, wrap_step=watched,
    )  # fmt: skip
    nodes = build_search_tree(runs, best[0], eos, str)
    ways: list[tuple[int, ...]] = []
    for node in nodes:
        ways.append((*(ways[node.parent] if node.parent >= 0 else ()), int(node.token)))
    for step, wanted in enumerate(plain_beams(table.numpy(), width, 5, eos)[: len(runs) - 1]):
        seen = {
            w for w, n in zip(ways, nodes, strict=True) if n.step == step and n.status == "open"
        }
        assert seen == wanted
    for node, way in zip(nodes, ways, strict=True):
        steps = zip((eos, *way), way, strict=False)
        assert node.total == pytest.approx(sum(float(table[a, b]) for a, b in steps), abs=1e-5)
    won = [way for way, node in zip(ways, nodes, strict=True) if node.is_best]
    assert max(won, key=len) == (*best[0].ids, *([eos] if best[0].ended else []))


def test_a_removed_word_costs_what_the_loss_says(rnn):
    ids = answer_ids(rnn, TEXT)
    found = score_answer(rnn, [TEXT, "a c", ""], ids)
    target = torch.tensor(ids)[None, :, None]
    for text, value in zip([TEXT, "a c"], found, strict=False):
        _, source = next(rnn.engine.batches([text]))
        with torch.no_grad():
            total, count = rnn.engine.model.run(source).scores.loss(target)
        assert value == pytest.approx(-float(total) / count, abs=1e-5)
    shown = run_explain(rnn, [Example(TEXT)], method="occlusion")
    (one,) = shown.first
    assert [TEXT[w.start : w.end] for w in one.words] == ["a", "b", "c"]
    assert one.words[1].weight == pytest.approx(found[0] - found[1], abs=1e-6)
    assert shown.faithfulness["occlusion"].deletion[0] == pytest.approx(
        math.exp(found[0]), abs=1e-5
    )


def test_a_record_is_explained_slot_by_slot(tmp_path):
    values = {**restaurants(tmp_path), "train.epochs": 1}
    predictor = informed("seq2seq-records", tmp_path, values).predictor
    text = "food[tea], name[Zork Inn]"
    found = run_explain(predictor, [Example(text)])
    for (one,) in found.explanations.values():
        words = [one.text[word.start : word.end] for word in one.words]
        assert words == ["⟨food⟩", "tea", "⟨name⟩", "Zork", "Inn"]
    assert found.first[0].answer.value == predictor([text])[0].value
    # What is looked at is called as it is read.
    source = "".join(trace_generation(predictor, text).source)
    assert source.replace(" ", "") == "⟨food⟩tea⟨name⟩ZorkInn"


def test_methods_by_what_there_is(rnn, gpt):
    gradients = ("integrated-gradients", "gradient-input")
    assert methods(rnn) == ("occlusion", *gradients, "attention")
    assert methods(gpt) == (*gradients, "occlusion", "attention")
    found = run_explain(rnn, [Example(TEXT, "C B A"), Example("b")])
    assert set(found.explanations) == {"occlusion", *gradients, "attention"}
    weights = [word.weight for word in found.explanations["attention"][0].words]
    assert sum(weights) == pytest.approx(1.0, abs=1e-5)
    assert found.wrong(0) == (found.first[0].answer.value != "C B A")
    with pytest.raises(UserError, match="or scores or generates text, call"):
        explain(rnn, [TEXT])
    with pytest.raises(
        UserError, match="--word does not fit this model: its whole generated answer"
    ):
        run_explain(rnn, [Example(TEXT)], word="a")


def test_language_model_is_explained_token_by_token(gpt):
    text = "the cat 3 sat"
    found, (answer,) = trace_scoring(gpt, text), gpt([text])
    assert [token.prob for token in found.tokens] == pytest.approx(answer.scores, abs=1e-5)
    assert [text[a:b] for a, b in (t.place for t in found.tokens)] == ["the", "cat", "3", "sat", ""]
    for token in found.tokens:
        if token.text in dict(token.others):
            assert dict(token.others)[token.text] == pytest.approx(token.prob, abs=1e-5)
    assert found.attention.shape == (2, 3, 5, 5)
    assert found.attention.sum(-1) == pytest.approx(1.0, abs=1e-5)
    assert not np.triu(found.attention, 1).any()
    made = run_explain(gpt, [Example(text)])
    assert made.written[0].scored
    assert not made.wrong(0)
