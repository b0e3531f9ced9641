"""Fixtures of the whole suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import processes


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[None]:
    """Fork the workers of comparisons in this module instead of starting Python for each."""
    with processes.forked_workers():
        yield


@pytest.fixture(scope="session")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a small two-tower model; tests only read it."""
    from tests.fixtures.pair_runs import train_towers

    folder = tmp_path_factory.mktemp("towers")
    train_towers(folder)
    return folder
