"""Synthetic pictures of numbers with their words, for models that read vectors.

A picture is a matrix: its pixel columns are the vectors, from left to right.
T columns of a picture   F pixels of a column
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weft.text.write import write_generated

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
HEIGHT = 12  # pixels per column
# Five columns by seven rows each, drawn for this file.
_GLYPHS = (
    ".###. #...# #..## #.#.# ##..# #...# .###.",
    "..#.. .##.. ..#.. ..#.. ..#.. ..#.. .###.",
    ".###. #...# ....# ..##. .#... #.... #####",
    "####. ....# ....# .###. ....# ....# ####.",
    "...#. ..##. .#.#. #..#. ##### ...#. ...#.",
    "##### #.... ####. ....# ....# #...# .###.",
    "..##. .#... #.... ####. #...# #...# .###.",
    "##### ....# ...#. ..#.. ..#.. .#... .#...",
    ".###. #...# #...# .###. #...# #...# .###.",
    ".###. #...# #...# .#### ....# ...#. .##..",
)
SPLITS = {"train": 8000, "dev": 300, "test": 500}


def draw_glyph(digit: int) -> np.ndarray:
    """Return a digit (7, 5), 1 for black and 0 for white."""
    rows = _GLYPHS[digit].split()
    return np.array([[float(sign == "#") for sign in row] for row in rows])


def draw_picture(digits: list[int], draw: np.random.Generator, noise: float = 0.15) -> np.ndarray:
    """Draw digits side by side (T, F), with random size, position and contrast."""
    columns = [np.zeros((HEIGHT, int(draw.integers(0, 4))))]
    for digit in digits:
        scale = draw.uniform(0.8, 1.5, 2)  # of rows and columns
        shape = np.maximum((np.array((7, 5)) * scale).round().astype(int), 4)
        rows, wide = (np.arange(n) * k // n for n, k in zip(shape, (7, 5), strict=True))
        drawn = draw_glyph(digit)[rows][:, wide] * draw.uniform(0.6, 1.0)
        top = int(draw.integers(0, HEIGHT - len(drawn) + 1))
        column = np.zeros((HEIGHT, drawn.shape[1] + int(draw.integers(1, 4))))
        column[top : top + len(drawn), : drawn.shape[1]] = drawn
        columns.append(column)
    whole = np.concatenate(columns, axis=1).T  # (T, F)
    noisy: np.ndarray = whole + draw.normal(0, noise, whole.shape)
    return noisy.astype(np.float32)


def generate_numbers(count: int, seed: int) -> Iterator[tuple[np.ndarray, str]]:
    """Yield pictures of one to five digits with their words, reproducible by seed."""
    draw = np.random.default_rng(seed)
    for _ in range(count):
        digits = draw.integers(0, 10, int(draw.integers(1, 6))).tolist()
        yield draw_picture(digits, draw), " ".join(WORDS[digit] for digit in digits)


def write_digits(folder: Path, splits: dict[str, int] | None = None) -> list[Path]:
    """Write for each split the pictures, NAME.npz, and NAME.jsonl with references and words."""
    files: dict[str, bytes] = {}
    for seed, (name, count) in enumerate((splits or SPLITS).items()):
        pairs = list(generate_numbers(count, seed))
        keys = [f"{i:05d}" for i in range(1, count + 1)]
        pictures = {key: pixels for key, (pixels, _) in zip(keys, pairs, strict=True)}
        packed = io.BytesIO()
        np.savez_compressed(packed, **pictures)  # type: ignore[arg-type]
        rows = [
            json.dumps({"text": f"{name}.npz:{key}", "target": words}) + "\n"
            for key, (_, words) in zip(keys, pairs, strict=True)
        ]
        files |= {f"{name}.npz": packed.getvalue(), f"{name}.jsonl": "".join(rows).encode()}
    return [path for path in write_generated(folder, files) if path.suffix == ".jsonl"]
