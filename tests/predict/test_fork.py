"""Forked children of a process that has used a model answer, too."""

import os
import signal
import subprocess
import sys

import pytest

from tests.fixtures.small import SMALL, splits
from weft import config
from weft.run import train

LIMIT = 90  # seconds, after which a child hangs


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_children_answer_as_their_parent_does(tmp_path):
    """A pool, a server of two workers, a DataLoader, and a child that sets its threads."""
    for name in ("bilstm", "transformer"):  # recurrent, and one with threads of its own
        recipe = config.recipe(name).with_values({**SMALL, "train.epochs": 1}, "test")
        train(recipe, tmp_path / name, splits=splits(), quiet=True)
    train(config.recipe("fasttext"), tmp_path / "numba", splits=splits(), quiet=True)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fixtures.forking", *sorted(tmp_path.iterdir())],
        env={**os.environ, "OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the children that hang as well
            stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr[-3000:]
    assert stdout.split() == ["pool", "server", "loader", "threads"]
    assert "TOKENIZERS_PARALLELISM" not in stderr
