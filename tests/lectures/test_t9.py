"""T9: an ensemble answers by the mean of its members' probabilities, p̄ = 1/M Σ p_m."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.ensemble_runs import model
from weft.decode.heads.averaging import TagProbs, decode_average
from weft.predict.generate import generate
from weft.text.annotation.schemes import allowed_transitions

TEXTS = ["the film was fine", "the plot was dull", "the cast cast scene was unknown"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("ensembles")


def join(root, *names):
    """The members and their ensemble, as one folder."""
    folders = [
        model(root, name.split(":")[0], int(name.split(":")[1]) if ":" in name else 1)
        for name in names
    ]
    target = root / "-".join(name.replace(":", "") for name in names)
    if not target.exists():
        weft.ensemble(folders, target, device="cpu")
    return [weft.load(folder, device="cpu") for folder in folders], weft.load(target, device="cpu")


def test_the_class_probabilities_are_the_mean_of_the_members(root):
    members, whole = join(root, "cnn:1", "cnn:2", "bag", "tfidf")
    by_member = [[answer.scores for answer in member(TEXTS)] for member in members]
    mean = sum(np.array(scores) for scores in by_member) / len(members)  # p̄ = 1/M Σ p_m
    answers = whole(TEXTS)
    np.testing.assert_allclose([answer.scores for answer in answers], mean, atol=1e-6)
    assert [a.value for a in answers] == [whole.labels[i] for i in mean.argmax(1)]


def test_the_weights_of_members_are_normalised(root):
    folders = [model(root, "cnn", 1), model(root, "cnn", 2)]
    whole = weft.ensemble(folders, root / "weighed", weights=[3, 1], device="cpu")
    first, second = (
        np.array([a.scores for a in weft.load(folder, device="cpu")(TEXTS)]) for folder in folders
    )
    expected = 0.75 * first + 0.25 * second
    again = weft.load(root / "weighed", device="cpu")
    for predictor in (whole, again):
        np.testing.assert_allclose([a.scores for a in predictor(TEXTS)], expected, atol=1e-6)


def test_a_number_is_the_mean_in_the_unit_of_the_labels(root):
    members, whole = join(root, "number:1", "number:2")
    mean = np.mean([[answer.value for answer in member(TEXTS)] for member in members], axis=0)
    np.testing.assert_allclose([answer.value for answer in whole(TEXTS)], mean, atol=1e-6)


def test_members_that_learned_other_units_are_averaged_in_one(root, tmp_path):
    rows = [f"{100 * (i % 2) + i}\tthe film was {'fine' if i % 2 else 'dull'}\n" for i in range(20)]
    (tmp_path / "other.tsv").write_text("".join(rows), "utf-8")
    config = weft.recipe("tfidf").with_values(
        {
            "data.train": str(tmp_path / "other.tsv"),
            "task.kind": "regress",
            "data.text": 1,
            "data.label": 0,
        },
        "test",
    )
    weft.train(config, tmp_path / "run", quiet=True)
    folders = [model(root, "number"), tmp_path / "run"]
    whole = weft.ensemble(folders, tmp_path / "whole", device="cpu")
    values = [[a.value for a in weft.load(one, device="cpu")(TEXTS)] for one in folders]
    assert abs(values[0][0] - values[1][0]) > 10
    np.testing.assert_allclose([a.value for a in whole(TEXTS)], np.mean(values, axis=0), atol=1e-6)


def test_a_pair_has_the_mean_probabilities(root):
    members, whole = join(root, "pair:1", "pair:2")
    pairs = [("Ada runs", "Ada walks"), ("Ben runs", "Cleo walks")]
    mean = np.mean([[answer.scores for answer in member(pairs)] for member in members], axis=0)
    np.testing.assert_allclose([answer.scores for answer in whole(pairs)], mean, atol=1e-6)


def word_logits(predictor, text):
    """(T, C) the emissions of a tagger for one sentence, and its CRF if it has one."""
    ((_, source),) = predictor.engine.batches([text])
    with torch.no_grad():
        output = predictor.engine.model(source)
    return output.columns[0].data[0].double(), output.chains[0]


def test_a_word_has_the_tag_with_the_highest_mean_probability(root):
    members, whole = join(root, "tags:1", "tags:2")
    text = "The dog sees a bird."
    probs = [word_logits(member, text)[0].softmax(1) for member in members]
    mean = (sum(probs) / len(probs)).numpy()  # (T, C)
    (answer,) = whole([text])
    (tags,) = whole.labels
    assert list(answer.value) == [tags[i] for i in mean.argmax(1)]
    np.testing.assert_allclose(answer.scores, mean.max(1), atol=1e-6)


def enumerate_marginals(predictor, text, allowed):
    """(T, C) marginals of a CRF: every allowed sequence, by its probability."""
    emissions, chain = word_logits(predictor, text)
    first, moves, last = (p.detach().numpy() for p in (chain.start, chain.transitions, chain.end))
    start, pairs, end = allowed
    steps, size = emissions.shape
    marginals = np.zeros((steps, size))
    for tags in product(range(size), repeat=steps):
        if not (start[tags[0]] and end[tags[-1]]):
            continue
        if not all(pairs[a, b] for a, b in pairwise(tags)):
            continue
        score = sum(float(emissions[t, tag]) for t, tag in enumerate(tags))
        score += first[tags[0]] + last[tags[-1]]
        score += sum(moves[a, b] for a, b in pairwise(tags))
        for t, tag in enumerate(tags):
            marginals[t, tag] += np.exp(score)
    return marginals / marginals.sum(1, keepdims=True)


def test_crfs_are_averaged_by_their_marginals_and_decoded_within_the_scheme(root):
    members, whole = join(root, "spans:1", "spans:2")
    text = "Ada Rome in"
    (tags,) = whole.labels
    allowed = start, pairs, end = allowed_transitions(tags, whole.space.scheme)
    mean = np.mean([enumerate_marginals(m, text, allowed) for m in members], axis=0)
    best = max(
        (
            path
            for path in product(range(len(tags)), repeat=3)
            if start[path[0]]
            and end[path[-1]]
            and pairs[path[0], path[1]]
            and pairs[path[1], path[2]]
        ),
        key=lambda path: sum(mean[t, tag] for t, tag in enumerate(path)),
    )  # Σ p̄ is the expected number of right tags
    (decoded,) = whole.engine.predict([text]).scores
    assert tuple(decoded.table[:, 0]) == best
    np.testing.assert_allclose(decoded.probs[:, 0], [mean[t, tag] for t, tag in enumerate(best)],
                               atol=1e-6)  # fmt: skip


@pytest.mark.parametrize("chained", [False, True])
def test_only_an_ensemble_with_a_crf_is_bound_to_the_scheme(chained):
    tags = ("B-PER", "I-PER", "O")
    one = np.array([[0.1, 0.2, 0.7], [0.1, 0.6, 0.3]])
    two = np.array([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]])
    rows = [[TagProbs((one,), False), TagProbs((two,), chained)]]
    ((table, probs),) = decode_average(rows, np.array([0.5, 0.5]), [(tags, "IOB2")])
    mean = (one + two) / 2
    start, pairs, end = allowed_transitions(tags, "IOB2")
    paths = [
        path
        for path in product(range(3), repeat=2)
        if not chained or (start[path[0]] and pairs[path] and end[path[1]])
    ]
    best = max(paths, key=lambda path: mean[0, path[0]] + mean[1, path[1]])
    assert tuple(table[:, 0]) == best
    assert (best == (2, 1)) == (not chained)  # O I-PER is no sequence of IOB2
    np.testing.assert_allclose(probs[:, 0], [mean[0, best[0]], mean[1, best[1]]], atol=1e-6)


def test_a_classic_crf_and_a_neural_one_can_be_averaged(root):
    members, whole = join(root, "spans:1", "crf")
    text = "Ada Lee lives in Oslo ."
    columns = [m.engine.distributions([text]).scores[0].scores.columns[0] for m in members]
    assert [column.shape for column in columns] == [(6, 9)] * 2
    (decoded,) = whole.engine.predict([text]).scores
    chosen = [np.mean(columns, axis=0)[t, tag] for t, tag in enumerate(decoded.table[:, 0])]
    np.testing.assert_allclose(decoded.probs[:, 0], chosen, atol=1e-6)


def is_tree(heads):
    for word in range(1, len(heads) + 1):
        seen, at = set(), word
        while at:
            if at in seen:
                return False
            seen.add(at)
            at = heads[at - 1]
    return heads.count(0) == 1


def test_a_parse_is_the_best_tree_under_the_mean_head_probabilities(root):
    members, whole = join(root, "arcs:1", "arcs:2")
    text = "dog sees the bee"
    heads = []
    for member in members:
        ((_, source),) = member.engine.batches([text])
        with torch.no_grad():
            heads.append(member.engine.model(source).arcs.arcs[0].double().softmax(1).numpy())
    mean = np.mean(heads, axis=0)  # (T, S)
    trees = [t for t in product(range(5), repeat=4) if is_tree(t)]
    best = max(trees, key=lambda tree: sum(np.log(mean[t, h]) for t, h in enumerate(tree)))
    (decoded,) = whole.engine.predict([text]).scores
    assert tuple(decoded.table[:, 0]) == best
    arcs = [member.engine.distributions([text]).scores[0].scores for member in members]
    relations = np.mean([one.relations(np.array(best)) for one in arcs], axis=0)
    expected = [mean[t, h] * relations[t].max() for t, h in enumerate(best)]
    np.testing.assert_allclose(decoded.probs[:, 0], expected, atol=1e-6)


def test_an_answer_is_the_best_span_under_the_mean_start_and_end_distributions(root):
    members, whole = join(root, "answers:1", "answers:2")
    question, passage = "Where does Ada live?", "Ben lives in Lima.  Ada lives in Cairo."
    sides = ([], [])
    for member in members:
        example = weft.Example(question, other=passage)
        rows = member.engine.index([example])
        with torch.no_grad():
            output = member.engine.model(rows.padded(np.arange(1)))
        sides[0].append(output.starts[0].double().softmax(0).numpy())
        sides[1].append(output.ends[0].double().softmax(0).numpy())
    starts, ends = (np.mean(side, axis=0)[1:] for side in sides)  # index 0 is "no answer"
    spans = rows.rows[0].spans[rows.rows[0].second :]
    longest = whole.space.longest
    scores = {
        (i, j): starts[i] * ends[j]
        for i in range(len(spans))
        for j in range(i, min(i + longest, len(spans)))
    }
    i, j = max(scores, key=scores.get)
    (answer,) = whole([(question, passage)])
    ((start, end, prob),) = answer.parts
    assert (start, end) == (spans[i][0], spans[j][1])
    assert prob == pytest.approx(scores[i, j] / sum(scores.values()), abs=1e-6)


def test_every_token_of_a_translation_has_the_mean_probability(root):
    members, whole = join(root, "seq2seq:1", "seq2seq:2")
    ((written,),) = generate(whole, ["a b c"], method="greedy", max_length=7)
    states = []
    for member in members:
        ((_, source),) = member.engine.batches(["a b c"])
        with torch.no_grad():
            states.append(member.engine.model.run(source).scores.start())
    head = members[0].engine.model.head
    token = head.bos
    for step in written.tokens:
        probs = []
        for k, member in enumerate(members):
            with torch.no_grad():
                logits, states[k] = member.engine.model.head.decoder.step(
                    torch.tensor([token]), states[k]
                )
            probs.append(logits[0].double().softmax(0))
        mean = sum(probs) / len(probs)  # p̄(y_t) = 1/M Σ p_m(y_t | y_<t, x)
        allowed = mean.clone()
        allowed[head.constraints.forbidden] = 0
        allowed[head.bos] = 0
        assert step.id == int(allowed.argmax())
        assert step.probability == pytest.approx(float(mean[step.id]), abs=1e-6)
        token = step.id


def test_a_beam_searches_the_mean_and_decoders_may_differ(root):
    _members, whole = join(root, "seq2seq:1", "transformer")
    texts = ["a b", "c d e a", "e"]
    written = generate(whole, texts, method="beam", num_beams=3, num_return=2)
    assert [len(own) for own in written] == [2, 2, 2]
    for text, own in zip(texts, written, strict=True):
        alone = generate(whole, [text], method="beam", num_beams=3, num_return=2)[0]
        assert [one.text for one in own] == [one.text for one in alone]
        assert own[0].score == pytest.approx(alone[0].score, abs=1e-5)


def test_a_token_of_a_language_model_has_the_mean_probability(root):
    members, whole = join(root, "lm:1", "lm:2", "gpt")
    text = "the cat sees a dog ."
    by_member = [member([text])[0].scores for member in members]
    (answer,) = whole([text])
    mean = np.mean(by_member, axis=0)
    np.testing.assert_allclose(answer.scores, mean, atol=1e-6)
    assert answer.value == pytest.approx(np.exp(-np.log(mean).mean()), rel=1e-6)  # perplexity
    ((written,),) = generate(whole, ["the cat"], method="greedy", max_length=3)
    prompt = "the cat" + "".join(token.text for token in written.tokens)
    read = [member([prompt])[0].scores for member in members]
    expected = np.mean(read, axis=0)[2 : 2 + len(written.tokens)]
    np.testing.assert_allclose([t.probability for t in written.tokens], expected, atol=1e-5)


def test_a_tree_of_constituents_has_the_highest_mean_score(root):
    members, whole = join(root, "trees:1", "trees:2")
    text = "The dog sees the bee ."
    scores = [m.engine.distributions([text]).scores[0].scores.scores for m in members]
    mean = np.mean(scores, axis=0)  # (N, C)
    (decoded,) = whole.engine.predict([text]).scores
    first, last = np.triu_indices(6)
    index = {(a, b + 1): n for n, (a, b) in enumerate(zip(first, last, strict=True))}

    def total(table):
        return sum(mean[index[a, b], label] for _, label, a, b in table.tolist() if a >= 0)

    for member in members:
        (own,) = member.engine.predict([text]).scores
        assert total(decoded.table) >= total(own.table) - 1e-5


def test_a_node_has_the_mean_label_probabilities(root):
    members, whole = join(root, "nodes:1", "nodes:2")
    tree = ["(4 (2 It) (4 (2 is) (4 fine)))"]
    probs = [member.engine.predict(tree).scores[0].probs for member in members]
    (decoded,) = whole.engine.predict(tree).scores
    np.testing.assert_allclose(decoded.probs, np.mean(probs, axis=0), atol=1e-6)
    assert (decoded.table[:, 0] == decoded.probs.argmax(1)).all()
