"""Fixtures of the whole suite."""

from collections.abc import Iterator

import pytest

from tests.fixtures import processes


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[None]:
    """Fork the workers of comparisons in this module instead of starting Python for each."""
    with processes.forked_workers():
        yield
