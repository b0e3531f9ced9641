"""W5, word2vec: log σ(V'_o·V_i) + Σ_k log σ(−V'_k·V_i), with noise ∝ count^¾ and sub-sampling."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from weft.vectors.kernels.simd import GROUP, LANES, ROWS_PER_REGISTER, SCORES_PER_ROW
from weft.vectors.kernels.word2vec import sgd_step
from weft.vectors.sampling import alias_table, keep

NEGATIVES, RATE = 5, 0.07


def addresses(table):
    return np.array([row.ctypes.data for row in table], np.int64)


@pytest.mark.parametrize("contexts", [1, 3])
def test_a_step_climbs_the_gradient_of_the_slides_objective(contexts):
    """A word with one positive and five negative output vectors; with 3 contexts, 3 such words."""
    random = np.random.default_rng(3)
    width, rows = 2 * LANES, contexts + (-contexts) % ROWS_PER_REGISTER
    V = random.normal(size=(rows, width)).astype(np.float32) * 0.3
    V[contexts:] = 0  # rows that fill a register
    out = random.normal(size=(GROUP, width)).astype(np.float32) * 0.3
    inputs = torch.tensor(V, dtype=torch.float64, requires_grad=True)
    outputs = torch.tensor(out, dtype=torch.float64, requires_grad=True)
    total = 0.0
    for i in range(contexts):
        total = total + F.logsigmoid(outputs[0] @ inputs[i])
        for k in range(1, 1 + NEGATIVES):
            total = total + F.logsigmoid(-outputs[k] @ inputs[i])
    total.backward()
    labels, weights = np.zeros(SCORES_PER_ROW, np.float32), np.zeros(SCORES_PER_ROW, np.float32)
    labels[0], weights[:GROUP] = 1, 1
    gains = np.zeros((rows, SCORES_PER_ROW), np.float32)
    in_rows, out_rows = addresses(V), addresses(out)
    steps = width // LANES
    sgd_step(in_rows, contexts, out_rows, GROUP, labels, weights, gains, steps, np.float32(RATE))
    # The compiled sigmoid is good to 5e-5, times the rate.
    np.testing.assert_allclose(V, (inputs + RATE * inputs.grad).detach(), atol=1e-5)
    np.testing.assert_allclose(out, (outputs + RATE * outputs.grad).detach(), atol=1e-5)
    assert np.abs(RATE * outputs.grad.numpy()).max() > 0.01


def test_noise_words_are_drawn_by_their_counts_to_the_three_quarters():
    counts = np.array([97, 31, 11, 5, 2])
    sure, alias = alias_table(counts, 0.75)
    drawn = np.zeros(len(counts))
    for cell, other in enumerate(alias):  # a cell keeps its word with this probability
        drawn[cell] += sure[cell] / 2**32 / len(counts)
        drawn[other] += (1 - sure[cell] / 2**32) / len(counts)
    expected = counts**0.75 / (counts**0.75).sum()
    np.testing.assert_allclose(drawn, expected, atol=1e-6)


def test_frequent_words_are_subsampled():
    counts, sample = np.array([9000, 900, 90, 10]), 1e-3
    frequency = counts / counts.sum()
    expected = np.minimum(1, np.sqrt(sample / frequency) + sample / frequency)
    np.testing.assert_allclose(keep(counts, sample) / 2**32, expected, atol=1e-6)
