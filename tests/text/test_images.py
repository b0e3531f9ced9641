"""Images as patches, and the synthetic scenes that are captioned."""

import numpy as np
import pytest

from weft.errors import UserError
from weft.text.example import Example
from weft.text.formats.features import list_matrices, load_matrix
from weft.text.images import Patches
from weft.text.synthetic.scenes import (
    COLOURS,
    SHAPES,
    draw_shape,
    generate_scenes,
    write_scenes,
)

IMAGE = np.random.default_rng(3).integers(0, 256, (5, 7, 3)).astype(np.uint8)


def test_patches_are_cut_in_reading_order_and_joined_again():
    patches = Patches((5, 7, 3), 2)
    vectors = patches.vectors(IMAGE)
    assert (patches.grid, vectors.shape, patches.width) == ((3, 4), (12, 12), 12)
    padded = np.zeros((6, 8, 3))
    padded[:5, :7] = IMAGE / 255
    for i, vector in enumerate(vectors):
        row, column = 2 * (i // 4), 2 * (i % 4)
        block = padded[row : row + 2, column : column + 2]
        np.testing.assert_allclose(vector, block.ravel(), atol=1e-6)
    np.testing.assert_allclose(patches.join(vectors), IMAGE / 255, atol=1e-6)
    assert patches.names()[:5] == ["1,1", "1,2", "1,3", "1,4", "2,1"]
    floats = IMAGE / 255
    np.testing.assert_allclose(patches.vectors(floats), vectors, atol=1e-6)
    grey = Patches((5, 7, 1), 5)
    assert grey.vectors(IMAGE[:, :, 0]).shape == (2, 25)


@pytest.mark.parametrize(
    ("shape", "size", "message"),
    [((5, 7), 2, "'shape' should be rows"), ((0, 7, 3), 2, "'shape'"), ((5, 7, 9), 2, "channels"),
     ((5000, 7, 3), 2, "1 to 1024"), ((5, 7, 3), 6, "'patch' should be from 1 to 5"),
     ((5, 7, 3), 0, "'patch'")],
)  # fmt: skip
def test_shapes_out_of_range_are_refused(shape, size, message):
    with pytest.raises(UserError, match=message):
        Patches(shape, size)


BAD = {
    "size": (np.zeros((5, 6, 3)), "an image of 5 × 6 pixels, 3 channels; this model reads 5 × 7"),
    "channels": (np.zeros((5, 7, 1)), "1 channel; this model reads"),
    "too many channels": (np.zeros((5, 7, 5)), "1 to 4 channels; found 5 × 7 × 5"),
    "axes": (np.zeros((2, 5, 7, 3)), "three axes, rows, columns and 1 to 4 channels"),
    "one axis": (np.zeros(5), "found 5. Reshape it"),
    "words": (np.full((5, 7, 3), "a"), "holds <U1, not numbers"),
    "objects": (np.full((5, 7, 3), None), "not numbers"),
    "nan": (np.full((5, 7, 3), np.nan), "not finite"),
    "infinite": (np.full((5, 7, 3), np.inf), "not finite"),
    "empty": (np.zeros((0, 7, 3)), "empty image"),
}


@pytest.mark.parametrize("kind", BAD)
def test_arrays_that_are_no_such_image_are_named_with_their_line(kind):
    values, message = BAD[kind]
    with pytest.raises(UserError, match=message) as caught:
        load_matrix(
            Example("", vectors=values, file="a.jsonl", line=3), frontend=Patches((5, 7, 3))
        )
    assert str(caught.value).startswith("a.jsonl:3: ")


def test_files_of_images(tmp_path):
    np.save(tmp_path / "many.npy", np.stack([IMAGE, IMAGE[::-1]]))
    patches = Patches((5, 7, 3), 2)
    listed = list(list_matrices(tmp_path / "many.npy"))
    assert [one.text for one in listed] == ["many.npy:0", "many.npy:1"]
    found = load_matrix(listed[1], frontend=patches)
    np.testing.assert_allclose(patches.join(found), IMAGE[::-1] / 255, atol=1e-6)
    file = str(tmp_path / "a.jsonl")
    faults = {
        "many.npy:2": "matrices 0 to 1", "no.npz:1": "no.npz", "many.npy": "three axes",
        "a.wav": "this model reads images",
    }  # fmt: skip
    for text, message in faults.items():
        with pytest.raises(UserError, match=message):
            load_matrix(Example(text, file=file, line=1), frontend=patches)
    with pytest.raises(UserError, match="--recipe caption"):
        load_matrix(Example("many.npy:0", file=file, line=1))


def test_captions_say_what_is_drawn():
    scenes = list(generate_scenes(60, 5))
    assert {len(scene.objects) for scene in scenes} == {1, 2, 3}
    for scene in scenes:
        covered = sum(one.pixels.astype(int) for one in scene.objects)
        assert covered.max() == 1  # nothing overlaps
        words = scene.caption.split()
        for word, number in zip(words, scene.word_objects, strict=True):
            if number >= 0:
                one = scene.objects[number]
                assert word in ("a", one.size, one.colour, one.shape)
        first = scene.objects[0]
        down, right = (axis.mean() for axis in np.nonzero(first.pixels))
        relations = scene.caption.replace(" of", "").replace(" and", "").split(" a ")
        for said, other in zip(relations[:-1], scene.objects[1:], strict=True):
            rows, columns = (axis.mean() for axis in np.nonzero(other.pixels))
            truth = {"above": down < rows, "below": down > rows, "left": right < columns,
                     "right": right > columns}  # fmt: skip
            assert truth[said.split()[-1]], scene.caption
            inside = np.abs(scene.image[other.pixels] - np.array(COLOURS[other.colour])).mean()
            assert inside < 60
    assert len({draw_shape(shape, 16, 16, 6).tobytes() for shape in SHAPES}) == len(SHAPES)


def test_scenes_are_written_and_the_same_each_time(tmp_path):
    (path,) = write_scenes(tmp_path / "a", {"train": 7})
    write_scenes(tmp_path / "b", {"train": 7})
    assert path.read_bytes() == (tmp_path / "b" / "train.jsonl").read_bytes()
    assert len(list(list_matrices(tmp_path / "a" / "train.npz"))) == 7
