"""Synthetic scenes with captions: shapes, colours, sizes and relations, drawn as pixels.

The large object comes first; how it lies to each small one follows, the small ones from left to
right: "a large red circle above a small blue square and left of a small green ring".
"""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.text.write import write_generated

SIDE = 32  # pixels
COLOURS = {
    "red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 80, 230),
    "yellow": (230, 210, 50), "purple": (160, 60, 190), "white": (235, 235, 235),
}  # fmt: skip
SHAPES = ("circle", "square", "triangle", "cross", "ring")
RADII = {"large": (6, 7), "small": (3, 3)}  # pixels from the centre to the edge, from and to
MIN_GAP = 2  # pixels between two objects
MIN_LEAD = 4  # pixels by which a distance must be larger than another to decide
OBJECTS = (0.2, 0.4, 0.4)  # shares of scenes with one, two and three objects
NOISE = 12.0  # deviation of pixel values
SPLITS = {"train": 8000, "dev": 300, "test": 500}


@dataclass(frozen=True)
class SceneObject:
    """An object of a scene; `pixels` (H, W) are those it covers."""

    size: str
    colour: str
    shape: str
    row: int
    column: int
    radius: int
    pixels: np.ndarray

    @property
    def words(self) -> str:
        return f"a {self.size} {self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """An image (H, W, 3) of 8-bit colours, its objects in the order of the caption, the caption."""

    image: np.ndarray
    objects: tuple[SceneObject, ...]
    caption: str

    @property
    def word_objects(self) -> list[int]:
        """The number of the object that each word of the caption describes; -1 of other words."""
        out: list[int] = []
        current = -1
        for word in self.caption.split():
            if word == "a":
                current = max(out, default=-1) + 1
            elif word not in RADII and word not in COLOURS and word not in SHAPES:
                out.append(-1)
                continue
            out.append(current)
        return out


def draw_shape(shape: str, row: int, column: int, radius: int) -> np.ndarray:
    """Return the pixels (H, W) that a shape covers."""
    down, right = (np.arange(SIDE)[:, None] - row), (np.arange(SIDE)[None, :] - column)
    distance = np.hypot(down, right)
    high, wide = np.abs(down), np.abs(right)
    thick = max(1, radius // 3)
    box = np.maximum(high, wide) <= radius
    covered: np.ndarray = {
        "circle": distance <= radius + 0.3,
        "square": np.maximum(high, wide) <= round(radius * 0.85),
        "triangle": box & (2 * wide <= down + radius),
        "cross": box & (np.minimum(high, wide) < thick),
        "ring": (distance <= radius + 0.3) & (distance > radius * 0.6),
    }[shape]
    return covered


def relation(first: SceneObject, second: SceneObject) -> str:
    """Return how the first object lies to the second, along the axis of the larger distance."""
    down, right = second.row - first.row, second.column - first.column
    if abs(down) > abs(right):
        return "above" if down > 0 else "below"
    return "left of" if right > 0 else "right of"


def generate_scenes(count: int, seed: int) -> Iterator[Scene]:
    """Yield scenes of one to three objects, reproducible by seed."""
    draw = np.random.default_rng(seed)
    for _ in range(count):
        objects: list[SceneObject] | None = None
        number = int(draw.choice(len(OBJECTS), p=OBJECTS)) + 1
        while objects is None:  # until the objects fit
            objects = _place_objects(number, draw)
        yield Scene(_draw_image(objects, draw), tuple(objects), _describe(objects))


def _place_objects(number: int, draw: np.random.Generator) -> list[SceneObject] | None:
    """Return objects that do not touch and whose relations are clear; None if they do not fit."""
    sizes = ["large", "small", "small"][:number] if number > 1 else [str(draw.choice(list(RADII)))]
    objects: list[SceneObject] = []
    for size in sizes:
        radius = int(draw.integers(RADII[size][0], RADII[size][1] + 1))
        row, column = draw.integers(radius, SIDE - radius, 2).tolist()
        colour, shape = str(draw.choice(list(COLOURS))), str(draw.choice(SHAPES))
        pixels = draw_shape(shape, row, column, radius)
        objects.append(SceneObject(size, colour, shape, row, column, radius, pixels))
    for i, one in enumerate(objects):
        for other in objects[:i]:
            apart = (abs(one.row - other.row), abs(one.column - other.column))
            if max(apart) < one.radius + other.radius + MIN_GAP:
                return None
            if i < 2 or other is objects[0]:
                unclear = abs(apart[0] - apart[1]) < MIN_LEAD
            else:
                unclear = apart[1] < MIN_LEAD  # the small ones, from left to right
            if unclear:
                return None
    return [objects[0], *sorted(objects[1:], key=lambda one: one.column)]


def _draw_image(objects: list[SceneObject], draw: np.random.Generator) -> np.ndarray:
    image = draw.normal(25, NOISE, (SIDE, SIDE, 3))
    for one in objects:
        shade = draw.uniform(0.8, 1.05)
        colour = np.array(COLOURS[one.colour]) * shade
        image[one.pixels] = colour + draw.normal(0, NOISE, (int(one.pixels.sum()), 3))
    return image.clip(0, 255).astype(np.uint8)


def _describe(objects: list[SceneObject]) -> str:
    first, others = objects[0], objects[1:]
    parts = [f"{relation(first, other)} {other.words}" for other in others]
    return " ".join([first.words, " and ".join(parts)]).strip()


def write_scenes(folder: Path, splits: dict[str, int] | None = None) -> list[Path]:
    """Write for each split the images, NAME.npz, and NAME.jsonl with references and captions."""
    files: dict[str, bytes] = {}
    for seed, (name, count) in enumerate((splits or SPLITS).items()):
        packed, rows, images = io.BytesIO(), [], {}
        for i, scene in enumerate(generate_scenes(count, seed), 1):
            images[f"{i:05d}"] = scene.image
            row = {"text": f"{name}.npz:{i:05d}", "target": scene.caption}
            rows.append(json.dumps(row) + "\n")
        np.savez_compressed(packed, **images)  # type: ignore[arg-type]
        files |= {f"{name}.npz": packed.getvalue(), f"{name}.jsonl": "".join(rows).encode()}
    return [path for path in write_generated(folder, files) if path.suffix == ".jsonl"]
