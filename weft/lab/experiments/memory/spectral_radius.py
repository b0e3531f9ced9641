"""The recurrent matrix is multiplied once a step, so its spectral radius is raised to a power."""

import torch

from weft.batch import Padded
from weft.encode.rnn import Recurrent
from weft.lab.experiment import Experiment, Means, Table, at

HIDDEN, STEPS = 64, 60
RADII = (0.5, 0.9, 1.1, 1.5)
DISTANCES = (1, 5, 10, 20, 30, 40, 50)


def gradient_by_distance(radius: float, generator: torch.Generator) -> dict[float | str, float]:
    """Return log10 of |∂state_T / ∂state_{T−d}| relative to d = 0, of an Elman network."""
    net = Recurrent(HIDDEN, HIDDEN, cell="rnn", bidirectional=False)
    matrix = torch.randn(HIDDEN, HIDDEN, generator=generator)
    matrix *= radius / torch.linalg.eigvals(matrix).abs().max()
    with torch.no_grad():
        net.net.weight_hh_l0.copy_(matrix)  # type: ignore[operator]
    # Small inputs keep tanh in its linear part, so that only the matrix counts.
    inputs = torch.randn(16, STEPS, HIDDEN, generator=generator) * 1e-12
    source = Padded(inputs, torch.full((16,), STEPS))
    _, taken = net.unroll(source)
    states = taken["layer 1"]
    direction = torch.randn(16, HIDDEN, generator=generator)
    gradients = torch.autograd.grad((states[-1] * direction).sum(), states)
    norms = [float(g.norm()) for g in gradients]
    first = torch.log10(torch.tensor(norms, dtype=torch.float64))
    return {d: float(first[STEPS - 1 - d] - first[-1]) for d in DISTANCES}


def measure(seed: int) -> Table:
    """Return the size of the gradient by distance, for each spectral radius."""
    generator = torch.Generator().manual_seed(seed)
    return {f"radius {radius:g}": gradient_by_distance(radius, generator) for radius in RADII}


def _holds(mean: Means) -> str:
    return (
        f"Over 50 words the gradient shrinks by a factor of 10 to the power "
        f"{-mean('radius 0.5', 50):.0f} if the spectral radius is 0.5, and grows by a factor of "
        f"10 to the power {mean('radius 1.5', 50):.0f} if it is 1.5."
    )


def _fails(mean: Means) -> str:
    return (
        f"Over 50 words the gradient changes by 10 to the power {mean('radius 0.5', 50):.1f} at "
        f"radius 0.5 and {mean('radius 1.5', 50):.1f} at 1.5."
    )


EXPERIMENT = Experiment(
    claim="Gradients vanish where the recurrent matrix has a spectral radius below 1, and explode "
    "above.",
    decks=("000", "001"),
    why="Back-propagation through time multiplies by the recurrent matrix at every step: the "
    "product of d factors grows or shrinks like the largest eigenvalue to the power d.",
    data="Random recurrent matrices of 64 × 64, scaled to a spectral radius, before any training.",
    measure=measure,
    conditions=(
        at("radius 0.5", 50).below(-3),
        at("radius 0.9", 50).below(-1),
        at("radius 1.1", 50).above(1),
        at("radius 1.5", 50).above(3),
    ),
    holds=_holds,
    fails=_fails,
    x="steps back in time",
    y="gradient, as a power of 10",
    limits=(-30, 30),
    seconds=1,
)
