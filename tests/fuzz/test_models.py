"""A small share of the fuzzing of model folders; `python -m tests.fuzz --only model-` does more."""

import os

from tests.fuzz import targets
from tests.fuzz.harness import fuzz

INPUTS = int(os.environ.get("WEFT_FUZZ", "120"))  # over these targets
NAMES = ("model-classifier", "sentence-checkpoint")  # which hold files of every kind


def test_damaged_model_folders_are_read_or_refused(tmp_path):
    assert set(NAMES) <= set(targets.SOUND)
    for report in fuzz(NAMES, INPUTS, seed=19, keep=tmp_path):
        assert not report.failures, "\n".join(report.lines())
        assert report.refused > 0
        assert report.inputs == INPUTS // len(NAMES)
        assert report.peak < 200 << 20
