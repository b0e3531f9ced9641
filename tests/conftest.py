"""Fixtures of the whole suite."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import processes


def pytest_collection_finish() -> None:
    """Keep the garbage collector off what was imported: it took 9 % of a run."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    """Fork the processes of comparisons and searches instead of starting Python for each."""
    with processes.forked_workers():
        yield


@pytest.fixture
def spawned_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start Python for each process after all."""
    monkeypatch.setattr("weft.jobs.local.launch", processes.launch)


@pytest.fixture(scope="session")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a small two-tower model; tests only read it."""
    from tests.fixtures.pair_runs import train_towers

    folder = tmp_path_factory.mktemp("towers")
    train_towers(folder)
    return folder


@pytest.fixture
def interpreted_umap(monkeypatch: pytest.MonkeyPatch) -> None:
    """UMAP without its compiler: compiling takes 20 seconds, interpreting a few points 2."""
    numba = pytest.importorskip("numba")
    with monkeypatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", 1)
        pytest.importorskip("umap")
