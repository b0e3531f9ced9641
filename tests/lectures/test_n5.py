"""N5: the explained quantity of each task, completeness, Shapley values and AOPC, written out."""

import itertools
import math

import numpy as np
import pytest
import torch

from tests.fixtures.recipe_runs import train_tiny
from weft.classic.crf.model import LinearCRF
from weft.decode.heads.answer_span import AnswerSpanOutput
from weft.decode.heads.span_constituency import SpanBoundaries, SpanScorer
from weft.explain.explanation import WordWeight
from weft.explain.faithfulness import summarise_curves
from weft.explain.gradients import integrate_gradients
from weft.explain.perturb import hidden_curves, occlude, sample_shapley
from weft.explain.seq2seq import source_target
from weft.explain.targets import answer_span, masked_word, next_token, sentence_vector
from weft.explain.targets.answer_span import score_span
from weft.explain.targets.bracket import all_spans, bracket_marginals, bracket_scores
from weft.explain.token_level import answer_sentences, make_request

LANGUAGE = ("rnn-lm", "lstm-lm", "nnlm", "gpt", "elmo-pretrain", "masked-bilstm", "ngram",
            "kneser-ney")  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(recipe, task) -> its tiny predictor and an input."""
    known = {}

    def make(name, task):
        if name not in known:
            known[name] = train_tiny(name, task, tmp_path_factory.mktemp(name), {})
        return known[name]

    return make


def target_of(trained, name, task):
    """The explained quantity of a tiny model's input."""
    predictor, example = trained(name, task)
    if task == "span":
        (one,) = answer_span.requests_of(predictor, [example], "")
    elif task == "masked":
        (one,) = masked_word.requests_of(predictor, [example], "", "")
    elif task == "language":
        (one,) = next_token.requests_of(predictor, [example], "dog", "")
    else:
        return source_target(predictor, example)
    return one.target


def binary_trees(start, end):
    """Every binary tree over words start…end as a list of spans."""
    if end - start == 1:
        return [[(start, end)]]
    return [
        [(start, end), *left, *right]
        for k in range(start + 1, end)
        for left in binary_trees(start, k)
        for right in binary_trees(k, end)
    ]


def test_a_bracket_sums_all_trees_with_it():
    T, C, H = 4, 3, 6
    torch.manual_seed(1)
    scorer = SpanScorer(H, C, hidden=5).double()
    boundaries = SpanBoundaries(torch.randn(1, T + 1, 5).double(), torch.tensor([T]))
    spans = all_spans(T)
    rows = torch.zeros(len(spans), dtype=torch.long)
    start, end = (torch.tensor(x) for x in zip(*spans, strict=True))
    scores = scorer.scores(boundaries, rows, start, end)  # (N, C)
    # s(tree) = Σ s(i, j, label); an unlabelled span scores 0, but the sentence has a label.
    sums = {span: [[] for _ in range(C + 1)] for span in spans}
    for tree in binary_trees(0, T):
        for labels in itertools.product(range(C + 1), repeat=len(tree)):
            if labels[0] == C:  # the first span of a tree is the sentence
                continue
            chosen = dict(zip(tree, labels, strict=True))
            total = sum(scores[spans.index(s), k].item() for s, k in chosen.items() if k < C)
            for span in spans:
                sums[span][chosen.get(span, C)].append(total)
    for span in spans:
        expected = [np.logaddexp.reduce(own) if own else -np.inf for own in sums[span]]
        found = bracket_scores(scorer, boundaries, *span)[0].tolist()
        if span == (0, T):
            expected, found = expected[:-1], found[:-1]  # no label is forbidden there
        assert found == pytest.approx(expected, abs=1e-5)
        marginals = np.exp(np.array(expected) - np.logaddexp.reduce(expected))
        shares = bracket_marginals(scorer, boundaries)[spans.index(span)].tolist()
        assert shares[: len(marginals)] == pytest.approx(marginals, abs=1e-5)


