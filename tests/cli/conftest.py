"""Runs that the tests of the command line share; nobody writes into them."""

import pytest

from tests.fixtures import small
from tests.fixtures.command import SMALL, ok


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder with train.tsv, and the runs of three recipes trained on it through the command."""
    folder = tmp_path_factory.mktemp("cli")
    data = small.file(folder)
    known = ("--set", "tokenizer.min_count=1", "--set", "train.learning_rate=0.02")
    ok("train", "--recipe", "bag", "--train", data, "-o", folder / "bag", *SMALL, *known)
    ok("train", "--recipe", "tfidf", "--train", data, "-o", folder / "tfidf")
    sizes = ("--set", "embedder.width=7", "--set", "encoder.hidden=5")
    recipe = ("--recipe", "bilstm-attention")
    ok("train", *recipe, "--train", data, "-o", folder / "attention", *sizes, *SMALL)
    return folder
