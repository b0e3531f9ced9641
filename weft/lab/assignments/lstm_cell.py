"""Assignment: a step of an LSTM, forward and backward."""

import numpy as np

from weft.lab.assignments.assignment import Arguments, Assignment, Part

TEXT = r"""
One matrix product gives the input gate $i$, the forget gate $f$, the candidate $g$ and the output
gate $o$, in this order, each of width $H$:

$$[a_i; a_f; a_g; a_o] = W_x x + W_h h + b \qquad i, f, o = \sigma(a) \qquad g = \tanh(a_g)$$
$$c' = f \odot c + i \odot g \qquad h' = o \odot \tanh c'$$

The backward pass gets the gradients of the loss by $h'$ and $c'$. Derive it gate by gate; no
automatic differentiation.
"""


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return σ(x) of an array of any shape; no overflow for values of size 800."""
    return np.exp(-np.logaddexp(0, -x))


def lstm_step(
    x: np.ndarray, h: np.ndarray, c: np.ndarray, w_x: np.ndarray, w_h: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the next h and c (H,).

    `x` (E,), `h` and `c` (H,), `w_x` (4H, E), `w_h` (4H, H), `b` (4H,).
    """
    i, f, g, o = np.split(w_x @ x + w_h @ h + b, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def lstm(xs: np.ndarray, w_x: np.ndarray, w_h: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the states h (T, H) of a sequence `xs` (T, E), from h = c = 0."""
    h = c = np.zeros(len(b) // 4)
    states = []
    for x in xs:
        h, c = lstm_step(x, h, c, w_x, w_h, b)
        states.append(h)
    return np.array(states).reshape(len(xs), len(h))


def lstm_step_backward(
    x: np.ndarray,
    h: np.ndarray,
    c: np.ndarray,
    w_x: np.ndarray,
    w_h: np.ndarray,
    b: np.ndarray,
    by_h: np.ndarray,
    by_c: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of the loss by x, h, c, w_x, w_h and b.

    The first six arguments are those of `lstm_step`; `by_h` and `by_c` (H,) are the gradients of
    the loss by the h and c that it returns.
    """
    a_i, a_f, a_g, a_o = np.split(w_x @ x + w_h @ h + b, 4)
    i, f, g, o = sigmoid(a_i), sigmoid(a_f), np.tanh(a_g), sigmoid(a_o)
    tanh_c = np.tanh(f * c + i * g)
    cell = by_c + by_h * o * (1 - tanh_c**2)
    by_gates = np.concatenate(
        [
            cell * g * i * (1 - i),
            cell * c * f * (1 - f),
            cell * i * (1 - g**2),
            by_h * tanh_c * o * (1 - o),
        ]
    )
    return (
        w_x.T @ by_gates,
        w_h.T @ by_gates,
        cell * f,
        np.outer(by_gates, x),
        np.outer(by_gates, h),
        by_gates,
    )


def _draw_array(rng: np.random.Generator) -> Arguments:
    return [rng.normal(size=tuple(rng.integers(1, 5, 2))) * float(rng.choice([1.0, 300.0]))]


def _draw_weights(rng: np.random.Generator) -> tuple[int, int, Arguments]:
    width, hidden = (int(n) for n in rng.integers(1, 6, 2))
    shapes = ((4 * hidden, width), (4 * hidden, hidden), (4 * hidden,))
    return width, hidden, [rng.normal(size=shape) for shape in shapes]


def _draw_step(rng: np.random.Generator) -> Arguments:
    width, hidden, weights = _draw_weights(rng)
    return [rng.normal(size=width), rng.normal(size=hidden), rng.normal(size=hidden), *weights]


def _draw_backward(rng: np.random.Generator) -> Arguments:
    step = _draw_step(rng)
    return [*step, rng.normal(size=len(step[1])), rng.normal(size=len(step[1]))]


def _draw_sequence(rng: np.random.Generator) -> Arguments:
    width, _, weights = _draw_weights(rng)
    return [rng.normal(size=(int(rng.integers(1, 8)), width)), *weights]


_STEP: Arguments = [
    np.array([1.0, -1.0]), np.array([0.5]), np.array([2.0]),
    np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]]), np.array([[1.0], [0], [1], [0]]),
    np.array([0.0, 1.0, 0.0, 0.0]),
]  # fmt: skip
ASSIGNMENT = Assignment(
    "lstm-cell",
    "The LSTM cell, forward and backward",
    ("000", "001", "002", "003", "004"),
    TEXT,
    (
        Part(sigmoid, 1, _draw_array, ([np.array([0.0, 1.0, -800.0])],)),
        Part(lstm_step, 3, _draw_step, (_STEP,)),
        Part(lstm, 1, _draw_sequence, ([np.array([[1.0, -1.0], [0.0, 2.0]]), *_STEP[3:]],)),
        Part(lstm_step_backward, 5, _draw_backward, ([*_STEP, np.array([1.0]), np.array([0.5])],)),
    ),
)