def test_a_tag_of_a_classic_crf_has_its_marginal_log_probability():
    sentences = [[["a", "b"], ["b"], ["c", "a"]], [["c"], ["a"], ["b", "c"]]]
    model = LinearCRF(iterations=20)
    model.fit(sentences, [["X", "Y", "Z"], ["Z", "X", "Y"]])
    own = model._emissions(sentences[0])  # (T, C)
    paths = list(itertools.product(range(3), repeat=3))
    scores = [
        sum(own[t, y] for t, y in enumerate(path))
        + sum(model.transitions[a, b] for a, b in itertools.pairwise(path))
        for path in paths
    ]
    total = np.logaddexp.reduce(scores)
    expected = [
        np.logaddexp.reduce([s for s, path in zip(scores, paths, strict=True) if path[1] == y])
        - total
        for y in range(3)
    ]
    assert model.label_scores(sentences[:1], 1)[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_an_answer_scores_the_log_probability_of_its_start_and_end():
    torch.manual_seed(2)
    starts, ends = torch.randn(3, 8), torch.randn(3, 8)
    output = AnswerSpanOutput(starts, ends, 5)
    for first, last in ((2, 4), (-1, -1)):
        expected = [
            starts[b, first + 1].item() - starts[b].logsumexp(0).item()
            + ends[b, last + 1].item() - ends[b].logsumexp(0).item()
            for b in range(3)
        ]  # fmt: skip
        assert score_span(output, first, last).tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_token_scores_the_log_probability_that_the_model_gives_it(trained, name):
    target = target_of(trained, name, "language")
    predictor, example = trained(name, "language")
    ((ids, offsets),) = predictor.space.places([example.text])
    (at,) = (i for i, (a, b) in enumerate(offsets) if example.text[a:b].strip() == "dog")
    found = target.log_probs(np.zeros((1, len(target.spans)), bool))[0]
    if name == "masked-bilstm":  # only the explained token is masked
        head = predictor.engine.model.head
        masked = torch.tensor(ids)[None].clone()
        masked[0, at] = 0
        with torch.no_grad():
            logits = head.decoder(type(target.source)(masked, torch.tensor([len(ids)])))
        expected = logits[0, at].log_softmax(0)[ids[at]].item()
    else:
        (scored,) = predictor.engine.likelihoods([example.text])
        expected = math.log(scored.probs[at, 0])
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_masked_word_scores_its_log_probability(trained):
    target = target_of(trained, "bert-pretrain", "masked")
    predictor, example = trained("bert-pretrain", "masked")
    (answer,) = predictor([example])
    found = target.log_probs(np.zeros((1, len(target.spans)), bool))[0]
    assert found == pytest.approx(math.log(answer.blanks[0][0][1]), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("bidaf", "span"), ("bert-pretrain", "masked"), ("rnn-lm", "language"),
        ("lstm-lm", "language"), ("nnlm", "language"), ("gpt", "language"),
        ("elmo-pretrain", "language"), ("masked-bilstm", "language"), ("seq2seq", "seq2seq"),
        ("seq2seq-copy", "seq2seq"), ("seq2seq-transformer", "seq2seq"),
        ("seq2seq-vectors", "seq2seq"),
    ],
)  # fmt: skip
def test_integrated_gradients_sum_to_the_difference_from_all_words_hidden(trained, name, task):
    """Σ_i IG_i = f(x) − f(baseline)."""
    target = target_of(trained, name, task)
    size = len(target.spans)
    f_text, f_bare = target.log_probs(np.stack([np.zeros(size, bool), np.ones(size, bool)]))
    total = target.gradients(300).sum()
    assert total == pytest.approx(f_text - f_bare, abs=1e-3 * max(1.0, abs(f_text - f_bare)))


@pytest.mark.parametrize("name", ["constituency", "tagger-bilstm-crf"])
def test_integrated_gradients_of_trees_and_chains_are_complete(trained, name):
    task = "tag" if name.startswith("tagger") else name
    predictor, example = trained(name, task)
    ((sentence, answer),) = answer_sentences(predictor, [example])
    one = make_request(predictor, sentence, answer)
    size = len(one.example.words)
    both = np.stack([np.zeros(size, bool), np.ones(size, bool)])
    f_text, f_bare = one.spot.scores(both) @ one.target.direction
    total = one.spot.gradients(one.target, 300).sum()
    assert total == pytest.approx(f_text - f_bare, abs=1e-3 * max(1.0, abs(f_text - f_bare)))


