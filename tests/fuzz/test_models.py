"""A small share of the fuzzing of model folders; `python -m tests.fuzz --only model-` does more."""

import os

import pytest

from tests.fuzz import targets
from tests.fuzz.harness import fuzz

INPUTS = int(os.environ.get("WEFT_FUZZ", "160"))  # over these targets
NAMES = ("model-classifier", "model-tfidf", "checkpoint", "sentence-checkpoint")


def test_damaged_model_folders_are_read_or_refused(tmp_path):
    for report in fuzz(NAMES, INPUTS, seed=19, keep=tmp_path):
        assert not report.failures, "\n".join(report.lines())
        assert report.refused > 0
        assert report.inputs == INPUTS // len(NAMES)
        assert report.peak < 200 << 20


@pytest.mark.parametrize("name", [n for n in targets.SOUND if n.startswith("model-")])
def test_every_file_of_a_model_folder_is_damaged(name):
    assert not targets.ALL[name].damage
