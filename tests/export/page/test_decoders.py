"""Viterbi, trees and answer spans of a page are those of Python."""

from pathlib import Path

import numpy as np

from tests.fixtures import node
from weft.decode.heads.cky import best_tree, span_count
from weft.decode.heads.mst import projective_tree, spanning_tree
from weft.export.runtime.outputs import decode_spans
from weft.export.runtime.tags import CRFTables, marginals, viterbi

HERE = Path(__file__).parent


def as_json(scores):
    """An array as lists, with None for -inf."""
    return [as_json(row) for row in scores] if np.ndim(scores) else (
        None if np.isneginf(scores) else float(scores)
    )  # fmt: skip


def head_cases(rng):
    for size in (1, 2, 3, 5, 7, 11, 13):
        for sparse in (0.0, 0.3):
            scores = rng.normal(size=(size, size + 1))
            scores[rng.random(scores.shape) < sparse] = -np.inf
            solvers = {"tree": spanning_tree, "projective": projective_tree}
            for search, solve in solvers.items():
                yield {"scores": as_json(scores), "search": search, "heads": solve(scores).tolist()}


def bracket_cases(rng):
    for size in (1, 2, 3, 5, 7, 11):
        scores = rng.normal(size=span_count(size))
        order = [(i, j + 1) for i in range(size) for j in range(i, size)]
        spans = [order[k] for k in best_tree(scores, size)]
        yield {"scores": scores.tolist(), "size": size, "spans": spans}


def chain_cases(rng):
    for steps in (1, 2, 5, 11):
        logits = rng.normal(size=(1, steps, 7)).astype(np.float32)
        table = CRFTables(*(rng.normal(size=s).astype(np.float32) for s in ((7, 7), 7, 7)))
        table.transitions[rng.random((7, 7)) < 0.2] = -np.inf
        lengths = np.array([steps])
        yield {
            "logits": logits[0].tolist(),
            "chain": {
                name: as_json(getattr(table, name)) for name in ("start", "end", "transitions")
            },
            "path": viterbi(logits, table, lengths)[0].tolist(),
            "probs": marginals(logits, table, lengths)[0].tolist(),
        }


def span_cases(rng):
    for steps in (1, 5, 13):
        scores = rng.normal(size=(2, 1, steps + 1)).astype(np.float32)
        outputs = {"starts": scores[0], "ends": scores[1]}
        (best,) = decode_spans(outputs, np.array([steps]), {}, {"longest": 3})
        yield {"starts": scores[0, 0].tolist(), "ends": scores[1, 0].tolist(), "longest": 3,
               "best": best}  # fmt: skip


@node.needs_node
def test_decoders_agree_on_random_scores(tmp_path):
    rng = np.random.default_rng(5)
    makers = {
        "heads": head_cases, "brackets": bracket_cases, "chains": chain_cases, "spans": span_cases,
    }  # fmt: skip
    cases = {name: list(make(rng)) for name, make in makers.items()}
    node.run_tests(HERE / "decoders.test.mjs", cases, tmp_path)