@pytest.mark.parametrize(("name", "task"), [("bidaf", "span"), ("bert-pretrain", "masked")])
def test_integrated_gradients_equal_captum(trained, name, task):
    captum = pytest.importorskip("captum.attr")
    target = target_of(trained, name, task)
    model, source = target.model.eval(), target.source
    bare = target._hide(np.ones((1, len(target.spans)), bool))
    with torch.no_grad():
        embedded, nothing = model.embed(source), model.embed(bare).data

    def forward(points):
        lengths = source.lengths.repeat(len(points))
        second = None if source.second is None else source.second.repeat(len(points))
        rows = type(source)(points, lengths, (), None, second)
        return target.score(model, rows)[:, 0]

    reference = captum.IntegratedGradients(forward).attribute(
        embedded.data, nothing, n_steps=20, method="gausslegendre"
    )
    ours = integrate_gradients(model, embedded, torch.ones(1, 1), 20, nothing, target.score)
    assert ours[0].tolist() == pytest.approx(reference.sum(2)[0].tolist(), abs=1e-5)


def test_the_vector_of_the_whole_text_has_projection_one(tmp_path):
    from tests.fixtures.checkpoints import checkpoint
    from tests.fixtures.command import ok

    checkpoint(tmp_path / "bert", "bert")
    ok("convert", tmp_path / "bert", "-o", tmp_path / "embed")
    import weft

    predictor = weft.load(tmp_path / "embed")
    text = "the bank of a river"
    target = sentence_vector.request_vector(predictor, text).target
    hidden = np.zeros((2, 5), bool)
    hidden[1, 1] = True
    whole, less = target.probs(hidden)
    ids = target._hide(hidden[1:])
    with torch.no_grad():
        other = predictor.engine.model.run(ids).text_vector[0].double().numpy()
    vector = predictor.embed([text])[0].astype(float)
    assert whole == pytest.approx(1.0, abs=1e-5)
    assert less == pytest.approx(other @ vector / (vector @ vector), abs=1e-5)


def test_shapley_values_are_the_mean_over_all_orders_and_sum_to_the_difference():
    """φ_i = mean over orders of f(words before i, and i) − f(words before i)."""
    W = 4
    draw = np.random.default_rng(3)
    table = draw.normal(size=2**W)

    def score(hidden):
        return table[(~hidden) @ (1 << np.arange(W))]

    def f(words):
        hidden = np.ones((1, W), bool)
        hidden[0, list(words)] = False
        return score(hidden)[0]

    orders = list(itertools.permutations(range(W)))
    exact = np.zeros(W)
    for order in orders:
        for k, word in enumerate(order):
            exact[word] += (f(order[: k + 1]) - f(order[:k])) / len(orders)
    found = sample_shapley(score, W, orders=4000)
    assert found.sum() == pytest.approx(f(range(W)) - f([]), abs=1e-9)
    assert found == pytest.approx(exact, abs=0.05)
    # Of a sum of independent words both methods give the addends.
    addends = np.array([2.0, -3.0, 5.0, 0.5])
    assert sample_shapley(lambda h: (~h) @ addends, W) == pytest.approx(addends)
    assert occlude(lambda h: (~h) @ addends, W) == pytest.approx(addends)


def test_aopc_is_the_mean_fall_over_the_shares_of_hidden_words():
    """AOPC = 1/10 Σ_k p(x) − p(x without the strongest 10·k %)."""
    W = 10
    weights = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.6, 5.0, 3.5, 0.1, 0.2])
    words = [WordWeight(i, i + 1, weight) for i, weight in enumerate(weights)]

    def prob(hidden):
        return ((~hidden) @ weights) / weights.sum()

    curves = hidden_curves(prob, words, draws=3, seed=0)
    found = summarise_curves("x", curves[None])
    order = np.argsort(-weights)
    falls = [weights[order[:k]].sum() / weights.sum() for k in range(1, W + 1)]
    assert found.aopc.value == pytest.approx(np.mean(falls), abs=1e-5)
    assert found.gain.value == pytest.approx(found.aopc.value - found.random.value, abs=1e-5)
    assert found.gain.value > 0
