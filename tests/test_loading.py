"""weft.load takes checkpoints in the Hugging Face layout as they are, as --pretrained does."""

import numpy as np
import pytest

import weft
from tests.fixtures.checkpoints import LABELS, TEXTS, checkpoint
from tests.fixtures.command import ok
from weft.errors import UserError
from weft.run.convert import convert


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A checkpoint with a classifier, and the model folder that `weft convert` makes of it."""
    place = tmp_path_factory.mktemp("bert")
    checkpoint(place / "theirs", "bert", "ForSequenceClassification", **LABELS)
    convert(str(place / "theirs"), place / "ours")
    return place


def test_a_checkpoint_answers_as_its_converted_model_does(folders):
    direct, converted = weft.load(folders / "theirs", device="cpu"), weft.load(folders / "ours")
    assert [a.value for a in direct(TEXTS)] == [a.value for a in converted(TEXTS)]
    assert [a.score for a in direct(TEXTS)] == [a.score for a in converted(TEXTS)]
    np.testing.assert_array_equal(direct.embed(TEXTS), converted.embed(TEXTS))


def test_nothing_is_written_beside_the_checkpoint(folders):
    before = sorted((folders / "theirs").iterdir())
    weft.load(folders / "theirs", device="cpu")
    assert sorted((folders / "theirs").iterdir()) == before


def test_the_command_line_takes_it(folders):
    done = ok("predict", folders / "theirs", TEXTS[0])
    assert done.out.split()[0] in ("cold", "warm", "hot")


def test_a_folder_that_is_neither_is_named(tmp_path):
    with pytest.raises(UserError, match=r"not a model folder \(no model\.json"):
        weft.load(tmp_path)


def test_a_damaged_checkpoint_is_one_line(folders, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', "utf-8")
    with pytest.raises(UserError, match=str(tmp_path)):
        weft.load(tmp_path)
