"""D3: start and end distributions over the passage, p(i) = softmax_i(w·h_i + b)."""

import json
import math
from collections import defaultdict

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.command import fails, ok
from tests.fixtures.span_runs import BIDAF, bert_span, files, squad
from weft.inference.forward import forward_batches
from weft.predict import load
from weft.report.drawings.draw import draw, draw_terminal
from weft.tasks.extractive_qa import PassageWindow, boundary_probs
from weft.text.example import Example

QUESTION = "Where does Ada live?"
PASSAGE = "Ben lives in Lima.  Ada lives in Oslo.  Cleo lives in Quito."


@pytest.fixture(scope="module")
def bidaf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bidaf")
    path = squad(folder / "train.json")
    changes = {**files(path), **BIDAF, "train.epochs": 2}
    weft.train(weft.recipe("bidaf").with_values(changes, "test"), folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A BERT that reads windows of 17 tokens, and may find no answer."""
    folder = tmp_path_factory.mktemp("bert")
    path = squad(folder / "train.json", none=True)
    changes = {"data.max_tokens": 17, "data.overlap": 0.5, "train.epochs": 2}
    weft.train(bert_span(path, **changes), folder / "run", quiet=True)
    return folder / "run"


def rows_by_hand(predictor):
    """Offsets, start logits and end logits of each row's passage tokens: w·h + b of its states."""
    engine, head = predictor.engine, predictor.engine.model.head
    rows = engine.index([Example(QUESTION, other=PASSAGE)])
    out = []
    for chosen, output in forward_batches(engine.model, rows, engine.runtime):
        for i, n in enumerate(chosen.tolist()):
            row, states = rows.rows[n], output.vector.data[i]
            last = head._last(output.vector)[i]
            begin = 0 if engine.model.traits.is_bi_encoder else row.second
            spans = row.spans[row.second :].tolist()
            steps = [k for k, (a, b) in enumerate(spans) if b > a]
            starts = [
                float(head.start.weight[0] @ states[begin + k] + head.start.bias) for k in steps
            ]
            ends = [float(head.end.weight[0] @ last[begin + k] + head.end.bias) for k in steps]
            none = [float(one[0]) for one in (output.scores.starts[i], output.scores.ends[i])]
            out.append(([tuple(spans[k]) for k in steps], starts, ends, none))
    return out


@torch.no_grad()
def test_each_is_a_softmax_over_the_passage(bidaf):
    predictor = load(bidaf, device="cpu")
    (answer,) = predictor([(QUESTION, PASSAGE)], parts=True)
    ((spans, starts, ends, _),) = rows_by_hand(predictor)
    for found, logits in ((answer.starts, starts), (answer.ends, ends)):
        total = sum(math.exp(one) for one in logits)
        assert [one[:2] for one in found] == spans
        np.testing.assert_allclose(
            [prob for *_, prob in found], [math.exp(one) / total for one in logits], atol=1e-5
        )
        assert sum(prob for *_, prob in found) == pytest.approx(1, abs=1e-5)
    words = [PASSAGE[start:end] for start, end, _ in answer.starts]
    assert "".join(words) == "".join(PASSAGE.split())  # each passage token once; no question


@torch.no_grad()
def test_windows_share_one_distribution(bert):
    predictor = load(bert, device="cpu")
    (answer,) = predictor([(QUESTION, PASSAGE)], parts=True)
    rows = rows_by_hand(predictor)
    assert len(rows) > 1
    none = min((row[3] for row in rows), key=sum)
    for which, found in ((1, answer.starts), (2, answer.ends)):
        sums = defaultdict(float)
        for row in rows:
            for span, logit in zip(row[0], row[which], strict=True):
                sums[span] += math.exp(logit)
        total = sum(sums.values()) + math.exp(none[which - 1])
        wanted = {span: value / total for span, value in sorted(sums.items())}
        assert [one[:2] for one in found] == list(wanted)
        np.testing.assert_allclose([p for *_, p in found], list(wanted.values()), atol=1e-5)
        rest = math.exp(none[which - 1]) / total  # what "no answer" has
        assert sum(p for *_, p in found) + rest == pytest.approx(1, abs=1e-5)


def test_question_and_padding_have_no_probability():
    spans = np.array([[0, 0], [0, 0], [0, 3], [4, 8], [0, 0]])
    outside = -math.inf
    logits = np.array([[outside, outside, outside, 1.0, 2.0, outside, outside]] * 2)
    ((starts, ends),) = boundary_probs([(PassageWindow(0, "The loom", spans), logits)], 1)
    share = math.exp(1) / (math.exp(1) + math.exp(2))
    assert starts == ends
    assert starts == ((0, 3, pytest.approx(share)), (4, 8, pytest.approx(1 - share)))
    assert boundary_probs([], 1) == [((), ())]


def test_they_come_only_if_wanted_and_change_nothing_else(bert):
    predictor = load(bert, device="cpu")
    pairs = [(QUESTION, PASSAGE), (QUESTION, ""), ("Where?", "Oslo")]
    for plain, full in zip(predictor(pairs), predictor(pairs, parts=True), strict=True):
        assert (plain.value, plain.parts) == (full.value, full.parts)
        assert plain.score == pytest.approx(full.score)
        assert plain.starts == plain.ends == ()
        assert bool(full.starts) == bool(plain.structure.text)


def test_the_command_line_lists_them(bidaf):
    (line,) = ok("predict", bidaf, QUESTION, PASSAGE, "--json", "--all").lines
    row = json.loads(line)
    assert sum(p for *_, p in row["starts"]) == pytest.approx(1, abs=1e-5)
    assert sum(p for *_, p in row["ends"]) == pytest.approx(1, abs=1e-5)
    assert {*row} >= {"value", "score", "start", "end"}
    (plain,) = ok("predict", bidaf, QUESTION, PASSAGE, "--json").lines
    assert "starts" not in json.loads(plain)
    assert "--json" in fails("predict", bidaf, QUESTION, PASSAGE, "--all")


def test_they_are_drawn_over_the_passage(bidaf):
    (answer,) = load(bidaf, device="cpu")([(QUESTION, PASSAGE)], parts=True)
    page, shown = draw(answer.structure), draw_terminal(answer.structure)
    for name, strip in (("start", answer.starts), ("end", answer.ends)):
        assert f"<h4>{name}</h4>" in page
        best = max(strip, key=lambda token: token[2])
        assert f'title="{best[2]:.3g}" style="background:' in page
        assert f"{name:<6}{best[2]:.3f}  {PASSAGE}" in shown.plain
    assert page.count("Oslo") == 3
    hot = [span for span in shown.spans if "black on" in str(span.style)]
    assert hot


def test_explain_draws_them_on_its_page(bidaf, tmp_path):
    page = tmp_path / "page.html"
    said = ok("explain", bidaf, "--text", QUESTION, "--text-pair", PASSAGE, "-o", page).out
    (answer,) = load(bidaf, device="cpu")([(QUESTION, PASSAGE)], parts=True)
    for name, strip in (("start", answer.starts), ("end", answer.ends)):
        peak = max(prob for *_, prob in strip)
        assert f"<h4>{name}</h4>" in page.read_text("utf-8")
        assert f"{name:<6}{peak:.3f}  {PASSAGE}" in said
